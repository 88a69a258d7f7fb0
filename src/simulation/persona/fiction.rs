//! Rewrites config texts that speak about the simulation, so that prompts never break the fiction: "the persona" becomes
//! the persona's name, "the interlocutor" the other person. A sentence about the simulation itself is rewritten if it
//! describes the persona ("The simulation should reflect someone who is scared."), otherwise it is omitted.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use unicode_segmentation::UnicodeSegmentation as _;

use super::PersonaConfig;
use super::prompt::{DroppedItem, PromptSection};
use super::wording::one_line;

/// The reason recorded for omitted sentences.
const REASON: &str = "it speaks about the simulation, not about the persona";

macro_rules! pattern {
    ($source:expr) => {
        LazyLock::new(|| match Regex::new($source) {
            Ok(regex) => regex,
            Err(error) => unreachable!("a pattern of this file does not compile: {error}"),
        })
    };
}

static META: LazyLock<Regex> =
    pattern!(r"(?i)\b(persona|interlocutor|simulation|rollout|role-?play|scenario|config|configuration|experiment)\b");
static OWNER: LazyLock<Regex> = pattern!(r"(?i)\b(the|this) persona(['\u{2019}]s)?\b");
static OTHER: LazyLock<Regex> = pattern!(r"(?i)\b(the )?interlocutor\b");
static SUBJECT: LazyLock<Regex> =
    pattern!(r"(?i)^(the|this|our) (\w+ )?(simulation|rollout|role-?play|scenario|config|configuration|experiment)\b");
static SOMEONE: LazyLock<Regex> =
    pattern!(r"(?i)\b(?:should|must|needs to) (?:reflect|show|portray|depict|represent) (someone who\b.*)$");

/// The config with its texts in the fiction, and the omitted sentences. `first_name` replaces "the persona".
pub(super) fn in_fiction(config: &PersonaConfig, first_name: &str) -> (PersonaConfig, Vec<DroppedItem>) {
    let mut config = config.clone();
    let mut omitted = Vec::new();
    let mut rewrite = |text: &mut String, section: PromptSection| {
        if let Some(rewritten) = rewritten(text, first_name, section, &mut omitted) {
            *text = rewritten;
        }
    };
    let persona = &mut config.persona;
    rewrite(&mut persona.background, PromptSection::Context);
    for text in [&mut persona.backstory, &mut persona.knowledge_ceiling].into_iter().flatten() {
        rewrite(text, PromptSection::Context);
    }
    let how = [
        &mut persona.vocabulary_level,
        &mut persona.reasoning_style,
        &mut persona.cognitive_style,
        &mut persona.recovery_behavior,
    ];
    how.into_iter().flatten().for_each(|text| rewrite(text, PromptSection::How));
    persona.speech_patterns.iter_mut().for_each(|text| rewrite(text, PromptSection::How));
    persona.emotional_responses.iter_mut().for_each(|(_, text)| rewrite(text, PromptSection::How));
    let safety = &mut config.safety;
    safety.forbidden_content.iter_mut().for_each(|text| rewrite(text, PromptSection::MustDo));
    if let Some(text) = &mut safety.escalation_policy {
        rewrite(text, PromptSection::MustDo);
    }
    if let Some(text) = &mut safety.persona_note {
        rewrite(text, PromptSection::Context);
    }
    for phase in &mut config.trajectory.phases {
        phase.requirements.iter_mut().for_each(|text| rewrite(text, PromptSection::MustDo));
        phase.forbidden.iter_mut().for_each(|text| rewrite(text, PromptSection::MustDo));
    }
    for dimension in &mut config.trajectory.dimensions {
        rewrite(&mut dimension.description, PromptSection::MustDo);
        dimension.levels.values_mut().for_each(|text| rewrite(text, PromptSection::MustDo));
    }
    for redirect in &mut config.interaction.anti_capitulation.redirects {
        rewrite(&mut redirect.trigger, PromptSection::MustDo);
        rewrite(&mut redirect.replacement, PromptSection::MustDo);
    }
    // What is omitted entirely is not left as an empty item.
    config.persona.speech_patterns.retain(|text| !text.is_empty());
    config.safety.forbidden_content.retain(|text| !text.is_empty());
    for text in [&mut config.safety.escalation_policy, &mut config.safety.persona_note] {
        *text = text.take().filter(|text| !text.is_empty());
    }
    for phase in &mut config.trajectory.phases {
        phase.requirements.retain(|text| !text.is_empty());
        phase.forbidden.retain(|text| !text.is_empty());
    }
    (config, omitted)
}

/// The text in the fiction; `None` if it needs no change.
fn rewritten(text: &str, name: &str, section: PromptSection, omitted: &mut Vec<DroppedItem>) -> Option<String> {
    if !META.is_match(text) {
        return None;
    }
    let mut sentences = Vec::new();
    for sentence in one_line(text).unicode_sentences().map(str::trim).filter(|sentence| !sentence.is_empty()) {
        if SUBJECT.is_match(sentence) {
            match SOMEONE.captures(sentence).and_then(|found| found.get(1)) {
                Some(who) => sentences.push(format!("{name} is {}", who.as_str())),
                None => omitted.push(DroppedItem { section, item: sentence.to_owned(), reason: REASON.to_owned() }),
            }
            continue;
        }
        let sentence = OWNER.replace_all(sentence, |found: &Captures<'_>| {
            format!("{name}{}", found.get(2).map_or("", |suffix| suffix.as_str()))
        });
        let sentence = OTHER.replace_all(&sentence, |found: &Captures<'_>| {
            let starts = found.get(0).is_some_and(|whole| whole.start() == 0 && whole.as_str().starts_with(['T', 'I']));
            if starts { "The other person" } else { "the other person" }
        });
        sentences.push(sentence.into_owned());
    }
    Some(sentences.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str, dropped: &[&str]) {
        let mut omitted = Vec::new();
        let found = rewritten(text, "Marcus", PromptSection::Context, &mut omitted);
        assert_eq!(found.as_deref().unwrap_or(text), expected);
        assert_eq!(omitted.iter().map(|item| item.item.as_str()).collect::<Vec<_>>(), dropped);
    }

    #[test]
    fn texts_about_the_simulation_become_texts_about_the_person() {
        check(
            "If the persona reaches its limit and the interlocutor pushes, the persona should withdraw.",
            "If Marcus reaches its limit and the other person pushes, Marcus should withdraw.",
            &[],
        );
        check(
            "His distress is genuine. The simulation should reflect someone who is scared, not someone who threatens.",
            "His distress is genuine. Marcus is someone who is scared, not someone who threatens.",
            &[],
        );
        check(
            "The rollout ends after fifty turns. He is tired.",
            "He is tired.",
            &["The rollout ends after fifty turns."],
        );
        check("Interlocutor is kind", "The other person is kind", &[]);
        check("The persona\u{2019}s cat sleeps.", "Marcus\u{2019}s cat sleeps.", &[]);
    }

    #[test]
    fn other_texts_are_unchanged() {
        let text = "Two lines\nof a  background.";
        check(text, text, &[]);
        check("Her personal scenery changed.", "Her personal scenery changed.", &[]);
    }
}
