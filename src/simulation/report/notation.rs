//! How numbers are written, and how Markdown is: text that shows as it is, tables, sparklines.

use std::fmt::{self, Write};

use super::data::Mean;

/// The longest quote, characters.
const QUOTE_CHARS: usize = 320;
/// What stands where there is no value.
pub(super) const NONE: &str = "–";

/// A table whose columns line up in plain text; numbers to the right.
pub(super) fn table(out: &mut String, head: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    let head: Vec<String> = head.iter().map(|&cell| plain(cell)).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let figures = |column: usize| {
        column > 0
            && rows.iter().filter_map(|row| row.get(column)).all(|cell| {
                cell == NONE || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-') && !cell.contains(", ")
            })
    };
    let columns: Vec<(usize, bool)> = (0..head.len()).map(|column| (width(column), figures(column))).collect();
    let line = |out: &mut String, row: &[String]| {
        for (cell, &(width, figures)) in row.iter().zip(&columns) {
            if figures { write!(out, "| {cell:>width$} ")? } else { write!(out, "| {cell:width$} ")? }
        }
        writeln!(out, "|")
    };
    line(out, &head)?;
    for &(width, figures) in &columns {
        let dashes = "-".repeat(width + 1);
        if figures { write!(out, "|{dashes}:")? } else { write!(out, "|{dashes}-")? }
    }
    writeln!(out, "|")?;
    rows.iter().try_for_each(|row| line(out, row))?;
    writeln!(out)
}

/// `text` as Markdown that shows it as it is, on one line.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for part in text.split_whitespace() {
        if !shown.is_empty() {
            shown.push(' ');
        }
        for c in part.chars() {
            if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~') {
                shown.push('\\');
            }
            shown.push(c);
        }
    }
    shown
}

pub(super) fn code(text: &str) -> String {
    // A backtick would end it, a bar the cell.
    format!("`{}`", text.replace('`', "'").replace('|', "/"))
}

pub(super) fn quote(text: &str) -> String {
    let short: String = text.chars().take(QUOTE_CHARS).collect();
    let ends = if short.len() < text.len() { "…" } else { "" };
    format!("{}{ends}", plain(&short))
}

/// With a capital at its beginning.
pub(super) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>()).unwrap_or_default();
    plain(&format!("{first}{}", chars.as_str()))
}

pub(super) fn number(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

pub(super) fn mean(value: Option<Mean>) -> String {
    value.map_or(NONE.into(), |value| number(value.mean))
}

pub(super) fn range(value: Mean) -> String {
    format!("{} to {}", number(value.low), number(value.high))
}

/// Thousands parted by commas.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn mean_known(values: &[Option<f64>]) -> Option<f64> {
    crate::foundation::stats::mean(&values.iter().flatten().copied().collect::<Vec<_>>())
}

/// One block character per value, from `low` to `high`; a space where there is none.
pub(super) fn spark(values: &[Option<f64>], low: f64, high: f64) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let block = |value: &Option<f64>| {
        let Some(value) = value else { return ' ' };
        let share = if high > low { (value - low) / (high - low) } else { 0.0 };
        let step = (share * (BLOCKS.len() - 1) as f64).round() as usize;
        BLOCKS.get(step).copied().unwrap_or(' ')
    };
    values.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_text_cannot_break_the_page() {
        let check = |text: &str, shown: &str| assert_eq!(plain(text), shown);
        check("a | b\n# c <b>*d*</b>", "a \\| b \\# c \\<b\\>\\*d\\*\\</b\\>");
        check("![x](y)", "!\\[x\\](y)");
        assert_eq!(code("a`b|c"), "`a'b/c`");
    }

    #[test]
    fn sparklines_span_their_range() {
        assert_eq!(spark(&[Some(0.0), None, Some(0.5), Some(1.0)], 0.0, 1.0), "▁ ▅█");
        assert_eq!(spark(&[Some(2.0), Some(2.0)], 2.0, 2.0), "▁▁");
    }

    #[test]
    fn figures_are_short() {
        assert_eq!([0.1234, 12.34, 123.4].map(number), ["0.12", "12.3", "123"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
