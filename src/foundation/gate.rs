//! Effects need a [`Permit`], and only a [`Gate`] makes one.
//!
//! A gate holds leases: who may do what, to which data, on which hosts, at what cost and until when. A caller describes
//! the [`Effect`] it wants to perform and gets a permit, or a [`Refusal`] that names a safer alternative. Either decision is
//! written to the [`Ledger`] before it is returned. The code that performs the effect consumes the permit and passes the
//! effect that it is about to perform: a different effect, a second use or an expired permit is refused. The gate itself
//! performs nothing.
//!
//! ```
//! use jiff::{SignedDuration, Timestamp};
//! use loom_agent::foundation::base::Digest;
//! use loom_agent::foundation::gate::{Budget, Category, Effect, LedgerEntry, Gate, LedgerError, Ledger, Principal};
//! use loom_agent::foundation::gate::{EffectRequest, Rights, Scope, LeaseTerms};
//!
//! /// A ledger that stores nothing; the durable one is in `foundation::store::receipts`.
//! struct NullLedger;
//! impl Ledger for NullLedger {
//!     fn record(&mut self, _: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
//!         Ok(entries.iter().map(|entry| Digest::of(&entry.kind)).collect())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Timestamp::UNIX_EPOCH;
//! let rights = Rights {
//!     uses: Category::Read.into(),
//!     reads: Scope::Workspace.into(),
//!     budget: Budget { calls: 2, ..Budget::NOTHING },
//!     ..Rights::NONE
//! };
//! let terms = LeaseTerms { rights, expires: now + SignedDuration::from_hours(1), idle: SignedDuration::from_mins(5) };
//! let (mut gate, lease) = Gate::open(NullLedger, Principal::new("run 1", "ann", "calm"), terms, now)?;
//!
//! let read = Effect::new(Category::Read, "README.md").reading(Scope::Workspace);
//! let permit = gate.ask(&EffectRequest { lease, effect: read.clone() }, now)?;
//! permit.spend(&read, now)?; // called just before the file is read
//!
//! let write = Effect::new(Category::Write, "README.md").writing(Scope::Workspace);
//! let refusal = gate.ask(&EffectRequest { lease, effect: write }, now).unwrap_err();
//! assert!(refusal.to_string().starts_with("`write` is not among the rights"));
//! # Ok(())
//! # }
//! ```
//!
//! A permit cannot be constructed outside the gate, cloned, or used twice:
//!
//! ```compile_fail,E0451
//! use loom_agent::foundation::gate::{LeaseId, Permit};
//! fn forge(lease: LeaseId) -> Permit {
//!     Permit { lease, effect: loom_agent::foundation::base::Digest::of(""), receipt: loom_agent::foundation::base::Digest::of(""), until: jiff::Timestamp::MAX }
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn copy(permit: &loom_agent::foundation::gate::Permit) -> loom_agent::foundation::gate::Permit {
//!     permit.clone()
//! }
//! ```
//!
//! ```compile_fail,E0382
//! use loom_agent::foundation::gate::{Effect, Permit};
//! fn twice(permit: Permit, effect: &Effect, now: jiff::Timestamp) {
//!     let first = permit.spend(effect, now);
//!     let second = permit.spend(effect, now);
//! }
//! ```

mod bits;
mod budget;
mod calls;
mod core;
mod effect;
mod hosts;
mod lease;
mod ledger;
mod permit;
#[cfg(test)]
mod properties;
mod refusal;
mod rights;

pub use self::core::Gate;
pub use bits::{Categories, Category, Scope, Scopes};
pub use budget::{Budget, Resource};
pub use calls::{CallGuard, CallPermit, CallUsage, CountedTokens, ModelCall};
pub use effect::{Effect, EffectRequest};
pub use hosts::Hosts;
pub use lease::{Lease, LeaseId, LeaseTerms, Principal};
pub use ledger::{EphemeralLedger, Ledger, LedgerEntry, LedgerError};
pub use permit::{Permit, UsedPermit};
pub use refusal::{Refusal, RefusalReason};
pub use rights::{Power, Rights};
