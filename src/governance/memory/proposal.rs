//! Proposals (Mind Mem 1.0.3, §3): requested changes, written down before they are applied. Reads and writes their
//! blocks; applies nothing.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::id::{BlockId, BlockKind};
use super::parse::{Block, Field};

mod op;

pub use op::{ProposalOp, ProposalOpKind};

/// The file of `intelligence/proposed/` for each type of proposal.
pub const TYPES: [(&str, &str); 3] = [
    ("decision", "intelligence/proposed/DECISIONS_PROPOSED.md"),
    ("task", "intelligence/proposed/TASKS_PROPOSED.md"),
    ("edit", "intelligence/proposed/EDITS_PROPOSED.md"),
];

/// The risk levels, lowest first.
pub const RISKS: [&str; 4] = ["low", "medium", "high", "critical"];

/// A proposal, in any status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proposal {
    /// `P-YYYYMMDD-NNN`.
    pub id: String,
    /// `decision`, `task` or `edit`.
    pub kind: String,
    /// The target block.
    pub target: String,
    /// One of [`RISKS`].
    pub risk: String,
    /// Why: the evidence.
    pub evidence: Vec<String>,
    /// `restore_snapshot` or `manual`.
    pub rollback: String,
    /// The operations, applied in order, all or none.
    pub ops: Vec<ProposalOp>,
    /// The fingerprint of the content: 16 hex digits.
    pub fingerprint: String,
    /// The status.
    pub status: String,
    /// The sources.
    pub sources: Vec<String>,
    /// The day it was written.
    pub date: String,
    /// The first day on which it may be proposed again; empty unless deferred.
    pub deferred_until: String,
}

impl Proposal {
    /// Reads a `P-` block, with the field names of §1 or of §3.
    ///
    /// # Errors
    /// The first problem found.
    pub fn read(block: &Block<'_, '_>) -> Result<Self, String> {
        let id = block.id().as_str();
        let either =
            |one: &str, other: &str| if block.field(one).is_some() { block.head(one) } else { block.head(other) };
        let list = |one: &str, other: &str| {
            let field = block.field(one).or_else(|| block.field(other));
            field.map(|field| field.words().into_iter().map(std::borrow::Cow::into_owned).collect()).unwrap_or_default()
        };
        let mut ops = Vec::new();
        for item in block.field("Ops").or_else(|| block.field("Action")).into_iter().flat_map(Field::items) {
            ops.push(ProposalOp::read(item.text)?);
        }
        let proposal = Self {
            id: id.to_owned(),
            kind: block.head("Type").to_owned(),
            target: either("TargetBlock", "Target").to_owned(),
            risk: block.head("Risk").to_owned(),
            evidence: list("Evidence", "Reason"),
            rollback: block.head("Rollback").to_owned(),
            ops,
            fingerprint: block.head("Fingerprint").to_owned(),
            status: if block.head("Status") == "failed" { "rolled_back" } else { block.head("Status") }.to_owned(),
            sources: list("Sources", "Source"),
            date: block.head("Date").to_owned(),
            deferred_until: block.head("DeferredUntil").to_owned(),
        };
        if block.field("ProposalId").is_some_and(|field| field.head != id) {
            return Err(format!("its ProposalId is `{}`", block.head("ProposalId")));
        }
        proposal.check()?;
        Ok(proposal)
    }

    /// The grammar of §3.
    fn check(&self) -> Result<(), String> {
        let one_of = |what: &str, value: &str, allowed: &[&str]| {
            let message = || format!("its {what} is `{value}`: use one of {}", allowed.join(", "));
            allowed.contains(&value).then_some(()).ok_or_else(message)
        };
        one_of("Type", &self.kind, &TYPES.map(|(kind, _)| kind))?;
        one_of("Risk", &self.risk, &RISKS)?;
        one_of("Rollback", &self.rollback, &["restore_snapshot", "manual"])?;
        one_of("Status", &self.status, BlockKind::Proposal.statuses())?;
        if BlockId::parse(&self.target).is_none() {
            return Err(format!("its TargetBlock is `{}`, which is no block id", self.target));
        }
        if self.ops.is_empty() {
            return Err("it has no Ops".to_owned());
        }
        if self.evidence.is_empty() {
            return Err("it has no Evidence".to_owned());
        }
        if self.sources.is_empty() {
            return Err("it has no Sources: no source, no claim (M3)".to_owned());
        }
        if self.fingerprint.len() != 16 || !self.fingerprint.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("its Fingerprint is `{}`: 16 hex digits are needed", self.fingerprint));
        }
        Ok(())
    }

    /// Whether it is staged.
    pub fn is_pending(&self) -> bool {
        self.status == "staged"
    }

    /// The day it was written: `Date`, else the date in its id.
    pub fn day(&self) -> Option<jiff::civil::Date> {
        let digits = self.id.split('-').nth(1).unwrap_or_default();
        self.date.get(..10).unwrap_or(digits).parse().ok()
    }

    /// The file of `intelligence/proposed/` that it belongs to.
    pub fn file(&self) -> &'static str {
        TYPES.iter().find(|(kind, _)| *kind == self.kind).map_or(TYPES[2].1, |(_, file)| file)
    }

    /// The first 16 hex digits of SHA-256 over the canonical JSON of type, target and operations, each operation with
    /// its non-empty fields.
    pub fn compute_fingerprint(&self) -> String {
        let ops: Vec<_> = self.ops.iter().map(ProposalOp::json).collect();
        let value = json!({"ops": ops, "target": self.target, "type": self.kind});
        crate::foundation::base::canonical_json(&value).map(|text| short_sha256(&text)).unwrap_or_default()
    }

    /// The fingerprint written by Mind Mem's reference implementation: six fields of every operation, empty or not, with
    /// spaces between the tokens. It is accepted so that existing workspaces keep working.
    fn reference_fingerprint(&self) -> String {
        let quote = |text: &str| ascii_json(text);
        let op = |op: &ProposalOp| {
            let value = if op.kind == Some(ProposalOpKind::AppendListItem) { "" } else { &op.value };
            format!(
                "{{\"file\": {}, \"op\": {}, \"patch\": {}, \"status\": {}, \"target\": {}, \"value\": {}}}",
                quote(&op.file),
                quote(op.name()),
                quote(&op.patch),
                quote(&op.status),
                if op.target.is_empty() { "null".to_owned() } else { quote(&op.target) },
                quote(value)
            )
        };
        let ops: Vec<_> = self.ops.iter().map(op).collect();
        let (target, kind) = (quote(&self.target), quote(&self.kind));
        short_sha256(&format!("{{\"ops\": [{}], \"target\": {target}, \"type\": {kind}}}", ops.join(", ")))
    }

    /// Whether the operations still match the fingerprint.
    pub fn fingerprint_matches(&self) -> bool {
        self.fingerprint.eq_ignore_ascii_case(&self.compute_fingerprint())
            || self.fingerprint.eq_ignore_ascii_case(&self.reference_fingerprint())
    }

    /// The block, with the fields of §3 in their order, and the date.
    pub fn print(&self) -> String {
        let mut out = format!(
            "[{0}]\nProposalId: {0}\nType: {1}\nTargetBlock: {2}\nRisk: {3}\nEvidence:\n",
            self.id, self.kind, self.target, self.risk
        );
        self.evidence.iter().for_each(|line| item(&mut out, line));
        let _ = writeln!(out, "Rollback: {}\nOps:", self.rollback);
        self.ops.iter().for_each(|op| op.write(&mut out));
        let _ = writeln!(out, "Fingerprint: {}\nStatus: {}\nSources:", self.fingerprint, self.status);
        self.sources.iter().for_each(|line| item(&mut out, line));
        let _ = writeln!(out, "Date: {}", self.date);
        out
    }
}

fn item(out: &mut String, text: &str) {
    let _ = writeln!(out, "- {}", text.replace('\n', "\n  "));
}

fn short_sha256(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A JSON string with all non-ASCII characters escaped.
fn ascii_json(text: &str) -> String {
    let mut out = String::new();
    for c in Value::from(text).to_string().chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governance::memory::parse::Document;

    const STAGED: &str = "[P-20260213-001]\nProposalId: P-20260213-001\nType: edit\nTargetBlock: D-20260213-001\nRisk: low\nEvidence:\n- reviewed by a person\nRollback: restore_snapshot\nOps:\n- op: set_status\n  file: decisions/DECISIONS.md\n  target: D-20260213-001\n  status: revoked\nFingerprint: 4883aa5ef32f7315\nStatus: staged\nSources:\n- chat:1\n";

    fn read(text: &str) -> Result<Proposal, String> {
        Proposal::read(&Document::parse(text).blocks().next().unwrap())
    }

    #[test]
    fn both_fingerprints_are_accepted() {
        let mut proposal = read(STAGED).unwrap();
        assert!(proposal.fingerprint_matches());
        // sha256sum of {"ops":[{"file":"decisions/DECISIONS.md","op":"set_status","status":"revoked","target":"D-20260213-001"}],"target":"D-20260213-001","type":"edit"}
        assert_eq!(proposal.compute_fingerprint(), "45e4848125db82f5");
        proposal.ops[0].status = "superseded".to_owned();
        assert!(!proposal.fingerprint_matches());
    }

    #[test]
    fn what_is_printed_reads_back() {
        let mut proposal = read(STAGED).unwrap();
        proposal.date = "2026-02-20".to_owned();
        proposal.ops.push(ProposalOp {
            kind: Some(ProposalOpKind::AppendBlock),
            file: "tasks/TASKS.md".into(),
            target: "T-001".into(),
            patch: "[T-001]\nTitle: x\n  deeper\n\nDue: none".into(),
            ..ProposalOp::default()
        });
        proposal.ops.push(ProposalOp {
            kind: Some(ProposalOpKind::AppendListItem),
            file: "tasks/TASKS.md".into(),
            target: "T-001".into(),
            field: "History".into(),
            value: "\"quoted\"".into(),
            ..ProposalOp::default()
        });
        proposal.ops.push(ProposalOp {
            kind: Some(ProposalOpKind::ReplaceRange),
            file: "entities/tools.md".into(),
            target: "TOOL-001".into(),
            range: Some(("Name".into(), "Status".into())),
            patch: "Name: rg".into(),
            ..ProposalOp::default()
        });
        let again = read(&proposal.print()).unwrap();
        assert_eq!(again, proposal);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, expected) in [
            ("Type: edit", "Type: change", "its Type is `change`"),
            ("Risk: low", "Risk: none", "its Risk is `none`"),
            ("- chat:1\n", "", "it has no Sources"),
            ("op: set_status", "op: erase", "`erase` is none of the seven operations"),
            ("Fingerprint: 4883aa5ef32f7315", "Fingerprint: 4883", "its Fingerprint is `4883`"),
            ("TargetBlock: D-20260213-001", "TargetBlock: D-1", "its TargetBlock is `D-1`"),
        ] {
            let error = read(&STAGED.replace(from, to)).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
