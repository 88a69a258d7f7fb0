//! Resources a session has spent, reservations for the running call, and the caps on both.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::decision::{BreakAction, CircuitBreakReason, Decision, Evidence, RankedDecision, Resource};
use super::settings::{CostSettings, ModelPrice, ResourceLimits};

/// Bytes per token, where only text is known: an estimate for English, used until the actual count arrives.
const BYTES_PER_TOKEN: u64 = 4;
/// Most reservations at once; beyond it they are merged.
const RESERVATIONS_MAX: usize = 64;
/// Most calls whose cost is still estimated.
const UNBILLED_MAX: usize = 16;

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

    /// The difference, 0 where it would be negative.
    fn minus(self, other: Self) -> Self {
        Self {
            tokens_in: self.tokens_in.saturating_sub(other.tokens_in),
            tokens_out: self.tokens_out.saturating_sub(other.tokens_out),
            tokens_cached: self.tokens_cached.saturating_sub(other.tokens_cached),
            money_micros: self.money_micros.saturating_sub(other.money_micros),
            wallclock_ms: self.wallclock_ms.saturating_sub(other.wallclock_ms),
        }
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

/// An amount set aside for one call.
#[derive(Debug, Clone)]
struct Reservation {
    call_id: Option<String>,
    amount: ResourceUsage,
}

impl ModelPrice {
    /// What the tokens cost, in millionths of the currency: a price per million tokens is one per token in millionths.
    fn money_micros(&self, usage: &ResourceUsage) -> u64 {
        let cached = usage.tokens_cached.min(usage.tokens_in);
        let fresh = (usage.tokens_in - cached) as f64 * self.input;
        let total = fresh + cached as f64 * self.cached.unwrap_or(self.input) + usage.tokens_out as f64 * self.output;
        total.ceil() as u64
    }
}

impl CostSettings {
    /// The price of a model: of the longest name that its name begins with, or of `*`.
    /// What a call of `model` costs by the table of prices, in millionths of the currency; 0 without a price.
    pub fn money_micros(&self, model: Option<&str>, usage: &ResourceUsage) -> u64 {
        self.price(model).map_or(0, |price| price.money_micros(usage))
    }

    /// The decision on the first hard cap that `spent` reaches.
    pub fn reached(&self, spent: ResourceUsage) -> Option<RankedDecision> {
        let (resource, cap) = self.hard.each().find(|(resource, cap)| spent.of(*resource) >= *cap)?;
        Some(cost_decision(resource, spent.of(resource), cap, None, self.hard_action))
    }

    fn price(&self, model: Option<&str>) -> Option<ModelPrice> {
        let named = model.and_then(|model| {
            self.prices.iter().filter(|(name, _)| model.starts_with(name.as_str())).max_by_key(|(name, _)| name.len())
        });
        named.map(|(_, price)| *price).or_else(|| self.prices.get("*").copied())
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
    /// Reserved for calls that are not billed yet.
    reserved: Vec<Reservation>,
    /// Estimates of earlier calls that nobody has billed; they are part of `settled`.
    unbilled: VecDeque<ResourceUsage>,
    /// The current turn's reply is complete, so that the next bill is its own.
    replied: bool,
    /// Prompt tokens that the running call is expected to have, from the last bill and the message.
    expected_in: u64,
    last_tokens_in: u64,
    /// The price of the model that was billed last.
    price: Option<ModelPrice>,
    at_turn_start: ResourceUsage,
    /// The running call's count of output tokens at which the next hard or soft cap is reached.
    live_out_max: u64,
}

impl CostTracker {
    pub(super) fn new(settings: CostSettings, earlier: ResourceUsage) -> Self {
        let price = settings.price(None);
        let mut tracker = Self {
            price,
            settings,
            settled: ResourceUsage::default(),
            earlier,
            live: ResourceUsage::default(),
            live_text_bytes: 0,
            reserved: Vec::new(),
            unbilled: VecDeque::new(),
            replied: false,
            expected_in: 0,
            last_tokens_in: 0,
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
        self.spent().minus(self.at_turn_start)
    }

    /// Spending in all sessions.
    pub(super) fn lifetime(&self) -> ResourceUsage {
        self.earlier.plus(self.spent())
    }

    fn live_so_far(&self) -> ResourceUsage {
        let guessed = self.live_text_bytes.div_ceil(BYTES_PER_TOKEN);
        let tokens_out = self.live.tokens_out.saturating_add(guessed);
        let output = ResourceUsage { tokens_out, ..ResourceUsage::default() };
        let money_micros = self.price.map_or(0, |price| price.money_micros(&output));
        ResourceUsage { tokens_out, money_micros, ..self.live }
    }

    /// The running call's prompt as far as known, which is spent as soon as its first token arrives.
    fn prompt(&self) -> ResourceUsage {
        let reserved = self.reserved_total();
        let tokens_in = reserved.tokens_in.max(self.expected_in);
        let usage = ResourceUsage { tokens_in, ..ResourceUsage::default() };
        ResourceUsage { money_micros: self.price.map_or(0, |price| price.money_micros(&usage)), ..usage }
    }

    fn reserved_total(&self) -> ResourceUsage {
        self.reserved.iter().fold(ResourceUsage::default(), |total, reservation| total.plus(reservation.amount))
    }

    /// A turn begins. What was counted for the last call stays as an estimate until its `Cost` event arrives.
    pub(super) fn turn_start(&mut self, message_bytes: usize) {
        let live = self.live_so_far();
        if live != ResourceUsage::default() {
            self.settled = self.settled.plus(live);
            if self.unbilled.len() == UNBILLED_MAX {
                self.unbilled.pop_front();
            }
            self.unbilled.push_back(live);
        }
        self.replied = false;
        self.expected_in = self.last_tokens_in.saturating_add((message_bytes as u64).div_ceil(BYTES_PER_TOKEN));
        self.reserved.clear();
        self.clear_live();
        self.at_turn_start = self.settled;
    }

    /// The current turn's reply is complete.
    pub(super) fn complete(&mut self) {
        self.replied = true;
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

    /// Counts the time that a tool took.
    pub(super) fn tool_time(&mut self, wallclock_ms: u64) {
        self.settled.wallclock_ms = self.settled.wallclock_ms.saturating_add(wallclock_ms);
    }

    /// Reserves `amount` for a call, in addition to other calls' reservations. The same call's reservation is replaced.
    pub(super) fn reserve(&mut self, call_id: Option<&str>, mut amount: ResourceUsage) {
        if amount.money_micros == 0 {
            amount.money_micros = self.price.map_or(0, |price| price.money_micros(&amount));
        }
        let same = |reservation: &&mut Reservation| call_id.is_some() && reservation.call_id.as_deref() == call_id;
        if let Some(reservation) = self.reserved.iter_mut().find(same) {
            reservation.amount = amount;
        } else if self.reserved.len() < RESERVATIONS_MAX {
            self.reserved.push(Reservation { call_id: call_id.map(str::to_owned), amount });
        } else if let Some(last) = self.reserved.last_mut() {
            last.amount = last.amount.plus(amount);
        }
        self.set_live_max();
    }

    /// The actual cost of a call: the running one, or an earlier one if nothing has been counted for the running one yet.
    pub(super) fn bill(&mut self, call_id: Option<&str>, model: Option<&str>, mut amount: ResourceUsage) {
        self.price = self.settings.price(model).or(self.price);
        if amount.money_micros == 0 {
            amount.money_micros = self.settings.price(model).map_or(0, |price| price.money_micros(&amount));
        }
        let of_call = self.reserved.iter().position(|reservation| reservation.call_id.as_deref() == call_id);
        if let Some(at) = of_call.or_else(|| (call_id.is_none() && !self.reserved.is_empty()).then_some(0)) {
            self.reserved.remove(at);
        }
        self.last_tokens_in = amount.tokens_in;
        let is_late = !self.replied && self.live_so_far() == ResourceUsage::default();
        if let Some(estimate) = self.unbilled.pop_front_if(|_| is_late) {
            self.settled = self.settled.minus(estimate).plus(amount);
            self.at_turn_start = self.at_turn_start.minus(estimate).plus(amount);
        } else {
            self.settled = self.settled.plus(amount);
            self.clear_live();
            self.replied = false;
        }
        self.set_live_max();
    }

    fn clear_live(&mut self) {
        self.live = ResourceUsage::default();
        self.live_text_bytes = 0;
        self.set_live_max();
    }

    /// Computes at which token count the next cap is reached, so that each token costs one comparison.
    fn set_live_max(&mut self) {
        let prompt = self.prompt();
        let before = self.settled.plus(prompt);
        let per_token = self.price.map_or(0.0, |price| price.output);
        let live = self.live.tokens_out;
        self.live_out_max = [&self.settings.hard, &self.settings.soft]
            .into_iter()
            .flat_map(|limits| {
                let money = limits.money_micros.filter(|_| per_token > 0.0);
                let money =
                    money.map(|cap| (cap.saturating_sub(before.money_micros) as f64 / per_token).floor() as u64);
                [
                    limits.tokens_out.map(|cap| cap.saturating_sub(before.tokens_out)),
                    limits.tokens.map(|cap| cap.saturating_sub(before.tokens())),
                    money,
                ]
            })
            .flatten()
            // A cap that the prompt alone reaches is reported at the first token.
            .map(|left| left.max(1))
            .filter(|&left| left > live)
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
        let live = self.live_so_far();
        let bound = self.settled.plus(self.reserved_total().or_more(live));
        // While tokens arrive, the prompt has been read.
        let spent = if live.tokens_out > 0 { self.settled.plus(live).plus(self.prompt()) } else { self.spent() };
        limits
            .each()
            .map(move |(resource, cap)| (resource, spent.of(resource), bound.of(resource).max(spent.of(resource)), cap))
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
            account.bill(None, None, ResourceUsage { money_micros: 110_000, ..ResourceUsage::default() });
        }
        assert_eq!(met(&account, None, 0), []);
        account.bill(None, None, ResourceUsage { money_micros: 110_000, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [(Resource::MoneyMicros, 550_000, BreakAction::Stop)]);
    }

    #[test]
    fn a_soft_cap_throttles_before_the_hard_one_stops() {
        let mut account =
            tracker(ResourceLimits { tokens: Some(100), ..NONE }, ResourceLimits { tokens: Some(50), ..NONE });
        account.bill(None, None, ResourceUsage { tokens_in: 40, tokens_out: 20, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [(Resource::Tokens, 60, BreakAction::Throttle)]);
    }

    #[test]
    fn tokens_are_counted_while_streaming_and_replaced_by_the_actual_cost() {
        let mut account = tracker(ResourceLimits { tokens_out: Some(3), ..NONE }, NONE);
        assert!(!account.token() && !account.token());
        assert_eq!(met(&account, None, 0), []);
        assert!(account.token());
        assert_eq!(met(&account, None, 0), [(Resource::TokensOut, 3, BreakAction::Stop)]);
        account.bill(None, None, ResourceUsage { tokens_out: 2, ..ResourceUsage::default() });
        assert_eq!(account.spent().tokens_out, 2);
        // A turn without a `Cost` event still counts.
        account.token();
        account.turn_start(0);
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
        account.bill(None, None, ResourceUsage { money_micros: 60, ..ResourceUsage::default() });
        account.reserve(None, ResourceUsage { money_micros: 40, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [], "exactly the rest is allowed");
        account.reserve(None, ResourceUsage { money_micros: 1, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [(Resource::MoneyMicros, 101, BreakAction::Stop)]);
        account.bill(None, None, ResourceUsage { money_micros: 10, ..ResourceUsage::default() });
        assert_eq!(met(&account, None, 0), [], "the bill releases the first of the two");
    }

    #[test]
    fn reservations_of_several_calls_add_up_and_are_released_by_their_ids() {
        let mut account = tracker(ResourceLimits { tokens: Some(100), ..NONE }, NONE);
        let amount = |tokens_in, tokens_out| ResourceUsage { tokens_in, tokens_out, ..ResourceUsage::default() };
        account.reserve(Some("a"), amount(30, 20));
        account.reserve(Some("b"), amount(30, 10));
        assert_eq!(met(&account, None, 0), [], "90 of 100");
        account.reserve(Some("b"), amount(30, 21));
        assert_eq!(met(&account, None, 0), [(Resource::Tokens, 101, BreakAction::Stop)]);
        account.bill(Some("b"), None, amount(30, 5));
        assert_eq!(met(&account, None, 0), [], "35 spent and 50 reserved");
        account.reserve(Some("c"), amount(16, 0));
        assert_eq!(met(&account, None, 0), [(Resource::Tokens, 101, BreakAction::Stop)]);
    }

    #[test]
    fn a_late_bill_replaces_its_estimate() {
        let mut account = tracker(NONE, NONE);
        (0..10).for_each(|_| {
            account.token();
        });
        account.turn_start(0);
        account.bill(None, None, ResourceUsage { tokens_in: 50, tokens_out: 12, ..ResourceUsage::default() });
        assert_eq!((account.spent().tokens_out, account.spent().tokens_in), (12, 50));
        assert_eq!(account.this_turn(), ResourceUsage::default(), "it belongs to the turn before");
        (0..5).for_each(|_| {
            account.token();
        });
        account.bill(None, None, ResourceUsage { tokens_in: 60, tokens_out: 5, ..ResourceUsage::default() });
        assert_eq!((account.spent().tokens_out, account.spent().tokens_in), (17, 110));
        // A reply without tokens has a bill of its own, although an earlier one was never billed.
        account.token();
        account.turn_start(0);
        account.complete();
        account.bill(None, None, ResourceUsage { tokens_out: 4, ..ResourceUsage::default() });
        assert_eq!(account.spent().tokens_out, 17 + 1 + 4);
    }

    #[test]
    fn a_stream_stops_at_the_cap_with_its_prompt_counted() {
        let mut account = tracker(ResourceLimits { tokens: Some(100), ..NONE }, NONE);
        account.reserve(None, ResourceUsage { tokens_in: 60, tokens_out: 40, ..ResourceUsage::default() });
        let stopped = (1..1_000).find(|_| account.token() && !met(&account, None, 0).is_empty());
        assert_eq!(stopped, Some(40), "60 read and 40 written are the cap");
        // Without a reservation the prompt is expected to be as long as the last one and the message.
        let mut account = tracker(ResourceLimits { tokens: Some(100), ..NONE }, NONE);
        account.bill(None, None, ResourceUsage { tokens_in: 20, tokens_out: 10, ..ResourceUsage::default() });
        account.turn_start(40);
        let stopped = (1..1_000).find(|_| account.token() && !met(&account, None, 0).is_empty());
        assert_eq!(stopped, Some(40), "30 spent, 30 expected, 40 written");
    }

    #[test]
    fn money_follows_from_prices_and_stops_a_stream() {
        let price = ModelPrice { input: 2.0, output: 10.0, cached: Some(0.5) };
        let prices = [("small".to_owned(), ModelPrice::default()), ("small-pro".to_owned(), price)].into();
        let hard = ResourceLimits { money_micros: Some(1_000), ..NONE };
        let mut account =
            CostTracker::new(CostSettings { hard, prices, ..CostSettings::default() }, ResourceUsage::default());
        let usage = ResourceUsage { tokens_in: 100, tokens_out: 30, tokens_cached: 40, ..ResourceUsage::default() };
        account.bill(None, Some("small-pro-2026"), usage);
        assert_eq!(account.spent().money_micros, 60 * 2 + 20 + 300);
        account.reserve(None, ResourceUsage { tokens_in: 100, ..ResourceUsage::default() });
        let stopped = (1..1_000).find(|_| account.token() && !met(&account, None, 0).is_empty());
        assert_eq!(stopped, Some(36), "440 spent, 200 for the prompt, 36 tokens at 10 each");
        account.bill(None, Some("other"), usage);
        assert_eq!(account.spent().money_micros, 440, "a model without a price");
    }

    #[test]
    fn tool_time_counts() {
        let mut account = tracker(ResourceLimits { wallclock_ms: Some(500), ..NONE }, NONE);
        account.bill(None, None, ResourceUsage { wallclock_ms: 300, ..ResourceUsage::default() });
        account.tool_time(250);
        assert_eq!(met(&account, None, 0), [(Resource::WallclockMs, 550, BreakAction::Stop)]);
    }

    #[test]
    fn the_compound_rule_needs_both_cost_and_poor_replies() {
        let mut account = tracker(NONE, NONE);
        assert_eq!(met(&account, Some(0.2), 3), []);
        account.bill(None, None, ResourceUsage { tokens_out: 10_000, ..ResourceUsage::default() });
        assert_eq!(met(&account, Some(0.9), 3), []);
        assert_eq!(met(&account, Some(0.2), 2), []);
        assert_eq!(met(&account, Some(0.2), 3), [(Resource::Tokens, 10_000, BreakAction::PauseAndAsk)]);
    }

    #[test]
    fn no_count_is_too_large() {
        let mut account = tracker(ResourceLimits { tokens: Some(u64::MAX), ..NONE }, NONE);
        let all = ResourceUsage { tokens_in: u64::MAX, tokens_out: u64::MAX, ..ResourceUsage::default() };
        account.reserve(None, all);
        account.bill(None, None, all);
        account.bill(None, None, all);
        account.text(usize::MAX);
        account.turn_start(0);
        assert_eq!(account.this_turn(), ResourceUsage::default());
        assert_eq!(account.depletion(), Some(1.0));
    }
}
