//! The authorizer of a session: the gate with its leases, the mood, and the log that both write to.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::setup::SessionError;
use crate::foundation::base::{Clock, Digest};
use crate::foundation::gate::{
    Budget, Categories, Category, Effect, EffectRequest, Gate, Hosts, LeaseId, LeaseTerms, LedgerEntry, Permit,
    Principal, Refusal, Rights, Scope, Scopes,
};
use crate::foundation::store::receipts::SharedLog;
use crate::governance::mood::{
    self, Mood, MoodFact, MoodProfile, MoodProfiles, MoodState, Registers, TransitionCounter, step_entry,
};

/// Duration of a session's lease.
const LEASE_DURATION: SignedDuration = SignedDuration::from_hours(24);
/// Validity of a person's approval.
const APPROVAL_DURATION: SignedDuration = SignedDuration::from_mins(1);
/// Budget of a whole session.
const BUDGET: Budget = Budget {
    money_micros: 20_000_000,
    tokens: 20_000_000,
    wall_ms: 24 * 3_600_000,
    calls: 200_000,
    files: 64,
    diff_lines: 20_000,
};

/// Gate, mood and log of one session.
pub(super) struct SessionAuthorizer {
    gate: Gate<SharedLog>,
    log: SharedLog,
    pub(super) lease: LeaseId,
    mood: MoodState,
    profiles: MoodProfiles,
    clock: Arc<dyn Clock>,
}

impl SessionAuthorizer {
    /// Opens the authorizer of a session that is in `mood` and has already spent `spent`.
    pub(super) fn open(
        log: SharedLog,
        (profiles, mood): (MoodProfiles, MoodState),
        hosts: &[String],
        spent: &Budget,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SessionError> {
        use Category::{MemoryPropose, MemoryRead, Model, Read, Report, Rollout, Score, Write};
        use Scope::{Knowledge, Notes, Promoted, Receipts, State, Tests, WorkItem, Workspace};
        let rights = Rights {
            uses: Categories::of(&[
                Read,
                Write,
                Model,
                MemoryRead,
                MemoryPropose,
                Rollout,
                Score,
                Report,
                Category::Ask,
                // Needs a person's approval.
                Category::Promote,
            ]),
            delegates: Categories::of(&[Read, Model, MemoryRead, Rollout, Score]),
            reads: Scopes::of(&[Workspace, Tests, Notes, WorkItem, State, Receipts, Knowledge, Promoted]),
            writes: Scopes::of(&[Notes, State]),
            hosts: Hosts::None,
            model_hosts: Hosts::only(hosts),
            budget: BUDGET.minus(spent),
        };
        let now = clock.now();
        let terms = LeaseTerms { rights, expires: after(now, LEASE_DURATION), idle: LEASE_DURATION };
        let principal = Principal::new("session", "user", mood.mood().name());
        let (gate, lease) = Gate::open(log.clone(), principal, terms, now)?;
        let mut authorizer = Self { gate, log, lease, mood, profiles, clock };
        authorizer.enter()?;
        Ok(authorizer)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) const fn mood(&self) -> Mood {
        self.mood.mood()
    }

    /// The exhausted counter, if any.
    pub(super) const fn halted(&self) -> Option<TransitionCounter> {
        self.mood.halted()
    }

    pub(super) const fn log(&self) -> &SharedLog {
        &self.log
    }

    fn enter(&mut self) -> Result<(), SessionError> {
        let (name, rights) = (self.mood.mood().name(), self.mood.rights(&self.profiles));
        Ok(self.gate.enter(self.lease, name, &rights, self.clock.now())?)
    }

    /// Records entries, preceded by the mood steps of `events`, in one write. Returns the effects of the mood steps and
    /// the receipts of all entries in order.
    pub(super) fn record(
        &mut self,
        events: &[mood::MoodEvent],
        entries: Vec<LedgerEntry>,
    ) -> Result<(Vec<mood::MoodEffect>, Vec<Digest>), SessionError> {
        let before = (self.mood.mood(), self.mood.facts().holds(MoodFact::Cleared));
        let (mut all, mut effects) = (Vec::new(), Vec::new());
        for event in events {
            let after = mood::step(&self.mood, event);
            all.push(step_entry(Some(event), mood::MoodFacts::NONE, &after));
            effects.extend(after.effects);
            self.mood = after.state;
        }
        all.extend(entries);
        let receipts = self.log.record(self.clock.now(), &all)?;
        // A cleared crossing adds a right that the mood did not have.
        if (self.mood.mood(), self.mood.facts().holds(MoodFact::Cleared)) != before {
            self.enter()?;
        }
        Ok((effects, receipts))
    }

    /// The mood's registers.
    pub(super) const fn registers(&self) -> &Registers {
        &self.mood.registers
    }

    /// The profile of the current mood.
    pub(super) fn profile(&self) -> &MoodProfile {
        self.profiles.of(self.mood.mood())
    }

    /// Records a person's approval of an effect that no mood permits by itself.
    pub(super) fn approve(&mut self, effect: &Effect, by: &str) -> Result<(), Refusal> {
        let now = self.clock.now();
        let until = after(now, APPROVAL_DURATION);
        self.gate.approve(self.lease, (effect.category(), effect.arguments()), by, until, now)
    }

    /// Requests a permit for the session itself.
    pub(super) fn ask(&mut self, effect: &Effect) -> Result<Permit, Refusal> {
        self.ask_for(self.lease, effect)
    }

    /// Requests a permit under a lease.
    pub(super) fn ask_for(&mut self, lease: LeaseId, effect: &Effect) -> Result<Permit, Refusal> {
        self.gate.ask(&EffectRequest { lease, effect: effect.clone() }, self.clock.now())
    }

    /// Creates a child lease for a worker with its own mood.
    pub(super) fn child(&mut self, who: &str, mood: Mood) -> Result<LeaseId, Refusal> {
        let now = self.clock.now();
        let (rights, expires) = match self.gate.get(self.lease) {
            Some(parent) => {
                let own = &parent.terms().rights;
                let mut rights = own.meet(self.profiles.of(mood).rights());
                rights.uses = rights.uses.meet(own.delegates);
                rights.delegates = Categories::NONE;
                rights.budget = rights.budget.meet(parent.remaining());
                (rights, parent.terms().expires)
            }
            None => (Rights::NONE, now),
        };
        let terms = LeaseTerms { rights, expires, idle: LEASE_DURATION };
        self.gate.lease(self.lease, Principal::new(who, "user", mood.name()), terms, now)
    }

    /// Revokes a child lease.
    pub(super) fn dismiss(&mut self, child: LeaseId) -> Result<(), SessionError> {
        Ok(self.gate.revoke(child, "its work is over", self.clock.now())?)
    }
}

fn after(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.saturating_add(span).unwrap_or(Timestamp::MAX)
}
