//! Notes on what was lost or changed, as YAML comments.

/// `notes` as wrapped YAML comments under `title`.
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
    // Split at all white space, so that a line break in a source's name does not end the comment.
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
