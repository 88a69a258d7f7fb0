//! What guards a session: the gate with its leases, the mood, and the log that both write.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::place::SessionError;
use crate::foundation::base::{Clock, Digest};
use crate::foundation::gate::{
    Budget, Categories, Category, Effect, Entry, Gate, Hosts, LeaseId, Permit, Principal, Refusal, Request, Rights,
    Scope, Scopes, Terms,
};
use crate::foundation::store::receipts::SharedLog;
use crate::governance::mood::{self, Counter, Fact, Mood, MoodState, Profile, Profiles, Registers, step_entry};

/// How long a session's lease lasts.
const LASTS: SignedDuration = SignedDuration::from_hours(24);
/// How long a person's word holds.
const APPROVAL: SignedDuration = SignedDuration::from_mins(1);
/// What a session may spend in all.
const BUDGET: Budget = Budget {
    money_micros: 20_000_000,
    tokens: 20_000_000,
    wall_ms: 24 * 3_600_000,
    calls: 200_000,
    files: 64,
    diff_lines: 20_000,
};

/// Gate, mood and log of one session.
pub(super) struct Ward {
    gate: Gate<SharedLog>,
    log: SharedLog,
    pub(super) lease: LeaseId,
    mood: MoodState,
    profiles: Profiles,
    clock: Arc<dyn Clock>,
}

impl Ward {
    /// A gate for a session that is in `mood` and has spent `spent` before.
    pub(super) fn open(
        log: SharedLog,
        (profiles, mood): (Profiles, MoodState),
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
                // Nobody's without a person's word for it.
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
        let terms = Terms { rights, expires: after(now, LASTS), idle: LASTS };
        let principal = Principal::new("session", "user", mood.mood().name());
        let (gate, lease) = Gate::open(log.clone(), principal, terms, now)?;
        let mut ward = Self { gate, log, lease, mood, profiles, clock };
        ward.enter()?;
        Ok(ward)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) const fn mood(&self) -> Mood {
        self.mood.mood()
    }

    /// The counter that ran out, if one did.
    pub(super) const fn halted(&self) -> Option<Counter> {
        self.mood.halted()
    }

    pub(super) const fn log(&self) -> &SharedLog {
        &self.log
    }

    fn enter(&mut self) -> Result<(), SessionError> {
        let (name, rights) = (self.mood.mood().name(), self.mood.rights(&self.profiles));
        Ok(self.gate.enter(self.lease, name, &rights, self.clock.now())?)
    }

    /// Writes down what happened, with what it means for the mood before it, at once. What the moods ask for comes back, and
    /// the receipts of all of it, in order.
    pub(super) fn record(
        &mut self,
        events: &[mood::Event],
        entries: Vec<Entry>,
    ) -> Result<(Vec<mood::Effect>, Vec<Digest>), SessionError> {
        let before = (self.mood.mood(), self.mood.facts().holds(Fact::Cleared));
        let (mut all, mut effects) = (Vec::new(), Vec::new());
        for event in events {
            let after = mood::step(&self.mood, event);
            all.push(step_entry(Some(event), mood::Facts::NONE, &after));
            effects.extend(after.effects);
            self.mood = after.state;
        }
        all.extend(entries);
        let receipts = self.log.record(self.clock.now(), &all)?;
        // A crossing that is cleared is a right that the mood did not have.
        if (self.mood.mood(), self.mood.facts().holds(Fact::Cleared)) != before {
            self.enter()?;
        }
        Ok((effects, receipts))
    }

    /// What is asserted, guessed, wanted and believed.
    pub(super) const fn registers(&self) -> &Registers {
        &self.mood.registers
    }

    /// The profile of the mood.
    pub(super) fn profile(&self) -> &Profile {
        self.profiles.of(self.mood.mood())
    }

    /// A person's word for an effect that no mood may have by itself.
    pub(super) fn approve(&mut self, effect: &Effect, by: &str) -> Result<(), Refusal> {
        let now = self.clock.now();
        let until = after(now, APPROVAL);
        self.gate.approve(self.lease, (effect.category(), effect.arguments()), by, until, now)
    }

    /// Asks the gate for an effect of the session's own.
    pub(super) fn ask(&mut self, effect: &Effect) -> Result<Permit, Refusal> {
        self.ask_for(self.lease, effect)
    }

    /// Asks for somebody's.
    pub(super) fn ask_for(&mut self, lease: LeaseId, effect: &Effect) -> Result<Permit, Refusal> {
        self.gate.ask(&Request { lease, effect: effect.clone() }, self.clock.now())
    }

    /// A lease for somebody who works beside the session in a mood of its own.
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
        let terms = Terms { rights, expires, idle: LASTS };
        self.gate.lease(self.lease, Principal::new(who, "user", mood.name()), terms, now)
    }

    /// The child's work is over.
    pub(super) fn dismiss(&mut self, child: LeaseId) -> Result<(), SessionError> {
        Ok(self.gate.revoke(child, "its work is over", self.clock.now())?)
    }
}

fn after(now: Timestamp, span: SignedDuration) -> Timestamp {
    now.saturating_add(span).unwrap_or(Timestamp::MAX)
}
