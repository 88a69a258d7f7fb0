//! What a session has spent, what is reserved for the call in flight, and the caps on both.

use serde::{Deserialize, Serialize};

use super::decision::{BreakAction, CircuitBreakReason, Decision, Evidence, Resource, Ruling};
use super::settings::{CostSettings, Limits};

/// Bytes per token where only text is seen: a rule of thumb for English, used until the real count arrives.
const BYTES_PER_TOKEN: u64 = 4;

/// Amounts of everything that can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
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

impl Spent {
    /// Both together; at the end of the number range it stays there.
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

    /// The larger of both, each amount for itself.
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

impl Limits {
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

/// The session's account.
#[derive(Debug, Clone)]
pub(super) struct CostTracker {
    settings: CostSettings,
    /// Settled by `Cost` events, this session.
    settled: Spent,
    /// Settled in sessions before this one.
    earlier: Spent,
    /// Seen of the call in flight.
    live: Spent,
    live_text_bytes: u64,
    /// Set aside for the call in flight.
    reserved: Spent,
    at_turn_start: Spent,
    /// The live count of written tokens at which a hard or soft cap is met.
    live_out_max: u64,
}

impl CostTracker {
    pub(super) fn new(settings: CostSettings, earlier: Spent) -> Self {
        let mut tracker = Self {
            settings,
            settled: Spent::default(),
            earlier,
            live: Spent::default(),
            live_text_bytes: 0,
            reserved: Spent::default(),
            at_turn_start: Spent::default(),
            live_out_max: u64::MAX,
        };
        tracker.set_live_max();
        tracker
    }

    /// This session's spending, the call in flight included.
    pub(super) fn spent(&self) -> Spent {
        self.settled.plus(self.live_so_far())
    }

    /// Spending since the turn began.
    pub(super) fn this_turn(&self) -> Spent {
        let (now, then) = (self.spent(), self.at_turn_start);
        Spent {
            tokens_in: now.tokens_in - then.tokens_in,
            tokens_out: now.tokens_out - then.tokens_out,
            tokens_cached: now.tokens_cached - then.tokens_cached,
            money_micros: now.money_micros - then.money_micros,
            wallclock_ms: now.wallclock_ms - then.wallclock_ms,
        }
    }

    /// Spending in all sessions.
    pub(super) fn lifetime(&self) -> Spent {
        self.earlier.plus(self.spent())
    }

    fn live_so_far(&self) -> Spent {
        let guessed = self.live_text_bytes.div_ceil(BYTES_PER_TOKEN);
        Spent { tokens_out: self.live.tokens_out.saturating_add(guessed), ..self.live }
    }

    /// A turn begins. What the last call was seen to cost stays, even if nobody sent a bill.
    pub(super) fn turn_start(&mut self) {
        self.settle(self.live_so_far());
        self.at_turn_start = self.settled;
    }

    /// One more token of the call in flight. True when a cap may have been met.
    pub(super) fn token(&mut self) -> bool {
        self.live.tokens_out = self.live.tokens_out.saturating_add(1);
        let met = self.live.tokens_out >= self.live_out_max;
        if met {
            self.set_live_max();
        }
        met
    }

    /// More text of the call in flight, of unknown tokens.
    pub(super) fn text(&mut self, bytes: usize) {
        self.live_text_bytes = self.live_text_bytes.saturating_add(bytes as u64);
    }

    /// How long the call in flight has taken so far.
    pub(super) fn elapsed(&mut self, wallclock_ms: u64) {
        self.live.wallclock_ms = self.live.wallclock_ms.max(wallclock_ms);
    }

    /// Sets `amount` aside for the next call, in place of what was set aside before.
    pub(super) fn reserve(&mut self, amount: Spent) {
        self.reserved = amount;
        self.set_live_max();
    }

    /// The bill for the call in flight.
    pub(super) fn bill(&mut self, amount: Spent) {
        self.settle(amount);
    }

    fn settle(&mut self, amount: Spent) {
        self.settled = self.settled.plus(amount);
        self.live = Spent::default();
        self.live_text_bytes = 0;
        self.reserved = Spent::default();
        self.set_live_max();
    }

    /// Finds the next cap that the tokens in flight can meet, so that a token costs one comparison.
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

    /// How much of the tightest hard budget is spent, in [0, 1]; `None` without a cap.
    pub(super) fn depletion(&self) -> Option<f64> {
        let spent = self.spent();
        self.settings
            .hard
            .each()
            .map(|(resource, cap)| if cap == 0 { 1.0 } else { (spent.of(resource) as f64 / cap as f64).min(1.0) })
            .reduce(f64::max)
    }

    /// The caps that are met, given the mean quality of the last judged turns. True when a hard one forbids going on.
    pub(super) fn rulings(&self, mean_quality: Option<f64>, judged: usize, out: &mut Vec<Ruling>) -> bool {
        let Self { settings, .. } = self;
        let spent = self.spent();
        for (limits, action) in [(&settings.hard, settings.hard_action), (&settings.soft, settings.soft_action)] {
            out.extend(
                self.met(limits).map(|(resource, spent, cap)| cost_ruling(resource, spent, cap, mean_quality, action)),
            );
        }
        if let (Some(cap), Some(quality)) = (settings.compound_tokens, mean_quality)
            && judged >= settings.compound_turns
            && quality < settings.compound_quality
            && spent.tokens() >= cap
        {
            let mut ruling = cost_ruling(Resource::Tokens, spent.tokens(), cap, mean_quality, BreakAction::PauseAndAsk);
            ruling.evidence.push(Evidence::new("mean_quality", quality, settings.compound_quality));
            out.push(ruling);
        }
        settings.hard_action != BreakAction::Throttle && self.met(&settings.hard).next().is_some()
    }

    /// The caps of `limits` that are met, with what is spent or set aside: nothing is left, or too much is set aside.
    fn met(&self, limits: &Limits) -> impl Iterator<Item = (Resource, u64, u64)> {
        let spent = self.spent();
        let bound = self.settled.plus(self.reserved.or_more(self.live_so_far()));
        limits
            .each()
            .map(move |(resource, cap)| (resource, spent.of(resource), bound.of(resource), cap))
            .filter(|&(_, spent, bound, cap)| spent >= cap || bound > cap)
            .map(|(resource, _, bound, cap)| (resource, bound, cap))
    }
}

fn cost_ruling(resource: Resource, spent: u64, cap: u64, quality: Option<f64>, action: BreakAction) -> Ruling {
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
    Ruling {
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

    fn tracker(hard: Limits, soft: Limits) -> CostTracker {
        CostTracker::new(CostSettings { hard, soft, ..CostSettings::default() }, Spent::default())
    }

    fn met(tracker: &CostTracker, quality: Option<f64>, judged: usize) -> Vec<(Resource, u64, BreakAction)> {
        let mut out = Vec::new();
        tracker.rulings(quality, judged, &mut out);
        out.iter()
            .map(|ruling| match &ruling.decision {
                Decision::CircuitBreak {
                    reason: CircuitBreakReason::CostCapReached { resource, spent, .. },
                    action,
                    ..
                } => (*resource, *spent, *action),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    const NONE: Limits = Limits {
        tokens: None,
        tokens_in: None,
        tokens_out: None,
        tokens_cached: None,
        money_micros: None,
        wallclock_ms: None,
    };

    #[test]
    fn small_calls_add_up_to_a_hard_cap_that_needs_no_quality() {
        let mut account = tracker(Limits { money_micros: Some(500_000), ..NONE }, NONE);
        for _ in 0..4 {
            account.bill(Spent { money_micros: 110_000, ..Spent::default() });
        }
        assert_eq!(met(&account, None, 0), []);
        account.bill(Spent { money_micros: 110_000, ..Spent::default() });
        assert_eq!(met(&account, None, 0), [(Resource::MoneyMicros, 550_000, BreakAction::Stop)]);
    }

    #[test]
    fn a_soft_cap_throttles_before_the_hard_one_stops() {
        let mut account = tracker(Limits { tokens: Some(100), ..NONE }, Limits { tokens: Some(50), ..NONE });
        account.bill(Spent { tokens_in: 40, tokens_out: 20, ..Spent::default() });
        assert_eq!(met(&account, None, 0), [(Resource::Tokens, 60, BreakAction::Throttle)]);
    }

    #[test]
    fn tokens_are_counted_in_mid_stream_and_replaced_by_the_bill() {
        let mut account = tracker(Limits { tokens_out: Some(3), ..NONE }, NONE);
        assert!(!account.token() && !account.token());
        assert_eq!(met(&account, None, 0), []);
        assert!(account.token());
        assert_eq!(met(&account, None, 0), [(Resource::TokensOut, 3, BreakAction::Stop)]);
        account.bill(Spent { tokens_out: 2, ..Spent::default() });
        assert_eq!(account.spent().tokens_out, 2);
        // A turn that nobody bills still counts.
        account.token();
        account.turn_start();
        assert_eq!((account.spent().tokens_out, account.this_turn().tokens_out), (3, 0));
    }

    #[test]
    fn text_of_unknown_tokens_counts_alike_however_it_is_cut() {
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
        let mut account = tracker(Limits { money_micros: Some(100), ..NONE }, NONE);
        account.bill(Spent { money_micros: 60, ..Spent::default() });
        account.reserve(Spent { money_micros: 40, ..Spent::default() });
        assert_eq!(met(&account, None, 0), [], "exactly the rest is allowed");
        account.reserve(Spent { money_micros: 41, ..Spent::default() });
        assert_eq!(met(&account, None, 0), [(Resource::MoneyMicros, 101, BreakAction::Stop)]);
        account.bill(Spent { money_micros: 10, ..Spent::default() });
        assert_eq!(met(&account, None, 0), [], "the bill releases it");
    }

    #[test]
    fn the_compound_rule_needs_both_cost_and_poor_replies() {
        let mut account = tracker(NONE, NONE);
        assert_eq!(met(&account, Some(0.2), 3), []);
        account.bill(Spent { tokens_out: 10_000, ..Spent::default() });
        assert_eq!(met(&account, Some(0.9), 3), []);
        assert_eq!(met(&account, Some(0.2), 2), []);
        assert_eq!(met(&account, Some(0.2), 3), [(Resource::Tokens, 10_000, BreakAction::PauseAndAsk)]);
    }

    #[test]
    fn no_count_is_too_large() {
        let mut account = tracker(Limits { tokens: Some(u64::MAX), ..NONE }, NONE);
        let all = Spent { tokens_in: u64::MAX, tokens_out: u64::MAX, ..Spent::default() };
        account.reserve(all);
        account.bill(all);
        account.bill(all);
        account.text(usize::MAX);
        account.turn_start();
        assert_eq!(account.this_turn(), Spent::default());
        assert_eq!(account.depletion(), Some(1.0));
    }
}
