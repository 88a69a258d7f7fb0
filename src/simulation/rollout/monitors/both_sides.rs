//! The persona writes the other side of the conversation, too.

use super::Monitor;
use super::breakdown::{PatternMonitor, Patterns, allowed, names};
use crate::simulation::persona::PersonaConfig;

pub(super) const NAME: &str = "both_sides";

/// Speaker labels, template markers and dialogue told in one message.
const PATTERN_LIST: [&str; 9] = [
    // Two lines in a row that begin with a name, whosever.
    r"(?m)^\s*\**(?-i:[A-Z][a-z]+)\**:\s\S[^\n]*\n+\s*\**(?-i:[A-Z][a-z]+)\**:\s",
    concat!(
        r"(?m)^\s*\**\W?(user|assistant|human|ai|interlocutor|interviewer|therapist|doctor|patient|tutor|",
        r"student|me|you|q|a|b|bot|person [ab12]|speaker [ab12]|other person|the other person|user ",
        r"[12])\W?\**\s*:",
    ),
    r"<\|?/?(user|assistant|system|im_start|im_end|end)\|?>",
    r"\b(user|assistant|human|interlocutor|me|you): \S.*\b(user|assistant|human|interlocutor|me|you): \S",
    r"\[(user|assistant|human|interlocutor|me|you|interviewer)\]:? ",
    r#"\byou (say|reply|answer|respond|ask)\b[,:]?.{0,4}\".*\" ?.{0,40}\bi (say|reply|answer|respond|shake|nod)"#,
    r#"\"\S.*\" (i|you) (say|ask|reply|answer)\..*\"\S.*\" (you|i) (say|ask|reply|answer)"#,
    r#"\byou (say|reply|answer|respond|ask)[,:] ?\".*\bi (say|reply|answer|ask)[,:] ?\""#,
    r"(?m)^\s*\**{name}\**:",
];

static PATTERNS: Patterns = Patterns::new(&PATTERN_LIST);

pub(super) fn build(config: Option<&PersonaConfig>) -> Option<Box<dyn Monitor>> {
    allowed(config, NAME, |retries_max| PatternMonitor {
        name: NAME,
        patterns: &PATTERNS,
        named: PATTERNS.for_names(&names(config)).into(),
        phrases: [].into(),
        detail: "speaks for both sides",
        instruction: "Say only your own words, once. The other person answers for themselves.",
        retries_max,
    })
}
