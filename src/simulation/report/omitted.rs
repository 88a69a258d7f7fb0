//! Sentences left out of the persona's prompts because the full prompt exceeds the model's prompt budget.

use super::data::{OmittedSentence, PromptRow};
use super::load::LoadedRollout;
use crate::simulation::persona::{DroppedItem, InjectionKind, PromptSection, Speaker};
use crate::simulation::rollout::Turn;

/// The omitted sentences over all turns with a full prompt.
pub(super) fn prompts(loaded: &[LoadedRollout]) -> PromptRow {
    let turns = loaded.iter().flat_map(|loaded| &loaded.transcript.turns);
    // When the persona's window is trimmed, its model gets the instructions again.
    let trimmed = |turn: &Turn| turn.slides.iter().any(|slide| slide.speaker == Speaker::Persona);
    let given = || turns.clone().filter(|turn| turn.prompt.injection != InjectionKind::None || trimmed(turn));
    let mut left_out: Vec<OmittedSentence> = Vec::new();
    for turn in given() {
        let mut here: Vec<&DroppedItem> = Vec::new();
        // Reminders are not part of the full prompt.
        for dropped in turn.prompt.dropped.iter().filter(|dropped| dropped.section != PromptSection::Reminder) {
            // Count a sentence that occurs twice once.
            if here.iter().any(|other| (other.section, &other.item) == (dropped.section, &dropped.item)) {
                continue;
            }
            here.push(dropped);
            let same = |row: &&mut OmittedSentence| (row.section, &row.item) == (dropped.section, &dropped.item);
            match left_out.iter_mut().find(same) {
                Some(row) => row.prompts += 1,
                None => {
                    left_out.push(OmittedSentence { section: dropped.section, item: dropped.item.clone(), prompts: 1 });
                }
            }
        }
    }
    left_out.sort_by_key(|row| std::cmp::Reverse(row.prompts));
    PromptRow { given: given().count(), left_out }
}

/// The notice about omitted sentences; `None` if nothing was left out.
pub(super) fn notice(prompts: &PromptRow) -> Option<String> {
    let items = prompts.left_out.len();
    let always = prompts.left_out.iter().filter(|row| row.prompts == prompts.given).count();
    let what = if items == 1 { "sentence of it was" } else { "sentences of it were" };
    (items > 0).then(|| {
        format!(
            "The persona's prompt exceeds its model's prompt budget: {items} {what} left out, {always} of them every time. \
             The model cannot follow instructions that it did not get."
        )
    })
}

/// The name of a prompt section in reports.
pub(super) const fn section(part: PromptSection) -> &'static str {
    match part {
        PromptSection::MustDo => "must do",
        PromptSection::How => "how",
        PromptSection::Context => "context",
        PromptSection::Reminder => "reminder",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::judge::measured::tests::transcript;

    /// A rollout of three turns; the first two have a full prompt without these sentences.
    fn rollout(dropped: [&[&str]; 2]) -> LoadedRollout {
        let mut transcript = transcript(&[("One.", "Yes?"), ("Two.", "Yes?"), ("Three.", "Yes?")]);
        for (turn, items) in transcript.turns.iter_mut().zip(dropped) {
            turn.prompt.injection = InjectionKind::Full;
            let dropped = |item: &&str| DroppedItem {
                section: PromptSection::How,
                item: (*item).to_owned(),
                reason: String::new(),
            };
            turn.prompt.dropped = items.iter().map(dropped).collect();
        }
        LoadedRollout {
            file: "rollout_000.json".into(),
            transcript,
            partial: false,
            tokens: Vec::new(),
            tokens_missing: None,
        }
    }

    #[test]
    fn omitted_sentences_are_counted_over_the_prompts() {
        let prompts = prompts(&[rollout([&["I joke.", "I hum.", "I hum."], &["I hum."]]), rollout([&[], &["I hum."]])]);
        let rows: Vec<(&str, usize)> = prompts.left_out.iter().map(|row| (row.item.as_str(), row.prompts)).collect();
        assert_eq!((prompts.given, rows), (4, vec![("I hum.", 3), ("I joke.", 1)]));
        let text = notice(&prompts).unwrap();
        assert!(text.contains("2 sentences of it were left out, 0 of them every time"), "{text}");
    }

    #[test]
    fn a_prompt_within_the_budget_has_no_notice() {
        assert_eq!(notice(&prompts(&[rollout([&[], &[]])])), None);
    }
}
