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
        for dropped in &turn.prompt.dropped {
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
