//! What a user's answer means at the stage that the work is in.

use super::drive::Session;
use super::outcome::{Answer, Consult, Happened, Mode};
use super::place::SessionError;
use super::{claims, experts, finding};
use crate::foundation::base::{Digest, limits};
use crate::governance::mood;
use crate::governance::statechart::hope::{Engagement, Event};

/// Stages at which the user agrees, or says what to change.
const AGREED: [&str; 4] = ["echo_check", "show_blueprint", "show_risks", "shape_approval"];

impl Session {
    /// Takes the user's answer.
    ///
    /// # Errors
    /// When nothing was asked, or the answer is none that can be given here.
    pub fn answer(&mut self, text: &str) -> Result<(), SessionError> {
        let stage = self.course.stage(&self.chart);
        if text.len() > limits::SESSION_TEXT_BYTES_MAX {
            let most = limits::SESSION_TEXT_BYTES_MAX;
            return Err(SessionError::Told(format!("an answer has at most {most} bytes (SESSION_TEXT_BYTES_MAX)")));
        }
        let over = self.course.is_over();
        if !over && !self.course.is_open() {
            let why = "the session asked nothing: `loom session status` says where it stands";
            return Err(SessionError::Told(why.to_owned()));
        }
        let asks_engagement = self.course.facts.engagement.is_none();
        let understood = match () {
            () if over => self.after_the_end(text)?,
            () if asks_engagement => engagement(text),
            () => self.understand(&stage, text)?,
        };
        let Some((answer, event)) = understood else {
            let hint = match () {
                () if over => "NEW: what else is wanted",
                () if asks_engagement => "AUTONOMOUS, COLLABORATIVE or GUIDED",
                () => expected(&stage),
            };
            return Err(SessionError::Told(format!("I do not understand `{text}` here: answer {hint}")));
        };
        let moods = self.wanted(&stage, &answer, event)?;
        self.note(&Happened::Answered { answer, event }, &moods)
    }

    /// After the end more can be asked for, and nothing else.
    fn after_the_end(&self, text: &str) -> Result<Option<(Answer, Event)>, SessionError> {
        let (word, rest) = parted(text);
        if word != "new" || rest.is_empty() {
            return Ok(None);
        }
        Ok(Some((Answer::Need(self.keep(rest)?), Event::NewWork)))
    }

    fn understand(&self, stage: &str, text: &str) -> Result<Option<(Answer, Event)>, SessionError> {
        let (word, rest) = parted(text);
        let words = |event| -> Result<_, SessionError> {
            let answer = if rest.is_empty() { Answer::Plain } else { Answer::Words(self.keep(rest)?) };
            Ok(Some((answer, event)))
        };
        let (verb, whom) = word.split_once(' ').unwrap_or((&word, ""));
        Ok(match (stage, word.as_str()) {
            (_, "cancel") => Some((Answer::Plain, Event::Cancel)),
            ("paused", "resume") => Some((Answer::Plain, Event::Resume)),
            ("paused", _) => None,
            (_, "pause") => Some((Answer::Plain, Event::Pause)),
            (_, "idk" | "i don't know" | "i do not know" | "stuck") => Some((Answer::Plain, Event::Stalled)),
            (_, "wrong") if !rest.is_empty() => Some((Answer::Need(self.keep(rest)?), Event::IntentWithdrawn)),
            (_, _) if verb == "consult" || verb == "unblock" => {
                let mode = match (verb, whom) {
                    ("unblock", _) => Mode::Unblock,
                    (_, "") => Mode::Panel,
                    _ => Mode::Single,
                };
                let expert = (mode == Mode::Single).then(|| whom.to_owned());
                if expert.as_ref().is_some_and(|name| experts::named(name).is_none()) {
                    let known = experts::names().join(", ");
                    return Err(SessionError::Told(format!("there is no expert `{whom}`: ask one of {known}")));
                }
                let words = if rest.is_empty() { None } else { Some(self.keep(rest)?) };
                Some((Answer::Consult(Consult { mode, expert, words }), Event::Consult))
            }
            ("clarify", _) => choices(text).map(|choices| (Answer::Choices(choices), Event::Answered)),
            ("review_feedback", "satisfied" | "yes") => Some((Answer::Plain, Event::Satisfied)),
            ("review_feedback", "promote") => {
                finding::of(&self.course.work).may_be_asserted().map_err(SessionError::Told)?;
                Some((Answer::Promote, Event::Satisfied))
            }
            ("review_feedback", "new") => words(Event::NewWork)?,
            (stage, "yes") if AGREED.contains(&stage) => Some((Answer::Plain, Event::Yes)),
            (stage, "edits" | "edit") if AGREED.contains(&stage) => words(Event::Edits)?,
            ("echo_check", "blueprint") => Some((Answer::Plain, Event::Blueprint)),
            ("echo_check", "risk") => Some((Answer::Plain, Event::Risk)),
            _ => None,
        })
    }

    /// What an answer means for the mood: a preference is a drive, and not to know is an ambiguity.
    fn wanted(&self, stage: &str, answer: &Answer, event: Event) -> Result<Vec<mood::Event>, SessionError> {
        if event == Event::Stalled {
            return Ok(vec![mood::Event::Ambiguous]);
        }
        let said = match answer {
            Answer::Words(digest) => self.text_of(*digest).unwrap_or_default(),
            Answer::Choices(choices) => claims::chosen(&self.course.work.plan, choices),
            _ => return Ok(Vec::new()),
        };
        self.drive(stage, &said)
    }

    fn keep(&self, text: &str) -> Result<Digest, SessionError> {
        self.contents.put(text.as_bytes()).map_err(SessionError::io("keep a text in", &self.folder))
    }
}

/// The word of an answer, folded, and what stands behind its colon.
fn parted(text: &str) -> (String, &str) {
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    (word.trim().to_lowercase().replace('\u{2019}', "'"), rest.trim())
}

fn engagement(text: &str) -> Option<(Answer, Event)> {
    let engagement = match text.trim().to_lowercase().as_str() {
        "autonomous" => Engagement::Autonomous,
        "collaborative" => Engagement::Collaborative,
        "guided" => Engagement::Guided,
        _ => return None,
    };
    Some((Answer::Engagement(engagement), Event::EngagementChosen))
}

/// `1A, 2B` as choices in the order of the questions; one that is left out, or `default`, is the recommended choice.
fn choices(text: &str) -> Option<Vec<usize>> {
    if text.trim().eq_ignore_ascii_case("default") {
        return Some(Vec::new());
    }
    let mut choices: Vec<usize> = Vec::new();
    for (index, part) in text.split(',').map(str::trim).enumerate() {
        let (number, letter) = part.split_at_checked(part.len().checked_sub(1)?)?;
        let letter = letter.chars().next()?.to_ascii_uppercase();
        if number.parse() != Ok(index + 1) || !letter.is_ascii_uppercase() {
            return None;
        }
        choices.push((letter as u8 - b'A') as usize);
    }
    (!choices.is_empty()).then_some(choices)
}

fn expected(stage: &str) -> &'static str {
    match stage {
        "clarify" => "like `1A, 2B`, in the order of the questions, or `default`, or IDK",
        "echo_check" => "YES, EDITS: what to change, BLUEPRINT or RISK",
        "show_blueprint" | "show_risks" => "YES, or EDITS: what to change",
        "shape_approval" => "YES, EDITS: what to change, or CANCEL",
        "review_feedback" => "SATISFIED, PROMOTE, or NEW: what else to do",
        "paused" => "RESUME or CANCEL",
        _ => "CANCEL or PAUSE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_stand_in_the_order_of_the_questions() {
        let check = |text: &str, expected: Option<Vec<usize>>| assert_eq!(choices(text), expected, "{text}");
        check("1A, 2c", Some(vec![0, 2]));
        check("Default", Some(Vec::new()));
        check("2A", None);
        check("", None);
        check("A", None);
        check("1A 2B", None);
    }

    #[test]
    fn an_answer_has_a_word_and_what_it_is_about() {
        assert_eq!(parted(" Edits : no jargon: none "), ("edits".to_owned(), "no jargon: none"));
        assert_eq!(parted("I don\u{2019}t know"), ("i don't know".to_owned(), ""));
    }
}
