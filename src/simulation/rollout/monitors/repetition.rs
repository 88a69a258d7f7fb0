//! The repetition monitor: banned texts in a draft, and structural habits over consecutive messages.
//!
//! Phrases match case-folded and at word boundaries ([`contains_phrase`]); regular expressions are applied to the text both
//! as it is and with typographic characters replaced.

use super::{Draft, Monitor, MonitorFinding};
use crate::foundation::text::{contains_phrase, ends_with_question, fold, straighten};
use crate::simulation::persona::{Pattern, PersonaConfig, Repetition, StructuralPattern};

pub(super) const NAME: &str = "repetition";

/// Fires at this many consecutive messages that end with a question.
const QUESTIONS_IN_A_ROW: u32 = 4;
/// Fires at this many consecutive messages that give thanks.
const THANKS_IN_A_ROW: u32 = 3;

/// Expressions of thanks, case-folded.
const THANKS: [&str; 9] = [
    "thank you",
    "thanks",
    "i appreciate",
    "i really appreciate",
    "i do appreciate",
    "appreciate it",
    "appreciate that",
    "i'm grateful",
    "i am grateful",
];

/// The repetition monitor.
#[derive(Debug, Clone)]
struct RepetitionMonitor {
    settings: Repetition,
    /// Each phrase as configured, and case-folded.
    forbidden: Vec<(String, String)>,
    /// Consecutive accepted messages that ended with a question.
    questions: u32,
    /// Consecutive accepted messages that gave thanks.
    thanks: u32,
}

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    let interaction = &config?.interaction;
    let settings = interaction.repetition.clone()?;
    let forbidden = interaction.anti_capitulation.forbidden_phrases.iter();
    let forbidden = forbidden.map(|phrase| (phrase.clone(), fold(phrase))).collect();
    Some(Box::new(RepetitionMonitor { settings, forbidden, questions: 0, thanks: 0 }))
}

impl Monitor for RepetitionMonitor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, &Draft { text: draft, .. }: &Draft<'_>) -> Vec<MonitorFinding> {
        let folded = fold(draft);
        let banned = self.settings.banned.iter().filter_map(|pattern| {
            let found = find(pattern, draft)?;
            let detail = match pattern {
                Pattern::Phrase(_) => format!("says “{found}”, which is banned"),
                Pattern::Regex(regex) => format!("says “{found}”, which the banned pattern `{regex}` matches"),
            };
            let instruction =
                format!("Do not say “{found}” or anything built the same way. Begin differently, in your own words.");
            Some(finding("banned", detail, None, instruction))
        });
        let forbidden =
            self.forbidden.iter().filter(|(_, phrase)| contains_phrase(&folded, phrase)).map(|(phrase, _)| {
                finding(
                    "forbidden_phrase",
                    format!("says “{phrase}”, which this persona must never say"),
                    None,
                    format!(
                        "Do not say “{phrase}”, and do not give in by other words either. Hold on to what you believe."
                    ),
                )
            });
        let structural = self.settings.structural.iter().filter_map(|&habit| self.habit(habit, draft, &folded));
        banned.chain(forbidden).chain(structural).collect()
    }

    fn accept_persona(&mut self, text: &str) {
        self.questions = if ends_with_question(text) { self.questions + 1 } else { 0 };
        self.thanks = if gives_thanks(&fold(text)) { self.thanks + 1 } else { 0 };
    }

    fn retries_max(&self) -> usize {
        self.settings.max_retries
    }

    fn boxed(&self) -> Box<dyn Monitor> {
        Box::new(self.clone())
    }
}

impl RepetitionMonitor {
    fn habit(&self, habit: StructuralPattern, draft: &str, folded: &str) -> Option<MonitorFinding> {
        let (rule, shows, before, limit, what, instruction) = match habit {
            StructuralPattern::EndsWithQuestionToInterlocutor => (
                "ends_with_question_to_interlocutor",
                ends_with_question(draft),
                self.questions,
                QUESTIONS_IN_A_ROW,
                "end with a question",
                "Do not end with a question this time. End with a statement: something you know, want, or will do.",
            ),
            StructuralPattern::GratitudeLoop => (
                "gratitude_loop",
                gives_thanks(folded),
                self.thanks,
                THANKS_IN_A_ROW,
                "give thanks",
                "Do not thank the other person and do not say that you appreciate anything. Say what is on your mind.",
            ),
        };
        let streak = before + 1;
        (shows && streak >= limit).then(|| {
            let measured = Some((f64::from(streak), f64::from(limit)));
            finding(rule, format!("{streak} messages in a row {what}"), measured, instruction.to_owned())
        })
    }
}

/// The part of the draft that the pattern matches.
fn find(pattern: &Pattern, draft: &str) -> Option<String> {
    match pattern {
        Pattern::Phrase(phrase) => pattern.is_match(draft).then(|| phrase.clone()),
        Pattern::Regex(regex) => [draft, &*straighten(draft)]
            .into_iter()
            .find_map(|text| regex.find(text))
            .map(|found| found.as_str().to_owned()),
    }
}

fn gives_thanks(folded: &str) -> bool {
    THANKS.iter().any(|phrase| contains_phrase(folded, phrase))
}

fn finding(rule: &str, detail: String, measured: Option<(f64, f64)>, instruction: String) -> MonitorFinding {
    let (value, threshold) = measured.unzip();
    MonitorFinding { monitor: NAME.to_owned(), rule: rule.to_owned(), detail, value, threshold, instruction }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thanks_come_in_several_words() {
        let check = |text: &str, thanks: bool| assert_eq!(gives_thanks(&fold(text)), thanks, "{text:?}");
        check("Thanks. That helps.", true);
        check("I\u{2019}m grateful for you.", true);
        check("I really appreciate this", true);
        check("The thankless job", false);
        check("Prices appreciate over time.", false);
    }
}
