//! The guard table. It is read from the top; the first row that holds is taken. The order is crash, attack, preference,
//! privilege, then rows of single moods; among equals the smaller rights come first.
//!
//! Every row that changes something decrements a counter, and counters are never refilled within a run, so every cycle
//! ends.

use std::fmt::Write as _;

use super::facts::{MoodFact, MoodFacts};
use super::name::Mood;
use serde::{Deserialize, Serialize};

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardKind {
    /// A risk changes the mood; the rights cannot grow, whatever the new mood's profile allows.
    Risk,
    /// The work needs another mood.
    Need,
    /// The risk was answered: the new mood has its full rights.
    Relief,
    /// The mood stays, and no later row is read.
    Wait,
}

/// The target of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardTarget {
    /// This mood.
    To(Mood),
    /// The mood before the recovery or the question.
    Previous,
    /// The present mood.
    Stay,
}

/// A limited resource of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransitionCounter {
    /// Recoveries from a crash.
    Recoveries,
    /// Investigations of attacks.
    Alarms,
    /// Questions to the user.
    Questions,
    /// Approaches to a privilege boundary.
    Crossings,
    /// Changes to a stricter mood because of a risk.
    Checks,
    /// All other changes of mood.
    Turns,
}

impl TransitionCounter {
    /// All counters with their initial values.
    pub const ALL: [(Self, u16); 6] = [
        (Self::Recoveries, 8),
        (Self::Alarms, 16),
        (Self::Questions, 32),
        (Self::Crossings, 32),
        (Self::Checks, 64),
        (Self::Turns, 128),
    ];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recoveries => "recoveries",
            Self::Alarms => "alarms",
            Self::Questions => "questions",
            Self::Crossings => "crossings",
            Self::Checks => "checks",
            Self::Turns => "turns",
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Guard {
    /// The name.
    pub name: &'static str,
    /// The moods in which it is read, one bit each.
    from: u8,
    /// Facts that must hold.
    pub needs: MoodFacts,
    /// Facts that must not hold.
    pub lacks: MoodFacts,
    /// The target.
    pub to: GuardTarget,
    /// Facts that it clears.
    pub drops: MoodFacts,
    /// Facts that it sets.
    pub sets: MoodFacts,
    /// The counter that it decrements.
    pub spends: TransitionCounter,
    /// The kind.
    pub kind: GuardKind,
    /// The source: a section of the specification, or `own`.
    pub source: &'static str,
}

impl Guard {
    /// Whether it is read in this mood.
    pub const fn is_read_in(&self, mood: Mood) -> bool {
        self.from & mood.bit() != 0
    }

    /// Whether it holds.
    pub const fn holds(&self, mood: Mood, facts: MoodFacts) -> bool {
        self.is_read_in(mood) && facts.has(self.needs) && !facts.has_any(self.lacks)
    }

    const fn new(
        name: &'static str,
        from: u8,
        to: GuardTarget,
        kind: GuardKind,
        spends: TransitionCounter,
        source: &'static str,
    ) -> Self {
        Self {
            name,
            from,
            needs: MoodFacts::NONE,
            lacks: MoodFacts::NONE,
            to,
            drops: MoodFacts::NONE,
            sets: MoodFacts::NONE,
            spends,
            kind,
            source,
        }
    }

    const fn needs(mut self, facts: &[MoodFact]) -> Self {
        self.needs = MoodFacts::of(facts);
        self
    }

    const fn lacks(mut self, facts: &[MoodFact]) -> Self {
        self.lacks = MoodFacts::of(facts);
        self
    }

    const fn drops(mut self, facts: &[MoodFact]) -> Self {
        self.drops = MoodFacts::of(facts);
        self
    }

    const fn sets(mut self, facts: &[MoodFact]) -> Self {
        self.sets = MoodFacts::of(facts);
        self
    }
}

const ANY: u8 = u8::MAX;

const fn only(mood: Mood) -> u8 {
    mood.bit()
}

const fn but(mood: Mood) -> u8 {
    ANY & !mood.bit()
}

use GuardKind::{Need, Relief, Risk, Wait};
use GuardTarget::{Previous, Stay, To};
use Mood::{Bold, Calm, Contrite, Curious, Deferential, Paranoid, Petty, Skeptical};
use MoodFact::{
    Ambiguous, Approved, Attacked, Clear, Cleared, Conflicting, Consistent, Crashed, Crossing, Disclosed, Exposed,
    Failing, FailingAgain, Inconsistent, Mitigated, Unaimed, Undecided, Verified, Widening,
};
use TransitionCounter::{Alarms, Checks, Crossings, Questions, Recoveries, Turns};

const WORKING: u8 = Calm.bit() | Curious.bit() | Skeptical.bit() | Bold.bit();

/// The table.
#[rustfmt::skip]
pub const GUARDS: &[Guard] = &[
    Guard::new("crash", ANY, To(Contrite), Risk, Recoveries, "3.3")
        .needs(&[Crashed]).drops(&[Crashed, Consistent, Inconsistent]),
    Guard::new("recovery.consistent", only(Contrite), Previous, Relief, Turns, "3.3")
        .needs(&[Consistent]).drops(&[Consistent]),
    Guard::new("recovery.inconsistent", only(Contrite), To(Curious), Need, Turns, "3.3")
        .needs(&[Inconsistent]).drops(&[Inconsistent]),
    Guard::new("recovery.wait", only(Contrite), Stay, Wait, Turns, "2.6"),
    Guard::new("attack.wait", only(Petty), Stay, Wait, Turns, "2.7")
        .needs(&[Attacked]).lacks(&[Disclosed]),
    Guard::new("attack", but(Petty), To(Petty), Risk, Alarms, "3.2")
        .needs(&[Attacked]),
    Guard::new("attack.mitigated", only(Petty), To(Skeptical), Relief, Turns, "2.7")
        .needs(&[Disclosed, Mitigated]).drops(&[Attacked, Disclosed]),
    Guard::new("attack.disclosed", only(Petty), To(Paranoid), Relief, Turns, "2.7")
        .needs(&[Disclosed]).drops(&[Attacked, Disclosed]).sets(&[Exposed]),
    Guard::new("preference", but(Deferential), To(Deferential), Risk, Questions, "3.2")
        .needs(&[Undecided]),
    Guard::new("preference.wait", only(Deferential), Stay, Wait, Turns, "2.8")
        .needs(&[Undecided]),
    Guard::new("privilege.harden", but(Paranoid), To(Paranoid), Relief, Crossings, "3.1")
        .needs(&[Crossing, Approved]),
    Guard::new("privilege.ask", but(Deferential), To(Deferential), Risk, Crossings, "3.1")
        .needs(&[Crossing]).lacks(&[Approved, Cleared]),
    Guard::new("privilege.wait", only(Deferential), Stay, Wait, Turns, "2.8")
        .needs(&[Crossing]),
    Guard::new("question.answered", only(Deferential), Previous, Relief, Turns, "2.8"),
    Guard::new("exposed", WORKING, To(Paranoid), Risk, Checks, "2.5, 3.2; CALM and CURIOUS: own")
        .needs(&[Exposed]),
    Guard::new("hardened.crossing", only(Paranoid), Stay, Relief, Crossings, "own")
        .needs(&[Crossing, Exposed, Mitigated]).drops(&[Exposed, Mitigated]),
    Guard::new("privilege.clear", only(Paranoid), Stay, Relief, Crossings, "2.4")
        .needs(&[Crossing, Approved, Verified]).lacks(&[Exposed]).drops(&[Approved, Verified]).sets(&[Cleared]),
    Guard::new("hardened.verified", only(Paranoid), To(Bold), Relief, Turns, "3.2")
        .needs(&[Mitigated, Verified]).lacks(&[Crossing]).drops(&[Exposed, Mitigated, Verified, Failing, FailingAgain]),
    Guard::new("hardened", only(Paranoid), To(Skeptical), Relief, Turns, "2.4")
        .needs(&[Mitigated]).lacks(&[Crossing, Failing, FailingAgain]).drops(&[Exposed, Mitigated]),
    Guard::new("bounded", only(Paranoid), To(Skeptical), Relief, Turns, "2.4")
        .lacks(&[Exposed, Crossing]),
    Guard::new("failing.again", only(Skeptical), To(Curious), Risk, Checks, "regulator")
        .needs(&[FailingAgain]).drops(&[Failing, FailingAgain, Conflicting]),
    Guard::new("verified.widen", only(Skeptical), To(Bold), Relief, Turns, "2.3")
        .needs(&[Verified, Widening]).drops(&[Verified, Widening, Failing, FailingAgain, Conflicting]),
    Guard::new("verified", only(Skeptical), To(Calm), Relief, Turns, "2.3")
        .needs(&[Verified]).drops(&[Verified, Failing, FailingAgain, Conflicting]),
    Guard::new("failing", Calm.bit() | Bold.bit(), To(Skeptical), Risk, Checks, "2.5, 3.2")
        .needs(&[Failing]),
    Guard::new("expansion.validated", only(Bold), To(Calm), Relief, Turns, "own, after 2.5")
        .needs(&[Verified]).drops(&[Verified]),
    Guard::new("conflicting", only(Curious), To(Skeptical), Need, Turns, "2.2")
        .needs(&[Conflicting]).drops(&[Verified]),
    Guard::new("clear", only(Curious), To(Calm), Relief, Turns, "2.2")
        .needs(&[Clear]).lacks(&[Unaimed]).drops(&[Clear, Ambiguous]),
    Guard::new("ambiguous", only(Calm), To(Curious), Need, Turns, "3.2")
        .needs(&[Ambiguous]),
    Guard::new("unaimed", only(Calm), To(Curious), Need, Turns, "3.1")
        .needs(&[Unaimed]),
];

/// The row that applies in this mood with these facts, and the rows above it that do not; `None` if the mood stays.
pub fn explain(mood: Mood, facts: MoodFacts) -> (Vec<&'static Guard>, Option<&'static Guard>) {
    let mut passed = Vec::new();
    for guard in GUARDS.iter().filter(|guard| guard.is_read_in(mood)) {
        if guard.holds(mood, facts) {
            return (passed, Some(guard));
        }
        passed.push(guard);
    }
    (passed, None)
}

/// The table as Markdown, for the docs.
pub fn guard_table() -> String {
    let mut text = String::from("| # | Guard | In | When | Then | Spends | From |\n|---|---|---|---|---|---|---|\n");
    for (number, guard) in (1..).zip(GUARDS) {
        let moods = match guard.from {
            ANY => "any".to_owned(),
            from if from.count_zeros() == 1 => {
                let left_out = Mood::ALL.into_iter().find(|mood| !guard.is_read_in(*mood));
                left_out.map_or_else(|| "any".to_owned(), |mood| format!("any but {mood}"))
            }
            _ => {
                let names: Vec<_> =
                    Mood::ALL.into_iter().filter(|mood| guard.is_read_in(*mood)).map(|mood| mood.to_string()).collect();
                names.join(", ")
            }
        };
        let needs = guard.needs.iter().map(|fact| fact.name().to_owned());
        let lacks = guard.lacks.iter().map(|fact| format!("not {}", fact.name()));
        let when: Vec<_> = needs.chain(lacks).collect();
        let when = if when.is_empty() { "always".to_owned() } else { when.join(", ") };
        let then = match (guard.kind, guard.to) {
            (Wait, _) => "wait".to_owned(),
            (_, To(mood)) => format!("{mood}"),
            (_, Previous) => "the mood before".to_owned(),
            (_, Stay) if guard.sets.holds(Cleared) => "the crossing may happen".to_owned(),
            (_, Stay) => "stay".to_owned(),
        };
        let spends = if guard.kind == Wait { "–" } else { guard.spends.name() };
        // Writing into a string cannot fail.
        let _ =
            writeln!(text, "| {number} | `{}` | {moods} | {when} | {then} | {spends} | {} |", guard.name, guard.source);
    }
    text
}
