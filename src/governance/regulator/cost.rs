//! Resources a session has spent, reservations for the running call, and the caps on both.

use serde::{Deserialize, Serialize};

use super::decision::{BreakAction, CircuitBreakReason, Decision, Evidence, RankedDecision, Resource};
use super::settings::{CostSettings, ResourceLimits};

/// Bytes per token, where only text is known: an estimate for English, used until the actual count arrives.
const BYTES_PER_TOKEN: u64 = 4;

/// An amount of each limited resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceUsage {
    /// Tokens read, cached ones included.
    pub tokens_in: u64,
    /// Tokens written.
    pub tokens_out: u64,
    /// Tokens read from a cache.
    pub tokens_cached: u64,
    /// Millionths of the account's currency.
    pub money_micros: u64,
    /// Wall-clock time, ms.
    pub wallclock_ms: u64,
}

impl ResourceUsage {
    /// The sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens_in: self.tokens_in.saturating_add(other.tokens_in),
            tokens_out: self.tokens_out.saturating_add(other.tokens_out),
            tokens_cached: self.tokens_cached.saturating_add(other.tokens_cached),
            money_micros: self.money_micros.saturating_add(other.money_micros),
            wallclock_ms: self.wallclock_ms.saturating_add(other.wallclock_ms),
        }
    }

    /// The larger amount of each resource.
    fn or_more(self, other: Self) -> Self {
        Self {
            tokens_in: self.tokens_in.max(other.tokens_in),
            tokens_out: self.tokens_out.max(other.tokens_out),
            tokens_cached: self.tokens_cached.max(other.tokens_cached),
            money_micros: self.money_micros.max(other.money_micros),
            wallclock_ms: self.wallclock_ms.max(other.wallclock_ms),
        }
    }

    /// Tokens read and written.
    pub const fn tokens(&self) -> u64 {
        self.tokens_in.saturating_add(self.tokens_out)
    }

    const fn of(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Tokens => self.tokens(),
            Resource::TokensIn => self.tokens_in,
            Resource::TokensOut => self.tokens_out,
            Resource::TokensCached => self.tokens_cached,
            Resource::MoneyMicros => self.money_micros,
            Resource::WallclockMs => self.wallclock_ms,
        }
    }
}

impl ResourceLimits {
    fn each(&self) -> impl Iterator<Item = (Resource, u64)> {
        [
            (Resource::Tokens, self.tokens),
            (Resource::TokensIn, self.tokens_in),
            (Resource::TokensOut, self.tokens_out),
            (Resource::TokensCached, self.tokens_cached),
            (Resource::MoneyMicros, self.money_micros),
            (Resource::WallclockMs, self.wallclock_ms),
        ]
        .into_iter()
        .filter_map(|(resource, cap)| Some((resource, cap?)))
    }
}

/// The session's cost account.
#[derive(Debug, Clone)]
pub(super) struct CostTracker {
    settings: CostSettings,
    /// Billed in this session.
    settled: ResourceUsage,
    /// Billed in earlier sessions.
    earlier: ResourceUsage,
    /// Counted so far for the running call.
    live: ResourceUsage,
    live_text_bytes: u64,
    /// Reserved for the running call.
    reserved: ResourceUsage,
    at_turn_start: ResourceUsage,
    /// The running call's count of output tokens at which the next hard or soft cap is reached.
    live_out_max: u64,
}

impl CostTracker {
    pub(super) fn new(settings: CostSettings, earlier: ResourceUsage) -> Self {
        let mut tracker = Self {
            settings,
            settled: ResourceUsage::default(),
            earlier,
            live: ResourceUsage::default(),
            live_text_bytes: 0,
            reserved: ResourceUsage::default(),
            at_turn_start: ResourceUsage::default(),
            live_out_max: u64::MAX,
        };
        tracker.set_live_max();
        tracker
    }

    /// Spending of this session, the running call included.
    pub(super) fn spent(&self) -> ResourceUsage {
        self.settled.plus(self.live_so_far())
    }

    /// Spending since the turn began.
    pub(super) fn this_turn(&self) -> ResourceUsage {
        let (now, then) = (self.spent(), self.at_turn_start);
        ResourceUsage {
            tokens_in: now.tokens_in - then.tokens_in,
            tokens_out: now.tokens_out - then.tokens_out,
            tokens_cached: now.tokens_cached - then.tokens_cached,
            money_micros: now.money_micros - then.money_micros,
            wallclock_ms: now.wallclock_ms - then.wallclock_ms,
        }
    }

    /// Spending in all sessions.
    pub(super) fn lifetime(&self) -> ResourceUsage {
        self.earlier.plus(self.spent())
    }

    fn live_so_far(&self) -> ResourceUsage {
        let guessed = self.live_text_bytes.div_ceil(BYTES_PER_TOKEN);
        ResourceUsage { tokens_out: self.live.tokens_out.saturating_add(guessed), ..self.live }
    }

    /// A turn begins. What was counted for the last call stays, even without a `Cost` event.
    pub(super) fn turn_start(&mut self) {
        self.settle(self.live_so_far());
        self.at_turn_start = self.settled;
    }

    /// Counts one token of the running call. True if a cap may have been reached.
    pub(super) fn token(&mut self) -> bool {
        self.live.tokens_out = self.live.tokens_out.saturating_add(1);
        let met = self.live.tokens_out >= self.live_out_max;
        if met {
            self.set_live_max();
        }
        met
    }

    /// Counts text of the running call whose tokens are unknown.
    pub(super) fn text(&mut self, bytes: usize) {
        self.live_text_bytes = self.live_text_bytes.saturating_add(bytes as u64);
    }

    /// Sets how long the running call has taken.
    pub(super) fn elapsed(&mut self, wallclock_ms: u64) {
        self.live.wallclock_ms = self.live.wallclock_ms.max(wallclock_ms);
    }

    /// Reserves `amount` for the next call, replacing an earlier reservation.
    pub(super) fn reserve(&mut self, amount: ResourceUsage) {
        self.reserved = amount;
        self.set_live_max();
    }

    /// The actual cost of the running call.
    pub(super) fn bill(&mut self, amount: ResourceUsage) {
        self.settle(amount);
    }

    fn settle(&mut self, amount: ResourceUsage) {
        self.settled = self.settled.plus(amount);
        self.live = ResourceUsage::default();
        self.live_text_bytes = 0;
        self.reserved = ResourceUsage::default();
        self.set_live_max();
    }

    /// Computes at which token count the next cap is reached, so that each token costs one comparison.
    fn set_live_max(&mut self) {
        let Self { settled, reserved, live, .. } = *self;
        let before = settled.tokens().saturating_add(reserved.tokens_in);
        self.live_out_max = [&self.settings.hard, &self.settings.soft]
            .into_iter()
            .flat_map(|limits| {
                let out = limits.tokens_out.map(|cap| cap.saturating_sub(settled.tokens_out));
                [out, limits.tokens.map(|cap| cap.saturating_sub(before))]
            })
            .flatten()
            .filter(|&left| left > live.tokens_out)
            .min()
            .unwrap_or(u64::MAX);
    }

    /// Spent share of the hard cap that is closest to its limit, in [0, 1]; `None` without a cap.
    pub(super) fn depletion(&self) -> Option<f64> {
        let spent = self.spent();
        self.settings
            .hard
            .each()
            .map(|(resource, cap)| if cap == 0 { 1.0 } else { (spent.of(resource) as f64 / cap as f64).min(1.0) })
            .reduce(f64::max)
    }

    /// Adds a decision for each reached cap, given the mean quality of the last judged turns. True if a hard one requires
    /// a stop.
    pub(super) fn decisions(&self, mean_quality: Option<f64>, judged: usize, out: &mut Vec<RankedDecision>) -> bool {
        let Self { settings, .. } = self;
        let spent = self.spent();
        for (limits, action) in [(&settings.hard, settings.hard_action), (&settings.soft, settings.soft_action)] {
            out.extend(
                self.met(limits)
                    .map(|(resource, spent, cap)| cost_decision(resource, spent, cap, mean_quality, action)),
            );
        }
        if let (Some(cap), Some(quality)) = (settings.compound_tokens, mean_quality)
            && judged >= settings.compound_turns
            && quality < settings.compound_quality
            && spent.tokens() >= cap
        {
            let mut ranked =
                cost_decision(Resource::Tokens, spent.tokens(), cap, mean_quality, BreakAction::PauseAndAsk);
            ranked.evidence.push(Evidence::new("mean_quality", quality, settings.compound_quality));
            out.push(ranked);
        }
        settings.hard_action != BreakAction::Throttle && self.met(&settings.hard).next().is_some()
    }

    /// The caps of `limits` that are reached by spending or exceeded by a reservation.
    fn met(&self, limits: &ResourceLimits) -> impl Iterator<Item = (Resource, u64, u64)> {
        let spent = self.spent();
        let bound = self.settled.plus(self.reserved.or_more(self.live_so_far()));
        limits
            .each()
            .map(move |(resource, cap)| (resource, spent.of(resource), bound.of(resource), cap))
            .filter(|&(_, spent, bound, cap)| spent >= cap || bound > cap)
            .map(|(resource, _, bound, cap)| (resource, bound, cap))
    }
}

fn cost_decision(
    resource: Resource,
    spent: u64,
    cap: u64,
    quality: Option<f64>,
    action: BreakAction,
) -> RankedDecision {
    let (name, what) = match resource {
        Resource::Tokens => ("spent_tokens", "tokens"),
        Resource::TokensIn => ("spent_tokens_in", "input tokens"),
        Resource::TokensOut => ("spent_tokens_out", "output tokens"),
        Resource::TokensCached => ("spent_tokens_cached", "cached tokens"),
        Resource::MoneyMicros => ("spent_money_micros", "millionths of the currency"),
        Resource::WallclockMs => ("spent_wallclock_ms", "ms of wall clock"),
    };
    let next = match action {
        BreakAction::Stop => "stop here, or raise the cap",
        BreakAction::PauseAndAsk => "ask the user to clarify the scope before spending more",
        BreakAction::Throttle => "slow down, shorten the prompt, or use a cheaper model",
    };
    RankedDecision {
        decision: Decision::CircuitBreak {
            reason: CircuitBreakReason::CostCapReached { resource, spent, cap, mean_quality_last_n: quality },
            action,
            suggestion: format!("{spent} of {cap} {what} spent or set aside: {next}"),
        },
        evidence: vec![Evidence::new(name, spent as f64, cap as f64)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(hard: ResourceLimits, soft: ResourceLimits) -> CostTracker {
        CostTracker::new(CostSettings { hard, soft, ..CostSettings::default() }, ResourceUsage::default())
    }

    fn met(tracker: &CostTracker, quality: Option<f64>, judged: usize) -> Vec<(Resource, u64, BreakAction)> {
        let mut out = Vec::new();
        tracker.decisions(quality, judged, &mut out);
        out.iter()
            .map(|ranked| match &ranked.decision {
                Decision::CircuitBreak {
                    reason: CircuitBreakReason::CostCapReached { resource, spent, .. },
                    action,
                    ..
                } => (*resource, *spent, *action),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    const NONE: ResourceLimits = ResourceLimits {
        tokens: None,
        tokens_in: None,
        tokens_out: None,
        tokens_cached: None,
        money_micros: None,
        wallclock_ms: None,
    };

    #[test]
    fn small_calls_add_up_to_a_hard_cap_without_quality_feedback() {
        let mut account = tracker(ResourceLimits { money_micros: Some(500_000), ..NONE }, NONE);
        for _ in 0..4 {
            account.bill(ResourceUsage { money_micros: 110_000, ..ResourceUsage::default() });
        }
        assert_eq!(met(&account, None, 0), []);
        account.bill(ResourceUsage { money_micros: 110_000, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [(Resource::MoneyMicros, 550_000, BreakAction::Stop)]);
    }

    #[test]
    fn a_soft_cap_throttles_before_the_hard_one_stops() {
        let mut account =
            tracker(ResourceLimits { tokens: Some(100), ..NONE }, ResourceLimits { tokens: Some(50), ..NONE });
        account.bill(ResourceUsage { tokens_in: 40, tokens_out: 20, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [(Resource::Tokens, 60, BreakAction::Throttle)]);
    }

    #[test]
    fn tokens_are_counted_while_streaming_and_replaced_by_the_actual_cost() {
        let mut account = tracker(ResourceLimits { tokens_out: Some(3), ..NONE }, NONE);
        assert!(!account.token() && !account.token());
        assert_eq!(met(&account, None, 0), []);
        assert!(account.token());
        assert_eq!(met(&account, None, 0), [(Resource::TokensOut, 3, BreakAction::Stop)]);
        account.bill(ResourceUsage { tokens_out: 2, ..ResourceUsage::default() });
        assert_eq!(account.spent().tokens_out, 2);
        // A turn without a `Cost` event still counts.
        account.token();
        account.turn_start();
        assert_eq!((account.spent().tokens_out, account.this_turn().tokens_out), (3, 0));
    }

    #[test]
    fn estimated_tokens_do_not_depend_on_chunk_boundaries() {
        let count = |pieces: &[usize]| {
            let mut account = tracker(NONE, NONE);
            for &bytes in pieces {
                account.text(bytes);
            }
            account.spent().tokens_out
        };
        assert_eq!(count(&[10]), 3);
        assert_eq!(count(&[1; 10]), 3);
    }

    #[test]
    fn a_reservation_beyond_the_cap_breaks_before_the_call() {
        let mut account = tracker(ResourceLimits { money_micros: Some(100), ..NONE }, NONE);
        account.bill(ResourceUsage { money_micros: 60, ..ResourceUsage::default() });
        account.reserve(ResourceUsage { money_micros: 40, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [], "exactly the rest is allowed");
        account.reserve(ResourceUsage { money_micros: 41, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [(Resource::MoneyMicros, 101, BreakAction::Stop)]);
        account.bill(ResourceUsage { money_micros: 10, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [], "the bill releases it");
    }

    #[test]
    fn the_compound_rule_needs_both_cost_and_poor_replies() {
        let mut account = tracker(NONE, NONE);
        assert_eq!(met(&account, Some(0.2), 3), []);
        account.bill(ResourceUsage { tokens_out: 10_000, ..ResourceUsage::default() });
        assert_eq!(met(&account, Some(0.9), 3), []);
        assert_eq!(met(&account, Some(0.2), 2), []);
        assert_eq!(met(&account, Some(0.2), 3), [(Resource::Tokens, 10_000, BreakAction::PauseAndAsk)]);
    }

    #[test]
    fn no_count_is_too_large() {
        let mut account = tracker(ResourceLimits { tokens: Some(u64::MAX), ..NONE }, NONE);
        let all = ResourceUsage { tokens_in: u64::MAX, tokens_out: u64::MAX, ..ResourceUsage::default() };
        account.reserve(all);
        account.bill(all);
        account.bill(all);
        account.text(usize::MAX);
        account.turn_start();
        assert_eq!(account.this_turn(), ResourceUsage::default());
        assert_eq!(account.depletion(), Some(1.0));
    }
}
