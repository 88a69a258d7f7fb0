//! Capturing signals (M4): lines of talk that sound like a decision, a commitment, a correction, a deadline or an
//! incident. They go to `SIGNALS.md` and wait there for a person.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use jiff::civil::Date;
use serde::Serialize;

use super::authority::{Capture, Forbidden, Pen};
use super::edit;
use super::id::Kind;
use super::parse::Document;
use super::state::Config;
use super::texts::{IdSource, Texts};
use crate::foundation::base::limits::EXCERPT_CHARS_MAX;

/// Where signals stand.
pub const SIGNALS: &str = "intelligence/SIGNALS.md";

/// The phrases that make a line a signal, by kind; the first kind that fits is taken. A phrase stands at the beginning
/// and the end of words. The config's `capture_triggers` adds to them.
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

/// A text to listen to, and where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Heard<'h> {
    /// What was said.
    pub text: &'h str,
    /// Where: `chat:12`, a rollout and turn, the regulator.
    pub source: &'h str,
    /// What it is known to be, a regulator's correction for example: the whole text is one signal then, whatever its
    /// words. Without it every line is listened to.
    pub kind: Option<&'h str>,
}

/// A signal that was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Signal {
    /// `SIG-YYYYMMDD-NNN`.
    pub id: String,
    /// Which of the five kinds, or one of the config's.
    #[serde(rename = "type")]
    pub kind: String,
    /// At most 150 characters of the line.
    pub excerpt: String,
}

/// What kind of signal a line is, if any.
pub fn kind_of<'k>(line: &str, more: &'k BTreeMap<String, Vec<String>>) -> Option<&'k str> {
    let line = line.to_lowercase().replace('\u{2019}', "'");
    let says = |phrase: &str| {
        let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let edge = |c: Option<char>| !word(c);
        !phrase.is_empty()
            && line.match_indices(phrase).any(|(at, phrase)| {
                let (before, rest) = line.split_at_checked(at).unwrap_or_default();
                let after = rest.get(phrase.len()..).and_then(|rest| rest.chars().next());
                edge(before.chars().next_back()) && (edge(after) || !word(phrase.chars().next_back()))
            })
    };
    let own = more.iter().find(|(_, phrases)| phrases.iter().any(|phrase| says(&phrase.to_lowercase())));
    own.map(|(kind, _)| kind.as_str()).or_else(|| {
        TRIGGERS.iter().find(|(_, phrases)| phrases.iter().any(|phrase| says(phrase))).map(|(kind, _)| *kind)
    })
}

/// Listens to each line of `heard`. A line already captured from the same source is not captured again.
///
/// # Errors
/// Never, as long as the table of authority lets capture write its file.
pub fn capture(
    texts: &Texts,
    config: &Config,
    heard: &[Heard<'_>],
    today: Date,
) -> Result<(Vec<Signal>, usize, Pen<Capture>), Forbidden> {
    let text = texts.text(SIGNALS);
    let document = Document::parse(text);
    let mut known: HashSet<(String, String)> =
        document.blocks().map(|block| (block.head("Source").to_owned(), block.head("Excerpt").to_owned())).collect();
    let mut ids = IdSource::new(Kind::Signal, today, [text]);
    let mut signals = Vec::new();
    let mut blocks = String::new();
    let mut lost = 0;
    for heard in heard {
        let source = one_line(heard.source, EXCERPT_CHARS_MAX);
        let lines = if let Some(kind) = heard.kind {
            vec![(kind, heard.text)]
        } else {
            let kind = |line| Some((kind_of(line, &config.capture_triggers)?, line));
            heard.text.lines().filter_map(kind).collect()
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
    let mut pen = Pen::default();
    if !blocks.is_empty() {
        pen.write(SIGNALS, texts.get(SIGNALS), edit::append(text, &blocks))?;
    }
    Ok((signals, lost, pen))
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
        assert_eq!(kind_of(line, &BTreeMap::new()), expected, "{line}");
    }

    #[test]
    fn lines_are_told_by_their_phrases() {
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
    fn a_capture_is_one_block_and_is_not_doubled() {
        let mut texts = Texts::default();
        texts.set(SIGNALS, "# Signals\n");
        let day = jiff::civil::date(2026, 2, 20);
        let long = format!("We decided: {}\n[D-001]\u{7}\nhello", "é".repeat(300));
        let heard = [Heard { text: &long, source: "chat:1\nStatus: accepted", kind: None }];
        let (signals, lost, pen) = capture(&texts, &Config::default(), &heard, day).unwrap();
        assert_eq!((signals.len(), lost), (1, 0));
        assert_eq!(signals[0].excerpt.chars().count(), 150);
        let written = pen.draft(SIGNALS, "").to_owned();
        let document = Document::parse(&written);
        assert!(document.findings().is_empty());
        assert_eq!(document.blocks().len(), 1);
        assert_eq!(document.block("SIG-20260220-001").unwrap().head("Status"), "pending");
        texts.set(SIGNALS, written);
        assert_eq!(capture(&texts, &Config::default(), &heard, day).unwrap().0, []);
        let told = [Heard { text: "It was\nnot so.", source: "regulator", kind: Some("correction") }];
        let (signals, ..) = capture(&texts, &Config::default(), &told, day).unwrap();
        assert_eq!((signals[0].kind.as_str(), signals[0].excerpt.as_str()), ("correction", "It was not so."));
    }
}
