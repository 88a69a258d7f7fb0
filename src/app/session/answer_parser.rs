//! Parses the user's answers, which depend on the stage of the work.

use super::core::Session;
use super::outcome::{Answer, Consult, ConsultMode, SessionEvent, all_hold, failed};
use super::setup::SessionError;
use super::{claims, experts, finding, need, questions};
use crate::foundation::base::{Digest, limits};
use crate::governance::mood;
use crate::governance::statechart::hope::{Engagement, Event};

/// Stages that ask for agreement or changes.
const AGREED: [&str; 4] = ["echo_check", "show_blueprint", "show_risks", "shape_approval"];

impl Session {
    /// Applies the user's answer. An invalid one leaves the session unchanged and handed off.
    ///
    /// # Errors
    /// If no answer is expected, or the answer is not valid at this stage.
    pub fn answer(&mut self, text: &str) -> Result<(), SessionError> {
        match self.parse_answer(text) {
            Ok((answer, event, moods)) => self.note(&SessionEvent::Answered { answer, event }, &moods),
            Err(refused) => {
                self.hand_off()?;
                Err(refused)
            }
        }
    }

    /// Parses an answer to an event of the chart and events of the mood.
    fn parse_answer(&self, text: &str) -> Result<(Answer, Event, Vec<mood::MoodEvent>), SessionError> {
        let stage = self.state.stage(&self.chart);
        if text.len() > limits::SESSION_TEXT_BYTES_MAX {
            let most = limits::SESSION_TEXT_BYTES_MAX;
            return Err(SessionError::Message(format!("an answer has at most {most} bytes (SESSION_TEXT_BYTES_MAX)")));
        }
        let is_over = self.state.is_over();
        if !is_over && !self.state.is_open() {
            let why =
                "no answer is expected yet, because the work was interrupted: continue it with `loom session resume`";
            return Err(SessionError::Message(why.to_owned()));
        }
        let asks_engagement = self.state.facts.engagement.is_none();
        let understood = match () {
            () if is_over => self.parse_after_end(text)?,
            () if asks_engagement => engagement(text),
            () => self.parse_at_stage(&stage, text)?,
        };
        let Some((answer, event)) = understood else {
            let hint = match () {
                () if is_over => "NEW: the next need",
                () if asks_engagement => "AUTONOMOUS, COLLABORATIVE or GUIDED",
                () => expected(&stage),
            };
            return Err(SessionError::Message(format!("`{text}` is not a valid answer at this stage: answer {hint}")));
        };
        let moods = self.mood_events(&stage, &answer, event)?;
        Ok((answer, event, moods))
    }

    /// After the end only a new need is accepted.
    fn parse_after_end(&self, text: &str) -> Result<Option<(Answer, Event)>, SessionError> {
        let (word, rest) = split_word(text);
        if word != "new" || rest.is_empty() {
            return Ok(None);
        }
        self.check_scope(rest)?;
        Ok(Some((Answer::Need(self.keep(rest)?), Event::NewWork)))
    }

    fn parse_at_stage(&self, stage: &str, text: &str) -> Result<Option<(Answer, Event)>, SessionError> {
        let (word, rest) = split_word(text);
        let words = |event| -> Result<_, SessionError> {
            let answer = if rest.is_empty() { Answer::Plain } else { Answer::Words(self.keep(rest)?) };
            Ok(Some((answer, event)))
        };
        let (verb, whom) = word.split_once(' ').unwrap_or((&word, ""));
        Ok(match (stage, word.as_str()) {
            (_, "cancel") => Some((Answer::Plain, Event::Cancel)),
            ("paused", "resume") => Some((Answer::Plain, Event::Resume)),
            (_, "wrong") if !rest.is_empty() => {
                self.check_scope(rest)?;
                Some((Answer::Need(self.keep(rest)?), Event::IntentWithdrawn))
            }
            ("paused", _) => None,
            (_, "pause") => Some((Answer::Plain, Event::Pause)),
            (_, "idk" | "i don't know" | "i do not know" | "stuck") => Some((Answer::Plain, Event::Stalled)),
            (_, _) if verb == "consult" || verb == "unblock" => {
                let mode = match (verb, whom) {
                    ("unblock", _) => ConsultMode::Unblock,
                    (_, "") => ConsultMode::Panel,
                    _ => ConsultMode::Single,
                };
                let expert = (mode == ConsultMode::Single).then(|| whom.to_owned());
                if expert.as_ref().is_some_and(|name| experts::named(name).is_none()) {
                    let known = experts::names().join(", ");
                    return Err(SessionError::Message(format!("there is no expert `{whom}`: choose one of {known}")));
                }
                let words = if rest.is_empty() { None } else { Some(self.keep(rest)?) };
                Some((Answer::Consult(Consult { mode, expert, words }), Event::Consult))
            }
            ("clarify", _) => {
                let asked: Vec<_> = questions::open_questions(&self.state.work.plan)
                    .iter()
                    .map(questions::PlanQuestion::choices)
                    .collect();
                let choices = choices(text, &asked).map_err(SessionError::Message)?;
                choices.map(|choices| (Answer::Choices(choices), Event::Answered))
            }
            ("review_feedback", "satisfied" | "yes") => {
                self.check_verified()?;
                Some((Answer::Plain, Event::Satisfied))
            }
            ("review_feedback", "promote") => {
                self.check_verified()?;
                finding::of(&self.state.work).may_be_asserted().map_err(SessionError::Message)?;
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

    /// A need that a session cannot investigate is refused.
    fn check_scope(&self, need: &str) -> Result<(), SessionError> {
        need::check_scope(need, &self.settings.stated_plan()).map_err(SessionError::Message)
    }

    /// Work is accepted only if the verification passes on the files as they are.
    fn check_verified(&self) -> Result<(), SessionError> {
        let checks = self.verify();
        if all_hold(&checks) {
            return Ok(());
        }
        let why = failed(&checks);
        Err(SessionError::Message(format!(
            "the verification does not pass: {why}; answer NEW: what to run again, or CANCEL; or put the files back as they were"
        )))
    }

    /// The mood events of an answer: a preference sets a drive, "I don't know" is an ambiguity.
    fn mood_events(&self, stage: &str, answer: &Answer, event: Event) -> Result<Vec<mood::MoodEvent>, SessionError> {
        if event == Event::Stalled {
            return Ok(vec![mood::MoodEvent::Ambiguous]);
        }
        let said = match answer {
            Answer::Words(digest) => self.text_of(*digest).unwrap_or_default(),
            Answer::Choices(choices) => claims::chosen(&self.state.work.plan, choices),
            _ => return Ok(Vec::new()),
        };
        self.drive(stage, &said)
    }

    fn keep(&self, text: &str) -> Result<Digest, SessionError> {
        self.contents.put(text.as_bytes()).map_err(SessionError::io("keep a text in", &self.folder))
    }
}

/// Splits an answer into its keyword, in lower case, and the text after the colon.
fn split_word(text: &str) -> (String, &str) {
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

/// Parses `1A, 2B` into the choice of each question. `None` is the recommended choice: of questions without an answer,
/// and of all with `default`. `asked` has the number of choices of each question. An invalid choice is an error; a text
/// that is not a list of choices gives `None`.
fn choices(text: &str, asked: &[usize]) -> Result<Option<Vec<Option<usize>>>, String> {
    let mut choices = vec![None; asked.len()];
    if text.trim().eq_ignore_ascii_case("default") {
        return Ok(Some(choices));
    }
    let mut parts = text.split([',', ' ']).filter(|part| !part.is_empty()).peekable();
    if parts.peek().is_none() {
        return Ok(None);
    }
    for part in parts {
        let mut letters = part.chars();
        let letter = letters.next_back().map(|letter| letter.to_ascii_uppercase()).filter(char::is_ascii_uppercase);
        let (Some(letter), Ok(number)) = (letter, letters.as_str().parse::<usize>()) else { return Ok(None) };
        let choice = (letter as u8 - b'A') as usize;
        let question = number.checked_sub(1).and_then(|index| asked.get(index).zip(choices.get_mut(index)));
        let Some((&count, chosen)) = question else {
            return Err(format!("there is no question {number}: use 1 to {}", asked.len()));
        };
        if choice >= count {
            let last = ('A'..='Z').nth(count.saturating_sub(1)).unwrap_or('A');
            return Err(format!("question {number} has no choice {letter}: use A to {last}"));
        }
        if chosen.replace(choice).is_some() {
            return Err(format!("question {number} has two answers: give one"));
        }
    }
    Ok(Some(choices))
}

fn expected(stage: &str) -> &'static str {
    match stage {
        "clarify" => {
            "for example `1A, 2B` (others take the recommended choice), `default` (all recommended choices), or IDK"
        }
        "echo_check" => "YES, EDITS: changes, BLUEPRINT (shows the steps) or RISK (shows the risks)",
        "show_blueprint" | "show_risks" => "YES, or EDITS: changes",
        "shape_approval" => "YES, EDITS: changes, or CANCEL",
        "review_feedback" => "SATISFIED, PROMOTE, or NEW: the next need",
        "paused" => "RESUME, CANCEL, or WRONG: the corrected need",
        _ => "CANCEL or PAUSE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_validated() {
        let check = |text: &str, expected: Option<[Option<usize>; 3]>| {
            assert_eq!(choices(text, &[4, 4, 2]), Ok(expected.map(Vec::from)), "{text}");
        };
        check("1A, 2c", Some([Some(0), Some(2), None]));
        check("3b 1a", Some([Some(0), None, Some(1)]));
        check("Default", Some([None; 3]));
        check("2A", Some([None, Some(0), None]));
        check("", None);
        check("A", None);
        check("maybe", None);
        check("1ä", None);
        let refused = |text: &str, why: &str| assert_eq!(choices(text, &[4, 4, 2]), Err(why.to_owned()), "{text}");
        refused("1Z", "question 1 has no choice Z: use A to D");
        refused("3C", "question 3 has no choice C: use A to B");
        refused("9A", "there is no question 9: use 1 to 3");
        refused("0A", "there is no question 0: use 1 to 3");
        refused("1A, 1B", "question 1 has two answers: give one");
    }

    #[test]
    fn an_answer_is_split_at_its_colon() {
        assert_eq!(split_word(" Edits : no jargon: none "), ("edits".to_owned(), "no jargon: none"));
        assert_eq!(split_word("I don\u{2019}t know"), ("i don't know".to_owned(), ""));
    }
}
