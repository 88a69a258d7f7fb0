//! Markdown ↔ blocks, losslessly (Mind Mem 1.0.3, §1): a [`Document`] borrows its text and knows where every block and
//! field lies in it, so that an edit can change only the bytes it must. Says nothing about what a block must hold.
//!
//! A block begins at its header and ends at the next bracketed line, a `---` line, a Markdown heading or the end of the
//! text. Inside it a line is a field (`Key: value`), a continuation (two spaces), a list item (`- ` under a key without
//! a value), blank, or malformed. What is malformed gets a diagnostic and belongs to nothing. A blank line ends a field;
//! only a list item that holds a nested text may go on after one, four spaces deep.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::finding::Finding;
use super::id::BlockId;

mod reader;

/// A text and the blocks in it.
#[derive(Debug)]
pub struct Document<'a> {
    text: &'a str,
    blocks: Vec<Span<'a>>,
    fields: Vec<Field<'a>>,
    findings: Vec<Finding>,
}

#[derive(Debug)]
struct Span<'a> {
    id: BlockId<'a>,
    start: usize,
    end: usize,
    line: usize,
    fields: Range<usize>,
}

/// One `Key: value` with the lines that continue it.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// The key.
    pub key: &'a str,
    /// The value on the key's own line, without the blanks around it.
    pub head: &'a str,
    /// The lines after it that belong to the field, as they stand in the text.
    pub body: &'a str,
    /// Where the key begins in the text.
    pub start: usize,
    /// Where the body begins: the byte after the key line's end.
    pub body_start: usize,
}

/// A block of a document.
#[derive(Debug, Clone, Copy)]
pub struct Block<'d, 'a> {
    document: &'d Document<'a>,
    span: &'d Span<'a>,
}

impl<'a> Document<'a> {
    /// Reads `text`. Every text is a document; what is malformed in it is in [`Self::findings`].
    pub fn parse(text: &'a str) -> Self {
        reader::read(text)
    }

    /// The whole text, as it was read.
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

    /// What is malformed, in order.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// `"\r\n"` where the text's first line ends so, else `"\n"`: what an edit writes between lines.
    pub fn line_end(&self) -> &'static str {
        line_end(self.text)
    }
}

/// Printing joins the spans again: the text byte for byte.
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

    /// The bytes from the header to the end of the last line that belongs to the block.
    pub const fn range(&self) -> Range<usize> {
        self.span.start..self.span.end
    }

    /// The block as it stands in the text.
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

    /// The line of the byte at `offset` of the text, which lies in this block.
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

    /// The value of `key`; `None` where the block has no such field.
    pub fn value(&self, key: &str) -> Option<Cow<'a, str>> {
        self.field(key).map(Field::value)
    }

    /// The one-line value of `key`, or `""`.
    pub fn head(&self, key: &str) -> &'a str {
        self.field(key).map_or("", |field| field.head)
    }

    /// The words of `key`: list items, or a value split at commas.
    pub fn words(&self, key: &str) -> Vec<Cow<'a, str>> {
        self.field(key).map(Field::words).unwrap_or_default()
    }
}

impl<'a> Field<'a> {
    /// The value: the key line's, then each continuation after a newline, two spaces taken off. List items are not
    /// part of it.
    pub fn value(&self) -> Cow<'a, str> {
        let mut continuations = lines(self.body).map_while(|line| line.text.strip_prefix("  ")).peekable();
        if continuations.peek().is_none() {
            return Cow::Borrowed(self.head);
        }
        continuations.fold(self.head.to_owned(), |value, line| value + "\n" + line).into()
    }

    /// The `- ` items under the key, each as the text from its dash to the next item.
    pub fn items(&self) -> impl Iterator<Item = Item<'a>> + use<'a> {
        let body = self.body;
        let offset = self.body_start;
        let mut starts = lines(body).filter(|line| is_item(line.text)).map(|line| line.start).peekable();
        std::iter::from_fn(move || {
            let start = starts.next()?;
            let end = starts.peek().copied().unwrap_or(body.len());
            Some(Item { text: body.get(start..end)?, start: offset + start })
        })
    }

    /// List items, or else the value split at commas (brackets around it taken off); `none` and blanks are left out.
    pub fn words(&self) -> Vec<Cow<'a, str>> {
        let items: Vec<_> = self.items().map(|item| item.value()).filter(|item| !item.trim().is_empty()).collect();
        if !items.is_empty() {
            return items;
        }
        let value = self.head.trim();
        let value = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')).unwrap_or(value);
        value.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none").map(Cow::Borrowed).collect()
    }

    /// Whether there is neither a value nor an item.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.trim().is_empty()
    }

    /// The bytes of the key.
    pub const fn key_range(&self) -> Range<usize> {
        self.start..self.start + self.key.len()
    }

    /// The bytes of the whole field, its last line's end included.
    pub const fn range(&self) -> Range<usize> {
        self.start..self.body_start + self.body.len()
    }
}

/// One list item of a field, from its dash to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The item's lines as they stand in the text.
    pub text: &'a str,
    /// Where it begins in the document.
    pub start: usize,
}

impl<'a> Item<'a> {
    /// The item without dash and indent: its first line, then every further one after a newline, two spaces taken off.
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

/// A line without its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The lines of `text`, their ends taken off.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    let mut ends = memchr::memchr_iter(b'\n', text.as_bytes());
    std::iter::from_fn(move || {
        if start >= text.len() {
            return None;
        }
        let end = ends.next().map_or(text.len(), |end| end + 1);
        let line = text.get(start..end).unwrap_or_default();
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = Line { text: line.strip_suffix('\r').unwrap_or(line), start, end };
        start = end;
        Some(line)
    })
}

/// `"\r\n"` where the first line of `text` ends so, else `"\n"`.
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
