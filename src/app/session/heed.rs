//! What a user's answer means at the stage that the work is in.

use super::core::Session;
use super::outcome::{Answer, Consult, Happened, Mode};
use super::place::SessionError;
use super::{claims, experts, finding, questions};
use crate::foundation::base::{Digest, limits};
use crate::governance::mood;
use crate::governance::statechart::hope::{Engagement, Event};

/// Stages at which the user agrees, or says what to change.
const AGREED: [&str; 4] = ["echo_check", "show_blueprint", "show_risks", "shape_approval"];

impl Session {
    /// Takes the user's answer. One that cannot be given here leaves the session as it was, handed over.
    ///
    /// # Errors
    /// When nothing was asked, or the answer is none that can be given here.
    pub fn answer(&mut self, text: &str) -> Result<(), SessionError> {
        match self.heard(text) {
            Ok((answer, event, moods)) => self.note(&Happened::Answered { answer, event }, &moods),
            Err(refused) => {
                self.hand_off()?;
                Err(refused)
            }
        }
    }

    /// What the user's answer says, to the chart and to the mood.
    fn heard(&self, text: &str) -> Result<(Answer, Event, Vec<mood::Event>), SessionError> {
        let stage = self.course.stage(&self.chart);
        if text.len() > limits::SESSION_TEXT_BYTES_MAX {
            let most = limits::SESSION_TEXT_BYTES_MAX;
            return Err(SessionError::Told(format!("an answer has at most {most} bytes (SESSION_TEXT_BYTES_MAX)")));
        }
        let over = self.course.is_over();
        if !over && !self.course.is_open() {
            let why = "nothing is asked yet, the work was interrupted: go on with `loom session resume`";
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
        Ok((answer, event, moods))
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
            (_, "wrong") if !rest.is_empty() => Some((Answer::Need(self.keep(rest)?), Event::IntentWithdrawn)),
            ("paused", _) => None,
            (_, "pause") => Some((Answer::Plain, Event::Pause)),
            (_, "idk" | "i don't know" | "i do not know" | "stuck") => Some((Answer::Plain, Event::Stalled)),
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
            ("clarify", _) => {
                let asked: Vec<_> =
                    questions::open_questions(&self.course.work.plan).iter().map(questions::Asked::choices).collect();
                let choices = choices(text, &asked).map_err(SessionError::Told)?;
                choices.map(|choices| (Answer::Choices(choices), Event::Answered))
            }
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

/// `1A, 2B` as the choice of each question; `None` is the recommended one, which a question that is left out has, and every
/// question after `default`. `asked` has how many choices each question has. What names no choice of theirs is an error,
/// what names none at all is no answer.
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
            return Err(format!("there is no question {number}: they are 1 to {}", asked.len()));
        };
        if choice >= count {
            let last = ('A'..='Z').nth(count.saturating_sub(1)).unwrap_or('A');
            return Err(format!("question {number} has no choice {letter}: they are A to {last}"));
        }
        if chosen.replace(choice).is_some() {
            return Err(format!("question {number} is answered twice: choose one"));
        }
    }
    Ok(Some(choices))
}

fn expected(stage: &str) -> &'static str {
    match stage {
        "clarify" => "like `1A, 2B` (what is left out takes the recommended choice), or `default`, or IDK",
        "echo_check" => "YES, EDITS: what to change, BLUEPRINT or RISK",
        "show_blueprint" | "show_risks" => "YES, or EDITS: what to change",
        "shape_approval" => "YES, EDITS: what to change, or CANCEL",
        "review_feedback" => "SATISFIED, PROMOTE, or NEW: what else to do",
        "paused" => "RESUME, CANCEL, or WRONG: what is wanted",
        _ => "CANCEL or PAUSE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_one_of_its_question() {
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
        refused("1Z", "question 1 has no choice Z: they are A to D");
        refused("3C", "question 3 has no choice C: they are A to B");
        refused("9A", "there is no question 9: they are 1 to 3");
        refused("0A", "there is no question 0: they are 1 to 3");
        refused("1A, 1B", "question 1 is answered twice: choose one");
    }

    #[test]
    fn an_answer_has_a_word_and_what_it_is_about() {
        assert_eq!(parted(" Edits : no jargon: none "), ("edits".to_owned(), "no jargon: none"));
        assert_eq!(parted("I don\u{2019}t know"), ("i don't know".to_owned(), ""));
    }
}
