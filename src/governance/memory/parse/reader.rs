//! The state machine behind [`Document::parse`]: one pass over the lines.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{BlockSpan, Document, Field, SIGNATURE_KEYS, TextLine, lines, newlines};
use crate::governance::memory::finding::{Finding, FindingLevel};
use crate::governance::memory::id::{BlockId, BlockKind};

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
enum ReaderState {
    /// Before any block, or after a heading: prose, ignored.
    Outside,
    /// After a bracketed line that is not a valid header; it has been reported.
    AfterBadHeader,
    /// After the `---` that ended a block.
    AfterSeparator,
    /// After prose that followed a block.
    Prose,
    /// In a block, without an open field.
    Block,
    /// In a block, after a blank line.
    BlockGap,
    /// After a blank line below a key without a value: Markdown formatters put one before a list.
    AfterKeyGap,
    /// In a field that may take continuations and, if its value is empty, items.
    Field,
    /// In a field that has items.
    List,
    /// After a blank line in a field with items.
    AfterBlankLine,
}

struct Parser<'a> {
    document: Document<'a>,
    state: ReaderState,
    /// Whether the open field was found indented, as the last lines of the list item before it.
    indented_field: bool,
    /// The current line, from 1.
    row: usize,
}

/// Parses a whole text.
pub(super) fn read(text: &str) -> Document<'_> {
    let document =
        Document { text, blocks: Vec::new(), fields: Vec::with_capacity(text.len() / 40), findings: Vec::new() };
    let mut parser = Parser { document, state: ReaderState::Outside, indented_field: false, row: 0 };
    parser.run();
    parser.document
}

impl<'a> Parser<'a> {
    fn run(&mut self) {
        let text = self.document.text;
        let bom = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        for line in lines(text.get(bom..).unwrap_or_default()) {
            self.row += 1;
            self.line(TextLine { text: line.text, start: line.start + bom, end: line.end + bom });
        }
        self.close();
    }

    fn line(&mut self, line: TextLine<'a>) {
        match line.text.as_bytes() {
            [] => self.blank(),
            [b'[', ..] | [b' ', b'[', ..] if bracketed(line.text).is_some() => self.header(line),
            bytes if bytes.iter().all(u8::is_ascii_whitespace) => self.blank(),
            [b' ', b' ', ..] | [b'\t', ..] => self.indented(line),
            [b'-', b' ', ..] | [b'-'] => self.item(line),
            [b'A'..=b'Z' | b'a'..=b'z', ..] => self.key(line),
            [b'#' | b'>' | b'\\' | b'*' | b'_', ..] if is_hidden_header(line.text) => self.bad_header(line),
            [b'#', ..] => self.heading(),
            bytes if is_separator(bytes) => self.separator(),
            _ => self.stray(line),
        }
    }

    fn blank(&mut self) {
        self.state = match self.state {
            ReaderState::Field if self.document.fields.last().is_some_and(Field::is_empty) => ReaderState::AfterKeyGap,
            ReaderState::Field | ReaderState::Block => ReaderState::BlockGap,
            ReaderState::List => ReaderState::AfterBlankLine,
            other => other,
        };
    }

    fn heading(&mut self) {
        self.close();
        self.state = ReaderState::Outside;
    }

    fn separator(&mut self) {
        if self.in_block() {
            self.close();
            self.state = ReaderState::AfterSeparator;
        }
    }

    /// Text after a block ends it and is of no interest.
    fn prose(&mut self) {
        self.close();
        self.state = ReaderState::Prose;
    }

    fn header(&mut self, line: TextLine<'a>) {
        let id =
            line.text.strip_prefix('[').and_then(|rest| rest.trim_end().strip_suffix(']')).and_then(BlockId::parse);
        if let Some(id) = id {
            self.close();
            let fields = self.document.fields.len();
            self.document.blocks.push(BlockSpan {
                id,
                start: line.start,
                end: line.end,
                line: self.row,
                fields: fields..fields,
            });
            self.state = ReaderState::Block;
        } else {
            self.bad_header(line);
        }
    }

    fn bad_header(&mut self, line: TextLine<'a>) {
        self.close();
        self.state = ReaderState::AfterBadHeader;
        let message = format!("`{}` is not a block header", clip(line.text.trim_end()));
        let help = "a header is `[ID]` alone at the start of a line; an ID is PREFIX-001 or PREFIX-YYYYMMDD-001 with one of the thirteen prefixes; what follows belongs to no block. If a formatter joined or escaped the lines, restore them: a file of blocks must not be wrapped";
        self.report("header", line, message, help);
    }

    fn key(&mut self, line: TextLine<'a>) {
        let Some((key, rest)) = key_of(line.text) else { return self.stray(line) };
        let orphan = match self.state {
            ReaderState::AfterSeparator | ReaderState::Prose => is_known_key(key),
            ReaderState::Outside => SIGNATURE_KEYS.contains(&key),
            _ => false,
        };
        if orphan {
            let help = "move the field into its block, directly below the block's other fields";
            return self.report("orphan", line, format!("`{key}` belongs to no block"), help);
        }
        if !self.in_block() {
            return;
        }
        if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
            self.state = ReaderState::Block;
            let help = "write `Key: value`, with a space after the colon";
            return self.report("key", line, format!("no space after `{key}:`"), help);
        }
        self.open_field(key, rest, line, false);
    }

    fn open_field(&mut self, key: &'a str, rest: &'a str, line: TextLine<'a>, indented: bool) {
        let field = Field { key, head: rest.trim(), body: "", start: line.start, body_start: line.end };
        self.document.fields.push(field);
        self.extend(line.end);
        self.state = ReaderState::Field;
        self.indented_field = indented;
    }

    fn indented(&mut self, line: TextLine<'a>) {
        if self.lazy_key(line) {
            return;
        }
        match self.state {
            ReaderState::Field if !line.text.starts_with('\t') => self.extend(line.end),
            ReaderState::List | ReaderState::AfterBlankLine => {
                self.state = ReaderState::List;
                self.extend(line.end);
            }
            _ => self.malformed(line),
        }
    }

    /// To Markdown, a key below a list item is part of the item: formatters indent it to the item's text. It is read as
    /// the key that it was, if the block has none of that name.
    fn lazy_key(&mut self, line: TextLine<'a>) -> bool {
        let text = line.text.strip_prefix("  ").or_else(|| line.text.strip_prefix('\t')).unwrap_or_default();
        let Some((key, rest)) = key_of(text).filter(|(_, rest)| rest.is_empty() || rest.starts_with(' ')) else {
            return false;
        };
        let lazy = match self.state {
            ReaderState::List | ReaderState::AfterBlankLine => is_known_key(key),
            ReaderState::Field => self.indented_field,
            _ => false,
        };
        if !lazy || self.has_field(key) {
            return false;
        }
        let start = line.start + line.text.len() - text.len();
        self.open_field(key, rest, TextLine { text, start, end: line.end }, true);
        true
    }

    fn has_field(&self, key: &str) -> bool {
        let fields = self.document.blocks.last().and_then(|block| self.document.fields.get(block.fields.clone()));
        fields.is_some_and(|fields| fields.iter().any(|field| field.key == key))
    }

    fn item(&mut self, line: TextLine<'a>) {
        use ReaderState::{AfterBlankLine, AfterKeyGap, AfterSeparator, BlockGap, Field, List, Outside, Prose};
        let listing = matches!(self.state, Field | List | AfterKeyGap | AfterBlankLine);
        if listing && self.document.fields.last().is_some_and(|field| field.head.is_empty()) {
            self.extend(line.end);
            self.state = List;
        } else if matches!(self.state, BlockGap | AfterSeparator | Prose | Outside) && line.text.starts_with("- id:") {
            let help = "move it under the `ConstraintSignatures:` of its decision";
            let message =
                format!("the signature `{}` belongs to no decision", clip(line.text.trim_start_matches("- ")));
            self.report("orphan", line, message, help);
        } else {
            self.stray(line);
        }
    }

    /// A line that is not part of a block: prose where a blank line precedes it, malformed directly below a field.
    fn stray(&mut self, line: TextLine<'a>) {
        match self.state {
            ReaderState::BlockGap | ReaderState::AfterKeyGap | ReaderState::AfterBlankLine => self.prose(),
            _ => self.malformed(line),
        }
    }

    fn malformed(&mut self, line: TextLine<'a>) {
        if !self.in_block() {
            return;
        }
        self.state = ReaderState::Block;
        let help = "a line of a block is `Key: value`, a continuation indented by two spaces, or `- item` under a key without a value; put a blank line before prose";
        self.report("line", line, format!("`{}` is not part of the block around it", clip(line.text)), help);
    }

    const fn in_block(&self) -> bool {
        matches!(
            self.state,
            ReaderState::Block
                | ReaderState::BlockGap
                | ReaderState::Field
                | ReaderState::AfterKeyGap
                | ReaderState::List
                | ReaderState::AfterBlankLine
        )
    }

    /// Extends the open block, and its open field if any, to `end`.
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

    /// Ends the open block and reports duplicate fields.
    fn close(&mut self) {
        if !self.in_block() {
            return;
        }
        let Some(block) = self.document.blocks.last() else { return };
        let fields = self.document.fields.get(block.fields.clone()).unwrap_or_default();
        let (row, start) = (block.line, block.start);
        for field in duplicates(fields) {
            let line = TextLine { text: field.key, start: field.start, end: field.start };
            let row = row + newlines(self.document.text, start..field.start);
            let message = format!("`{}` is defined twice", field.key);
            self.report_at(row, "duplicate-field", line, message, "remove one of them; the first is used");
        }
    }

    fn report(&mut self, code: &'static str, line: TextLine<'a>, message: String, help: &str) {
        self.report_at(self.row, code, line, message, help);
    }

    fn report_at(&mut self, row: usize, code: &'static str, line: TextLine<'a>, message: String, help: &str) {
        let block = self.document.blocks.last().filter(|_| self.in_block()).map_or("", |block| block.id.as_str());
        let finding = Finding {
            code,
            level: FindingLevel::Error,
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

/// Whether blocks have fields of this name.
fn is_known_key(key: &str) -> bool {
    const OPTIONAL: [&str; 12] = [
        "AlignsWith",
        "DeferredUntil",
        "Evidence",
        "Fingerprint",
        "Justification",
        "Ops",
        "ProposalId",
        "Risk",
        "Rollback",
        "RootCause",
        "TargetBlock",
        "Resolved",
    ];
    OPTIONAL.contains(&key)
        || SIGNATURE_KEYS.contains(&key)
        || BlockKind::ALL.iter().any(|kind| kind.required().contains(&key))
}

/// Whether the line is a block header behind Markdown that keeps it from being one: a heading, a quote, an escape, bold.
fn is_hidden_header(line: &str) -> bool {
    let text = line.trim_start_matches(['#', '>', '*', '_', '\\', ' ']);
    let inner = text.strip_prefix('[').and_then(|text| text.split_once(']')).map(|(inner, _)| inner);
    inner.is_some_and(|inner| BlockId::parse(inner.trim_end_matches('\\')).is_some())
}

/// A thematic break: `---`, or as some formatters write it, `***` or `___`.
fn is_separator(line: &[u8]) -> bool {
    let [mark @ (b'-' | b'*' | b'_'), _, _, ..] = line else { return false };
    let marks = line.iter().take_while(|byte| *byte == mark).count();
    marks >= 3 && line.iter().all(|byte| byte == mark || matches!(byte, b' ' | b'\t'))
}

/// The fields whose key occurred before, in order.
fn duplicates<'a>(fields: &[Field<'a>]) -> Vec<Field<'a>> {
    if fields.len() <= 16 {
        let repeated =
            |(index, field): &(usize, &Field<'a>)| fields.iter().take(*index).any(|earlier| earlier.key == field.key);
        return fields.iter().enumerate().filter(repeated).map(|(_, field)| *field).collect();
    }
    let mut seen = HashSet::new();
    fields.iter().filter(|field| !seen.insert(field.key)).copied().collect()
}

/// The content of the brackets at the start of a line that looks like a header: alone on the line, or shaped like an id.
/// A Markdown link does not look like one.
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
