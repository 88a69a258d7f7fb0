//! The small indented notation inside list items, which signatures (§2) and operations (§3) share: `key: value` lines,
//! deeper lines as a map or a list, `{…}` and `[…]` on one line, and `|` for a text of several lines.

use std::borrow::Cow;
use std::ops::Range;

use super::parse::lines;

/// A value of the notation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node<'a> {
    /// A plain value; quotes around it are taken off.
    Text(Cow<'a, str>),
    /// `[a, b]`, or `- ` lines.
    List(Vec<Cow<'a, str>>),
    /// `{a: 1}`, or deeper `key: value` lines.
    Map(Vec<Entry<'a>>),
}

/// One `key: value` of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a str,
    /// Where the key lies in the text that was read.
    pub span: Range<usize>,
    /// The value.
    pub node: Node<'a>,
}

/// A line that the notation has no place for: its bytes.
pub type Stray = Range<usize>;

/// Reads an item of a list, from its dash on, as a map.
pub fn read<'a>(item: &'a str) -> (Vec<Entry<'a>>, Vec<Stray>) {
    let mut rows: Vec<Row<'a>> = lines(item)
        .map(|line| {
            let text = line.text.trim_start_matches(' ');
            Row {
                indent: line.text.len() - text.len(),
                text: text.trim_end(),
                start: line.start + line.text.len() - text.len(),
            }
        })
        .collect();
    // The dash stands where the indent of the other keys stands.
    if let Some(first) = rows.first_mut() {
        let text = first.text.strip_prefix('-').unwrap_or(first.text).trim_start();
        first.start += first.text.len() - text.len();
        first.indent += 2;
        first.text = text;
    }
    let mut reader = Reader { item, rows: &rows, stray: Vec::new() };
    let entries = reader.map(2);
    (entries, reader.stray)
}

#[derive(Clone, Copy)]
struct Row<'a> {
    indent: usize,
    text: &'a str,
    start: usize,
}

struct Reader<'r, 'a> {
    item: &'a str,
    rows: &'r [Row<'a>],
    stray: Vec<Stray>,
}

impl<'a> Reader<'_, 'a> {
    fn map(&mut self, indent: usize) -> Vec<Entry<'a>> {
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
                    entries.push(Entry { key, span: row.start..row.start + key.len(), node });
                }
                None => self.stray.push(row.start..row.start + row.text.len()),
            }
        }
        entries
    }

    fn value(&mut self, head: &'a str, indent: usize) -> Node<'a> {
        if matches!(head, "|" | "|-" | "|+") {
            return Node::Text(self.literal(indent));
        }
        if !head.is_empty() {
            return inline(head);
        }
        let Some(next) = self.rows.iter().find(|row| !row.text.is_empty()).copied() else {
            return Node::Text("".into());
        };
        let dash = |text: &str| text.starts_with("- ") || text == "-";
        if dash(next.text) && next.indent >= indent {
            let mut list = Vec::new();
            while let Some((row, rest)) = self.rows.split_first() {
                if !(row.text.is_empty() || dash(row.text) && row.indent >= indent) {
                    break;
                }
                if let Some(text) = row.text.strip_prefix('-') {
                    list.push(unquote(text.trim()));
                }
                self.rows = rest;
            }
            return Node::List(list);
        }
        if next.indent > indent { Node::Map(self.map(next.indent)) } else { Node::Text("".into()) }
    }

    /// The deeper lines after `|`, the indent of the first taken off each.
    fn literal(&mut self, indent: usize) -> Cow<'a, str> {
        let deeper = self.rows.iter().take_while(|row| row.indent > indent || row.text.is_empty()).count();
        let (text, rest) = self.rows.split_at_checked(deeper).unwrap_or((self.rows, &[]));
        self.rows = rest;
        let base = text.iter().find(|row| !row.text.is_empty()).map_or(0, |row| row.indent);
        let from = text.first().map_or(self.item.len(), |row| row.start - row.indent);
        let to = rest.first().map_or(self.item.len(), |row| row.start - row.indent);
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

fn inline(text: &str) -> Node<'_> {
    let between = |open, close| text.strip_prefix(open).and_then(|text| text.strip_suffix(close));
    if let Some(inner) = between('[', ']') {
        let items = parts(inner).into_iter().map(|part| unquote(part.trim())).filter(|part| !part.is_empty());
        return Node::List(items.collect());
    }
    if let Some(inner) = between('{', '}') {
        let entry = |part| {
            let (key, value): (&str, &str) = str::split_once(part, ':')?;
            Some(Entry { key: unquote_str(key.trim()), span: 0..0, node: inline(value.trim()) })
        };
        return Node::Map(parts(inner).into_iter().filter_map(entry).collect());
    }
    Node::Text(unquote(text))
}

/// `text` split at the commas that stand in no bracket and no quotes.
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

/// Looking things up in a map.
pub trait Lookup<'a> {
    /// The value of `key`.
    fn node(&self, key: &str) -> Option<&Node<'a>>;

    /// The plain value of `key`, or `""`.
    fn text<'s>(&'s self, key: &str) -> &'s str
    where
        'a: 's,
    {
        match self.node(key) {
            Some(Node::Text(text)) => text.as_ref(),
            _ => "",
        }
    }

    /// The list under `key`; a plain value is a list of one.
    fn list<'s>(&'s self, key: &str) -> &'s [Cow<'a, str>] {
        match self.node(key) {
            Some(Node::List(list)) => list,
            Some(Node::Text(text)) if !text.is_empty() => std::slice::from_ref(text),
            _ => &[],
        }
    }

    /// The map under `key`, or an empty one.
    fn map<'s>(&'s self, key: &str) -> &'s [Entry<'a>] {
        match self.node(key) {
            Some(Node::Map(map)) => map,
            _ => &[],
        }
    }
}

impl<'a> Lookup<'a> for [Entry<'a>] {
    fn node(&self, key: &str) -> Option<&Node<'a>> {
        self.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_of_scope_read_alike() {
        let inline = "- id: CS-1\n  scope: {projects: [PRJ-001, \"a, b\"], channels: [], time: {start: 2026-01-01}}\n  axis: {key: a.b}\n";
        let deep = "- id: CS-1\n  scope:\n    projects:\n      - PRJ-001\n      - a, b\n    channels: []\n    time:\n      start: 2026-01-01\n  axis:\n    key: a.b\n";
        for text in [inline, deep] {
            let (entries, stray) = read(text);
            assert!(stray.is_empty());
            assert_eq!(entries.text("id"), "CS-1");
            assert_eq!(entries.map("scope").list("projects"), ["PRJ-001", "a, b"]);
            assert!(entries.map("scope").list("channels").is_empty());
            assert_eq!(entries.map("scope").map("time").text("start"), "2026-01-01");
            assert_eq!(entries.map("axis").text("key"), "a.b");
        }
    }

    #[test]
    fn a_text_keeps_its_lines_and_its_deeper_indent() {
        let (entries, stray) = read(
            "- op: append_block\r\n  patch: |\r\n    [T-001]\r\n    Title: x\r\n      y\r\n\r\n    Due: none\r\n  file: tasks/TASKS.md\r\n",
        );
        assert!(stray.is_empty());
        assert_eq!(entries.text("patch"), "[T-001]\nTitle: x\n  y\n\nDue: none");
        assert_eq!(entries.text("file"), "tasks/TASKS.md");
    }

    #[test]
    fn a_line_without_a_place_is_told() {
        let text = "- id: CS-1\n  no colon here\n  domain: other\n";
        let (entries, stray) = read(text);
        assert_eq!(entries.text("domain"), "other");
        assert_eq!(stray.iter().map(|span| &text[span.clone()]).collect::<Vec<_>>(), ["no colon here"]);
    }
}
