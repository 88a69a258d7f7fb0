//! The record files of a scan. A record keeps its id: it is resolved when its cause is gone and reopened when the cause
//! returns.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use jiff::civil::Date;
use serde::Serialize;

use super::authority::{ScanWriter, WriteForbidden, WriteSet};
use super::contradiction::{Contradiction, Severity};
use super::drift::Drift;
use super::edit;
use super::id::BlockKind;
use super::impact::DecisionImpact;
use super::parse::{Block, Document};
use super::texts::{IdSource, WorkspaceTexts};
use crate::foundation::base::limits;

const CONTRADICTIONS: &str = "intelligence/CONTRADICTIONS.md";
const DRIFT: &str = "intelligence/DRIFT.md";
const IMPACT: &str = "intelligence/IMPACT.md";

/// A contradiction in a report.
#[derive(Debug, Clone, Serialize)]
pub struct ContradictionRecord {
    /// The id of its record; empty when the day's ids are used up.
    pub id: String,
    /// `decision:signature`.
    pub a: String,
    /// `decision:signature`.
    pub b: String,
    /// The severity.
    pub severity: Severity,
    /// The axis.
    pub axis: String,
    /// A one-sentence description.
    pub description: String,
}

/// A record file: its blocks, the new ones and the changed ones.
struct Records<'a> {
    text: &'a str,
    document: Document<'a>,
    ids: IdSource,
    new: String,
    changes: HashMap<&'a str, Vec<(&'static str, String)>>,
}

impl<'a> Records<'a> {
    fn open(texts: &'a WorkspaceTexts, path: &str, kind: BlockKind, today: Date) -> Self {
        let text = texts.text(path);
        let ids = IdSource::new(kind, today, [text]);
        Self { text, document: Document::parse(text), ids, new: String::new(), changes: HashMap::new() }
    }

    /// The record ids by key, and whether each is open.
    fn by_key(&self, key: impl Fn(&Block<'_, 'a>) -> String) -> BTreeMap<String, (&'a str, bool)> {
        let entry = |block: Block<'_, 'a>| (key(&block), (block.id().as_str(), block.head("Status") != "resolved"));
        self.document.blocks().map(entry).collect()
    }

    fn reopen(&mut self, id: &'a str) {
        self.changes.insert(id, vec![("Status", "open".to_owned()), ("Resolved", "none".to_owned())]);
    }

    fn resolve(&mut self, id: &'a str, today: Date) {
        self.changes.insert(id, vec![("Status", "resolved".to_owned()), ("Resolved", today.to_string())]);
    }

    /// Adds a record and returns its id; `""` when the day's ids are used up.
    fn add(&mut self, body: &str) -> String {
        let Some(id) = self.ids.next() else { return String::new() };
        if !self.new.is_empty() {
            self.new.push('\n');
        }
        let _ = write!(self.new, "[{id}]\n{body}");
        id
    }

    fn write(
        self,
        path: &str,
        texts: &WorkspaceTexts,
        writes: &mut WriteSet<ScanWriter>,
    ) -> Result<(), WriteForbidden> {
        let mut text = edit::set_fields(self.text, &self.changes);
        if !self.new.is_empty() {
            text = edit::append(&text, &self.new);
        }
        if text == self.text { Ok(()) } else { writes.write(path, texts.get(path), text) }
    }
}

fn note_unrecorded(what: &str, missing: usize, notes: &mut Vec<String>) {
    if missing > 0 {
        notes.push(format!(
            "{missing} {what} not recorded: an id has three digits, so a day takes {}",
            limits::COUNTER_MAX
        ));
    }
}

/// Updates the contradiction records and returns the report entries.
pub(super) fn conflicts(
    texts: &WorkspaceTexts,
    found: &[Contradiction<'_, '_>],
    today: Date,
    writes: &mut WriteSet<ScanWriter>,
    notes: &mut Vec<String>,
) -> Result<Vec<ContradictionRecord>, WriteForbidden> {
    let mut records = Records::open(texts, CONTRADICTIONS, BlockKind::Contradiction, today);
    let known = records.by_key(|block| {
        let side = |decision, signature| format!("{}:{}", block.head(decision), block.head(signature));
        pair(&side("DecisionA", "SignatureA"), &side("DecisionB", "SignatureB"))
    });
    let mut seen = HashSet::new();
    let mut listed = Vec::with_capacity(found.len());
    for conflict in found {
        let (a, b) = (conflict.a.name(), conflict.b.name());
        let key = pair(&a, &b);
        if !seen.insert(key.clone()) {
            continue;
        }
        let id = match known.get(&key) {
            Some((id, true)) => (*id).to_owned(),
            Some((id, false)) => {
                records.reopen(id);
                (*id).to_owned()
            }
            None => records.add(&format!(
                "Date: {today}\nDecisionA: {}\nDecisionB: {}\nSignatureA: {}\nSignatureB: {}\nSeverity: {}\nAxis: {}\nDescription: {}\nStatus: open\n",
                conflict.a.decision,
                conflict.b.decision,
                conflict.a.signature.id(),
                conflict.b.signature.id(),
                conflict.severity.name(),
                conflict.axis(),
                conflict.description().replace('\n', " "),
            )),
        };
        let (severity, axis, description) = (conflict.severity, conflict.axis().to_owned(), conflict.description());
        listed.push(ContradictionRecord { id, a, b, severity, axis, description });
    }
    for (key, (id, open)) in &known {
        if *open && !seen.contains(key) {
            records.resolve(id, today);
        }
    }
    note_unrecorded("contradictions are", listed.iter().filter(|conflict| conflict.id.is_empty()).count(), notes);
    records.write(CONTRADICTIONS, texts, writes)?;
    Ok(listed)
}

/// A key for a pair that does not depend on the order.
fn pair(a: &str, b: &str) -> String {
    if a <= b { format!("{a}\n{b}") } else { format!("{b}\n{a}") }
}

/// Updates the drift records and sets the ids.
pub(super) fn drift(
    texts: &WorkspaceTexts,
    drifts: &mut [Drift],
    today: Date,
    writes: &mut WriteSet<ScanWriter>,
    notes: &mut Vec<String>,
) -> Result<(), WriteForbidden> {
    let mut records = Records::open(texts, DRIFT, BlockKind::Drift, today);
    let known = records.by_key(|block| format!("{} {}", block.head("Type"), block.head("Source")));
    let mut seen = HashSet::new();
    let mut missing = 0;
    for item in drifts {
        let key = format!("{} {}", item.kind.name(), item.source);
        item.id = match known.get(&key) {
            Some((id, true)) => (*id).to_owned(),
            Some((id, false)) => {
                records.reopen(id);
                (*id).to_owned()
            }
            None => records.add(&format!(
                "Date: {today}\nType: {}\nSource: {}\nDescription: {}\nStatus: open\n",
                item.kind.name(),
                item.source,
                item.description
            )),
        };
        missing += usize::from(item.id.is_empty());
        seen.insert(key);
    }
    for (key, (id, open)) in &known {
        if *open && !seen.contains(key) {
            records.resolve(id, today);
        }
    }
    note_unrecorded("drifts are", missing, notes);
    records.write(DRIFT, texts, writes)
}

/// Updates the impact records.
pub(super) fn impact(
    texts: &WorkspaceTexts,
    impacts: &[DecisionImpact],
    today: Date,
    writes: &mut WriteSet<ScanWriter>,
    notes: &mut Vec<String>,
) -> Result<(), WriteForbidden> {
    let mut records = Records::open(texts, IMPACT, BlockKind::DecisionImpact, today);
    let known = records.by_key(|block| block.head("Source").to_owned());
    let mut missing = 0;
    let mut seen = HashSet::new();
    for item in impacts {
        let reach = item.reaches.join(", ");
        seen.insert(item.source.clone());
        if let Some((id, open)) = known.get(&item.source) {
            let block = records.document.block(id);
            if !open || block.is_none_or(|block| block.head("Reaches") != reach) {
                records.changes.insert(id, vec![("Reaches", reach), ("Status", "open".to_owned())]);
            }
        } else {
            let body = format!("Date: {today}\nSource: {}\nReaches: {reach}\nStatus: open\n", item.source);
            missing += usize::from(records.add(&body).is_empty());
        }
    }
    for (key, (id, open)) in &known {
        if *open && !seen.contains(key) {
            records.resolve(id, today);
        }
    }
    note_unrecorded("impacts are", missing, notes);
    records.write(IMPACT, texts, writes)
}
