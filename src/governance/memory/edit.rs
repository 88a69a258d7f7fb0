//! Edits that leave every other byte of a text unchanged: the seven operations of a proposal, and the field updates
//! that records need.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::id::{BlockId, BlockKind};
use super::parse::{Block, Document, Field, line_end, lines};
use super::proposal::{ProposalOp, ProposalOpKind};

/// Why an operation cannot be applied to a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EditError(String);

type EditResult = Result<String, EditError>;

fn refuse<T>(message: impl Into<String>) -> Result<T, EditError> {
    Err(EditError(message.into()))
}

/// `text` after `op`.
///
/// # Errors
/// If the operation does not fit the text; the message says why.
pub fn apply_op(text: &str, op: &ProposalOp) -> EditResult {
    let document = Document::parse(text);
    let Some(kind) = op.kind else { return refuse("the operation has no kind") };
    if kind == ProposalOpKind::AppendBlock {
        new_blocks(op)?;
        return Ok(append(text, &op.patch));
    }
    let Some(block) = document.block(&op.target) else {
        return refuse(format!("{} is not in `{}`", op.target, op.file));
    };
    let edits =
        matches!(kind, ProposalOpKind::UpdateField | ProposalOpKind::AppendListItem | ProposalOpKind::ReplaceRange);
    if edits && block.id().kind() == BlockKind::Decision {
        return refuse(format!("{} is a decision: it is never edited (M2); set its status or supersede it", op.target));
    }
    match kind {
        ProposalOpKind::AppendBlock | ProposalOpKind::InsertAfterBlock => {
            new_blocks(op)?;
            Ok(insert_after(text, &block, &op.patch))
        }
        ProposalOpKind::UpdateField => Ok(set_field(text, &block, needed("field", &op.field)?, &op.value)),
        ProposalOpKind::AppendListItem => {
            add_item(text, &block, needed("list", &op.field)?, needed("item", &op.value)?)
        }
        ProposalOpKind::ReplaceRange => replace_range(text, &block, op),
        ProposalOpKind::SetStatus => set_status(text, &block, needed("status", &op.status)?, &op.history),
        ProposalOpKind::SupersedeDecision => supersede(text, &block, op),
    }
}

fn needed<'t>(what: &str, value: &'t str) -> Result<&'t str, EditError> {
    if value.is_empty() { refuse(format!("the operation has no `{what}`")) } else { Ok(value) }
}

/// Checks that the patch consists of blocks only.
fn new_blocks(op: &ProposalOp) -> Result<(), EditError> {
    let patch = Document::parse(&op.patch);
    if let Some(finding) = patch.findings().first() {
        return refuse(format!("line {} of the patch: {}", finding.line, finding.message));
    }
    match patch.blocks().next() {
        Some(first) if first.range().start == 0 => Ok(()),
        _ => refuse("the patch does not begin with a block"),
    }
}

fn supersede(text: &str, block: &Block<'_, '_>, op: &ProposalOp) -> EditResult {
    new_blocks(op)?;
    let patch = Document::parse(&op.patch);
    let mut blocks = patch.blocks();
    let (Some(new), None) = (blocks.next(), blocks.next()) else { return refuse("the patch must be one decision") };
    if block.id().kind() != BlockKind::Decision || new.id().kind() != BlockKind::Decision {
        return refuse("only a decision supersedes a decision");
    }
    if block.head("Status") != "active" {
        return refuse(format!("{} is not active, but {}", op.target, block.head("Status")));
    }
    if new.head("Supersedes") != op.target {
        return refuse(format!("the new decision must say `Supersedes: {}`", op.target));
    }
    Ok(append(&set_status(text, block, "superseded", "")?, &op.patch))
}

fn set_status(text: &str, block: &Block<'_, '_>, status: &str, history: &str) -> EditResult {
    let Some(field) = block.field("Status") else { return refuse(format!("{} has no Status", block.id())) };
    let edited = splice(text, head_range(text, field), status);
    if history.is_empty() {
        return Ok(edited);
    }
    let document = Document::parse(&edited);
    let block = document.blocks().find(|other| other.range().start == block.range().start);
    block.map_or_else(|| refuse("the block is gone"), |block| add_item(&edited, &block, "History", history))
}

/// `text` with `key` of `block` set to `value`; a missing field is added at the end of the block.
pub fn set_field(text: &str, block: &Block<'_, '_>, key: &str, value: &str) -> String {
    let end = line_end(text);
    let value = value.replace('\n', &format!("{end}  "));
    match block.field(key) {
        Some(field) if field.body.is_empty() => splice(text, head_range(text, field), &value),
        Some(field) => {
            let tail = if text.get(field.range()).is_some_and(|field| field.ends_with('\n')) { end } else { "" };
            splice(text, field.range(), &format!("{key}: {value}{tail}"))
        }
        None => insert_line(text, block.range().end, &format!("{key}: {value}")),
    }
}

fn add_item(text: &str, block: &Block<'_, '_>, key: &str, item: &str) -> EditResult {
    let item = item.replace('\n', &format!("{}  ", line_end(text)));
    match block.field(key) {
        Some(field) if !field.head.is_empty() => refuse(format!("`{key}` of {} is a value, not a list", block.id())),
        Some(field) => Ok(insert_line(text, field.range().end, &format!("- {item}"))),
        None => Ok(insert_line(text, block.range().end, &format!("{key}:{}- {item}", line_end(text)))),
    }
}

fn replace_range(text: &str, block: &Block<'_, '_>, op: &ProposalOp) -> EditResult {
    let Some((from, to)) = op.range.as_ref().filter(|(from, to)| !from.is_empty() && !to.is_empty()) else {
        return refuse("the operation has no `range` with `start` and `end`");
    };
    let base = block.range().start;
    // The header cannot be replaced: that would make it another block.
    let mut rows = lines(block.text()).skip(1).skip_while(|line| !line.text.contains(from.as_str()));
    let first = rows.next();
    let last = rows.find(|line| line.text.contains(to.as_str()));
    let (Some(first), Some(last)) = (first, last) else {
        return refuse(format!("{} has no lines from `{from}` to `{to}`", block.id()));
    };
    let patch: String = lines(&op.patch).map(|line| line.text.to_owned() + line_end(text)).collect();
    Ok(splice(text, base + first.start..base + last.start, &patch))
}

/// `text` with blocks appended.
pub fn append(text: &str, blocks: &str) -> String {
    let end = line_end(text);
    let mut out = text.to_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push_str(end);
    }
    if !(out.is_empty() || out.ends_with("\n\n") || out.ends_with("\n\r\n")) {
        out.push_str(end);
    }
    for line in lines(blocks) {
        out.push_str(line.text);
        out.push_str(end);
    }
    out
}

fn insert_after(text: &str, block: &Block<'_, '_>, blocks: &str) -> String {
    let (before, after) = text.split_at_checked(block.range().end).unwrap_or((text, ""));
    let mut out = append(before, blocks);
    if !after.is_empty() && !after.starts_with(['\n', '\r']) {
        out.push_str(line_end(text));
    }
    out + after
}

/// The range of the value on the key's line, or the position for one after the colon.
fn head_range(text: &str, field: &Field<'_>) -> Range<usize> {
    let colon = field.start + field.key.len() + 1;
    let line = text.get(colon..field.body_start).unwrap_or_default();
    let line = line.trim_end_matches(['\r', '\n']);
    let blanks = line.len() - line.trim_start().len();
    match blanks {
        0 => colon..colon,
        _ if field.head.is_empty() => colon..colon + line.len(),
        _ => colon + blanks..colon + blanks + field.head.len(),
    }
}

fn insert_line(text: &str, at: usize, line: &str) -> String {
    let end = line_end(text);
    let (before, after) = text.split_at_checked(at).unwrap_or((text, ""));
    let closed = before.ends_with('\n');
    format!(
        "{before}{}{line}{}{after}",
        if closed { "" } else { end },
        if closed || !after.is_empty() { end } else { "" }
    )
}

fn splice(text: &str, range: Range<usize>, with: &str) -> String {
    let before = text.get(..range.start).unwrap_or_default();
    let after = text.get(range.end..).unwrap_or_default();
    let space = if before.ends_with(':') && !with.is_empty() { " " } else { "" };
    format!("{before}{space}{with}{after}")
}

/// New one-line values (key, value) by block id.
pub type FieldChanges<'c> = HashMap<&'c str, Vec<(&'c str, String)>>;

/// `text` with the one-line values of `changes` (block id, key, value) set, in one pass.
pub fn set_fields(text: &str, changes: &FieldChanges<'_>) -> String {
    if changes.is_empty() {
        return text.to_owned();
    }
    let document = Document::parse(text);
    let end = line_end(text);
    let mut out = String::with_capacity(text.len() + 64 * changes.len());
    let mut at = 0;
    for block in document.blocks() {
        let Some(fields) = changes.get(block.id().as_str()) else { continue };
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        for (key, value) in fields {
            edits.push(if let Some(field) = block.field(key) {
                let range = head_range(text, field);
                let space = if range.start == field.start + key.len() + 1 { " " } else { "" };
                (range, format!("{space}{value}"))
            } else {
                let closed = block.text().ends_with('\n');
                let line = if closed { format!("{key}: {value}{end}") } else { format!("{end}{key}: {value}") };
                (block.range().end..block.range().end, line)
            });
        }
        edits.sort_by_key(|(range, _)| range.start);
        for (range, with) in edits {
            out.push_str(text.get(at..range.start).unwrap_or_default());
            out.push_str(&with);
            at = range.end;
        }
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

/// Reverts in `now` the change from `before` to `after`, block by block, where `now` still equals `after`.
///
/// # Errors
/// If a block that the change touched has been changed again since.
pub fn reverse(before: &str, after: &str, now: &str) -> EditResult {
    if now == after {
        return Ok(before.to_owned());
    }
    let (old, new) = (Document::parse(before), Document::parse(after));
    let former: HashMap<&str, Block<'_, '_>> = old.blocks().map(|block| (block.id().as_str(), block)).collect();
    let mut lost: HashSet<&str> = former.keys().copied().collect();
    let mut text = now.to_owned();
    for changed in new.blocks() {
        let id: BlockId<'_> = changed.id();
        lost.remove(id.as_str());
        let former = former.get(id.as_str());
        if former.is_some_and(|former| former.text() == changed.text()) {
            continue;
        }
        let document = Document::parse(&text);
        let current =
            document.block(id.as_str()).filter(|current| current.text().trim_end() == changed.text().trim_end());
        let Some(current) = current else {
            return refuse(format!("{id} was changed again since: take that back first, or propose the reverse"));
        };
        let range = current.range();
        text = if let Some(former) = former {
            let tail = current.text().get(current.text().trim_end().len()..).unwrap_or_default();
            splice_raw(&text, range, &(former.text().trim_end().to_owned() + tail))
        } else {
            // The blank line inserted before the block is removed with it.
            let head = text.get(..range.start).unwrap_or_default();
            let blank = [("\r\n\r\n", 2), ("\n\n", 1)].into_iter().find(|(ends, _)| head.ends_with(ends));
            splice_raw(&text, range.start - blank.map_or(0, |(_, length)| length)..range.end, "")
        };
    }
    if let Some(lost) = lost.into_iter().min() {
        return refuse(format!("{lost} was taken out then, and the file has changed since"));
    }
    Ok(text)
}

fn splice_raw(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", text.get(..range.start).unwrap_or_default(), text.get(range.end..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Tasks\n\n[T-001]\nStatus: todo\nTitle: a\n  b\nHistory:\n- one\n\n[T-002]\nStatus: doing\n";

    fn op(kind: ProposalOpKind) -> ProposalOp {
        ProposalOp { kind: Some(kind), file: "tasks/TASKS.md".into(), target: "T-001".into(), ..ProposalOp::default() }
    }

    /// Checks the edit with both kinds of line ending.
    fn check(op: &ProposalOp, from: &str, to: &str) {
        let expected = TEXT.replacen(from, to, 1);
        assert_eq!(apply_op(TEXT, op).unwrap(), expected);
        let crlf = |text: &str| text.replace('\n', "\r\n");
        assert_eq!(apply_op(&crlf(TEXT), op).unwrap(), crlf(&expected));
    }

    #[test]
    fn an_operation_changes_no_other_bytes() {
        check(&ProposalOp { status: "done".into(), ..op(ProposalOpKind::SetStatus) }, "todo", "done");
        check(
            &ProposalOp { status: "done".into(), history: "two".into(), ..op(ProposalOpKind::SetStatus) },
            "todo\nTitle: a\n  b\nHistory:\n- one\n",
            "done\nTitle: a\n  b\nHistory:\n- one\n- two\n",
        );
        check(
            &ProposalOp { field: "Title".into(), value: "c\nd".into(), ..op(ProposalOpKind::UpdateField) },
            "a\n  b",
            "c\n  d",
        );
        check(
            &ProposalOp { field: "Due".into(), value: "none".into(), ..op(ProposalOpKind::UpdateField) },
            "- one\n",
            "- one\nDue: none\n",
        );
        check(
            &ProposalOp { field: "History".into(), value: "two".into(), ..op(ProposalOpKind::AppendListItem) },
            "- one\n",
            "- one\n- two\n",
        );
        check(
            &ProposalOp { field: "Sources".into(), value: "x".into(), ..op(ProposalOpKind::AppendListItem) },
            "- one\n",
            "- one\nSources:\n- x\n",
        );
        check(
            &ProposalOp {
                range: Some(("Title".into(), "History".into())),
                patch: "Title: z".into(),
                ..op(ProposalOpKind::ReplaceRange)
            },
            "Title: a\n  b\n",
            "Title: z\n",
        );
        check(
            &ProposalOp { patch: "[T-003]\nStatus: todo".into(), ..op(ProposalOpKind::InsertAfterBlock) },
            "- one\n",
            "- one\n\n[T-003]\nStatus: todo\n",
        );
        check(
            &ProposalOp { patch: "[T-003]\nStatus: todo".into(), ..op(ProposalOpKind::AppendBlock) },
            "doing\n",
            "doing\n\n[T-003]\nStatus: todo\n",
        );
    }

    #[test]
    fn a_missing_final_newline_is_preserved() {
        let text = "[T-001]\nStatus: todo";
        assert_eq!(
            apply_op(text, &ProposalOp { status: "done".into(), ..op(ProposalOpKind::SetStatus) }).unwrap(),
            "[T-001]\nStatus: done"
        );
        let due = ProposalOp { field: "Due".into(), value: "x".into(), ..op(ProposalOpKind::UpdateField) };
        assert_eq!(apply_op(text, &due).unwrap(), "[T-001]\nStatus: todo\nDue: x");
    }

    #[test]
    fn decisions_can_be_superseded_but_not_edited() {
        let text = "[D-001]\nStatus: active\nStatement: a\n";
        let edit = ProposalOp {
            field: "Statement".into(),
            value: "b".into(),
            target: "D-001".into(),
            ..op(ProposalOpKind::UpdateField)
        };
        assert!(apply_op(text, &edit).unwrap_err().to_string().contains("M2"));
        let patch = "[D-002]\nStatus: active\nSupersedes: D-001\n";
        let supersede =
            ProposalOp { target: "D-001".into(), patch: patch.into(), ..op(ProposalOpKind::SupersedeDecision) };
        let expected = format!("[D-001]\nStatus: superseded\nStatement: a\n\n{patch}");
        assert_eq!(apply_op(text, &supersede).unwrap(), expected);
        assert!(apply_op(&expected, &supersede).unwrap_err().to_string().contains("not active"));
        let other = ProposalOp { patch: patch.replace("D-001", "D-009"), ..supersede };
        assert!(apply_op(text, &other).is_err());
    }

    #[test]
    fn a_change_can_be_reverted_around_later_changes() {
        let after = apply_op(TEXT, &ProposalOp { status: "done".into(), ..op(ProposalOpKind::SetStatus) }).unwrap();
        let after =
            apply_op(&after, &ProposalOp { patch: "[T-003]\nStatus: todo".into(), ..op(ProposalOpKind::AppendBlock) })
                .unwrap();
        assert_eq!(reverse(TEXT, &after, &after).unwrap(), TEXT);
        let later = after.replace("doing", "blocked") + "\n[T-004]\nStatus: todo\n";
        let expected = TEXT.replace("doing", "blocked") + "\n[T-004]\nStatus: todo\n";
        assert_eq!(reverse(TEXT, &after, &later).unwrap(), expected);
        let again = after.replace("Status: done", "Status: canceled");
        assert!(reverse(TEXT, &after, &again).unwrap_err().to_string().starts_with("T-001 was changed again"));
    }

    #[test]
    fn many_fields_are_set_in_one_pass() {
        let changes = [
            ("T-001", vec![("Title", "z".to_owned()), ("Due", "none".to_owned())]),
            ("T-002", vec![("Status", "done".to_owned())]),
        ];
        let expected =
            "# Tasks\n\n[T-001]\nStatus: todo\nTitle: z\n  b\nHistory:\n- one\nDue: none\n\n[T-002]\nStatus: done\n";
        assert_eq!(set_fields(TEXT, &changes.into()), expected);
    }
}
