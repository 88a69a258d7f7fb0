//! Enumerated values of a profile: model tiers, checks, forms of output, receipts.

use crate::config_choices;

macro_rules! words {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident $word:literal $meaning:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, schemars::JsonSchema)]
        pub enum $name {
            $(#[doc = $meaning] #[serde(rename = $word)] $variant,)*
        }

        config_choices! { $name { $($word => $variant),* } }
    )*};
}

words! {
    /// The hosts a mood may reach.
    HostAccess {
        None "none" "None.",
        Granted "granted" "Those named in the session's lease.",
    }

    /// The strength of a model.
    ModelTier {
        Small "small" "Cheap and fast; the bundled one is.",
        Mid "mid" "In between.",
        Strong "strong" "The best there is.",
    }

    /// A check.
    VerifierCheck {
        Tests "tests" "Tests of the touched scope.",
        Lint "lint" "Linters of the touched scope.",
        Types "types" "Type checks of the touched scope.",
        FullSuite "full_suite" "Every verifier of the scope.",
        Integration "integration" "Integration tests and edge cases.",
        AntiStub "anti_stub" "No stubs in touched files.",
        NoCopy "no_copy" "No copied text.",
        Compilation "compilation" "A valid set of conjectures comes out.",
        PolicyGates "policy_gates" "Capabilities and boundaries hold.",
        NegativeTests "negative_tests" "Tests of failures.",
        Consistency "consistency" "The state is consistent with the receipts.",
        Integrity "integrity" "The receipts are complete and unaltered.",
        SelfSealing "self_sealing" "No unfalsifiable claim.",
        RewardHack "reward_hack" "No verifier that passes for the wrong reason.",
        QuestionLint "question_lint" "Questions are transformative, with default and escape.",
    }

    /// A form of output.
    OutputForm {
        Patch "patch" "A change of files.",
        RegisterChange "register_change" "Changes of the registers.",
        BlindSpots "hypertheses" "Blind spots.",
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

    /// A receipt required by a mood (specification, §2 and §6).
    ReceiptKind {
        ContextFootprint "context_footprint" "What was accessed.",
        AhdbDelta "ahdb_delta" "What changed in the registers.",
        VerifierResults "verifier_results" "The results of the verifiers.",
        PatchReceipt "patch_receipt" "What was changed.",
        EvidenceSetHash "evidence_set_hash" "The digest of the evidence.",
        RetrievalReceipt "retrieval_receipt" "What was fetched.",
        ConjectureSet "conjecture_set" "The conjectures.",
        VerifierAttestations "verifier_attestations" "The attestations of the verifiers.",
        DiscrepancyReport "discrepancy_report" "Where they disagree.",
        PolicyDecisionTokens "policy_decision_tokens" "What was approved.",
        SecurityAttestations "security_attestations" "The results of the security checks.",
        BlindSpotDelta "hyperthesis_delta" "What changed in the blind spots.",
        ExpansionPlanReceipt "expansion_plan_receipt" "What is to be widened, one thing at a time.",
        ProjectionRebuildReceipt "projection_rebuild_receipt" "What was rebuilt, and whether it is consistent.",
        AttackReportReceipt "attack_report_receipt" "What was attacked.",
        DisclosureObjects "disclosure_objects" "What was disclosed.",
        MitigationProposals "mitigation_proposals" "Proposed mitigations.",
        PreferenceDecisionReceipt "preference_decision_receipt" "What the user decided.",
    }
}
