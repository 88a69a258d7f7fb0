//! What was lost or changed, as the first lines of what is written.

/// `notes` as YAML comments under `title`, wrapped.
pub(super) fn comments(title: &str, notes: &[String]) -> String {
    let mut out = String::new();
    wrapped(title, "# ", "# ", &mut out);
    if !notes.is_empty() {
        out.push_str("#\n# What was lost or changed:\n");
    }
    for note in notes {
        wrapped(note, "# - ", "#   ", &mut out);
    }
    out.push('\n');
    out
}

fn wrapped(text: &str, first: &str, further: &str, out: &mut String) {
    const COLUMNS: usize = 118;
    let mut line = first.to_owned();
    // A line break in a source's name must not end the comment: words are split at all white space.
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() + 1 > COLUMNS && line.chars().any(char::is_alphanumeric) {
            out.push_str(line.trim_end());
            out.push('\n');
            further.clone_into(&mut line);
        }
        line.push_str(word);
        line.push(' ');
    }
    out.push_str(line.trim_end());
    out.push('\n');
}
