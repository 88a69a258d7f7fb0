//! Contradictions between active decisions (Mind Mem 1.0.3, §2), found axis by axis: the cost grows with the number of
//! signatures and contradictions, not with the square of the signatures.

use std::collections::HashMap;

use serde::Serialize;

use super::signature::{Modality, Signature};

/// The severity of a contradiction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Rule 5c: two preferences for different objects.
    Warning,
    /// Rule 5a: a permission against a prohibition.
    Low,
    /// Rule 5a: a preference against its opposite.
    Medium,
    /// Rules 5a and 5b: both cannot hold.
    Critical,
}

impl Severity {
    /// The name, as serialised.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::Critical => "critical",
        }
    }
}

/// One side of a contradiction: an active decision and one of its signatures.
#[derive(Debug, Clone, Copy)]
pub struct ContradictionSide<'s, 'a> {
    /// The decision's id.
    pub decision: &'a str,
    /// The signature.
    pub signature: &'s Signature<'a>,
}

impl ContradictionSide<'_, '_> {
    /// `D-…:CS-…`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.decision, self.signature.id())
    }
}

/// Two signatures that cannot both be followed.
#[derive(Debug, Clone, Copy)]
pub struct Contradiction<'s, 'a> {
    /// The first in file order.
    pub a: ContradictionSide<'s, 'a>,
    /// The second.
    pub b: ContradictionSide<'s, 'a>,
    /// The severity.
    pub severity: Severity,
}

impl Contradiction<'_, '_> {
    /// The axis that both signatures are on.
    pub fn axis(&self) -> &str {
        &self.a.signature.axis
    }

    /// A one-sentence description.
    pub fn description(&self) -> String {
        let says = |side: &ContradictionSide<'_, '_>| {
            let s = side.signature;
            format!("{} says {} {} {}", side.name(), s.text("modality"), s.text("predicate"), s.text("object"))
        };
        format!("on {}: {}; {}", self.axis(), says(&self.a), says(&self.b))
    }
}

/// All contradictions among `sides` (the signatures of active decisions in file order), at most `limit` of them, and
/// whether the limit cut any off.
pub fn contradictions<'s, 'a>(sides: &[ContradictionSide<'s, 'a>], limit: usize) -> (Vec<Contradiction<'s, 'a>>, bool) {
    let mut axes: HashMap<&str, Vec<usize>> = HashMap::with_capacity(sides.len() / 2);
    for (index, side) in sides.iter().enumerate() {
        if side.signature.has_axis() && side.signature.modality.is_some() {
            axes.entry(&side.signature.axis).or_default().push(index);
        }
    }
    let mut search = PairSearch { sides, limit, found: Vec::new(), cut: false };
    let mut groups: Vec<_> = axes.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_unstable();
    for group in groups {
        search.axis(&group);
    }
    search.found.sort_unstable_by_key(|(a, b, _)| (*a, *b));
    let found = search.found.iter().filter_map(|(a, b, severity)| {
        Some(Contradiction { a: *sides.get(*a)?, b: *sides.get(*b)?, severity: *severity })
    });
    (found.collect(), search.cut)
}

/// The pairs of modalities that oppose each other on one object (rule 5a).
const OPPOSED: [(Modality, Modality, Severity); 5] = [
    (Modality::Must, Modality::MustNot, Severity::Critical),
    (Modality::Must, Modality::ShouldNot, Severity::Medium),
    (Modality::Should, Modality::MustNot, Severity::Medium),
    (Modality::Should, Modality::ShouldNot, Severity::Medium),
    (Modality::May, Modality::MustNot, Severity::Low),
];

struct PairSearch<'l, 's, 'a> {
    sides: &'l [ContradictionSide<'s, 'a>],
    limit: usize,
    found: Vec<(usize, usize, Severity)>,
    cut: bool,
}

impl PairSearch<'_, '_, '_> {
    fn axis(&mut self, group: &[usize]) {
        let sides = self.sides;
        let signature = |index: &usize| sides.get(*index).map(|side| side.signature);
        // By modality, then by object, so that only lists that can contradict each other are paired.
        let mut by_modality: HashMap<Modality, HashMap<String, Vec<usize>>> = HashMap::new();
        for index in group {
            let Some(s) = signature(index) else { continue };
            let Some(modality) = s.modality else { continue };
            by_modality.entry(modality).or_default().entry(fold(s.text("object"))).or_default().push(*index);
        }
        for (one, other, severity) in OPPOSED {
            let (Some(ones), Some(others)) = (by_modality.get(&one), by_modality.get(&other)) else { continue };
            for (object, a) in ones {
                if object.is_empty() {
                    for b in others.values() {
                        self.cross(a, b, severity);
                    }
                    continue;
                }
                for b in [others.get(object), others.get("")].into_iter().flatten() {
                    self.cross(a, b, severity);
                }
            }
        }
        for (modality, severity) in [(Modality::Must, Severity::Critical), (Modality::Should, Severity::Warning)] {
            if let Some(objects) = by_modality.get(&modality).filter(|objects| objects.len() > 1) {
                self.compete(objects, severity);
            }
        }
    }

    /// Rules 5b and 5c: one predicate, one modality, different objects.
    fn compete(&mut self, objects: &HashMap<String, Vec<usize>>, severity: Severity) {
        let sides = self.sides;
        let mut predicates: HashMap<String, HashMap<&str, Vec<usize>>> = HashMap::new();
        for (object, indices) in objects.iter().filter(|(object, _)| !object.is_empty()) {
            for index in indices {
                let Some(side) = sides.get(*index) else { continue };
                // An additive signature competes with nothing, whichever side declares it.
                if severity == Severity::Critical && !side.signature.exclusive() {
                    continue;
                }
                let predicate = fold(side.signature.text("predicate"));
                predicates.entry(predicate).or_default().entry(object).or_default().push(*index);
            }
        }
        for objects in predicates.into_values() {
            let lists: Vec<_> = objects.into_values().collect();
            let mut rest = lists.as_slice();
            while let Some((list, later)) = rest.split_first() {
                for other in later {
                    self.cross(list, other, severity);
                }
                rest = later;
            }
        }
    }

    /// Adds every pair of the two lists that is not exempt. Where every signature names its projects, only pairs within a
    /// project are considered.
    fn cross(&mut self, a: &[usize], b: &[usize], severity: Severity) {
        if a.len().saturating_mul(b.len()) <= 64 {
            for one in a {
                for other in b {
                    self.pair(*one, *other, severity);
                }
            }
            return;
        }
        let sides = self.sides;
        let by_project = by_project(sides, b);
        for one in a {
            let Some(side) = sides.get(*one) else { continue };
            let projects = side.signature.scope("projects");
            if projects.is_empty() {
                for other in b {
                    self.pair(*one, *other, severity);
                }
                continue;
            }
            let mut met: Vec<usize> = projects
                .iter()
                .map(AsRef::as_ref)
                .chain([""])
                .filter_map(|p| by_project.get(p))
                .flatten()
                .copied()
                .collect();
            met.sort_unstable();
            met.dedup();
            for other in met {
                self.pair(*one, other, severity);
            }
        }
    }

    fn pair(&mut self, one: usize, other: usize, severity: Severity) {
        let (Some(a), Some(b)) = (self.sides.get(one), self.sides.get(other)) else { return };
        if a.decision == b.decision || exempt(a.signature, b.signature) {
            return;
        }
        if self.found.len() >= self.limit {
            self.cut = true;
            return;
        }
        self.found.push((one.min(other), one.max(other), severity));
    }
}

fn by_project<'s>(sides: &[ContradictionSide<'s, '_>], indices: &[usize]) -> HashMap<&'s str, Vec<usize>> {
    let mut map: HashMap<&str, Vec<usize>> = HashMap::new();
    for index in indices {
        let projects = sides.get(*index).map(|side| side.signature.scope("projects")).unwrap_or_default();
        if projects.is_empty() {
            map.entry("").or_default().push(*index);
        }
        for project in projects {
            map.entry(project).or_default().push(*index);
        }
    }
    map
}

fn exempt(a: &Signature<'_>, b: &Signature<'_>) -> bool {
    let relation = a.text("relation");
    (matches!(relation, "composes_with" | "requires") && relation == b.text("relation"))
        || a.composes_with(b.id())
        || b.composes_with(a.id())
        || disjoint(a, b, "projects")
        || disjoint(a, b, "channels")
        || apart(a, b)
        || apart(b, a)
}

fn disjoint(a: &Signature<'_>, b: &Signature<'_>, key: &str) -> bool {
    let (a, b) = (a.scope(key), b.scope(key));
    !a.is_empty() && !b.is_empty() && !a.iter().any(|one| b.contains(one))
}

/// Whether the time range of `a` ends before that of `b` begins.
fn apart(a: &Signature<'_>, b: &Signature<'_>) -> bool {
    matches!((a.time().1, b.time().0), (Some(end), Some(start)) if end < start)
}

fn fold(text: &str) -> String {
    text.trim().to_lowercase()
}
