//! The words of a profile: how strong a model is, what is checked, what may come out, which receipts are owed.

use crate::config_choices;

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident $word:literal $meaning:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $(#[doc = $meaning] $variant,)*
        }

        config_choices! { $name { $($word => $variant),* } }
    )*};
}

words! {
    /// Which hosts a mood reaches.
    Reach {
        None "none" "None.",
        Granted "granted" "Those that the session's lease names.",
    }

    /// How strong a model is.
    ModelTier {
        Small "small" "Cheap and fast; the bundled one is.",
        Mid "mid" "In between.",
        Strong "strong" "The best there is.",
    }

    /// A check.
    Check {
        Tests "tests" "Tests of the touched scope.",
        Lint "lint" "Linters of the touched scope.",
        Types "types" "Type checks of the touched scope.",
        FullSuite "full_suite" "Every verifier of the scope.",
        Integration "integration" "Integration tests and edge cases.",
        AntiStub "anti_stub" "No stubs in touched files.",
        NoCopy "no_copy" "No copied text.",
        Compilation "compilation" "A valid set of conjectures comes out.",
        PolicyGates "policy_gates" "Capabilities and boundaries hold.",
        NegativeTests "negative_tests" "What must fail does.",
        Consistency "consistency" "The state agrees with the receipts.",
        Integrity "integrity" "The receipts are whole.",
        SelfSealing "self_sealing" "No claim that nothing can refute.",
        RewardHack "reward_hack" "No verifier that passes for the wrong reason.",
        QuestionLint "question_lint" "Questions are transformative, with default and escape.",
    }

    /// What may come out.
    OutputForm {
        Patch "patch" "A change of files.",
        RegisterChange "register_change" "Changes of the registers.",
        Hypertheses "hypertheses" "Blind spots.",
        Conjectures "conjectures" "Conjectures.",
        Demo "demo" "What will be shown.",
        Attestations "attestations" "Verifiers' words.",
        Challenge "challenge" "A challenge of an atom.",
        Discrepancies "discrepancies" "Where verifiers disagree.",
        Mitigation "mitigation" "What bounds a risk.",
        RewardHackDisclosure "reward_hack_disclosure" "How a verifier can be cheated.",
        RegressionTest "regression_test" "A test against that.",
        NextAction "next_action" "What to do next.",
        Requeue "requeue" "Work to be done again.",
        Questions "questions" "Questions to the user.",
    }

    /// A receipt that a mood must leave (spec §2 and §6).
    ReceiptKind {
        ContextFootprint "context_footprint" "What was accessed.",
        AhdbDelta "ahdb_delta" "What changed in the registers.",
        VerifierResults "verifier_results" "What the verifiers said.",
        PatchReceipt "patch_receipt" "What was changed.",
        EvidenceSetHash "evidence_set_hash" "The digest of the evidence.",
        RetrievalReceipt "retrieval_receipt" "What was fetched.",
        ConjectureSet "conjecture_set" "The conjectures.",
        VerifierAttestations "verifier_attestations" "The verifiers' words.",
        DiscrepancyReport "discrepancy_report" "Where they disagree.",
        PolicyDecisionTokens "policy_decision_tokens" "What was approved.",
        SecurityAttestations "security_attestations" "What the security checks said.",
        HyperthesisDelta "hyperthesis_delta" "What changed in the blind spots.",
        ExpansionPlanReceipt "expansion_plan_receipt" "What is to be widened, one thing at a time.",
        ProjectionRebuildReceipt "projection_rebuild_receipt" "What was rebuilt, and whether it agrees.",
        AttackReportReceipt "attack_report_receipt" "What was attacked.",
        DisclosureObjects "disclosure_objects" "What was disclosed.",
        MitigationProposals "mitigation_proposals" "What would help.",
        PreferenceDecisionReceipt "preference_decision_receipt" "What the user decided.",
    }
}
