//! The facts that guards read. Each is one bit; where it came from stands in the receipts.

use serde::{Deserialize, Serialize};

macro_rules! facts {
    ($($fact:ident $word:literal $meaning:literal,)*) => {
        /// Something that holds or does not.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Fact {
            $(#[doc = $meaning] $fact,)*
        }

        impl Fact {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$fact),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$fact => $word),* }
            }

            /// What it says.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$fact => $meaning),* }
            }
        }
    };
}

facts! {
    Crashed "crashed" "The process began again without a clean handoff, or its heartbeat is stale.",
    Consistent "consistent" "The rebuilt state agrees with the last receipts.",
    Inconsistent "inconsistent" "The rebuilt state does not agree with the last receipts.",
    Attacked "attacked" "An injection, a reward hack or a self-sealing rationalisation is suspected.",
    Disclosed "disclosed" "What the attack was is disclosed in its form.",
    Undecided "undecided" "A preference or a policy is missing that would change the next move.",
    Crossing "crossing" "Something is about to be published, promoted or signed.",
    Approved "approved" "A policy token for this crossing was given.",
    Cleared "cleared" "The crossing passed its gates and may happen.",
    Unaimed "unaimed" "The demo or every conjecture is missing.",
    Failing "failing" "Verifiers regress, failures repeat, quality declines or the work drifts.",
    FailingAgain "failing_again" "That happened again before it was mended.",
    Conflicting "conflicting" "The evidence conflicts.",
    Exposed "exposed" "A hyperthesis is severe, a security surface was touched, or risk grew.",
    Ambiguous "ambiguous" "An ambiguity that can be researched blocks the work.",
    Clear "clear" "The next action is clear and testable.",
    Mitigated "mitigated" "Mitigations are installed.",
    Verified "verified" "The verifiers pass.",
    Widening "widening" "Whoever leads wants the scope widened.",
}

/// A set of facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Facts(u32);

impl Facts {
    /// None.
    pub const NONE: Self = Self(0);
    /// Facts of risk: adding one never enlarges rights.
    pub const RISK: Self = Self::of(&[
        Fact::Crashed,
        Fact::Attacked,
        Fact::Undecided,
        Fact::Crossing,
        Fact::Failing,
        Fact::FailingAgain,
        Fact::Exposed,
    ]);
    /// Facts of relief. One that is older than a risk does not answer it: a risk that arises drops them all.
    pub const RELIEF: Self = Self::of(&[
        Fact::Consistent,
        Fact::Disclosed,
        Fact::Approved,
        Fact::Cleared,
        Fact::Clear,
        Fact::Mitigated,
        Fact::Verified,
        Fact::Widening,
    ]);

    /// These facts.
    pub const fn of(facts: &[Fact]) -> Self {
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

    /// Whether this one holds.
    pub const fn holds(self, fact: Fact) -> bool {
        self.0 & (1 << fact as u32) != 0
    }

    /// With these as well.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without these.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those that hold, in order.
    pub fn iter(self) -> impl Iterator<Item = Fact> {
        Fact::ALL.iter().copied().filter(move |fact| self.holds(*fact))
    }
}

impl std::fmt::Display for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, fact) in self.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, fact.name())?;
        }
        Ok(())
    }
}
