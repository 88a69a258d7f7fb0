//! Tasks: items with known right answers, read from JSON lines or tab-separated pairs.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::foundation::base::Digest;
use crate::foundation::base::limits::TASK_BYTES_MAX;
use crate::foundation::chat::Message;
use crate::foundation::store::read_text;
use crate::foundation::text::words;
use crate::governance::regulator::AnswerKind;

/// The built-in tasks, by name.
pub const BUILT_IN: [(&str, &str); 1] = [("grammar", include_str!("../../../configs/tasks/grammar.tsv"))];

/// The user message before a sentence of a minimal pair, which either sentence could answer.
const SENTENCE: &str = "Please say one sentence.";

/// Items with known answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its name: of the built-in task, or of the file.
    pub name: String,
    /// The distinct items, in the file's order.
    pub items: Vec<TaskItem>,
}

/// One item.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskItem {
    /// The digest of its content.
    pub id: Digest,
    /// The question with its right answer.
    pub question: Question,
}

impl TaskItem {
    /// Whether it is excluded from every fit: half of all items are, those with an even digest.
    pub fn held_out(&self) -> bool {
        self.id.as_bytes().first().is_some_and(|byte| byte % 2 == 0)
    }
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// Choice among candidates: the model's choice is the most likely one.
    Choose {
        /// The conversation before the answer.
        prompt: Vec<Message>,
        /// The candidates.
        candidates: Vec<String>,
        /// Index of the right one.
        right: usize,
        /// How likelihoods are compared.
        by: Likelihood,
    },
    /// Free answer.
    Answer {
        /// The conversation before the answer.
        prompt: Vec<Message>,
        /// Answers known to be right.
        references: Vec<String>,
        /// When an answer matches one of them.
        matching: AnswerMatching,
    },
}

/// How the likelihoods of candidates are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likelihood {
    /// Of the whole candidate: for candidates of similar length.
    Whole,
    /// Per token: for candidates of different lengths.
    PerToken,
}

/// When an answer matches a reference. Case and punctuation are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerMatching {
    /// All words are equal.
    Exact,
    /// At least half of the words are shared (F1 over words, Rajpurkar et al. 2016).
    Fuzzy,
}

impl AnswerMatching {
    /// Whether `answer` matches `reference`.
    pub fn holds(self, answer: &str, reference: &str) -> bool {
        let (answer, reference) = (words(answer), words(reference));
        match self {
            Self::Exact => answer == reference,
            Self::Fuzzy => {
                let mut left = reference.clone();
                let shared = answer
                    .iter()
                    .filter(|word| {
                        left.iter().position(|other| other == *word).map(|at| left.swap_remove(at)).is_some()
                    })
                    .count();
                // F1 = 2·shared / (sum of lengths) ≥ ½.
                shared > 0 && 4 * shared >= answer.len() + reference.len()
            }
        }
    }
}

/// A task that cannot be read. Every message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// It cannot be read.
    #[error("{path}: {why}; name a file, or one of the built-in tasks: {built_in}", built_in = BUILT_IN.map(|(name, _)| name).join(", "))]
    Read {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// A line is not an item.
    #[error("{name}, line {line}: {why}")]
    Line {
        /// The file or task.
        name: String,
        /// From 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// It has no items.
    #[error("{0} has no items: write one per line (docs/REGULATOR.md)")]
    Empty(String),
}

impl Task {
    /// Opens the built-in task of that name, or the file.
    ///
    /// # Errors
    /// See [`TaskError`].
    pub fn open(name: &str) -> Result<Self, TaskError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text);
        }
        let unread = |why: String| TaskError::Read { path: name.to_owned(), why };
        let text = read_text(Path::new(name), TASK_BYTES_MAX).map_err(|error| unread(error.to_string()))?;
        let stem =
            Path::new(name).file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
        Self::parse(&stem, &text)
    }

    /// How its items are answered; free if any of them is.
    pub fn answers(&self) -> AnswerKind {
        let free = |item: &TaskItem| matches!(item.question, Question::Answer { .. });
        if self.items.iter().any(free) { AnswerKind::Free } else { AnswerKind::Choice }
    }

    /// Parses a task: one item per line; empty lines and lines that begin with `#` are ignored, and duplicates are dropped.
    ///
    /// # Errors
    /// [`TaskError::Line`] or [`TaskError::Empty`].
    pub fn parse(name: &str, text: &str) -> Result<Self, TaskError> {
        let mut items: Vec<TaskItem> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let row = row(line).map_err(|why| TaskError::Line { name: name.to_owned(), line: number, why })?;
            let question =
                row.question().map_err(|why| TaskError::Line { name: name.to_owned(), line: number, why })?;
            let id = Digest::of(format!("{question:?}"));
            if seen.insert(id) {
                items.push(TaskItem { id, question });
            }
        }
        if items.is_empty() {
            Err(TaskError::Empty(name.to_owned()))
        } else {
            Ok(Self { name: name.to_owned(), items })
        }
    }
}

/// A line in one of the four formats.
enum Row {
    Pair { good: String, bad: String },
    Statement { statement: String, label: bool },
    Choice { question: String, choices: Vec<String>, answer: usize },
    Free { question: String, answers: Vec<String>, matching: AnswerMatching },
}

fn row(line: &str) -> Result<Row, String> {
    if !line.starts_with('{') {
        let (good, bad) =
            line.split_once('\t').ok_or("a JSON object is needed, or two sentences with a tab between")?;
        return Ok(Row::Pair { good: good.trim().to_owned(), bad: bad.trim().to_owned() });
    }
    let value: Value = serde_json::from_str(line).map_err(|error| format!("this is not valid JSON ({error})"))?;
    let text = |field: &str| {
        let found = value.get(field).and_then(Value::as_str);
        found.map(str::to_owned).ok_or_else(|| format!("`{field}` must be a text"))
    };
    let texts = |field: &str| {
        let found = value.get(field).and_then(Value::as_array);
        let found: Option<Vec<String>> =
            found.and_then(|list| list.iter().map(|v| v.as_str().map(str::to_owned)).collect());
        found.ok_or_else(|| format!("`{field}` must be a list of texts"))
    };
    if value.get("sentence_good").is_some() {
        return Ok(Row::Pair { good: text("sentence_good")?, bad: text("sentence_bad")? });
    }
    if value.get("statement").is_some() {
        let label = match value.get("label").or_else(|| value.get("match")) {
            Some(Value::Bool(label)) => *label,
            Some(Value::String(label)) if label.trim().eq_ignore_ascii_case("yes") => true,
            Some(Value::String(label)) if label.trim().eq_ignore_ascii_case("no") => false,
            _ => return Err("`label` must be true or false, or `match` \"Yes\" or \"No\"".to_owned()),
        };
        return Ok(Row::Statement { statement: text("statement")?, label });
    }
    if value.get("choices").is_some() {
        let answer = value
            .get("answer")
            .and_then(Value::as_u64)
            .ok_or("`answer` must be the number of the right choice, from 0")?;
        return Ok(Row::Choice { question: text("question")?, choices: texts("choices")?, answer: answer as usize });
    }
    if value.get("answers").is_some() {
        let matching = value.get("matching").map_or(Ok(AnswerMatching::Exact), |matching| {
            AnswerMatching::deserialize(matching).map_err(|_| "`matching` must be \"exact\" or \"fuzzy\"".to_owned())
        })?;
        return Ok(Row::Free { question: text("question")?, answers: texts("answers")?, matching });
    }
    Err("an item has `sentence_good` and `sentence_bad`, `statement` and `label`, `question`, `choices` and `answer`, or \
         `question` and `answers`"
        .to_owned())
}

impl Row {
    fn question(self) -> Result<Question, String> {
        Ok(match self {
            Self::Pair { good, bad } if good == bad => return Err("both sentences are the same".to_owned()),
            Self::Pair { good, bad } => Question::Choose {
                prompt: vec![Message::user(SENTENCE)],
                candidates: vec![good, bad],
                right: 0,
                by: Likelihood::Whole,
            },
            Self::Statement { statement, label } => Question::Choose {
                prompt: vec![Message::user(format!("Is it true that: {statement} Answer yes or no."))],
                candidates: vec!["Yes".to_owned(), "No".to_owned()],
                right: usize::from(!label),
                by: Likelihood::Whole,
            },
            Self::Choice { choices, answer, .. } if answer >= choices.len() || choices.len() < 2 => {
                return Err(format!("`answer` is {answer} of {} choices; from 0, and of at least two", choices.len()));
            }
            Self::Choice { question, choices, answer } => Question::Choose {
                prompt: vec![Message::user(question)],
                candidates: choices,
                right: answer,
                by: Likelihood::PerToken,
            },
            Self::Free { answers, .. } if answers.is_empty() => return Err("`answers` is empty".to_owned()),
            Self::Free { question, answers, matching } => {
                Question::Answer { prompt: vec![Message::user(question)], references: answers, matching }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Result<usize, &str>) {
        let found = Task::parse("t", line).map(|task| match &task.items[0].question {
            Question::Choose { right, .. } => *right,
            Question::Answer { references, .. } => references.len(),
        });
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{line}"),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{line}: {error}"),
            (found, _) => panic!("{line}: {found:?}"),
        }
    }

    #[test]
    fn every_item_format_is_read_and_errors_name_the_line() {
        check("The dog barks.\tThe dog bark.", Ok(0));
        check(r#"{"sentence_good": "He eats.", "sentence_bad": "He eat.", "UID": "x"}"#, Ok(0));
        check(r#"{"statement": "Snow is black.", "label": false}"#, Ok(1));
        check(r#"{"statement": "I help.", "match": "Yes"}"#, Ok(0));
        check(r#"{"question": "2+2?", "choices": ["3", "4", "5"], "answer": 1}"#, Ok(1));
        check(r#"{"question": "2+2?", "answers": ["4", "four"], "matching": "fuzzy"}"#, Ok(2));
        check("one sentence", Err("line 1: a JSON object is needed"));
        check(r#"{"question": "2+2?", "choices": ["4"], "answer": 1}"#, Err("of at least two"));
        check(r#"{"statement": "x", "label": "maybe"}"#, Err("true or false"));
        check(r#"{"q": 1}"#, Err("an item has"));
        check("# nothing\n", Err("has no items"));
        check("a\ta", Err("both sentences are the same"));
    }

    #[test]
    fn matching_compares_words_without_punctuation() {
        assert!(AnswerMatching::Exact.holds("  Paris. ", "paris"));
        assert!(!AnswerMatching::Exact.holds("It is Paris", "Paris"));
        assert!(AnswerMatching::Fuzzy.holds("It is Paris", "Paris"));
        assert!(!AnswerMatching::Fuzzy.holds("I would say that it may be Paris", "Paris"));
        assert!(!AnswerMatching::Fuzzy.holds("", "") && !AnswerMatching::Fuzzy.holds("Rome", "Paris"));
    }

    #[test]
    fn the_built_in_tasks_are_valid_and_about_half_is_held_out() {
        for (name, text) in BUILT_IN {
            let task = Task::open(name).unwrap();
            let rows = text.lines().filter(|line| !line.starts_with('#')).count();
            assert_eq!(task.items.len(), rows, "{name}: an item occurs twice");
            let held_out = task.items.iter().filter(|item| item.held_out()).count();
            assert!((9 * rows..11 * rows).contains(&(20 * held_out)), "{name}: {held_out} of {rows}");
        }
        assert!(Task::open("nowhere.jsonl").unwrap_err().to_string().contains("grammar"));
    }
}
