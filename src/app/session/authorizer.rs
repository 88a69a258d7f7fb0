//! Opens the authorizer of a session: one lease that follows the session's mood.

use std::sync::Arc;

use jiff::SignedDuration;

use crate::foundation::base::Clock;
use crate::foundation::gate::{Budget, Categories, Category, Hosts, Rights, Scope, Scopes};
use crate::foundation::store::receipts::SharedLog;
use crate::governance::mood::{MoodProfiles, MoodState};
use crate::simulation::authorizer::{Authorizer, AuthorizerError, AuthorizerSetup, RootMood};

/// Duration of a session's lease.
const LEASE_DURATION: SignedDuration = SignedDuration::from_hours(24);
/// Budget of a whole session.
const BUDGET: Budget = Budget {
    money_micros: 20_000_000,
    tokens: 20_000_000,
    wall_ms: 24 * 3_600_000,
    calls: 200_000,
    files: 64,
    diff_lines: 20_000,
};

/// Opens the authorizer of a session that is in `mood` and has already spent `spent`.
///
/// # Errors
/// If the receipts cannot be written.
pub(super) fn open(
    log: SharedLog,
    (profiles, mood): (MoodProfiles, MoodState),
    hosts: &[String],
    spent: &Budget,
    clock: Arc<dyn Clock>,
) -> Result<Authorizer, AuthorizerError> {
    use Category::{Ask, MemoryPropose, MemoryRead, Model, Promote, Read, Report, Rollout, Score, Write};
    use Scope::{Knowledge, Notes, Promoted, Receipts, State, Tests, WorkItem, Workspace};
    let rights = Rights {
        // Promoting needs a person's approval as well.
        uses: Categories::of(&[Read, Write, Model, MemoryRead, MemoryPropose, Rollout, Score, Report, Ask, Promote]),
        delegates: Categories::of(&[Read, Model, MemoryRead, Rollout, Score]),
        reads: Scopes::of(&[Workspace, Tests, Notes, WorkItem, State, Receipts, Knowledge, Promoted]),
        writes: Scopes::of(&[Notes, State]),
        hosts: Hosts::None,
        model_hosts: Hosts::only(hosts),
        budget: BUDGET.minus(spent),
    };
    Authorizer::open(AuthorizerSetup {
        work: "session",
        log: Some(log),
        profiles,
        mood,
        root_mood: RootMood::Followed,
        rights,
        lasts: LEASE_DURATION,
        idle: LEASE_DURATION,
        clock,
    })
}
