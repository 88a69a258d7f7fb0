//! Small helpers for the wording of prompts.

/// `belief_intensity` → `belief intensity`.
pub(super) fn spelled(key: &str) -> String {
    key.replace('_', " ")
}

/// `text` as a single line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `text` as a single line that ends with punctuation.
pub(super) fn sentence(text: &str) -> String {
    let mut text = one_line(text);
    if !text.is_empty() && !text.trim_end_matches(['"', '\u{201D}', '\'', ')']).ends_with(['.', '!', '?', '…', ':']) {
        text.push('.');
    }
    text
}
