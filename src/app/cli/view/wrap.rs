//! Wraps styled text into lines, preferably at spaces.

use crate::foundation::text::is_unsafe;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The concatenated `pieces` as lines of at most `width` columns. Newlines break lines; other control characters are shown
/// as `·`, so that no text can control the terminal.
pub(super) fn wrap(pieces: &[(String, Style)], width: usize) -> Vec<Line<'static>> {
    let width = width.max(8);
    let mut lines: Vec<Vec<(char, Style)>> = vec![Vec::new()];
    let mut columns = 0;
    for (c, style) in pieces.iter().flat_map(|(text, style)| text.chars().map(|c| (c, *style))) {
        if c == '\n' {
            lines.push(Vec::new());
            columns = 0;
            continue;
        }
        let c = match c {
            '\t' => ' ',
            c if c.is_control() || is_unsafe(c) => '·',
            c => c,
        };
        let wide = columns_of(c);
        if columns + wide > width {
            let line = lines.last_mut().map(std::mem::take).unwrap_or_default();
            // The text after the last space moves to the next line, unless the line is one long word.
            let keep = line.iter().rposition(|(c, _)| *c == ' ').map_or(line.len(), |space| space + 1);
            let mut head = line;
            let tail = head.split_off(keep);
            columns = tail.iter().map(|(c, _)| columns_of(*c)).sum();
            if let Some(last) = lines.last_mut() {
                *last = head;
            }
            lines.push(tail);
            if c == ' ' && columns == 0 {
                continue;
            }
        }
        columns += wide;
        if let Some(last) = lines.last_mut() {
            last.push((c, style));
        }
    }
    lines.into_iter().map(|line| joined(&line)).collect()
}

fn columns_of(c: char) -> usize {
    Span::raw(c.encode_utf8(&mut [0; 4]).to_owned()).width()
}

/// Adjacent characters of one style become one span.
fn joined(line: &[(char, Style)]) -> Line<'static> {
    let runs = line.chunk_by(|a, b| a.1 == b.1);
    let spans = runs.map(|run| {
        let text: String = run.iter().map(|(c, _)| c).collect();
        Span::styled(text, run.first().map_or(Style::new(), |(_, style)| *style))
    });
    Line::from(spans.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, width: usize, expected: &[&str]) {
        let lines: Vec<String> = wrap(&[(text.to_owned(), Style::new())], width).iter().map(Line::to_string).collect();
        assert_eq!(lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn lines_break_at_spaces_and_newlines() {
        check("one two three", 8, &["one two", "three"]);
        check("abcdefghijkl", 8, &["abcdefgh", "ijkl"]);
        check("a\n\nb", 8, &["a", "", "b"]);
        check("exactly8 more", 8, &["exactly8", "more"]);
        check("", 8, &[""]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        check("a\u{1b}[2Jb\r", 10, &["a·[2Jb·"]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        check("漢字漢字漢字", 8, &["漢字漢字", "漢字"]);
    }
}
