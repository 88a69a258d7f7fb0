//! Test helpers: a gate whose user approves everything.

use jiff::SignedDuration;

use super::{ApplyOutcome, Result, Workspace};
use crate::foundation::gate::{
    Budget, Category, Effect, EffectRequest, EphemeralLedger, Gate, LeaseTerms, Permit, Principal, Refusal, Rights,
    Scope,
};
use crate::governance::memory::capture::{CaptureInput, Signal};

impl Workspace {
    /// A permit for `effect`.
    pub(in crate::governance::memory) fn permit(&self, effect: &Effect) -> Result<Permit, Refusal> {
        let now = self.now.timestamp();
        let rights = Rights {
            uses: [Category::MemoryApply, Category::MemoryPropose].into_iter().collect(),
            reads: Scope::Knowledge.into(),
            writes: Scope::Knowledge.into(),
            budget: Budget { calls: 1, ..Budget::NOTHING },
            ..Rights::NONE
        };
        let hour = SignedDuration::from_hours(1);
        let terms = LeaseTerms { rights, expires: now + hour, idle: hour };
        let (mut gate, lease) =
            Gate::open(EphemeralLedger::default(), Principal::new("test", "ann", "paranoid"), terms, now)?;
        gate.approve(lease, (effect.category(), effect.arguments()), "ann", now + hour, now)?;
        gate.ask(&EffectRequest { lease, effect: effect.clone() }, now)
    }

    pub(in crate::governance::memory) fn propose_approved(
        &self,
        request: crate::governance::memory::workspace::ProposalRequest,
    ) -> Result<String> {
        self.propose(self.permit(&Self::propose_effect(&request))?, request)
    }

    pub(in crate::governance::memory) fn apply_approved(&self, id: &str) -> Result<ApplyOutcome> {
        self.apply(self.permit(&self.apply_effect(id)?)?, id)
    }

    pub(in crate::governance::memory) fn apply_low_risk_approved(&self) -> Result<Vec<ApplyOutcome>> {
        self.apply_low_risk(|_, effect| Ok(self.permit(effect)?))
    }

    pub(in crate::governance::memory) fn rollback_approved(&self, id: &str) -> Result<ApplyOutcome> {
        self.rollback(self.permit(&self.rollback_effect(id)?)?, id)
    }

    pub(in crate::governance::memory) fn capture_approved(
        &self,
        inputs: &[CaptureInput<'_>],
    ) -> Result<(Vec<Signal>, usize)> {
        self.capture(self.permit(&Self::capture_effect(inputs))?, inputs)
    }
}
