//! The fields of a profile file.

use super::vocabulary::{HostAccess, ModelTier, OutputForm, ReceiptKind, VerifierCheck};
use crate::config_record;
use crate::foundation::config::{Located, Required};
use crate::foundation::gate::{Category, Scope};
use crate::governance::mood::name::Mood;

config_record! {
    /// A mood's profile.
    pub(super) struct File {
        /// Which mood.
        mood: Required<Mood>,
        /// The version, incremented with every change.
        version: Required<usize>,
        /// What the mood is for.
        purpose: Required<String>,
        /// Permitted tools.
        tools: Required<Tools>,
        /// Stores and hosts.
        data: Required<Data>,
        /// Model tiers and escalation.
        models: Required<Models>,
        /// Required checks.
        verifiers: Required<Verifiers>,
        /// Permitted outputs.
        outputs: Required<Outputs>,
        /// Budgets of one visit.
        budgets: Required<Budgets>,
        /// Conditions for stopping or changing the mood.
        stop: Required<Vec<String>>,
        /// Required receipts.
        receipts: Required<Vec<Located<ReceiptKind>>>,
    }

    /// Permitted tools.
    pub(super) struct Tools {
        /// Permitted categories of effects.
        uses: Required<Vec<Located<Category>>>,
        /// Categories that may be delegated to children.
        delegates: Required<Vec<Located<Category>>>,
        /// Categories that a policy token allows.
        with_token: Required<Vec<Located<Category>>>,
        /// The maximum number of children at a time.
        parallel_max: Required<usize>,
    }

    /// Stores and hosts.
    pub(super) struct Data {
        /// Readable stores.
        reads: Required<Vec<Located<Scope>>>,
        /// Writable stores.
        writes: Required<Vec<Located<Scope>>>,
        /// Network hosts: none, or those named in the session's lease.
        network: Required<HostAccess>,
        /// Model hosts: none, or those named in the session's lease.
        model_hosts: Required<HostAccess>,
    }

    /// Model tiers and escalation.
    pub(super) struct Models {
        /// Tiers in order of escalation.
        ladder: Required<Vec<Located<ModelTier>>>,
        /// Failures of the same kind before the next tier is used.
        escalate_after: Required<usize>,
        /// The purpose of the last tier.
        strongest_for: Required<String>,
    }

    /// Required checks.
    pub(super) struct Verifiers {
        /// Checks that cannot be skipped.
        mandatory: Required<Vec<Located<VerifierCheck>>>,
        /// Whether claims of high impact need an independent check.
        independent: Required<bool>,
        /// The period in which a promotion can be challenged, in hours.
        challenge_hours: Required<usize>,
    }

    /// Permitted outputs.
    pub(super) struct Outputs {
        /// Permitted forms.
        forms: Required<Vec<Located<OutputForm>>>,
        /// Whether texts are cited by pointers only.
        no_copy: Required<bool>,
        /// Whether everything goes to quarantine first.
        quarantine_first: Required<bool>,
        /// Whether new surfaces may be added.
        new_surfaces: Required<bool>,
    }

    /// Budgets of one visit.
    pub(super) struct Budgets {
        /// Minutes.
        minutes: Required<usize>,
        /// Tokens.
        tokens: Required<usize>,
        /// Effects.
        calls: Required<usize>,
        /// Millionths of the account's currency.
        money_micros: Required<usize>,
        /// Files written.
        files: Required<usize>,
        /// Lines changed.
        diff_lines: Required<usize>,
        /// Iterations before a review.
        iterations: Required<usize>,
        /// Sources.
        sources: Required<usize>,
        /// Questions to the user.
        questions: Required<usize>,
    }
}
