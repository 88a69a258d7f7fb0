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

use super::finding::{Finding, Level};
use super::id::BlockId;

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
        let mut parser = Parser {
            document: Self { text, blocks: Vec::new(), fields: Vec::new(), findings: Vec::new() },
            state: State::Outside,
            row: 0,
        };
        parser.document.fields.reserve(text.len() / 40);
        parser.run();
        parser.document
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

/// Splits `Key:` off a line; the rest begins after the colon.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let bytes = line.as_bytes();
    if !bytes.first()?.is_ascii_alphabetic() {
        return None;
    }
    let length = bytes.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))?;
    Some((line.get(..length)?, line.get(length..)?.strip_prefix(':')?))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before any block, or after a heading: prose, of no interest.
    Outside,
    /// After a bracketed line that is no header: already diagnosed.
    Disowned,
    /// After the `---` that ended a block.
    Separated,
    /// In a block, no field open.
    Block,
    /// In a field that may take continuations and, under an empty value, items.
    Field,
    /// In a field that has items.
    List,
    /// After a blank line in a field that has items.
    Gap,
}

struct Parser<'a> {
    document: Document<'a>,
    state: State,
    /// The current line, from 1.
    row: usize,
}

impl<'a> Parser<'a> {
    fn run(&mut self) {
        let text = self.document.text;
        let bom = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        for line in lines(text.get(bom..).unwrap_or_default()) {
            self.row += 1;
            self.line(Line { text: line.text, start: line.start + bom, end: line.end + bom });
        }
        self.close();
    }

    fn line(&mut self, line: Line<'a>) {
        match line.text.as_bytes() {
            [] => self.blank(),
            [b'[', ..] | [b' ', b'[', ..] if bracketed(line.text).is_some() => self.header(line),
            [b' ', b' ', ..] => self.indented(line),
            [b'-', b' ', ..] | [b'-'] => self.item(line),
            [b'A'..=b'Z' | b'a'..=b'z', ..] => self.key(line),
            [b'#', ..] => self.heading(),
            bytes if bytes.iter().all(u8::is_ascii_whitespace) => self.blank(),
            [b'-', b'-', b'-', rest @ ..] if rest.iter().all(|byte| matches!(byte, b'-' | b' ' | b'\t')) => {
                self.separator()
            }
            _ => self.stray(line),
        }
    }

    fn blank(&mut self) {
        self.state = match self.state {
            State::Field => State::Block,
            State::List => State::Gap,
            other => other,
        };
    }

    fn heading(&mut self) {
        self.close();
        self.state = State::Outside;
    }

    fn separator(&mut self) {
        if self.in_block() {
            self.close();
            self.state = State::Separated;
        }
    }

    fn header(&mut self, line: Line<'a>) {
        self.close();
        let id =
            line.text.strip_prefix('[').and_then(|rest| rest.trim_end().strip_suffix(']')).and_then(BlockId::parse);
        if let Some(id) = id {
            let fields = self.document.fields.len();
            self.document.blocks.push(Span {
                id,
                start: line.start,
                end: line.end,
                line: self.row,
                fields: fields..fields,
            });
            self.state = State::Block;
        } else {
            self.state = State::Disowned;
            let message = format!("`{}` is not a block header", line.text.trim_end());
            let help = "a header is `[ID]` alone at the start of a line; an ID is PREFIX-001 or PREFIX-YYYYMMDD-001 with one of the thirteen prefixes; what follows belongs to no block";
            self.report("header", line, message, help);
        }
    }

    fn key(&mut self, line: Line<'a>) {
        let Some((key, rest)) = key_of(line.text) else { return self.stray(line) };
        if self.state == State::Separated {
            let help = "move the field above the `---`, or give it a header of its own";
            return self.report("orphan", line, format!("`{key}` belongs to no block"), help);
        }
        if !self.in_block() {
            return;
        }
        if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
            self.state = State::Block;
            let help = "write `Key: value`, with a space after the colon";
            return self.report("key", line, format!("no space after `{key}:`"), help);
        }
        let body_start = line.end;
        let field = Field { key, head: rest.trim(), body: "", start: line.start, body_start };
        self.document.fields.push(field);
        self.extend(line.end);
        self.state = State::Field;
    }

    fn indented(&mut self, line: Line<'a>) {
        match self.state {
            State::Field | State::List => self.extend(line.end),
            State::Gap if line.text.starts_with("    ") => {
                self.state = State::List;
                self.extend(line.end);
            }
            _ => self.stray(line),
        }
    }

    fn item(&mut self, line: Line<'a>) {
        let open = matches!(self.state, State::Field | State::List)
            && self.document.fields.last().is_some_and(|field| field.head.is_empty());
        if open {
            self.extend(line.end);
            self.state = State::List;
        } else {
            self.stray(line);
        }
    }

    fn stray(&mut self, line: Line<'a>) {
        if !self.in_block() {
            return;
        }
        self.state = State::Block;
        let help = "a line of a block is `Key: value`, a continuation indented by two spaces, or `- item` under a key without a value; no blank line may stand before the last two";
        self.report("line", line, format!("`{}` is no part of the block around it", clip(line.text)), help);
    }

    const fn in_block(&self) -> bool {
        matches!(self.state, State::Block | State::Field | State::List | State::Gap)
    }

    /// Lets the open block, and its last field if one is open, reach to `end`.
    fn extend(&mut self, end: usize) {
        let text = self.document.text;
        if let Some(field) = self.document.fields.last_mut() {
            field.body = text.get(field.body_start..end).unwrap_or_default();
        }
        if let Some(block) = self.document.blocks.last_mut() {
            block.end = end;
            block.fields.end = self.document.fields.len();
        }
    }

    /// Ends the open block: here the duplicates in it are found.
    fn close(&mut self) {
        if !self.in_block() {
            return;
        }
        let Some(block) = self.document.blocks.last() else { return };
        let fields = self.document.fields.get(block.fields.clone()).unwrap_or_default();
        let (row, start) = (block.line, block.start);
        for field in duplicates(fields) {
            let line = Line { text: field.key, start: field.start, end: field.start };
            let row = row + newlines(self.document.text, start..field.start);
            let message = format!("`{}` is given twice", field.key);
            self.report_at(
                row,
                "duplicate-field",
                line,
                message,
                "keep one of them; the first is the one that is read",
            );
        }
    }

    fn report(&mut self, code: &'static str, line: Line<'a>, message: String, help: &str) {
        self.report_at(self.row, code, line, message, help);
    }

    fn report_at(&mut self, row: usize, code: &'static str, line: Line<'a>, message: String, help: &str) {
        let block = self.document.blocks.last().filter(|_| self.in_block()).map_or("", |block| block.id.as_str());
        let finding = Finding {
            code,
            level: Level::Error,
            file: String::new(),
            line: row,
            span: line.start..line.start + line.text.len(),
            block: block.to_owned(),
            message,
            help: help.to_owned(),
        };
        self.document.findings.push(finding);
    }
}

/// The fields whose key an earlier one has, in order.
fn duplicates<'a>(fields: &[Field<'a>]) -> Vec<Field<'a>> {
    if fields.len() <= 16 {
        let repeated =
            |(index, field): &(usize, &Field<'a>)| fields.iter().take(*index).any(|earlier| earlier.key == field.key);
        return fields.iter().enumerate().filter(repeated).map(|(_, field)| *field).collect();
    }
    let mut seen = std::collections::HashSet::new();
    fields.iter().filter(|field| !seen.insert(field.key)).copied().collect()
}

/// What stands in the brackets that a line begins with, if it looks like a header: alone on the line, or shaped like an
/// id. A Markdown link is neither.
fn bracketed(line: &str) -> Option<&str> {
    let (inner, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let shaped = inner.split_once('-').is_some_and(|(prefix, rest)| {
        !prefix.is_empty()
            && prefix.bytes().all(|byte| byte.is_ascii_alphabetic())
            && rest.starts_with(|c: char| c.is_ascii_digit())
    });
    (rest.trim().is_empty() || (shaped && !rest.starts_with('('))).then_some(inner)
}

fn clip(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests;
