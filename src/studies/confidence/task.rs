//! Tasks: items with known right answers, read from JSON lines, tab-separated pairs or the files of published data sets.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::protocol::Protocol;
use super::published;
use super::question::{Likelihood, Question};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::TASK_BYTES_MAX;
use crate::foundation::chat::Message;
use crate::foundation::store::read_text;
use crate::governance::regulator::AnswerKind;

/// The built-in tasks, by name.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("grammar", include_str!("../../../configs/tasks/grammar.tsv")),
    ("closed_facts", include_str!("../../../configs/tasks/closed_facts.jsonl")),
    ("closed_facts_free", include_str!("../../../configs/tasks/closed_facts_free.jsonl")),
    ("sums", include_str!("../../../configs/tasks/sums.jsonl")),
];

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
    /// A line or an entry is not an item.
    #[error("{name}, {place}: {why}")]
    Item {
        /// The file or task.
        name: String,
        /// Which line or entry, from 1.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// It has no items.
    #[error("{0} has no items: write one per line (docs/REGULATOR.md)")]
    Empty(String),
}

impl Task {
    /// Opens the built-in task of that name, the file, or a folder of MMLU's files.
    ///
    /// # Errors
    /// See [`TaskError`].
    pub fn open(name: &str) -> Result<Self, TaskError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text);
        }
        let path = Path::new(name);
        let unread = |why: String| TaskError::Read { path: name.to_owned(), why };
        let files =
            if path.is_dir() { csv_files(path).map_err(|error| unread(error.to_string()))? } else { Vec::new() };
        let stem =
            |path: &Path| path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
        if path.is_dir() && files.is_empty() {
            return Err(unread("the folder holds no .csv files".to_owned()));
        }
        let csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        if files.is_empty() && !csv {
            let text = read_text(path, TASK_BYTES_MAX).map_err(|error| unread(error.to_string()))?;
            return Self::parse(&stem(path), &text);
        }
        let mut questions = Vec::new();
        for file in if csv { vec![path.to_owned()] } else { files } {
            let text = read_text(&file, TASK_BYTES_MAX)
                .map_err(|error| TaskError::Read { path: file.display().to_string(), why: error.to_string() })?;
            let name = stem(&file);
            let subject = ["_test", "_dev", "_val"].iter().find_map(|part| name.strip_suffix(part)).unwrap_or(&name);
            let found = published::mmlu_csv(subject, &text);
            questions.extend(found.map_err(|(line, why)| TaskError::Item {
                name: name.clone(),
                place: format!("line {line}"),
                why,
            })?);
        }
        Self::of(&stem(path), questions)
    }

    /// How its items are answered; free if any of them is.
    pub fn answers(&self) -> AnswerKind {
        let free = |item: &TaskItem| matches!(item.question, Question::Answer { .. });
        if self.items.iter().any(free) { AnswerKind::Free } else { AnswerKind::Choice }
    }

    /// The same task with MMLU's letters written by the model, in place of chosen by their likelihood.
    #[must_use]
    pub fn written(mut self) -> Self {
        for item in &mut self.items {
            if let Question::Choose { prompt, candidates, right, protocol: Protocol::MmluLetter, .. } =
                &mut item.question
            {
                let references = candidates.get(*right).cloned().into_iter().collect();
                let prompt = std::mem::take(prompt);
                item.question = Question::Answer { prompt, references, protocol: Protocol::MmluWritten };
            }
        }
        self
    }

    /// The protocols of its items, in the order of their first use.
    pub fn protocols(&self) -> Vec<Protocol> {
        let mut found = Vec::new();
        for protocol in self.items.iter().map(|item| item.question.protocol()) {
            if !found.contains(&protocol) {
                found.push(protocol);
            }
        }
        found
    }

    /// Parses a task: one item per line, where empty lines and lines that begin with `#` are ignored, or one JSON value that
    /// holds all items. Duplicates are dropped.
    ///
    /// # Errors
    /// [`TaskError::Item`] or [`TaskError::Empty`].
    pub fn parse(name: &str, text: &str) -> Result<Self, TaskError> {
        let text = text.trim_start_matches('\u{feff}');
        let mut questions = Vec::new();
        let mut add = |place: String, found: Result<Vec<Question>, String>| {
            let found = found.map_err(|why| TaskError::Item { name: name.to_owned(), place, why });
            found.map(|found| questions.extend(found))
        };
        if let Some(entries) = entries(text) {
            for (entry, number) in entries.iter().zip(1..) {
                add(format!("entry {number}"), questions_of(entry))?;
            }
        } else {
            for (line, number) in text.lines().zip(1..) {
                if !line.trim().is_empty() && !line.starts_with('#') {
                    add(format!("line {number}"), questions_of_line(line))?;
                }
            }
        }
        Self::of(name, questions)
    }

    fn of(name: &str, questions: Vec<Question>) -> Result<Self, TaskError> {
        let mut seen = std::collections::HashSet::new();
        let items = questions.into_iter().map(|question| TaskItem { id: question.id(), question });
        let items: Vec<TaskItem> = items.filter(|item| seen.insert(item.id)).collect();
        if items.is_empty() {
            Err(TaskError::Empty(name.to_owned()))
        } else {
            Ok(Self { name: name.to_owned(), items })
        }
    }
}

/// The .csv files of a folder, or of its folder `test`, in order.
fn csv_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")) {
            found.push(path);
        }
    }
    found.sort();
    let test = folder.join("test");
    if found.is_empty() && test.is_dir() { csv_files(&test) } else { Ok(found) }
}

/// The entries of a file that is one JSON value: a list, or an object that holds one as `Data` (`TriviaQA`) or `data` (`CoQA`).
fn entries(text: &str) -> Option<Vec<Value>> {
    let text = text.trim();
    let list = |value: Value| match value {
        Value::Array(entries) => Some(entries),
        Value::Object(mut object) => match object.remove("Data").or_else(|| object.remove("data")) {
            Some(Value::Array(entries)) => Some(entries),
            _ => None,
        },
        _ => None,
    };
    let first = text.lines().next().unwrap_or_default();
    // A line that is a whole object is an item, unless it holds a list of them.
    match serde_json::from_str::<Value>(first) {
        Ok(value) => list(value),
        Err(_) if text.starts_with(['{', '[']) => list(serde_json::from_str(text).ok()?),
        Err(_) => None,
    }
}

fn questions_of_line(line: &str) -> Result<Vec<Question>, String> {
    if !line.starts_with('{') {
        let (good, bad) =
            line.split_once('\t').ok_or("a JSON object is needed, or two sentences with a tab between")?;
        return Ok(vec![Row::Pair { good: good.trim().to_owned(), bad: bad.trim().to_owned() }.question()?]);
    }
    let value = serde_json::from_str(line).map_err(|error| format!("this is not valid JSON ({error})"))?;
    questions_of(&value)
}

/// The questions of an entry, in whichever format it is.
fn questions_of(value: &Value) -> Result<Vec<Question>, String> {
    let answer = value.get("answer").or_else(|| value.get("Answer"));
    if value.get("story").is_some() {
        return published::coqa(value);
    }
    Ok(vec![if answer.is_some_and(Value::is_object) {
        published::trivia_qa(value)?
    } else if answer.and_then(Value::as_str).is_some_and(|answer| answer.contains("####")) {
        published::gsm8k(value)?
    } else if value.get("subject").is_some() && value.get("choices").is_some() {
        published::mmlu_json(value)?
    } else {
        row(value)?.question()?
    }])
}

/// A line in one of the four formats.
enum Row {
    Pair { good: String, bad: String },
    Statement { statement: String, label: bool },
    Choice { prompt: Vec<Message>, choices: Vec<String>, answer: usize },
    Free { prompt: Vec<Message>, answers: Vec<String>, protocol: Protocol },
}

fn row(value: &Value) -> Result<Row, String> {
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
    // What the model is told before the question, such as who it is.
    let prompt = || -> Result<Vec<Message>, String> {
        let system = if value.get("system").is_some() { Some(Message::system(text("system")?)) } else { None };
        Ok(system.into_iter().chain([Message::user(text("question")?)]).collect())
    };
    if value.get("choices").is_some() {
        let answer = value
            .get("answer")
            .and_then(Value::as_u64)
            .ok_or("`answer` must be the number of the right choice, from 0")?;
        return Ok(Row::Choice { prompt: prompt()?, choices: texts("choices")?, answer: answer as usize });
    }
    if value.get("answers").is_some() {
        let protocol = match value.get("matching").map(|matching| matching.as_str().unwrap_or_default()) {
            None | Some("exact") => Protocol::Exact,
            Some("fuzzy") => Protocol::Fuzzy,
            Some("contains") => Protocol::Contains,
            Some(_) => return Err("`matching` must be \"exact\", \"fuzzy\" or \"contains\"".to_owned()),
        };
        return Ok(Row::Free { prompt: prompt()?, answers: texts("answers")?, protocol });
    }
    Err("an item has `sentence_good` and `sentence_bad`, `statement` and `label`, `question`, `choices` and `answer`, or \
         `question` and `answers`; or it is one of TriviaQA, CoQA, MMLU or GSM8K with its answer"
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
                protocol: Protocol::Pair,
            },
            Self::Statement { statement, label } => Question::Choose {
                prompt: vec![Message::user(format!("Is it true that: {statement} Answer yes or no."))],
                candidates: vec!["Yes".to_owned(), "No".to_owned()],
                right: usize::from(!label),
                by: Likelihood::Whole,
                protocol: Protocol::Statement,
            },
            Self::Choice { choices, answer, .. } if answer >= choices.len() || choices.len() < 2 => {
                return Err(format!("`answer` is {answer} of {} choices; from 0, and of at least two", choices.len()));
            }
            Self::Choice { prompt, choices, answer } => Question::Choose {
                prompt,
                candidates: choices,
                right: answer,
                by: Likelihood::PerToken,
                protocol: Protocol::Choice,
            },
            Self::Free { answers, .. } if answers.is_empty() => return Err("`answers` is empty".to_owned()),
            Self::Free { prompt, answers, protocol } => Question::Answer { prompt, references: answers, protocol },
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
    fn the_built_in_tasks_are_valid_and_about_half_is_held_out() {
        for (name, text) in BUILT_IN {
            let task = Task::open(name).unwrap();
            let rows = text.lines().filter(|line| !line.starts_with('#')).count();
            assert_eq!(task.items.len(), rows, "{name}: an item occurs twice");
            let held_out = task.items.iter().filter(|item| item.held_out()).count();
            // Within three standard deviations of a fair coin's count.
            let off = held_out.abs_diff(rows - held_out);
            assert!(off * off <= 9 * rows, "{name}: {held_out} of {rows}");
        }
        assert!(Task::open("nowhere.jsonl").unwrap_err().to_string().contains("grammar"));
    }
}
