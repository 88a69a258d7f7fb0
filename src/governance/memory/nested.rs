//! The indented notation inside list items that signatures (§2) and operations (§3) share: `key: value` lines, deeper
//! lines as a map or a list, `{…}` and `[…]` on one line, and `|` for a text of several lines.

use std::borrow::Cow;
use std::ops::Range;

use super::parse::lines;

/// A value of the notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NestedValue<'a> {
    /// A plain value; surrounding quotes are removed.
    Text(Cow<'a, str>),
    /// `[a, b]`, or `- ` lines.
    List(Vec<Cow<'a, str>>),
    /// `{a: 1}`, or deeper `key: value` lines.
    Map(Vec<NestedEntry<'a>>),
}

/// One `key: value` of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedEntry<'a> {
    /// The key.
    pub key: Cow<'a, str>,
    /// The bytes of the key in the text.
    pub span: Range<usize>,
    /// The value.
    pub node: NestedValue<'a>,
}

/// The bytes of a line that does not match the notation.
pub type UnparsedLine = Range<usize>;

/// Parses a list item, including its dash, as a map.
pub fn read<'a>(item: &'a str) -> (Vec<NestedEntry<'a>>, Vec<UnparsedLine>) {
    let mut rows: Vec<Row<'a>> = lines(item)
        .map(|line| {
            let text = line.text.trim_start_matches([' ', '\t']);
            let blanks = line.text.get(..line.text.len() - text.len()).unwrap_or_default();
            Row {
                // A tab indents as far as the two spaces that it replaces.
                indent: blanks.bytes().map(|byte| if byte == b'\t' { 2 } else { 1 }).sum(),
                text: text.trim_end(),
                start: line.start + blanks.len(),
                line_start: line.start,
            }
        })
        .collect();
    // The dash stands in the column of the other keys, which is the lowest of theirs.
    let level = rows.iter().skip(1).filter(|row| !row.text.is_empty()).map(|row| row.indent).min().unwrap_or(2);
    if let Some(first) = rows.first_mut() {
        let text = first.text.strip_prefix('-').unwrap_or(first.text).trim_start();
        first.start += first.text.len() - text.len();
        first.indent = level;
        first.text = text;
    }
    let mut reader = Reader { item, rows: &rows, unparsed: Vec::new() };
    let entries = reader.map(level);
    (entries, reader.unparsed)
}

#[derive(Clone, Copy)]
struct Row<'a> {
    indent: usize,
    text: &'a str,
    start: usize,
    line_start: usize,
}

struct Reader<'r, 'a> {
    item: &'a str,
    rows: &'r [Row<'a>],
    unparsed: Vec<UnparsedLine>,
}

impl<'a> Reader<'_, 'a> {
    fn map(&mut self, indent: usize) -> Vec<NestedEntry<'a>> {
        let mut entries = Vec::new();
        while let Some((row, rest)) = self.rows.split_first() {
            if row.text.is_empty() {
                self.rows = rest;
                continue;
            }
            if row.indent < indent {
                break;
            }
            self.rows = rest;
            let split = row
                .text
                .split_once(':')
                .filter(|(key, rest)| row.indent == indent && word(key) && (rest.is_empty() || rest.starts_with(' ')));
            match split {
                Some((key, value)) => {
                    let node = self.value(value.trim(), indent);
                    let node = if SCOPE_LISTS.contains(&key) { as_list(node) } else { node };
                    entries.push(NestedEntry { key: key.into(), span: row.start..row.start + key.len(), node });
                }
                None => self.unparsed.push(row.start..row.start + row.text.len()),
            }
        }
        entries
    }

    fn value(&mut self, head: &'a str, indent: usize) -> NestedValue<'a> {
        if matches!(head, "|" | "|-" | "|+") {
            return NestedValue::Text(self.literal(indent));
        }
        if !head.is_empty() {
            return inline(head);
        }
        let Some(next) = self.rows.iter().find(|row| !row.text.is_empty()).copied() else {
            return NestedValue::Text("".into());
        };
        let dash = |text: &str| text.starts_with("- ") || text == "-" || text.starts_with("\\- ");
        if dash(next.text) && next.indent >= indent {
            let mut list = Vec::new();
            while let Some((row, rest)) = self.rows.split_first() {
                if !(row.text.is_empty() || dash(row.text) && row.indent >= indent) {
                    break;
                }
                if let Some(text) = row.text.trim_start_matches('\\').strip_prefix('-') {
                    list.push(unquote(text.trim()));
                }
                self.rows = rest;
            }
            return NestedValue::List(list);
        }
        if next.indent > indent { NestedValue::Map(self.map(next.indent)) } else { NestedValue::Text("".into()) }
    }

    /// The deeper lines after `|`, without the indent of the first.
    fn literal(&mut self, indent: usize) -> Cow<'a, str> {
        let deeper = self.rows.iter().take_while(|row| row.indent > indent || row.text.is_empty()).count();
        let (text, rest) = self.rows.split_at_checked(deeper).unwrap_or((self.rows, &[]));
        self.rows = rest;
        let base = text.iter().find(|row| !row.text.is_empty()).map_or(0, |row| row.indent);
        let from = text.first().map_or(self.item.len(), |row| row.line_start);
        let to = rest.first().map_or(self.item.len(), |row| row.line_start);
        let raw = self.item.get(from..to).unwrap_or_default();
        let mut value = String::with_capacity(raw.len());
        for line in lines(raw) {
            let blanks = line.text.bytes().take(base).take_while(|byte| *byte == b' ').count();
            value.push_str(line.text.get(blanks..).unwrap_or_default());
            value.push('\n');
        }
        value.truncate(value.trim_end().len());
        value.into()
    }
}

fn inline(text: &str) -> NestedValue<'_> {
    if text.contains('\\') {
        return inline_plain(&unescape(text)).into_owned();
    }
    inline_plain(text)
}

fn inline_plain(text: &str) -> NestedValue<'_> {
    let between = |open, close| text.strip_prefix(open).and_then(|text| text.strip_suffix(close));
    if let Some(inner) = between('[', ']') {
        let items = parts(inner).into_iter().map(|part| unquote(part.trim())).filter(|part| !part.is_empty());
        return NestedValue::List(items.collect());
    }
    if let Some(inner) = between('{', '}') {
        let entry = |part| {
            let (key, value): (&str, &str) = str::split_once(part, ':')?;
            let key = unquote_str(key.trim()).into();
            Some(NestedEntry { key, span: 0..0, node: inline_plain(value.trim()) })
        };
        return NestedValue::Map(parts(inner).into_iter().filter_map(entry).collect());
    }
    NestedValue::Text(unquote(text))
}

/// `text` without the backslashes that Markdown formatters put before punctuation.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escapes = c == '\\' && chars.peek().is_some_and(char::is_ascii_punctuation);
        out.extend(if escapes { chars.next() } else { Some(c) });
    }
    out
}

/// The keys of a scope whose values are lists. A formatter that takes their lines for one paragraph joins them:
/// `projects: - PRJ-001 - PRJ-002`.
const SCOPE_LISTS: [&str; 3] = ["projects", "channels", "composes_with"];

fn as_list(node: NestedValue<'_>) -> NestedValue<'_> {
    match &node {
        NestedValue::Text(text) if text.starts_with("- ") => {
            let items = text.trim_start_matches("- ").split(" - ").map(|item| item.trim().to_owned().into());
            NestedValue::List(items.collect())
        }
        _ => node,
    }
}

impl NestedValue<'_> {
    fn into_owned<'b>(self) -> NestedValue<'b> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Text(text) => NestedValue::Text(own(text)),
            Self::List(list) => NestedValue::List(list.into_iter().map(own).collect()),
            Self::Map(map) => {
                let entry = |entry: NestedEntry<'_>| NestedEntry {
                    key: own(entry.key),
                    span: entry.span,
                    node: entry.node.into_owned(),
                };
                NestedValue::Map(map.into_iter().map(entry).collect())
            }
        }
    }
}

/// `text` split at commas outside brackets and quotes.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0usize;
    let mut quote = None;
    let mut start = 0;
    let mut parts = Vec::new();
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(text.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    parts
}

fn unquote(text: &str) -> Cow<'_, str> {
    unquote_str(text).into()
}

fn unquote_str(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

fn word(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Access to the values of a map.
pub trait NestedLookup<'a> {
    /// The value of `key`.
    fn node(&self, key: &str) -> Option<&NestedValue<'a>>;

    /// The plain value of `key`, or `""`.
    fn text<'s>(&'s self, key: &str) -> &'s str
    where
        'a: 's,
    {
        match self.node(key) {
            Some(NestedValue::Text(text)) => text.as_ref(),
            _ => "",
        }
    }

    /// The list under `key`; a plain value becomes a list of one.
    fn list<'s>(&'s self, key: &str) -> &'s [Cow<'a, str>] {
        match self.node(key) {
            Some(NestedValue::List(list)) => list,
            Some(NestedValue::Text(text)) if !text.is_empty() => std::slice::from_ref(text),
            _ => &[],
        }
    }

    /// The map under `key`, or an empty one.
    fn map<'s>(&'s self, key: &str) -> &'s [NestedEntry<'a>] {
        match self.node(key) {
            Some(NestedValue::Map(map)) => map,
            _ => &[],
        }
    }
}

impl<'a> NestedLookup<'a> for [NestedEntry<'a>] {
    fn node(&self, key: &str) -> Option<&NestedValue<'a>> {
        self.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_and_indented_scopes_are_read_alike() {
        let inline = "- id: CS-1\n  scope: {projects: [PRJ-001, \"a, b\"], channels: [], time: {start: 2026-01-01}}\n  axis: {key: a.b}\n";
        let deep = "- id: CS-1\n  scope:\n    projects:\n      - PRJ-001\n      - a, b\n    channels: []\n    time:\n      start: 2026-01-01\n  axis:\n    key: a.b\n";
        for text in [inline, deep] {
            let (entries, unparsed) = read(text);
            assert!(unparsed.is_empty());
            assert_eq!(entries.text("id"), "CS-1");
            assert_eq!(entries.map("scope").list("projects"), ["PRJ-001", "a, b"]);
            assert!(entries.map("scope").list("channels").is_empty());
            assert_eq!(entries.map("scope").map("time").text("start"), "2026-01-01");
            assert_eq!(entries.map("axis").text("key"), "a.b");
        }
    }

    #[test]
    fn a_literal_text_keeps_its_lines_and_deeper_indent() {
        let (entries, unparsed) = read(
            "- op: append_block\r\n  patch: |\r\n    [T-001]\r\n    Title: x\r\n      y\r\n\r\n    Due: none\r\n  file: tasks/TASKS.md\r\n",
        );
        assert!(unparsed.is_empty());
        assert_eq!(entries.text("patch"), "[T-001]\nTitle: x\n  y\n\nDue: none");
        assert_eq!(entries.text("file"), "tasks/TASKS.md");
    }

    #[test]
    fn a_line_that_does_not_parse_is_reported() {
        let text = "- id: CS-1\n  no colon here\n  domain: other\n";
        let (entries, unparsed) = read(text);
        assert_eq!(entries.text("domain"), "other");
        assert_eq!(unparsed.iter().map(|span| &text[span.clone()]).collect::<Vec<_>>(), ["no colon here"]);
    }
}
