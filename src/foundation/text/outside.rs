//! Text from outside (of models, files, servers, clients), made safe for where it is shown. All of it passes one of these
//! functions before it reaches a terminal, a Markdown page or a figure.

/// Whether the character controls a terminal or changes the order in which text is shown: C0 and C1 controls other than
/// line feed and tab, and Unicode's bidirectional embeddings, overrides and isolates. Marks that right-to-left text needs
/// (U+200E, U+200F, U+061C) are safe.
pub fn is_unsafe(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with U+FFFD in place of what [`is_unsafe`].
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The text as Markdown that shows it, on one line: no markup, link, entity or HTML of its own, also none that GitHub's
/// dialect makes of bare addresses.
pub fn markdown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for part in text.split_whitespace() {
        if !shown.is_empty() {
            shown.push(' ');
        }
        for (at, c) in part.char_indices() {
            let rest = part.get(at..).unwrap_or_default();
            let before = part.get(..at).unwrap_or_default();
            let escaped = match c {
                '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~' | '&' | '@' => true,
                ':' => rest.starts_with("://"),
                '.' => before.get(before.len().saturating_sub(3)..).is_some_and(|end| end.eq_ignore_ascii_case("www")),
                // At the beginning of a line these would begin a list, a rule or a heading.
                '-' | '+' | '=' => shown.is_empty(),
                _ => false,
            };
            // `1.` and `1)` begin a list.
            let numbered =
                matches!(c, '.' | ')') && !shown.is_empty() && shown.bytes().all(|byte| byte.is_ascii_digit());
            if escaped || numbered {
                shown.push('\\');
            }
            shown.push(if is_unsafe(c) { char::REPLACEMENT_CHARACTER } else { c });
        }
    }
    shown
}

/// The text as a code span on one line, also inside a table. A backtick would end the span, a bar the cell.
pub fn markdown_code(text: &str) -> String {
    let shown = |c: char| match c {
        '`' => '\'',
        '|' => '/',
        '\n' | '\t' => ' ',
        c if is_unsafe(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    let text: String = text.chars().map(shown).collect();
    // Without a space a span of nothing would be two backticks.
    format!("`{}`", if text.is_empty() { " " } else { &text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_and_bidirectional_overrides_are_replaced() {
        for unsafe_text in ["\u{1b}]0;x\u{7}", "\u{1b}[2J", "\u{9b}2J", "\u{90}q", "\u{202e}abc", "\u{2067}abc", "a\rb"]
        {
            let shown = printable(unsafe_text);
            assert!(!shown.chars().any(is_unsafe) && shown.contains(char::REPLACEMENT_CHARACTER), "{unsafe_text:?}");
            assert!(
                !markdown(unsafe_text).chars().any(is_unsafe) && !markdown_code(unsafe_text).chars().any(is_unsafe)
            );
        }
        for healthy in ["Grüße, 世界 👩‍👩‍👧", "a\tb\nc", "שלום\u{200f}!"] {
            assert_eq!(printable(healthy), healthy);
        }
    }

    #[test]
    fn markdown_shows_the_text_and_nothing_else() {
        let check = |text: &str, shown: &str| assert_eq!(markdown(text), shown);
        check("plain text, with 3.5 and a-b: yes.", "plain text, with 3.5 and a-b: yes.");
        check("a | b\n# c <b>*d*</b>", "a \\| b \\# c \\<b\\>\\*d\\*\\</b\\>");
        check("[x](javascript:alert(1))", "\\[x\\](javascript:alert(1))");
        check("https://evil.example/a_b", "https\\://evil.example/a\\_b");
        check("see www.evil.example", "see www\\.evil.example");
        check("me@evil.example", "me\\@evil.example");
        check("&#60;b&#62;", "\\&\\#60;b\\&\\#62;");
        check("- item", "\\- item");
        check("12. item", "12\\. item");
        check("=== a", "\\=== a");
    }

    #[test]
    fn a_code_span_stays_one_span() {
        assert_eq!(markdown_code("a`b|c\nd\re"), "`a'b/c d\u{fffd}e`");
        assert_eq!(markdown_code(""), "` `");
    }
}
