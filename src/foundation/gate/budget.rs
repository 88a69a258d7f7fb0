//! Budgets of limited resources. Every amount is finite; there is no "unlimited".

use serde::{Deserialize, Serialize};

/// An amount of each limited resource: a limit, a cost, or the amount spent so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Money, millionths of the account's currency.
    pub money_micros: u64,
    /// Tokens read and generated.
    pub tokens: u64,
    /// Wall-clock time of the effects, ms.
    pub wall_ms: u64,
    /// Effects.
    pub calls: u64,
    /// Files written.
    pub files: u64,
    /// Lines changed.
    pub diff_lines: u64,
}

/// A limited resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// Money.
    MoneyMicros,
    /// Tokens.
    Tokens,
    /// Wall-clock time.
    WallMs,
    /// Effects.
    Calls,
    /// Files written.
    Files,
    /// Lines changed.
    DiffLines,
}

impl Resource {
    const ALL: [Self; 6] = [Self::MoneyMicros, Self::Tokens, Self::WallMs, Self::Calls, Self::Files, Self::DiffLines];

    /// Its name in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MoneyMicros => "money_micros",
            Self::Tokens => "tokens",
            Self::WallMs => "wall_ms",
            Self::Calls => "calls",
            Self::Files => "files",
            Self::DiffLines => "diff_lines",
        }
    }
}

impl Budget {
    /// Zero of each resource.
    pub const NOTHING: Self = Self { money_micros: 0, tokens: 0, wall_ms: 0, calls: 0, files: 0, diff_lines: 0 };

    const fn amounts(&self) -> [u64; 6] {
        [self.money_micros, self.tokens, self.wall_ms, self.calls, self.files, self.diff_lines]
    }

    fn zip(&self, other: &Self, pick: impl Fn(u64, u64) -> u64) -> Self {
        let [a, b] = [self.amounts(), other.amounts()];
        let mut both = a.into_iter().zip(b).map(|(a, b)| pick(a, b));
        let mut next = || both.next().unwrap_or_default();
        Self { money_micros: next(), tokens: next(), wall_ms: next(), calls: next(), files: next(), diff_lines: next() }
    }

    /// The first resource of which `self` has less than `other`.
    pub fn short_of(&self, other: &Self) -> Option<Resource> {
        let [a, b] = [self.amounts(), other.amounts()];
        Resource::ALL.into_iter().zip(a.into_iter().zip(b)).find(|(_, (a, b))| a < b).map(|(resource, _)| resource)
    }

    /// Whether every amount is at least that of `cost`: a faster [`short_of`](Self::short_of) that does not name the resource.
    #[inline]
    pub(super) const fn covers(&self, cost: &Self) -> bool {
        self.money_micros >= cost.money_micros
            && self.tokens >= cost.tokens
            && self.wall_ms >= cost.wall_ms
            && self.calls >= cost.calls
            && self.files >= cost.files
            && self.diff_lines >= cost.diff_lines
    }

    /// Whether no amount exceeds that of `other`.
    pub fn within(&self, other: &Self) -> bool {
        other.short_of(self).is_none()
    }

    /// The minimum of each amount.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        self.zip(other, u64::min)
    }

    /// The sums, saturating.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// The amounts left after `spent`, saturating at 0.
    #[must_use]
    pub fn minus(&self, spent: &Self) -> Self {
        self.zip(spent, u64::saturating_sub)
    }
}
