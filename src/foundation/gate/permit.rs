//! Permits: single-use authorisations of one effect.

use jiff::Timestamp;

use super::{Effect, LeaseId, Refusal, RefusalReason};
use crate::foundation::base::Digest;

/// A single-use authorisation of one effect. Only [`Gate::ask`](super::Gate::ask) creates one, after its receipt is durable;
/// using it consumes it.
#[derive(Debug)]
#[must_use = "the cost of a permit is charged even if it is not used"]
pub struct Permit {
    lease: LeaseId,
    effect: Digest,
    receipt: Digest,
    until: Timestamp,
}

/// Proof that a permit was used for the permitted effect.
#[derive(Debug)]
pub struct UsedPermit {
    lease: LeaseId,
    receipt: Digest,
}

impl Permit {
    pub(super) const fn new(lease: LeaseId, effect: Digest, receipt: Digest, until: Timestamp) -> Self {
        Self { lease, effect, receipt, until }
    }

    /// The digest of the grant's receipt.
    pub const fn receipt(&self) -> Digest {
        self.receipt
    }

    /// Uses the permit for `effect`, which the caller must describe from what it is about to perform.
    ///
    /// # Errors
    /// [`RefusalReason::Changed`] if the effect is not the permitted one, [`RefusalReason::Late`] if the lease has ended; the
    /// permit is consumed in either case.
    pub fn spend(self, effect: &Effect, now: Timestamp) -> Result<UsedPermit, Refusal> {
        if effect.digest() != self.effect {
            return Err(RefusalReason::Changed.into());
        }
        if now >= self.until {
            return Err(RefusalReason::Late.into());
        }
        Ok(UsedPermit { lease: self.lease, receipt: self.receipt })
    }
}

impl UsedPermit {
    /// The lease.
    pub const fn lease(&self) -> LeaseId {
        self.lease
    }

    /// The digest of the grant's receipt, which the outcome's receipt refers to.
    pub const fn receipt(&self) -> Digest {
        self.receipt
    }
}
