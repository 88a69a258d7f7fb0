//! Captures signals (M4): lines of text that sound like a decision, a commitment, a correction, a deadline or an
//! incident. They are stored in `SIGNALS.md` until a person accepts or rejects them.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;
use serde::Serialize;

use super::authority::{CaptureWriter, WriteForbidden, WriteSet};
use super::edit;
use super::id::{BlockKind, ids_in};
use super::parse::Document;
use super::state::MemoryConfig;
use super::texts::{IdSource, WorkspaceTexts};
use crate::foundation::base::limits::EXCERPT_CHARS_MAX;

/// The file that holds the signals.
pub const SIGNALS_FILE: &str = "intelligence/SIGNALS.md";

/// A name at the start of a line that labels it: `ACTION Eva: …`, `[decision] …`. The kind follows.
const LABELS: [(&str, &str); 5] = [
    ("decision", r"decision|decided|agreed|verdict"),
    ("commitment", r"action items?|action|ai|todo|to do|task|next steps?"),
    ("deadline", r"deadline|due"),
    ("correction", r"correction|erratum"),
    ("incident", r"incident|outage|root cause"),
];

/// The days and times of a deadline.
const DATE: &str = r"(?:(?:this |next |the )?(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|week|month)|tomorrow|tonight|noon|midnight|eod|eow|(?:the )?end of (?:the )?(?:day|week|month|quarter|year)|(?:\d{1,2}(?:st|nd|rd|th)? (?:of )?)?(?:january|february|march|april|may|june|july|august|september|october|november|december)|\d{4}-\d\d-\d\d|\d{1,2}[:.]\d\d|\d{1,2} ?(?:am|pm)|\d{1,2}[./]\d{1,2})\b";

/// The patterns of each kind, in the order in which kinds are tried. `capture_triggers` in the settings comes before them.
const PATTERNS: [(&str, &[&str]); 5] = [
    (
        "incident",
        &[
            r"\b(?:outage|data loss|root cause|security incident|crashed in production|breach|leaked)\b",
            r"\b(?:api|site|service|server|database|db|production|payments?|system|website|app|cluster) (?:\w+ )?(?:went|is|are|was|were) down\b",
            r"\b(?:went down (?:at|during)|were paged|can(?:no|')t log ?in|login failed|lost \d+ \w+)\b",
            r"\b(?:get|got|gets|returns?|returned|see|seeing) 5\d\ds\b",
        ],
    ),
    (
        "correction",
        &[
            r"\bthat(?:'s| is) wrong\b",
            r"\b(?:this|that)(?:'s| is) not what we agreed\b",
            r"\bi was wrong\b|\bi misspoke\b|\bmy (?:mistake|bad)\b|\bscratch that\b",
            r"\bshould have been (?:.*, not |(?:the )?\d)",
            r"^(?:actually,? (?:it|the|that|this)|no, ).*\bnot\b",
        ],
    ),
    (
        "decision",
        &[
            r"\bwe(?:'ve| have)? (?:now )?(?:decided|agreed|settled on|chose|picked|voted)\b",
            r"\b(?:it was|the team|the board|everyone|team) (?:has |have )?(?:decided|agreed|voted)\b",
            r"\blet's (?:not \w+|use|go with|stick (?:with|to)|keep|drop|switch|move to|adopt|stop|avoid|remove|ship|freeze)\b",
            r"\bwe(?:'re| are) (?:going with|switching|not going to)\b|^going with\b",
            r"\bwe (?:won't|will not|will (?:use|support|store|stop|keep|drop|adopt|switch|only|no longer|never|always))\b",
            r"\bfrom now on\b|^final call\b|^(?:it|that)'s settled\b|^the plan is to\b",
        ],
    ),
    (
        "deadline",
        &[
            r"^deadline\b|\b(?:the|our) deadline (?:is|for)\b",
            r"\b(?:is|are) due\b|^due\b|\bdue (?:by|on)\b|\bno later than\b",
        ],
    ),
    (
        "commitment",
        &[
            r"\bi promise\b|\bi(?:'m| am) (?:going to|on it)\b|\blet me (?:take|handle|do)\b",
            r"\bi can (?:take|do|handle|fix|write)\b",
        ],
    ),
];

/// Lines that only sound like a signal: conditions, negations, hearsay.
const CHATTER: [&str; 5] = [
    r"^(?:if|suppose|perhaps|maybe|what if|i wonder)\b",
    r"\b(?:not|never|nothing|nobody|haven't|hasn't|didn't|no)(?: \w+)? (?:decided|agreed|decision)\b|\byet to (?:decide|agree)\b",
    r"\b(?:no|without(?: an?)?) (?:outages?|incidents?)\b",
    r"\b(?:post|article|talk|lecture|book|training|film) (?:about|on)\b|\b(?:incident|outage) (?:response|drill|training)\b",
    r"\blet's not (?:forget|pretend|worry|get|panic)\b",
];

/// Words after `I'll` or `we will` that promise nothing.
const IDLE: [&str; 12] =
    ["be", "see", "never", "have", "say", "go", "miss", "pass", "think", "admit", "need", "probably"];

/// Fields of blocks: a line that begins with one is part of a record already.
const FIELDS: [&str; 9] =
    ["Statement", "Rationale", "Excerpt", "Context", "Evidence", "Summary", "Title", "Description", "Next"];

/// The compiled patterns.
struct Rules {
    labels: Vec<(&'static str, Regex)>,
    kinds: Vec<(&'static str, Vec<Regex>)>,
    chatter: Vec<Regex>,
    by_date: Option<Regex>,
    promise: Option<Regex>,
    somebody: Option<Regex>,
}

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let regex = |pattern: &str| Regex::new(pattern).ok();
    let label = |(kind, names): &(&'static str, &str)| {
        let pattern = format!(r"^(?:\[(?:{names})\]|(?:{names})(?: @?\w+)?(?::|,| [-–] ))");
        Some((*kind, regex(&pattern)?))
    };
    Rules {
        labels: LABELS.iter().filter_map(label).collect(),
        kinds: PATTERNS
            .iter()
            .map(|(kind, patterns)| (*kind, patterns.iter().filter_map(|pattern| regex(pattern)).collect()))
            .collect(),
        chatter: CHATTER.iter().filter_map(|pattern| regex(pattern)).collect(),
        by_date: regex(&format!(r"\b(?:by|before|until|till|(?:expires?|closes?) on) {DATE}")),
        promise: regex(r"(?:^|(\w+) )(?:i|we)(?:'ll| will) (\w+)"),
        somebody: regex(r"^@?(\w+) will (\w+)"),
    }
});

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
    if is_record(line) {
        return None;
    }
    let plain = plain(line);
    let folded = plain.to_lowercase();
    let triggered =
        more.iter().find(|(_, phrases)| phrases.iter().any(|phrase| has_phrase(&folded, &phrase.to_lowercase())));
    if let Some((kind, _)) = triggered {
        return Some(kind);
    }
    let matches = |regex: &Regex| regex.is_match(&folded);
    if folded.trim_end().ends_with('?') || RULES.chatter.iter().any(matches) {
        return None;
    }
    let label = RULES.labels.iter().find(|(_, regex)| matches(regex)).map(|(kind, _)| *kind);
    label.or_else(|| {
        let by_pattern = |(kind, patterns): &(&'static str, Vec<Regex>)| {
            let found = patterns.iter().any(matches)
                || (*kind == "deadline" && RULES.by_date.as_ref().is_some_and(matches))
                || (*kind == "commitment" && promises(&folded, &plain));
            found.then_some(*kind)
        };
        RULES.kinds.iter().find_map(by_pattern)
    })
}

/// Whether a line is not talk: a heading, a quote, a table, a part of a record, or a line that names a decision already.
fn is_record(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty()
        || line.starts_with(['#', '>', '|'])
        || line.starts_with("```")
        || (line.starts_with('[') && ids_in(line).next().is_some())
        || ids_in(line).any(|id| id.kind() == BlockKind::Decision)
        || line.split_once(':').is_some_and(|(key, _)| FIELDS.contains(&key))
        || (line.starts_with("http") && !line.contains(' '))
}

/// The line without list markers, check boxes and emphasis, with plain apostrophes.
fn plain(line: &str) -> String {
    let line = line.replace('\u{2019}', "'").replace(['*', '`'], "").replace("__", "");
    let line = line.trim().trim_start_matches(['-', '+', '•']).trim_start();
    let line = ["[ ]", "[x]", "[X]"].iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
    line.trim_start().to_owned()
}

/// Whether somebody says what they will do: `I'll …`, or a name and `will …`. `what I'll do` is no promise.
fn promises(folded: &str, plain: &str) -> bool {
    const ASKING: [&str; 6] = ["what", "how", "where", "if", "whether", "when"];
    const NOBODY: [&str; 14] =
        ["it", "you", "he", "she", "they", "this", "that", "there", "who", "what", "the", "which", "time", "nobody"];
    let word =
        |captures: &regex::Captures<'_>, at: usize| captures.get(at).map_or(String::new(), |m| m.as_str().into());
    let first = RULES.promise.as_ref().and_then(|regex| regex.captures(folded)).is_some_and(|captures| {
        !ASKING.contains(&word(&captures, 1).as_str()) && !IDLE.contains(&word(&captures, 2).as_str())
    });
    let named = RULES.somebody.as_ref().and_then(|regex| regex.captures(plain)).is_some_and(|captures| {
        let name = word(&captures, 1);
        let is_name = plain.starts_with('@') || name.starts_with(char::is_uppercase);
        is_name && !NOBODY.contains(&name.to_lowercase().as_str()) && !IDLE.contains(&word(&captures, 2).as_str())
    });
    first || named
}

/// Whether `line` contains `phrase` at word boundaries; both are lower-cased.
fn has_phrase(line: &str, phrase: &str) -> bool {
    let word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    !phrase.is_empty()
        && line.match_indices(phrase).any(|(at, phrase)| {
            let (before, rest) = line.split_at_checked(at).unwrap_or_default();
            let after = rest.get(phrase.len()..).and_then(|rest| rest.chars().next());
            !word(before.chars().next_back()) && (!word(after) || !word(phrase.chars().next_back()))
        })
}

/// The lines of a text outside code fences.
fn talk(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        fenced ^= fence;
        !fenced && !fence
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
            talk(inputs.text).filter_map(kind).collect()
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

    /// Precision and recall on labelled lines: a line counts as found only with the right kind.
    fn measure(lines: &[(&str, &str)]) -> (f64, f64, Vec<String>) {
        let (mut right, mut found, mut wanted, mut wrong) = (0, 0, 0, Vec::new());
        for (label, line) in lines {
            let none = BTreeMap::new();
            let kind = signal_kind(line, &none).unwrap_or("-");
            wanted += usize::from(*label != "-");
            found += usize::from(kind != "-");
            right += usize::from(kind != "-" && kind == *label);
            if kind != *label {
                wrong.push(format!("{kind} instead of {label}: {line}"));
            }
        }
        (right as f64 / found as f64, right as f64 / wanted as f64, wrong)
    }

    #[test]
    fn signals_are_found_among_labelled_lines() {
        assert_eq!(RULES.labels.len(), LABELS.len());
        assert!(
            RULES.kinds.iter().zip(PATTERNS).all(|((_, compiled), (_, patterns))| compiled.len() == patterns.len())
        );
        assert!(RULES.chatter.len() == CHATTER.len() && RULES.by_date.is_some());
        assert!(RULES.promise.is_some() && RULES.somebody.is_some());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/memory/capture.txt");
        let text = std::fs::read_to_string(path).unwrap();
        let (tuned, held_out) = text.split_once("# held out\n").unwrap();
        let rows = |text: &'static str| text.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once('|'));
        let (tuned, held_out): (&str, &str) = (tuned.to_owned().leak(), held_out.to_owned().leak());
        let (tuned, held_out): (Vec<_>, Vec<_>) = (rows(tuned).collect(), rows(held_out).collect());
        assert!(tuned.len() + held_out.len() >= 200);
        for (name, lines) in [("tuned", tuned), ("held out", held_out)] {
            let (precision, recall, wrong) = measure(&lines);
            println!(
                "{name}: {} lines, precision {precision:.3}, recall {recall:.3}\n  {}",
                lines.len(),
                wrong.join("\n  ")
            );
            assert!(precision >= 0.9 && recall >= 0.8, "{name}: {precision:.3} {recall:.3} {wrong:#?}");
        }
    }

    #[test]
    fn code_quotes_and_settings() {
        let text = "```\nWe decided to use it.\n```\nWe decided to use it.\n> We decided to use it.";
        assert_eq!(talk(text).filter(|line| signal_kind(line, &BTreeMap::new()).is_some()).count(), 1);
        let more = BTreeMap::from([("wish".to_owned(), vec!["I wish".to_owned()])]);
        assert_eq!(signal_kind("Oh, I wish it were Friday?", &more), Some("wish"));
        assert_eq!(signal_kind("I wished", &more), None);
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
