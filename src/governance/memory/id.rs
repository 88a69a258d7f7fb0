//! The thirteen kinds of block and their ids (Mind Mem 1.0.3, §1), with the fields that each kind requires.
//!

use std::fmt;

use serde::{Serialize, Serializer};

/// The kind of a block, given by the prefix of its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockKind {
    /// `D`: a decision. Never edited; only superseded or revoked.
    Decision,
    /// `T`: a task.
    Task,
    /// `PRJ`: a project.
    Project,
    /// `PER`: a person.
    Person,
    /// `TOOL`: a tool.
    Tool,
    /// `INC`: an incident.
    Incident,
    /// `C`: a contradiction between two decisions.
    Contradiction,
    /// `DREF`: a drift record.
    Drift,
    /// `SIG`: a captured signal that waits for review.
    Signal,
    /// `P`: a proposal.
    Proposal,
    /// `I`: an impact record.
    DecisionImpact,
    /// `B`: a briefing.
    Briefing,
    /// `S`: a snapshot.
    Snapshot,
}

impl BlockKind {
    /// All kinds, in the order of the specification.
    pub const ALL: [Self; 13] = [
        Self::Decision,
        Self::Task,
        Self::Project,
        Self::Person,
        Self::Tool,
        Self::Incident,
        Self::Contradiction,
        Self::Drift,
        Self::Signal,
        Self::Proposal,
        Self::DecisionImpact,
        Self::Briefing,
        Self::Snapshot,
    ];

    /// The letters before the first hyphen of an id.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Decision => "D",
            Self::Task => "T",
            Self::Project => "PRJ",
            Self::Person => "PER",
            Self::Tool => "TOOL",
            Self::Incident => "INC",
            Self::Contradiction => "C",
            Self::Drift => "DREF",
            Self::Signal => "SIG",
            Self::Proposal => "P",
            Self::DecisionImpact => "I",
            Self::Briefing => "B",
            Self::Snapshot => "S",
        }
    }

    /// The kind's name, one lower-case word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::Task => "task",
            Self::Project => "project",
            Self::Person => "person",
            Self::Tool => "tool",
            Self::Incident => "incident",
            Self::Contradiction => "contradiction",
            Self::Drift => "drift",
            Self::Signal => "signal",
            Self::Proposal => "proposal",
            Self::DecisionImpact => "impact",
            Self::Briefing => "briefing",
            Self::Snapshot => "snapshot",
        }
    }

    /// The required fields of this kind: the table of §1 combined with S2 and S3. Proposals are checked by
    /// [`super::proposal::Proposal::read`], which knows both spellings of their fields.
    pub const fn required(self) -> &'static [&'static str] {
        match self {
            Self::Decision => &["Date", "Status", "Scope", "Statement", "Rationale", "Supersedes", "Tags", "Sources"],
            Self::Task => &[
                "Date",
                "Status",
                "Title",
                "Priority",
                "Project",
                "Due",
                "Owner",
                "Context",
                "Next",
                "Dependencies",
                "Sources",
                "History",
            ],
            Self::Project => &["Name", "Status"],
            Self::Person | Self::Tool => &["Name"],
            Self::Incident => &["Date", "Status", "Summary"],
            Self::Contradiction => &["Date", "DecisionA", "DecisionB", "Description"],
            Self::Drift => &["Date", "Type", "Source"],
            Self::Signal => &["Date", "Type", "Source", "Status", "Excerpt"],
            Self::Proposal | Self::DecisionImpact | Self::Briefing | Self::Snapshot => &[],
        }
    }

    /// The values that `Status` may take (S9); empty where the specification names none.
    pub const fn statuses(self) -> &'static [&'static str] {
        match self {
            Self::Decision => &["active", "superseded", "revoked"],
            Self::Task => &["todo", "doing", "done", "blocked", "canceled"],
            Self::Signal => &["pending", "accepted", "rejected"],
            // `failed` is what §5 calls a proposal that failed its post-check; it is read, never written.
            Self::Proposal => &["staged", "applied", "rejected", "deferred", "expired", "rolled_back", "failed"],
            _ => &[],
        }
    }

    fn of_prefix(prefix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.prefix() == prefix)
    }
}

impl fmt::Display for BlockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for BlockKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A valid block id, borrowed from the text that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId<'a> {
    text: &'a str,
    kind: BlockKind,
}

impl<'a> BlockId<'a> {
    /// Parses an id: `Prefix-Counter`, `Prefix-YYYYMMDD-Counter`, or one of the two forms that only the examples of §1 show,
    /// `B-YYYY-Www` and `S-YYYY-MM-DD`. A counter is 001 to 999.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (prefix, rest) = text.split_once('-')?;
        let kind = BlockKind::of_prefix(prefix)?;
        let counter = |text: &str| digits(text, 3) && text != "000";
        let valid = match rest.split_once('-') {
            None => counter(rest),
            Some((date, number)) if digits(date, 8) => counter(number),
            Some((year, week)) if kind == BlockKind::Briefing => {
                digits(year, 4) && week.strip_prefix('W').is_some_and(|week| digits(week, 2))
            }
            Some((year, day)) if kind == BlockKind::Snapshot => {
                digits(year, 4) && day.split_once('-').is_some_and(|(m, d)| digits(m, 2) && digits(d, 2))
            }
            Some(_) => false,
        };
        valid.then_some(Self { text, kind })
    }

    /// The id as written.
    pub const fn as_str(self) -> &'a str {
        self.text
    }

    /// The kind given by the prefix.
    pub const fn kind(self) -> BlockKind {
        self.kind
    }
}

impl fmt::Display for BlockId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text)
    }
}

fn digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Every valid id in `text` that is a word of its own, in order.
pub fn ids_in(text: &str) -> impl Iterator<Item = BlockId<'_>> {
    // Hyphens are rare in text: find those first, then the word around each.
    let bytes = text.as_bytes();
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let mut seen = 0;
    memchr::memchr_iter(b'-', bytes).filter_map(move |at| {
        let (before, after) = bytes.get(seen..)?.split_at_checked(at.checked_sub(seen)?)?;
        let start = at - before.iter().rev().take_while(|byte| part(byte)).count();
        let end = at + after.iter().take_while(|byte| part(byte)).count();
        seen = end;
        BlockId::parse(text.get(start..end)?.trim_matches('-'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<BlockKind>) {
        assert_eq!(BlockId::parse(text).map(BlockId::kind), expected, "{text}");
    }

    #[test]
    fn every_kind_has_two_forms_of_id() {
        for kind in BlockKind::ALL {
            check(&format!("{}-001", kind.prefix()), Some(kind));
            check(&format!("{}-20260213-999", kind.prefix()), Some(kind));
        }
        check("B-2026-W07", Some(BlockKind::Briefing));
        check("S-2026-02-14", Some(BlockKind::Snapshot));
    }

    #[test]
    fn malformed_ids_are_rejected() {
        for text in [
            "",
            "D",
            "D-",
            "d-001",
            "X-001",
            "D-000",
            "D-1",
            "D-1000",
            "D-20260213-1000",
            "D-20260213-01",
            "D-2026021-001",
            "D-2026-W07",
            "S-2026-W07",
            "B-2026-02-14",
            "D-20260213-001 ",
            "D-²²²",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn ids_are_found_in_prose() {
        let found: Vec<_> =
            ids_in("See D-001, (T-20260213-004); not D-1 or XD-001. PRJ-002").map(BlockId::as_str).collect();
        assert_eq!(found, ["D-001", "T-20260213-004", "PRJ-002"]);
    }
}
