//! The blocks that a change of a decision affects. References are inverted in one pass over the texts.
//!

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::contradiction::Contradiction;
use super::drift::Drift;
use super::id::{BlockId, BlockKind};
use super::proposal::Proposal;
use super::scan_input::{ScanInput, ids_of_kind};

/// The blocks that refer to a decision that may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionImpact {
    /// The decision.
    pub source: String,
    /// The blocks that refer to it, sorted.
    pub reaches: Vec<String>,
    /// The notes that name it, as `file:line`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The impact of every decision that is part of a contradiction, a drift or a pending proposal. Decisions without
/// references are left out.
pub(super) fn impact<'p>(
    known: &ScanInput<'_>,
    conflicts: &[Contradiction<'_, '_>],
    drift: &[Drift],
    proposals: impl Iterator<Item = &'p Proposal>,
) -> Vec<DecisionImpact> {
    let mut moving: BTreeSet<&str> =
        conflicts.iter().flat_map(|conflict| [conflict.a.decision, conflict.b.decision]).collect();
    moving.extend(drift.iter().map(|drift| drift.source.as_str()));
    moving.extend(proposals.filter(|proposal| proposal.is_pending()).map(|proposal| proposal.target.as_str()));
    moving.retain(|id| BlockId::parse(id).is_some_and(|id| id.kind() == BlockKind::Decision));

    let mut named_by: HashMap<&str, Vec<&str>> = HashMap::new();
    for kind in [
        BlockKind::Decision,
        BlockKind::Task,
        BlockKind::Project,
        BlockKind::Incident,
        BlockKind::Person,
        BlockKind::Tool,
    ] {
        for block in known.blocks(kind) {
            let id = block.id().as_str();
            for field in block.fields() {
                for decision in
                    [field.head, field.body].into_iter().flat_map(|text| ids_of_kind(text, BlockKind::Decision))
                {
                    if decision != id {
                        named_by.entry(decision).or_default().push(id);
                    }
                }
            }
        }
    }
    // Direct references only: the transitive closure grows with the square of a chain's length, and a reader can follow it
    // block by block.
    let reach = |source: &str| {
        let mut reached: Vec<_> = named_by.get(source).into_iter().flatten().map(|id| (*id).to_owned()).collect();
        reached.sort_unstable();
        reached.dedup();
        reached
    };
    let impacts = moving.into_iter().map(|source| DecisionImpact {
        source: source.to_owned(),
        reaches: reach(source),
        notes: Vec::new(),
    });
    impacts.filter(|impact| !impact.reaches.is_empty()).collect()
}
