//! The reader behind [`Document::parse`]: one pass over the lines, one state.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{Document, Field, Line, Span, lines, newlines};
use crate::governance::memory::finding::{Finding, Level};
use crate::governance::memory::id::BlockId;

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

/// Reads a whole text.
pub(super) fn read(text: &str) -> Document<'_> {
    let document =
        Document { text, blocks: Vec::new(), fields: Vec::with_capacity(text.len() / 40), findings: Vec::new() };
    let mut parser = Parser { document, state: State::Outside, row: 0 };
    parser.run();
    parser.document
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
                self.separator();
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
    let mut seen = HashSet::new();
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
