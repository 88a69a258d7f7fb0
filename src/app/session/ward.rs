//! What guards a session: the gate with its leases, the mood, and the log that both write.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::drive::SessionError;
use crate::foundation::base::Clock;
use crate::foundation::gate::{
    Budget, Categories, Category, Effect, Entry, Gate, Hosts, LeaseId, Permit, Principal, Refusal, Request, Rights,
    Scope, Scopes, Terms,
};
use crate::foundation::store::receipts::SharedLog;
use crate::governance::mood::{self, Mood, MoodState, Profiles, step_entry};

/// How long a session's lease lasts.
const LASTS: SignedDuration = SignedDuration::from_hours(24);
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

    pub(super) const fn log(&self) -> &SharedLog {
        &self.log
    }

    fn enter(&mut self) -> Result<(), SessionError> {
        let (name, rights) = (self.mood.mood().name(), self.mood.rights(&self.profiles));
        Ok(self.gate.enter(self.lease, name, &rights, self.clock.now())?)
    }

    /// Writes down what happened, with what it means for the mood before it, at once.
    pub(super) fn record(&mut self, events: &[mood::Event], entries: Vec<Entry>) -> Result<(), SessionError> {
        let before = self.mood.mood();
        let mut all = Vec::new();
        for event in events {
            let after = mood::step(&self.mood, event);
            all.push(step_entry(Some(event), mood::Facts::NONE, &after));
            self.mood = after.state;
        }
        all.extend(entries);
        self.log.record(self.clock.now(), &all)?;
        if self.mood.mood() != before {
            self.enter()?;
        }
        Ok(())
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
