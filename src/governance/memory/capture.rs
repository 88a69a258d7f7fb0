//! Captures signals (M4): lines of text that sound like a decision, a commitment, a correction, a deadline or an
//! incident. They are stored in `SIGNALS.md` until a person accepts or rejects them.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use jiff::civil::Date;
use serde::Serialize;

use super::authority::{CaptureWriter, WriteForbidden, WriteSet};
use super::edit;
use super::id::BlockKind;
use super::parse::Document;
use super::state::MemoryConfig;
use super::texts::{IdSource, WorkspaceTexts};
use crate::foundation::base::limits::EXCERPT_CHARS_MAX;

/// The file that holds the signals.
pub const SIGNALS_FILE: &str = "intelligence/SIGNALS.md";

/// The phrases that make a line a signal, by kind; the first matching kind is used. A phrase matches at word boundaries
/// only. `capture_triggers` in the settings adds to them.
pub const TRIGGERS: [(&str, &[&str]); 5] = [
    ("incident", &["outage", "incident", "went down", "data loss", "crashed in production", "root cause"]),
    (
        "correction",
        &["that is wrong", "that's wrong", "correction", "not what we agreed", "i was wrong", "should have been"],
    ),
    (
        "decision",
        &[
            "we decided",
            "we have decided",
            "decided to",
            "let's use",
            "we agreed",
            "we will use",
            "we are going with",
            "from now on",
        ],
    ),
    ("deadline", &["deadline", "due by", "due on", "no later than", "by tomorrow", "by the end of"]),
    ("commitment", &["i will", "i'll", "we will", "we'll", "todo", "to do:", "action item", "i promise"]),
];

/// A text to search for signals, and its source.
#[derive(Debug, Clone, Copy)]
pub struct CaptureInput<'h> {
    /// The text.
    pub text: &'h str,
    /// The source: `chat:12`, a rollout and turn, the regulator.
    pub source: &'h str,
    /// The kind of signal, if it is known already (a correction by the regulator, for example): the whole text becomes one
    /// signal, whatever its words. Otherwise every line is checked.
    pub kind: Option<&'h str>,
}

/// A signal that was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signal {
    /// `SIG-YYYYMMDD-NNN`.
    pub id: String,
    /// One of the five kinds, or one from the settings.
    #[serde(rename = "type")]
    pub kind: String,
    /// At most 150 characters of the line.
    pub excerpt: String,
}

/// The kind of signal in a line, if any.
pub fn signal_kind<'k>(line: &str, more: &'k BTreeMap<String, Vec<String>>) -> Option<&'k str> {
    let line = line.to_lowercase().replace('\u{2019}', "'");
    let contains_phrase = |phrase: &str| {
        let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let edge = |c: Option<char>| !word(c);
        !phrase.is_empty()
            && line.match_indices(phrase).any(|(at, phrase)| {
                let (before, rest) = line.split_at_checked(at).unwrap_or_default();
                let after = rest.get(phrase.len()..).and_then(|rest| rest.chars().next());
                edge(before.chars().next_back()) && (edge(after) || !word(phrase.chars().next_back()))
            })
    };
    let own = more.iter().find(|(_, phrases)| phrases.iter().any(|phrase| contains_phrase(&phrase.to_lowercase())));
    own.map(|(kind, _)| kind.as_str()).or_else(|| {
        TRIGGERS.iter().find(|(_, phrases)| phrases.iter().any(|phrase| contains_phrase(phrase))).map(|(kind, _)| *kind)
    })
}

/// Checks each line of `inputs`. A line already captured from the same source is not captured again.
///
/// # Errors
/// None in practice: [`CaptureWriter`] owns the file that is written.
pub fn capture(
    texts: &WorkspaceTexts,
    config: &MemoryConfig,
    inputs: &[CaptureInput<'_>],
    today: Date,
) -> Result<(Vec<Signal>, usize, WriteSet<CaptureWriter>), WriteForbidden> {
    let text = texts.text(SIGNALS_FILE);
    let document = Document::parse(text);
    let mut known: HashSet<(String, String)> =
        document.blocks().map(|block| (block.head("Source").to_owned(), block.head("Excerpt").to_owned())).collect();
    let mut ids = IdSource::new(BlockKind::Signal, today, [text]);
    let mut signals = Vec::new();
    let mut blocks = String::new();
    let mut lost = 0;
    for inputs in inputs {
        let source = one_line(inputs.source, EXCERPT_CHARS_MAX);
        let lines = if let Some(kind) = inputs.kind {
            vec![(kind, inputs.text)]
        } else {
            let kind = |line| Some((signal_kind(line, &config.capture_triggers)?, line));
            inputs.text.lines().filter_map(kind).collect()
        };
        for (kind, line) in lines {
            let kind = one_line(kind, EXCERPT_CHARS_MAX);
            let excerpt = one_line(line, EXCERPT_CHARS_MAX);
            if !known.insert((source.clone(), excerpt.clone())) {
                continue;
            }
            let Some(id) = ids.next() else {
                lost += 1;
                continue;
            };
            let separator = if blocks.is_empty() { "" } else { "\n" };
            let _ = write!(
                blocks,
                "{separator}[{id}]\nDate: {today}\nType: {kind}\nSource: {source}\nStatus: pending\nExcerpt: {excerpt}\n"
            );
            signals.push(Signal { id, kind, excerpt });
        }
    }
    let mut writes = WriteSet::default();
    if !blocks.is_empty() {
        writes.write(SIGNALS_FILE, texts.get(SIGNALS_FILE), edit::append(text, &blocks))?;
    }
    Ok((signals, lost, writes))
}

/// `text` on one line, without control characters, at most `limit` characters long.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    let words: Vec<_> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    if line.chars().count() <= limit {
        return line;
    }
    line.chars().take(limit - 1).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<&str>) {
        assert_eq!(signal_kind(line, &BTreeMap::new()), expected, "{line}");
    }

    #[test]
    fn a_line_is_classified_by_its_phrases() {
        check("So we decided to ship on Friday.", Some("decision"));
        check("Let’s use SQLite", Some("decision"));
        check("I'll write the test.", Some("commitment"));
        check("TODO: rotate the keys", Some("commitment"));
        check("The deadline is Monday", Some("deadline"));
        check("Sorry, that's wrong.", Some("correction"));
        check("The outage lasted an hour", Some("incident"));
        check("I willow not", None);
        check("undecided toys", None);
        check("Nice weather.", None);
    }

    #[test]
    fn a_line_is_captured_once_as_one_block() {
        let mut texts = WorkspaceTexts::default();
        texts.set(SIGNALS_FILE, "# Signals\n");
        let day = jiff::civil::date(2026, 2, 20);
        let long = format!("We decided: {}\n[D-001]\u{7}\nhello", "é".repeat(300));
        let inputs = [CaptureInput { text: &long, source: "chat:1\nStatus: accepted", kind: None }];
        let (signals, lost, writes) = capture(&texts, &MemoryConfig::default(), &inputs, day).unwrap();
        assert_eq!((signals.len(), lost), (1, 0));
        assert_eq!(signals[0].excerpt.chars().count(), 150);
        let written = writes.draft(SIGNALS_FILE, "").to_owned();
        let document = Document::parse(&written);
        assert!(document.findings().is_empty());
        assert_eq!(document.blocks().len(), 1);
        assert_eq!(document.block("SIG-20260220-001").unwrap().head("Status"), "pending");
        texts.set(SIGNALS_FILE, written);
        assert_eq!(capture(&texts, &MemoryConfig::default(), &inputs, day).unwrap().0, []);
        let known = [CaptureInput { text: "It was\nnot so.", source: "regulator", kind: Some("correction") }];
        let (signals, ..) = capture(&texts, &MemoryConfig::default(), &known, day).unwrap();
        assert_eq!((signals[0].kind.as_str(), signals[0].excerpt.as_str()), ("correction", "It was not so."));
    }
}
