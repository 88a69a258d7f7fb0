//! What the persona's model was not told, because the whole prompt is longer than the model's prompt budget.

use super::data::{LeftOut, PromptRow};
use super::load::Loaded;
use crate::simulation::persona::{Dropped, InjectionKind, Part, Speaker};
use crate::simulation::rollout::Turn;

/// Over all turns that gave the whole prompt.
pub(super) fn prompts(loaded: &[Loaded]) -> PromptRow {
    let turns = loaded.iter().flat_map(|loaded| &loaded.transcript.turns);
    // When its window slides the persona's model is given the whole prompt anew.
    let anew = |turn: &Turn| turn.slides.iter().any(|slide| slide.speaker == Speaker::Persona);
    let given = || turns.clone().filter(|turn| turn.prompt.injection == InjectionKind::Full || anew(turn));
    let mut left_out: Vec<LeftOut> = Vec::new();
    for turn in given() {
        let mut here: Vec<&Dropped> = Vec::new();
        // The reminder is no sentence of the whole prompt.
        for dropped in turn.prompt.dropped.iter().filter(|dropped| dropped.section != Part::Reminder) {
            // A sentence that a persona holds twice is missing once.
            if here.iter().any(|other| (other.section, &other.item) == (dropped.section, &dropped.item)) {
                continue;
            }
            here.push(dropped);
            let same = |row: &&mut LeftOut| (row.section, &row.item) == (dropped.section, &dropped.item);
            match left_out.iter_mut().find(same) {
                Some(row) => row.prompts += 1,
                None => left_out.push(LeftOut { section: dropped.section, item: dropped.item.clone(), prompts: 1 }),
            }
        }
    }
    left_out.sort_by_key(|row| std::cmp::Reverse(row.prompts));
    PromptRow { given: given().count(), left_out }
}

/// The sentence that a reader needs before the figures; nothing where nothing was left out.
pub(super) fn notice(prompts: &PromptRow) -> Option<String> {
    let items = prompts.left_out.len();
    let always = prompts.left_out.iter().filter(|row| row.prompts == prompts.given).count();
    let what = if items == 1 { "sentence of it was" } else { "sentences of it were" };
    (items > 0).then(|| {
        format!(
            "The persona's prompt is longer than its model can take: {items} {what} left out, {always} of them every time. \
             What the model was not told, it cannot keep to."
        )
    })
}

/// A section of the prompt, as people say it.
pub(super) const fn section(part: Part) -> &'static str {
    match part {
        Part::MustDo => "must do",
        Part::How => "how",
        Part::Context => "context",
        Part::Reminder => "reminder",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::judge::measured::tests::transcript;

    /// A rollout of three turns, of which the first two give the whole prompt, without these sentences each.
    fn rollout(dropped: [&[&str]; 2]) -> Loaded {
        let mut transcript = transcript(&[("One.", "Yes?"), ("Two.", "Yes?"), ("Three.", "Yes?")]);
        for (turn, items) in transcript.turns.iter_mut().zip(dropped) {
            turn.prompt.injection = InjectionKind::Full;
            let dropped = |item: &&str| Dropped { section: Part::How, item: (*item).to_owned(), reason: String::new() };
            turn.prompt.dropped = items.iter().map(dropped).collect();
        }
        Loaded { file: "rollout_000.json".into(), transcript, partial: false, tokens: Vec::new(), tokens_missing: None }
    }

    #[test]
    fn what_a_model_was_not_told_is_counted_over_the_prompts() {
        let prompts = prompts(&[rollout([&["I joke.", "I hum.", "I hum."], &["I hum."]]), rollout([&[], &["I hum."]])]);
        let rows: Vec<(&str, usize)> = prompts.left_out.iter().map(|row| (row.item.as_str(), row.prompts)).collect();
        assert_eq!((prompts.given, rows), (4, vec![("I hum.", 3), ("I joke.", 1)]));
        let told = notice(&prompts).unwrap();
        assert!(told.contains("2 sentences of it were left out, 0 of them every time"), "{told}");
    }

    #[test]
    fn a_prompt_that_fits_needs_no_word() {
        assert_eq!(notice(&prompts(&[rollout([&[], &[]])])), None);
    }
}
