//! Access to a gate from several threads. An [`Authorizer`] requests a permit and uses it in one call; a [`GateHandle`] is an
//! authorizer that owns a gate and the lease of one command.
//!
//! Model calls are frequent and alike, so a [`GateHandle`] requests [`CALLS`] of them with one permit, which costs one receipt
//! and one sync. Actual calls are counted down from that, and their usage is summed for the receipt at the end of the
//! command.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::{
    Budget, Category, Effect, EffectRequest, Gate, LeaseId, LeaseTerms, Ledger, LedgerEntry, Principal, Refusal,
    RefusalReason, Rights,
};
use crate::foundation::base::{Clock, Digest, limits};

/// Model calls per permit.
pub(super) const CALLS: u64 = 64;
/// Tokens that they may read and generate; a single call that needs more gets its own permit.
const TOKENS: u64 = CALLS * limits::REPLY_TOKENS_MAX as u64;

/// Authorises effects and model calls.
pub trait Authorizer: Send + Sync {
    /// Requests and uses a permit for an effect; the caller may then perform it once.
    ///
    /// # Errors
    /// The refusal.
    fn allow(&self, effect: &Effect) -> Result<(), Refusal>;

    /// Authorises one call of `model` at `host` (`None` for a local model) that reads and generates at most `tokens_max`
    /// tokens.
    ///
    /// # Errors
    /// The refusal.
    fn allow_call(&self, model: &str, host: Option<&str>, tokens_max: u64) -> Result<(), Refusal>;

    /// Records the usage of an authorised call.
    fn called(&self, model: &str, usage: CallUsage);
}

/// Usage of model calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CallUsage {
    /// Number of calls.
    pub calls: u64,
    /// Number of failed calls.
    pub failed: u64,
    /// Tokens read.
    pub tokens_in: u64,
    /// Tokens generated.
    pub tokens_out: u64,
}

/// A gate with one lease, shared by concurrent callers.
pub struct GateHandle<L> {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner<L>>,
}

struct Inner<L> {
    gate: Gate<L>,
    lease: LeaseId,
    mood: Arc<str>,
    rights: Rights,
    /// What is left of the permitted calls, by model and host.
    left: BTreeMap<(String, Option<String>), Budget>,
    usage: BTreeMap<String, CallUsage>,
}

impl<L: Ledger> GateHandle<L> {
    /// Opens a gate whose root lease has `terms`, in a mood with `rights`.
    ///
    /// # Errors
    /// If the ledger cannot write.
    pub fn open(
        ledger: L,
        principal: Principal,
        terms: LeaseTerms,
        rights: Rights,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Refusal> {
        let (now, mood) = (clock.now(), Arc::clone(&principal.mood));
        let (mut gate, lease) = Gate::open(ledger, principal, terms, now)?;
        gate.enter(lease, &mood, &rights, now)?;
        let inner = Inner { gate, lease, mood, rights, left: BTreeMap::new(), usage: BTreeMap::new() };
        Ok(Self { clock, inner: Mutex::new(inner) })
    }

    /// Records a person's approval of one effect with exactly these arguments, for one use.
    ///
    /// # Errors
    /// If it cannot be recorded.
    pub fn approve(&self, effect: &Effect, by: &str) -> Result<(), Refusal> {
        let now = self.clock.now();
        let mut inner = self.inner();
        let until = inner.gate.get(inner.lease).map_or(now, |lease| lease.terms().expires);
        let lease = inner.lease;
        inner.gate.approve(lease, (effect.category(), effect.arguments()), by, until, now)
    }

    /// Requests a permit that the caller uses itself.
    ///
    /// # Errors
    /// The refusal.
    pub fn ask(&self, effect: &Effect) -> Result<super::Permit, Refusal> {
        let now = self.clock.now();
        self.inner().ask(effect, now)
    }

    /// Writes an entry of the caller to the ledger.
    ///
    /// # Errors
    /// If it may not be durable.
    pub fn note(&self, entry: LedgerEntry) -> Result<Vec<Digest>, super::LedgerError> {
        self.inner().gate.ledger().record(self.clock.now(), &[entry])
    }

    /// Usage of all calls, by model.
    pub fn usage(&self) -> BTreeMap<String, CallUsage> {
        self.inner().usage.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner<L>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Ledger> Inner<L> {
    /// Requests a permit. A mood's budget applies to one visit: if it is exhausted and the lease's is not, the mood is entered
    /// again.
    fn ask(&mut self, effect: &Effect, now: jiff::Timestamp) -> Result<super::Permit, Refusal> {
        if matches!(self.gate.check(self.lease, effect, now), Err(RefusalReason::Exhausted { .. })) {
            self.gate.enter(self.lease, &self.mood, &self.rights, now)?;
        }
        self.gate.ask(&EffectRequest { lease: self.lease, effect: effect.clone() }, now)
    }
}

impl<L: Ledger + Send> Authorizer for GateHandle<L> {
    fn allow(&self, effect: &Effect) -> Result<(), Refusal> {
        let now = self.clock.now();
        let permit = self.inner().ask(effect, now)?;
        permit.spend(effect, now).map(drop)
    }

    fn allow_call(&self, model: &str, host: Option<&str>, tokens_max: u64) -> Result<(), Refusal> {
        let now = self.clock.now();
        let one = Budget { calls: 1, tokens: tokens_max, ..Budget::NOTHING };
        let mut inner = self.inner();
        let key = (model.to_owned(), host.map(str::to_owned));
        let left = inner.left.get(&key).copied().unwrap_or_default();
        if one.within(&left) {
            inner.left.insert(key, left.minus(&one));
            return Ok(());
        }
        let some = Budget { calls: CALLS, tokens: TOKENS.max(tokens_max), ..Budget::NOTHING };
        let effect = Effect::new(Category::Model, format!("calls of {model}")).costing(some);
        let effect = host.into_iter().fold(effect, Effect::reaching);
        let permit = inner.ask(&effect, now)?;
        permit.spend(&effect, now)?;
        inner.left.insert(key, some.minus(&one));
        Ok(())
    }

    fn called(&self, model: &str, usage: CallUsage) {
        let mut inner = self.inner();
        let sum = inner.usage.entry(model.to_owned()).or_default();
        sum.calls += usage.calls;
        sum.failed += usage.failed;
        sum.tokens_in += usage.tokens_in;
        sum.tokens_out += usage.tokens_out;
    }
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::foundation::base::FixedClock;
    use crate::foundation::gate::{EphemeralLedger, Hosts};

    fn gate_handle(calls: u64, hosts: &[&str]) -> GateHandle<EphemeralLedger> {
        let budget = Budget { calls, tokens: 10_000_000, ..Budget::NOTHING };
        let rights = Rights { uses: Category::Model.into(), model_hosts: Hosts::only(hosts), budget, ..Rights::NONE };
        let terms = LeaseTerms { rights: rights.clone(), expires: Timestamp::MAX, idle: SignedDuration::from_hours(1) };
        // One visit of the mood allows two permits.
        let mood = Rights { budget: Budget { calls: 2 * CALLS, ..budget }, ..rights };
        let principal = Principal::new("a command", "user", "calm");
        GateHandle::open(
            EphemeralLedger::default(),
            principal,
            terms,
            mood,
            Arc::new(FixedClock(Timestamp::UNIX_EPOCH)),
        )
        .unwrap()
    }

    #[test]
    fn many_calls_share_one_receipt_and_are_bounded_by_the_lease() {
        let gate_handle = gate_handle(4 * CALLS, &[]);
        let written = |gate_handle: &GateHandle<EphemeralLedger>| gate_handle.inner().gate.ledger().written();
        let before = written(&gate_handle);
        for _ in 0..CALLS {
            gate_handle.allow_call("m", None, 100).unwrap();
        }
        assert_eq!(written(&gate_handle), before + 1);
        for _ in 0..3 * CALLS {
            gate_handle.allow_call("m", None, 100).unwrap();
        }
        // Three more permits, and one more visit of the mood.
        assert_eq!(written(&gate_handle), before + 5);
        let refusal = gate_handle.allow_call("m", None, 100).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::Exhausted { resource: super::super::Resource::Calls });
    }

    #[test]
    fn permits_are_per_host_and_a_long_call_gets_its_own() {
        let gate_handle = gate_handle(1_000, &["api.example"]);
        gate_handle.allow_call("m", Some("api.example"), 10).unwrap();
        let refusal = gate_handle.allow_call("m", Some("evil.example"), 10).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::MayNotReach { host: "evil.example".to_owned() });
        gate_handle.allow_call("m", Some("api.example"), TOKENS + 1).unwrap();
        assert!(gate_handle.allow_call("m", Some("api.example"), 10_000_001).is_err());
    }
}
