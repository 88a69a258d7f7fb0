//! Impact: what a change of a decision would reach. One pass over the texts turns references round; nothing is compared
//! with everything.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::contradiction::Contradiction;
use super::drift::Drift;
use super::id::{BlockId, Kind};
use super::known::{Known, named};
use super::proposal::Proposal;

/// The blocks that lean on a decision which is about to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Impact {
    /// The decision.
    pub source: String,
    /// The blocks that name it, sorted.
    pub reaches: Vec<String>,
}

/// For every decision that a contradiction, a drift or a pending proposal is about: the blocks that name it. Decisions that nothing names are left out.
pub(super) fn impact<'p>(
    known: &Known<'_>,
    conflicts: &[Contradiction<'_, '_>],
    drift: &[Drift],
    proposals: impl Iterator<Item = &'p Proposal>,
) -> Vec<Impact> {
    let mut moving: BTreeSet<&str> =
        conflicts.iter().flat_map(|conflict| [conflict.a.decision, conflict.b.decision]).collect();
    moving.extend(drift.iter().map(|drift| drift.source.as_str()));
    moving.extend(proposals.filter(|proposal| proposal.is_pending()).map(|proposal| proposal.target.as_str()));
    moving.retain(|id| BlockId::parse(id).is_some_and(|id| id.kind() == Kind::Decision));

    let mut named_by: HashMap<&str, Vec<&str>> = HashMap::new();
    for kind in [Kind::Decision, Kind::Task, Kind::Project, Kind::Incident, Kind::Person, Kind::Tool] {
        for block in known.blocks(kind) {
            let id = block.id().as_str();
            for field in block.fields() {
                for decision in [field.head, field.body].into_iter().flat_map(|text| named(text, Kind::Decision)) {
                    if decision != id {
                        named_by.entry(decision).or_default().push(id);
                    }
                }
            }
        }
    }
    // Only what names the decision itself: chains would grow with the square of their length, and a reader follows them
    // block by block anyway.
    let reach = |source: &str| {
        let mut reached: Vec<_> = named_by.get(source).into_iter().flatten().map(|id| (*id).to_owned()).collect();
        reached.sort_unstable();
        reached.dedup();
        reached
    };
    let impacts = moving.into_iter().map(|source| Impact { source: source.to_owned(), reaches: reach(source) });
    impacts.filter(|impact| !impact.reaches.is_empty()).collect()
}
