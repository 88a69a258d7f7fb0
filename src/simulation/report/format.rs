//! Formatting of numbers and Markdown: escaped text, tables, sparklines.

use std::fmt::{self, Write};

use super::summary::Mean;

/// Maximum length of a quote, characters.
const QUOTE_CHARS: usize = 320;
/// The placeholder for a missing value.
pub(super) const NONE: &str = "–";

/// A table with columns aligned in plain text; numbers are right-aligned.
pub(super) fn table(out: &mut String, head: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    let head: Vec<String> = head.iter().map(|&cell| plain(cell)).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let is_numeric = |column: usize| {
        column > 0
            && rows.iter().filter_map(|row| row.get(column)).all(|cell| {
                cell == NONE || cell.starts_with(|c: char| c.is_ascii_digit() || c == '-') && !cell.contains(", ")
            })
    };
    let columns: Vec<(usize, bool)> = (0..head.len()).map(|column| (width(column), is_numeric(column))).collect();
    let line = |out: &mut String, row: &[String]| {
        for (cell, &(width, numeric)) in row.iter().zip(&columns) {
            if numeric { write!(out, "| {cell:>width$} ")? } else { write!(out, "| {cell:width$} ")? }
        }
        writeln!(out, "|")
    };
    line(out, &head)?;
    for &(width, numeric) in &columns {
        let dashes = "-".repeat(width + 1);
        if numeric { write!(out, "|{dashes}:")? } else { write!(out, "|{dashes}-")? }
    }
    writeln!(out, "|")?;
    rows.iter().try_for_each(|row| line(out, row))?;
    writeln!(out)
}

pub(super) use crate::foundation::text::{markdown as plain, markdown_code as code};

pub(super) fn quote(text: &str) -> String {
    let short: String = text.chars().take(QUOTE_CHARS).collect();
    let ends = if short.len() < text.len() { "…" } else { "" };
    format!("{}{ends}", plain(&short))
}

/// `text` with an initial capital, escaped for Markdown.
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

/// A number with commas between thousands.
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

/// `1 rollout`, `2 rollouts`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

pub(super) fn mean_known(values: &[Option<f64>]) -> Option<f64> {
    crate::foundation::stats::mean(&values.iter().flatten().copied().collect::<Vec<_>>())
}

/// One block character per value, scaled from `low` to `high`; a space for a missing value.
pub(super) fn sparkline(values: &[Option<f64>], low: f64, high: f64) -> String {
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
    fn a_sparkline_spans_its_range() {
        assert_eq!(sparkline(&[Some(0.0), None, Some(0.5), Some(1.0)], 0.0, 1.0), "▁ ▅█");
        assert_eq!(sparkline(&[Some(2.0), Some(2.0)], 2.0, 2.0), "▁▁");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.1234, 12.34, 123.4].map(number), ["0.12", "12.3", "123"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
