//! The form of a profile's file: every field, as it is written.

use super::words::{Check, ModelTier, OutputForm, Reach, ReceiptKind};
use crate::config_record;
use crate::foundation::config::{At, Required};
use crate::foundation::gate::{Category, Scope};
use crate::governance::mood::name::Mood;

config_record! {
    /// A mood's profile.
    pub(super) struct File {
        /// Which mood.
        mood: Required<Mood>,
        /// The profile's version, counted up with every change.
        version: Required<usize>,
        /// What the mood is for.
        purpose: Required<String>,
        /// What may be used and passed on.
        tools: Required<Tools>,
        /// What may be read and written, and which hosts are reached.
        data: Required<Data>,
        /// Which models, and how they escalate.
        models: Required<Models>,
        /// What must be checked.
        verifiers: Required<Verifiers>,
        /// What may come out.
        outputs: Required<Outputs>,
        /// What may be spent in one visit.
        budgets: Required<Budgets>,
        /// When to stop or to hand over.
        stop: Required<Vec<String>>,
        /// Receipts that must be left.
        receipts: Required<Vec<At<ReceiptKind>>>,
    }

    /// What may be used and passed on.
    pub(super) struct Tools {
        /// Kinds of effects.
        uses: Required<Vec<At<Category>>>,
        /// Kinds of effects that children may be given.
        delegates: Required<Vec<At<Category>>>,
        /// Kinds of effects that a policy token opens.
        with_token: Required<Vec<At<Category>>>,
        /// Children at the same time.
        parallel_max: Required<usize>,
    }

    /// What may be read and written, and which hosts are reached.
    pub(super) struct Data {
        /// Stores to read.
        reads: Required<Vec<At<Scope>>>,
        /// Stores to write.
        writes: Required<Vec<At<Scope>>>,
        /// Hosts of the network: none, or those that the session's lease names.
        network: Required<Reach>,
        /// Hosts of models: none, or those that the session's lease names.
        model_hosts: Required<Reach>,
    }

    /// Which models, and how they escalate.
    pub(super) struct Models {
        /// From the first to the last resort.
        ladder: Required<Vec<At<ModelTier>>>,
        /// The next one after so many failures of the same kind.
        escalate_after: Required<usize>,
        /// What the last one is for.
        strongest_for: Required<String>,
    }

    /// What must be checked.
    pub(super) struct Verifiers {
        /// Checks that are not optional.
        mandatory: Required<Vec<At<Check>>>,
        /// Whether claims of high impact need an independent check.
        independent: Required<bool>,
        /// How long a promotion can be challenged, hours.
        challenge_hours: Required<usize>,
    }

    /// What may come out.
    pub(super) struct Outputs {
        /// Forms.
        forms: Required<Vec<At<OutputForm>>>,
        /// Whether texts are cited by pointers alone.
        no_copy: Required<bool>,
        /// Whether everything goes to quarantine first.
        quarantine_first: Required<bool>,
        /// Whether new surfaces may be added.
        new_surfaces: Required<bool>,
    }

    /// What may be spent in one visit.
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
        /// Iterations before whoever leads looks again.
        iterations: Required<usize>,
        /// Sources read.
        sources: Required<usize>,
        /// Questions to the user.
        questions: Required<usize>,
    }
}
