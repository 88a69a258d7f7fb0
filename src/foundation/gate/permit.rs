//! That one effect may happen once.

use jiff::Timestamp;

use super::{Effect, LeaseId, Reason, Refusal};
use crate::foundation::base::Digest;

/// That one effect may happen once. Made by [`Gate::ask`](super::Gate::ask) alone, after its receipt is durable; gone when
/// it is used.
#[derive(Debug)]
#[must_use = "an effect that is not performed was asked for in vain, and its cost is spent"]
pub struct Permit {
    lease: LeaseId,
    effect: Digest,
    receipt: Digest,
    until: Timestamp,
}

/// That a permit was used for what it was given for: the performer may go on.
#[derive(Debug)]
pub struct Spent {
    lease: LeaseId,
    receipt: Digest,
}

impl Permit {
    pub(super) const fn new(lease: LeaseId, effect: Digest, receipt: Digest, until: Timestamp) -> Self {
        Self { lease, effect, receipt, until }
    }

    /// The receipt of the grant.
    pub const fn receipt(&self) -> Digest {
        self.receipt
    }

    /// Uses it for `effect`, which the performer describes from what it is really about to do.
    ///
    /// # Errors
    /// [`Reason::Changed`] when that is not what was asked for, [`Reason::Late`] when the lease has ended; the permit is
    /// gone all the same.
    pub fn spend(self, effect: &Effect, now: Timestamp) -> Result<Spent, Refusal> {
        if effect.digest() != self.effect {
            return Err(Reason::Changed.into());
        }
        if now >= self.until {
            return Err(Reason::Late.into());
        }
        Ok(Spent { lease: self.lease, receipt: self.receipt })
    }
}

impl Spent {
    /// Under which lease.
    pub const fn lease(&self) -> LeaseId {
        self.lease
    }

    /// The receipt of the grant: what the receipt of the outcome refers to.
    pub const fn receipt(&self) -> Digest {
        self.receipt
    }
}
