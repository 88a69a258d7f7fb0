//! A gate for those who do not hold it. A [`Guard`] asks for an effect and uses the permit in one breath; a [`Warden`] is the
//! guard that keeps a gate and the one lease under which a command works.
//!
//! Calls of a model are many and alike, so a warden asks for [`CALLS`] of them at a time: one receipt, one sync. What is
//! really called counts down from that, and what came of it is summed up for the receipt that ends the work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::{
    Budget, Category, Effect, Entry, Gate, LeaseId, Ledger, Principal, Reason, Refusal, Request, Rights, Terms,
};
use crate::foundation::base::{Clock, Digest, limits};

/// Calls of a model that are asked for at a time.
pub(super) const CALLS: u64 = 64;
/// Tokens that these may read and write; a single call that needs more is asked for by itself.
const TOKENS: u64 = CALLS * limits::REPLY_TOKENS_MAX as u64;

/// Whoever asks the gate before something happens.
pub trait Guard: Send + Sync {
    /// Asks for an effect and uses the permit for it: the caller may perform it now, once.
    ///
    /// # Errors
    /// Why not.
    fn allow(&self, effect: &Effect) -> Result<(), Refusal>;

    /// Asks for a call of `model`, which stands at `host` or on this machine, and reads and writes `tokens_max` at most.
    ///
    /// # Errors
    /// Why not.
    fn allow_call(&self, model: &str, host: Option<&str>, tokens_max: u64) -> Result<(), Refusal>;

    /// What came of a call that was allowed.
    fn called(&self, model: &str, came: Came);
}

/// What came of calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Came {
    /// How many there were.
    pub calls: u64,
    /// How many gave nothing.
    pub failed: u64,
    /// Tokens read.
    pub tokens_in: u64,
    /// Tokens written.
    pub tokens_out: u64,
}

/// A gate with one lease, for many who ask at the same time.
pub struct Warden<L> {
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept<L>>,
}

struct Kept<L> {
    gate: Gate<L>,
    lease: LeaseId,
    mood: Arc<str>,
    rights: Rights,
    /// What is left of the calls that were asked for, by model and host.
    left: BTreeMap<(String, Option<String>), Budget>,
    came: BTreeMap<String, Came>,
}

impl<L: Ledger> Warden<L> {
    /// The warden of somebody who holds `terms` in a mood with these `rights`.
    ///
    /// # Errors
    /// When the ledger cannot write.
    pub fn open(
        ledger: L,
        principal: Principal,
        terms: Terms,
        rights: Rights,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Refusal> {
        let (now, mood) = (clock.now(), Arc::clone(&principal.mood));
        let (mut gate, lease) = Gate::open(ledger, principal, terms, now)?;
        gate.enter(lease, &mood, &rights, now)?;
        let kept = Kept { gate, lease, mood, rights, left: BTreeMap::new(), came: BTreeMap::new() };
        Ok(Self { clock, kept: Mutex::new(kept) })
    }

    /// Notes a person's word that one effect with exactly these arguments may happen once, now.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn approve(&self, effect: &Effect, by: &str) -> Result<(), Refusal> {
        let now = self.clock.now();
        let mut kept = self.kept();
        let until = kept.gate.get(kept.lease).map_or(now, |lease| lease.terms().expires);
        let lease = kept.lease;
        kept.gate.approve(lease, (effect.category(), effect.arguments()), by, until, now)
    }

    /// Asks for an effect whose performer uses the permit itself.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(&self, effect: &Effect) -> Result<super::Permit, Refusal> {
        let now = self.clock.now();
        self.kept().ask(effect, now)
    }

    /// Writes down what is not the gate's own.
    ///
    /// # Errors
    /// When it may not be durable.
    pub fn note(&self, entry: Entry) -> Result<Vec<Digest>, super::LedgerError> {
        self.kept().gate.ledger().record(self.clock.now(), &[entry])
    }

    /// What came of all calls, by model.
    pub fn came(&self) -> BTreeMap<String, Came> {
        self.kept().came.clone()
    }

    fn kept(&self) -> MutexGuard<'_, Kept<L>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Ledger> Kept<L> {
    /// Asks. A mood's budget is that of one visit: where it is spent and the lease's own is not, the mood is visited again.
    fn ask(&mut self, effect: &Effect, now: jiff::Timestamp) -> Result<super::Permit, Refusal> {
        if matches!(self.gate.check(self.lease, effect, now), Err(Reason::Spent { .. })) {
            self.gate.enter(self.lease, &self.mood, &self.rights, now)?;
        }
        self.gate.ask(&Request { lease: self.lease, effect: effect.clone() }, now)
    }
}

impl<L: Ledger + Send> Guard for Warden<L> {
    fn allow(&self, effect: &Effect) -> Result<(), Refusal> {
        let now = self.clock.now();
        let permit = self.kept().ask(effect, now)?;
        permit.spend(effect, now).map(drop)
    }

    fn allow_call(&self, model: &str, host: Option<&str>, tokens_max: u64) -> Result<(), Refusal> {
        let now = self.clock.now();
        let one = Budget { calls: 1, tokens: tokens_max, ..Budget::NOTHING };
        let mut kept = self.kept();
        let key = (model.to_owned(), host.map(str::to_owned));
        let left = kept.left.get(&key).copied().unwrap_or_default();
        if one.within(&left) {
            kept.left.insert(key, left.minus(&one));
            return Ok(());
        }
        let some = Budget { calls: CALLS, tokens: TOKENS.max(tokens_max), ..Budget::NOTHING };
        let effect = Effect::new(Category::Model, format!("calls of {model}")).costing(some);
        let effect = host.into_iter().fold(effect, Effect::reaching);
        let permit = kept.ask(&effect, now)?;
        permit.spend(&effect, now)?;
        kept.left.insert(key, some.minus(&one));
        Ok(())
    }

    fn called(&self, model: &str, came: Came) {
        let mut kept = self.kept();
        let sum = kept.came.entry(model.to_owned()).or_default();
        sum.calls += came.calls;
        sum.failed += came.failed;
        sum.tokens_in += came.tokens_in;
        sum.tokens_out += came.tokens_out;
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::foundation::base::FixedClock;
    use crate::foundation::gate::{Hosts, Passing};

    fn warden(calls: u64, hosts: &[&str]) -> Warden<Passing> {
        let budget = Budget { calls, tokens: 10_000_000, ..Budget::NOTHING };
        let rights = Rights { uses: Category::Model.into(), model_hosts: Hosts::only(hosts), budget, ..Rights::NONE };
        let terms = Terms { rights: rights.clone(), expires: Timestamp::MAX, idle: SignedDuration::from_hours(1) };
        // A visit allows two askings.
        let mood = Rights { budget: Budget { calls: 2 * CALLS, ..budget }, ..rights };
        let principal = Principal::new("a command", "user", "calm");
        Warden::open(Passing::default(), principal, terms, mood, Arc::new(FixedClock(Timestamp::UNIX_EPOCH))).unwrap()
    }

    #[test]
    fn many_calls_are_one_receipt_and_the_lease_bounds_them_all() {
        let warden = warden(4 * CALLS, &[]);
        let written = |warden: &Warden<Passing>| warden.kept().gate.ledger().written();
        let before = written(&warden);
        for _ in 0..CALLS {
            warden.allow_call("m", None, 100).unwrap();
        }
        assert_eq!(written(&warden), before + 1);
        for _ in 0..3 * CALLS {
            warden.allow_call("m", None, 100).unwrap();
        }
        // Three more askings, and one more visit of the mood.
        assert_eq!(written(&warden), before + 5);
        let refusal = warden.allow_call("m", None, 100).unwrap_err();
        assert_eq!(refusal.reason, Reason::Spent { resource: super::super::Resource::Calls });
    }

    #[test]
    fn one_host_is_not_another_and_a_long_call_is_asked_for_by_itself() {
        let warden = warden(1_000, &["api.example"]);
        warden.allow_call("m", Some("api.example"), 10).unwrap();
        let refusal = warden.allow_call("m", Some("evil.example"), 10).unwrap_err();
        assert_eq!(refusal.reason, Reason::MayNotReach { host: "evil.example".to_owned() });
        warden.allow_call("m", Some("api.example"), TOKENS + 1).unwrap();
        assert!(warden.allow_call("m", Some("api.example"), 10_000_001).is_err());
    }
}
