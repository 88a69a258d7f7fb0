//! Effects need a [`Permit`], and only a [`Gate`] makes one.
//!
//! A gate keeps leases: who may do what, to which data, at which hosts, at what cost and until when. Whoever wants to touch
//! the world describes the [`Effect`], asks, and gets a permit or a [`Refusal`] with a safer way. Either answer is in the
//! [`Ledger`] before it is given. The performer takes the permit by value and shows it the effect that is really about to
//! happen: another effect, a second use or a late one is refused. Knows no mood and performs nothing.
//!
//! ```
//! use jiff::{SignedDuration, Timestamp};
//! use loom_agent::foundation::base::Digest;
//! use loom_agent::foundation::gate::{Budget, Category, Effect, Entry, Gate, LedgerError, Ledger, Principal};
//! use loom_agent::foundation::gate::{Request, Rights, Scope, Terms};
//!
//! /// A ledger that keeps nothing; `foundation::store::receipts` brings the durable one.
//! struct Forgetful;
//! impl Ledger for Forgetful {
//!     fn record(&mut self, _: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError> {
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
//! let terms = Terms { rights, expires: now + SignedDuration::from_hours(1), idle: SignedDuration::from_mins(5) };
//! let (mut gate, lease) = Gate::open(Forgetful, Principal::new("run 1", "ann", "calm"), terms, now)?;
//!
//! let read = Effect::new(Category::Read, "README.md").reading(Scope::Workspace);
//! let permit = gate.ask(&Request { lease, effect: read.clone() }, now)?;
//! permit.spend(&read, now)?; // the performer does this, then reads
//!
//! let write = Effect::new(Category::Write, "README.md").writing(Scope::Workspace);
//! let refusal = gate.ask(&Request { lease, effect: write }, now).unwrap_err();
//! assert!(refusal.to_string().starts_with("`write` is not among the rights"));
//! # Ok(())
//! # }
//! ```
//!
//! A permit cannot be made elsewhere, not be copied, and not be used twice:
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
mod warden;

pub use self::core::Gate;
pub use bits::{Categories, Category, Scope, Scopes};
pub use budget::{Budget, Resource};
pub use effect::{Effect, Request};
pub use hosts::Hosts;
pub use lease::{Lease, LeaseId, Principal, Terms};
pub use ledger::{Entry, Ledger, LedgerError, Passing};
pub use permit::{Permit, Spent};
pub use refusal::{Reason, Refusal};
pub use rights::{Power, Rights};
pub use warden::{Came, Guard, Warden};
