//! The facts that guards read, one bit each. Their origin is recorded in the receipts.

use serde::{Deserialize, Serialize};

macro_rules! facts {
    ($($fact:ident $word:literal $meaning:literal,)*) => {
        /// A fact: true or false.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum MoodFact {
            $(#[doc = $meaning] $fact,)*
        }

        impl MoodFact {
            /// All facts.
            pub const ALL: &'static [Self] = &[$(Self::$fact),*];

            /// The name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$fact => $word),* }
            }

            /// The description.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$fact => $meaning),* }
            }
        }
    };
}

facts! {
    Crashed "crashed" "The process restarted without a clean handoff, or its heartbeat is overdue.",
    Consistent "consistent" "The rebuilt state is consistent with the last receipts.",
    Inconsistent "inconsistent" "The rebuilt state is not consistent with the last receipts.",
    Attacked "attacked" "An injection, a reward hack or a self-sealing rationalisation is suspected.",
    Disclosed "disclosed" "The attack was disclosed in its form.",
    Undecided "undecided" "A missing preference or policy would change the next action.",
    Crossing "crossing" "Something is about to be published, promoted or signed.",
    Approved "approved" "A policy token for this crossing was given.",
    Cleared "cleared" "The crossing passed its checks and may be made.",
    Unaimed "unaimed" "The demo or every conjecture is missing.",
    Failing "failing" "Verifiers regress, failures repeat, quality declines or the work drifts.",
    FailingAgain "failing_again" "It failed again before it was fixed.",
    Conflicting "conflicting" "The evidence conflicts.",
    Exposed "exposed" "A blind spot is severe, a security surface was changed, or the risk increased.",
    Ambiguous "ambiguous" "An ambiguity that can be researched blocks the work.",
    Clear "clear" "The next action is clear and testable.",
    Mitigated "mitigated" "Mitigations are installed.",
    Verified "verified" "The verifiers pass.",
    Widening "widening" "The user wants a wider scope.",
}

/// A set of facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoodFacts(u32);

impl MoodFacts {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Risk facts: adding one never enlarges the rights.
    pub const RISK: Self = Self::of(&[
        MoodFact::Crashed,
        MoodFact::Attacked,
        MoodFact::Undecided,
        MoodFact::Crossing,
        MoodFact::Failing,
        MoodFact::FailingAgain,
        MoodFact::Exposed,
    ]);
    /// Relief facts. A new risk fact clears all of them, because an older relief does not answer it.
    pub const RELIEF: Self = Self::of(&[
        MoodFact::Consistent,
        MoodFact::Disclosed,
        MoodFact::Approved,
        MoodFact::Cleared,
        MoodFact::Clear,
        MoodFact::Mitigated,
        MoodFact::Verified,
        MoodFact::Widening,
    ]);

    /// The set of these facts.
    pub const fn of(facts: &[MoodFact]) -> Self {
        let (mut bits, mut rest) = (0, facts);
        while let [first, others @ ..] = rest {
            bits |= 1 << *first as u32;
            rest = others;
        }
        Self(bits)
    }

    /// Whether all of `other` hold.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` holds.
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether this fact holds.
    pub const fn holds(self, fact: MoodFact) -> bool {
        self.0 & (1 << fact as u32) != 0
    }

    /// The union.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The difference.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The facts that hold, in order.
    pub fn iter(self) -> impl Iterator<Item = MoodFact> {
        MoodFact::ALL.iter().copied().filter(move |fact| self.holds(*fact))
    }
}

impl std::fmt::Display for MoodFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, fact) in self.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, fact.name())?;
        }
        Ok(())
    }
}
