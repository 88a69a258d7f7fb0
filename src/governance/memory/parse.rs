//! Lossless Markdown ↔ blocks (Mind Mem 1.0.3, §1): a [`Document`] borrows its text and knows the range of every block
//! and field, so that an edit changes only the bytes it must. What a block must contain is checked elsewhere.
//!
//! A block begins at its header and ends at the next bracketed line, a `---` line, a Markdown heading, prose after a blank
//! line, or the end of the text. Inside it a line is a field (`Key: value`), a continuation (two spaces), a list item
//! (`- ` under a key without a value), blank, or malformed. A malformed line gets a diagnostic and belongs to no field. A
//! blank line ends a field, except in a list.
//!
//! What Markdown formatters make of these lines is read as well: a blank line between a key and its list or between items, a
//! key indented to the text of the list item above it, tabs, `***` and `___` as separators. What they destroy is reported:
//! joined lines, a header in a heading.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::finding::Finding;
use super::id::BlockId;

mod reader;

/// The fields that hold constraint signatures; a block may use both.
pub const SIGNATURE_KEYS: [&str; 2] = ["ConstraintSignature", "ConstraintSignatures"];

/// A text and its blocks.
#[derive(Debug)]
pub struct Document<'a> {
    text: &'a str,
    blocks: Vec<BlockSpan<'a>>,
    fields: Vec<Field<'a>>,
    findings: Vec<Finding>,
}

#[derive(Debug)]
struct BlockSpan<'a> {
    id: BlockId<'a>,
    start: usize,
    end: usize,
    line: usize,
    fields: Range<usize>,
}

/// One `Key: value` with its continuation lines.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// The key.
    pub key: &'a str,
    /// The value on the key's line, trimmed.
    pub head: &'a str,
    /// The following lines that belong to the field, unchanged.
    pub body: &'a str,
    /// The offset of the key in the text.
    pub start: usize,
    /// The offset of the body: the byte after the key line's end.
    pub body_start: usize,
}

/// A block of a document.
#[derive(Debug, Clone, Copy)]
pub struct Block<'d, 'a> {
    document: &'d Document<'a>,
    span: &'d BlockSpan<'a>,
}

impl<'a> Document<'a> {
    /// Parses `text`. Every text is a document; malformed lines are listed in [`Self::findings`].
    pub fn parse(text: &'a str) -> Self {
        reader::read(text)
    }

    /// The whole text, unchanged.
    pub const fn text(&self) -> &'a str {
        self.text
    }

    /// The blocks in order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = Block<'_, 'a>> + Clone {
        self.blocks.iter().map(|span| Block { document: self, span })
    }

    /// The first block called `id`.
    pub fn block(&self, id: &str) -> Option<Block<'_, 'a>> {
        self.blocks().find(|block| block.id().as_str() == id)
    }

    /// The malformed lines, in order.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// `"\r\n"` if the first line ends with it, else `"\n"`: the line ending that edits use.
    pub fn line_end(&self) -> &'static str {
        line_end(self.text)
    }
}

/// Concatenates the spans: prints the text byte for byte.
impl fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut at = 0;
        for block in self.blocks() {
            f.write_str(self.text.get(at..block.span.start).unwrap_or_default())?;
            f.write_str(block.text())?;
            at = block.span.end;
        }
        f.write_str(self.text.get(at..).unwrap_or_default())
    }
}

impl<'d, 'a> Block<'d, 'a> {
    /// The block's id.
    pub const fn id(&self) -> BlockId<'a> {
        self.span.id
    }

    /// The bytes from the header to the end of the last line of the block.
    pub const fn range(&self) -> Range<usize> {
        self.span.start..self.span.end
    }

    /// The text of the block, unchanged.
    pub fn text(&self) -> &'a str {
        self.document.text.get(self.range()).unwrap_or_default()
    }

    /// The bytes of the id in the header.
    pub const fn id_range(&self) -> Range<usize> {
        self.span.start + 1..self.span.start + 1 + self.span.id.as_str().len()
    }

    /// The line of the header, from 1.
    pub const fn line(&self) -> usize {
        self.span.line
    }

    /// The line number of the byte at `offset` of the text, which must lie in this block.
    pub fn line_of(&self, offset: usize) -> usize {
        self.span.line + newlines(self.document.text, self.span.start..offset)
    }

    /// The fields in order.
    pub fn fields(&self) -> &'d [Field<'a>] {
        self.document.fields.get(self.span.fields.clone()).unwrap_or_default()
    }

    /// The first field called `key`.
    pub fn field(&self, key: &str) -> Option<&'d Field<'a>> {
        self.fields().iter().find(|field| field.key == key)
    }

    /// The value of `key`; `None` if the block has no such field.
    pub fn value(&self, key: &str) -> Option<Cow<'a, str>> {
        self.field(key).map(Field::value)
    }

    /// The one-line value of `key`, or `""`.
    pub fn head(&self, key: &str) -> &'a str {
        self.field(key).map_or("", |field| field.head)
    }

    /// The list under `key`: its items, or its value split at commas.
    pub fn words(&self, key: &str) -> Vec<Cow<'a, str>> {
        self.field(key).map(Field::words).unwrap_or_default()
    }
}

impl<'a> Field<'a> {
    /// The value: the key line's, then each continuation after a newline, without two leading spaces. List items are not
    /// part of it.
    pub fn value(&self) -> Cow<'a, str> {
        let mut continuations = lines(self.body).map_while(|line| line.text.strip_prefix("  ")).peekable();
        if continuations.peek().is_none() {
            return Cow::Borrowed(self.head);
        }
        continuations.fold(self.head.to_owned(), |value, line| value + "\n" + line).into()
    }

    /// The `- ` items under the key, each with the text up to the next item.
    pub fn items(&self) -> impl Iterator<Item = ListItem<'a>> + use<'a> {
        let body = self.body;
        let offset = self.body_start;
        let mut starts = lines(body).filter(|line| is_item(line.text)).map(|line| line.start).peekable();
        std::iter::from_fn(move || {
            let start = starts.next()?;
            let end = starts.peek().copied().unwrap_or(body.len());
            Some(ListItem { text: body.get(start..end)?, start: offset + start })
        })
    }

    /// The list items, or else the value split at commas, without brackets; `none` and blanks are left out.
    pub fn words(&self) -> Vec<Cow<'a, str>> {
        let items: Vec<_> = self.items().map(|item| item.value()).filter(|item| !item.trim().is_empty()).collect();
        if !items.is_empty() {
            return items;
        }
        let value = self.head.trim();
        let value = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')).unwrap_or(value);
        value.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none").map(Cow::Borrowed).collect()
    }

    /// Whether there is neither a value nor a list item.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.trim().is_empty()
    }

    /// The bytes of the key.
    pub const fn key_range(&self) -> Range<usize> {
        self.start..self.start + self.key.len()
    }

    /// The bytes of the whole field, with the end of its last line.
    pub const fn range(&self) -> Range<usize> {
        self.start..self.body_start + self.body.len()
    }
}

/// One list item of a field, from its dash to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListItem<'a> {
    /// The lines of the item, unchanged.
    pub text: &'a str,
    /// The offset of the item in the document.
    pub start: usize,
}

impl<'a> ListItem<'a> {
    /// The item without dash and indent: its first line, then each further line after a newline, without two leading spaces.
    pub fn value(&self) -> Cow<'a, str> {
        let mut rows = lines(self.text).map(|line| line.text);
        let first = rows.next().unwrap_or_default();
        let first = first.strip_prefix('-').unwrap_or(first).trim();
        let mut value = Cow::Borrowed(first);
        for row in rows {
            let value = value.to_mut();
            value.push('\n');
            value.push_str(row.strip_prefix("  ").unwrap_or(row));
        }
        value
    }
}

/// A line without its line ending.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextLine<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The lines of `text` without their line endings.
pub(super) fn lines(text: &str) -> impl Iterator<Item = TextLine<'_>> {
    let mut start = 0;
    let mut ends = memchr::memchr_iter(b'\n', text.as_bytes());
    std::iter::from_fn(move || {
        if start >= text.len() {
            return None;
        }
        let end = ends.next().map_or(text.len(), |end| end + 1);
        let line = text.get(start..end).unwrap_or_default();
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = TextLine { text: line.strip_suffix('\r').unwrap_or(line), start, end };
        start = end;
        Some(line)
    })
}

/// `"\r\n"` if the first line of `text` ends with it, else `"\n"`.
pub fn line_end(text: &str) -> &'static str {
    match memchr::memchr(b'\n', text.as_bytes()) {
        Some(at) if text.get(..at).is_some_and(|line| line.ends_with('\r')) => "\r\n",
        _ => "\n",
    }
}

fn newlines(text: &str, range: Range<usize>) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes().get(range).unwrap_or_default()).count()
}

fn is_item(line: &str) -> bool {
    line.starts_with("- ") || line == "-"
}

#[cfg(test)]
mod tests;
