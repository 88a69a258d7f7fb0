//! For tests: a gate that a person stands beside, who approves of everything.

use jiff::SignedDuration;

use super::{Applied, Result, Workspace};
use crate::foundation::gate::{
    Budget, Category, Effect, Gate, Passing, Permit, Principal, Refusal, Request, Rights, Scope, Terms,
};
use crate::governance::memory::capture::{Heard, Signal};

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
        let terms = Terms { rights, expires: now + hour, idle: hour };
        let (mut gate, lease) = Gate::open(Passing::default(), Principal::new("test", "ann", "paranoid"), terms, now)?;
        gate.approve(lease, (effect.category(), effect.arguments()), "ann", now + hour, now)?;
        gate.ask(&Request { lease, effect: effect.clone() }, now)
    }

    pub(in crate::governance::memory) fn propose_approved(
        &self,
        request: crate::governance::memory::workspace::Request,
    ) -> Result<String> {
        self.propose(self.permit(&Self::proposing(&request))?, request)
    }

    pub(in crate::governance::memory) fn apply_approved(&self, id: &str) -> Result<Applied> {
        self.apply(self.permit(&self.applying(id)?)?, id)
    }

    pub(in crate::governance::memory) fn apply_low_risk_approved(&self) -> Result<Vec<Applied>> {
        self.apply_low_risk(|effect| self.permit(effect))
    }

    pub(in crate::governance::memory) fn rollback_approved(&self, id: &str) -> Result<Applied> {
        self.rollback(self.permit(&self.rolling_back(id)?)?, id)
    }

    pub(in crate::governance::memory) fn capture_approved(&self, heard: &[Heard<'_>]) -> Result<(Vec<Signal>, usize)> {
        self.capture(self.permit(&Self::capturing(heard))?, heard)
    }
}
