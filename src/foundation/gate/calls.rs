//! Permits for model calls. A [`CallPermit`] is given for several calls; it travels with each request and every call counts
//! against it. Requests without one are authorised call by call by a [`CallGuard`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use super::{Budget, Category, Effect, Permit, Refusal, RefusalReason};

/// A call of a model, as the code that makes it describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelCall<'a> {
    /// The spec string of the model.
    pub model: &'a str,
    /// The host that it connects to; `None` for a model on this machine.
    pub host: Option<&'a str>,
    /// Upper bound of the tokens that it reads.
    pub reads: u64,
    /// Upper bound of the tokens that it generates.
    pub generates: u64,
}

/// Authorises the calls of requests that carry no [`CallPermit`], and records the usage of all calls.
pub trait CallGuard: Send + Sync {
    /// Authorises one call.
    ///
    /// # Errors
    /// The refusal.
    fn permit_call(&self, call: &ModelCall<'_>) -> Result<(), Refusal>;

    /// Records the usage of an authorised call.
    fn record_call(&self, model: &str, usage: CallUsage);
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

impl CallUsage {
    /// The usage of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            failed: self.failed + other.failed,
            tokens_in: self.tokens_in + other.tokens_in,
            tokens_out: self.tokens_out + other.tokens_out,
        }
    }
}

/// The tokens that a [`CallPermit`] limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedTokens {
    /// Those that are generated. The length of a conversation to come is unknown when its permits are requested.
    Generated,
    /// Those that are read and those that are generated.
    All,
}

/// A permit for several model calls at certain hosts. Clones share what is left.
#[derive(Debug, Clone)]
pub struct CallPermit(Arc<Allowance>);

#[derive(Debug)]
struct Allowance {
    counted: CountedTokens,
    /// What is left, by host.
    left: Mutex<BTreeMap<Option<String>, Budget>>,
}

impl CallPermit {
    /// Uses permits for model calls; the calls may follow from now on. The cost of each effect limits the calls at its host.
    ///
    /// # Errors
    /// If a permit is for another effect, or expired.
    pub fn new(permits: Vec<(Effect, Permit)>, counted: CountedTokens, now: Timestamp) -> Result<Self, Refusal> {
        let mut left: BTreeMap<Option<String>, Budget> = BTreeMap::new();
        for (effect, permit) in permits {
            if effect.category() != Category::Model {
                return Err(RefusalReason::Changed.into());
            }
            permit.spend(&effect, now)?;
            let of_host = left.entry(effect.host().map(str::to_owned)).or_default();
            *of_host = of_host.plus(effect.cost());
        }
        Ok(Self(Arc::new(Allowance { counted, left: Mutex::new(left) })))
    }

    /// Counts one call.
    ///
    /// # Errors
    /// If no call at this host is permitted, or too little is left.
    pub fn count(&self, call: &ModelCall<'_>) -> Result<(), Refusal> {
        let tokens = match self.0.counted {
            CountedTokens::Generated => call.generates,
            CountedTokens::All => call.reads.saturating_add(call.generates),
        };
        let cost = Budget { calls: 1, tokens, ..Budget::NOTHING };
        let mut left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_host) = left.get_mut(&call.host.map(str::to_owned)) else {
            return Err(match call.host {
                Some(host) => RefusalReason::MayNotReach { host: host.to_owned() },
                None => RefusalReason::NotAllowed { category: Category::Model },
            }
            .into());
        };
        if let Some(resource) = of_host.short_of(&cost) {
            return Err(RefusalReason::Exhausted { resource }.into());
        }
        *of_host = of_host.minus(&cost);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::{EffectRequest, EphemeralLedger, Gate, Hosts, LeaseTerms, Principal, Resource, Rights};
    use super::*;

    fn permit(cost: Budget, hosts: &[Option<&str>], counted: CountedTokens) -> CallPermit {
        let budget = Budget { calls: 100, tokens: 10_000, ..Budget::NOTHING };
        let model_hosts = Hosts::only(hosts.iter().flatten());
        let rights = Rights { uses: Category::Model.into(), model_hosts, budget, ..Rights::NONE };
        let terms = LeaseTerms { rights, expires: Timestamp::MAX, idle: SignedDuration::from_hours(1) };
        let now = Timestamp::UNIX_EPOCH;
        let principal = Principal::new("a run", "user", "calm");
        let (mut gate, lease) = Gate::open(EphemeralLedger::default(), principal, terms, now).unwrap();
        let effect = |host: Option<&str>| {
            host.iter()
                .fold(Effect::new(Category::Model, "a turn").costing(cost), |effect, host| effect.reaching(*host))
        };
        let permits = hosts.iter().copied().map(effect).map(|effect| {
            let permit = gate.ask(&EffectRequest { lease, effect: effect.clone() }, now).unwrap();
            (effect, permit)
        });
        CallPermit::new(permits.collect(), counted, now).unwrap()
    }

    fn call(host: Option<&str>, reads: u64, generates: u64) -> ModelCall<'_> {
        ModelCall { model: "m", host, reads, generates }
    }

    #[test]
    fn every_call_counts_and_clones_share_what_is_left() {
        let cost = Budget { calls: 2, tokens: 100, ..Budget::NOTHING };
        let permit = permit(cost, &[None, Some("a.example")], CountedTokens::Generated);
        permit.count(&call(None, 5_000, 10)).unwrap();
        permit.clone().count(&call(None, 5_000, 10)).unwrap();
        let calls = RefusalReason::Exhausted { resource: Resource::Calls };
        assert_eq!(permit.count(&call(None, 1, 1)).unwrap_err().reason, calls);
        // Each host has calls of its own, and no other host has any.
        permit.count(&call(Some("a.example"), 1, 100)).unwrap();
        let tokens = RefusalReason::Exhausted { resource: Resource::Tokens };
        assert_eq!(permit.count(&call(Some("a.example"), 1, 1)).unwrap_err().reason, tokens);
        let refusal = permit.count(&call(Some("b.example"), 1, 1)).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::MayNotReach { host: "b.example".to_owned() });
    }

    #[test]
    fn the_tokens_of_the_prompt_count_if_the_estimate_includes_them() {
        let cost = Budget { calls: 9, tokens: 100, ..Budget::NOTHING };
        let permit = permit(cost, &[None], CountedTokens::All);
        permit.count(&call(None, 60, 30)).unwrap();
        assert!(permit.count(&call(None, 11, 0)).is_err());
        permit.count(&call(None, 10, 0)).unwrap();
    }
}
