//! A mood's profile: everything that the spec says a mood is, as a versioned YAML file, and the rights that it compiles into.
//!
//! The shipped profiles are the widest. A user's own may narrow one; what widens it is refused with its line underlined.

use crate::foundation::base::Digest;
use crate::foundation::config::{At, ConfigErrors, Node, Problem, Problems, Read as _, Required};
use crate::foundation::gate::{Budget, Categories, Category, Hosts, Rights, Scope};
use crate::{config_choices, config_record};

use super::name::Mood;

/// The profiles that come with the program: name and text.
pub const SHIPPED: [(Mood, &str); 8] = [
    (Mood::Calm, include_str!("../../../configs/moods/calm.yaml")),
    (Mood::Curious, include_str!("../../../configs/moods/curious.yaml")),
    (Mood::Skeptical, include_str!("../../../configs/moods/skeptical.yaml")),
    (Mood::Paranoid, include_str!("../../../configs/moods/paranoid.yaml")),
    (Mood::Bold, include_str!("../../../configs/moods/bold.yaml")),
    (Mood::Contrite, include_str!("../../../configs/moods/contrite.yaml")),
    (Mood::Petty, include_str!("../../../configs/moods/petty.yaml")),
    (Mood::Deferential, include_str!("../../../configs/moods/deferential.yaml")),
];

config_record! {
    /// A mood's profile.
    struct File {
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
    struct Tools {
        /// Kinds of effects.
        uses: Required<Vec<At<Category>>>,
        /// Kinds of effects that children may be given.
        delegates: Required<Vec<At<Category>>>,
        /// Kinds of effects that a policy token opens.
        with_token: Required<Vec<At<Category>>>,
        /// Children at the same time.
        parallel_max: Required<At<usize>>,
    }

    /// What may be read and written, and which hosts are reached.
    struct Data {
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
    struct Models {
        /// From the first to the last resort.
        ladder: Required<Vec<At<ModelTier>>>,
        /// The next one after so many failures of the same kind.
        escalate_after: Required<usize>,
        /// What the last one is for.
        strongest_for: Required<String>,
    }

    /// What must be checked.
    struct Verifiers {
        /// Checks that are not optional.
        mandatory: Required<Vec<At<Check>>>,
        /// Whether claims of high impact need an independent check.
        independent: Required<bool>,
        /// How long a promotion can be challenged, hours.
        challenge_hours: Required<usize>,
    }

    /// What may come out.
    struct Outputs {
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
    struct Budgets {
        /// Minutes.
        minutes: Required<At<usize>>,
        /// Tokens.
        tokens: Required<At<usize>>,
        /// Effects.
        calls: Required<At<usize>>,
        /// Millionths of the account's currency.
        money_micros: Required<At<usize>>,
        /// Files written.
        files: Required<At<usize>>,
        /// Lines changed.
        diff_lines: Required<At<usize>>,
        /// Iterations before whoever leads looks again.
        iterations: Required<At<usize>>,
        /// Sources read.
        sources: Required<At<usize>>,
        /// Questions to the user.
        questions: Required<At<usize>>,
    }
}

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

/// A mood's profile, checked.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Which mood.
    pub mood: Mood,
    /// Its version.
    pub version: usize,
    /// The digest of its text: what a log names.
    pub digest: Digest,
    /// What it is for.
    pub purpose: String,
    rights: Rights,
    with_token: Categories,
    /// Children at the same time.
    pub parallel_max: usize,
    /// Models, from the first to the last resort; at least one.
    pub ladder: Vec<ModelTier>,
    /// The next model after so many failures of the same kind; 0: never.
    pub escalate_after: usize,
    /// What the strongest is for.
    pub strongest_for: String,
    /// Checks that are not optional.
    pub mandatory: Vec<Check>,
    /// Whether claims of high impact need an independent check.
    pub independent: bool,
    /// How long a promotion can be challenged, hours.
    pub challenge_hours: usize,
    /// What may come out.
    pub forms: Vec<OutputForm>,
    /// Whether everything goes to quarantine first.
    pub quarantine_first: bool,
    /// Whether new surfaces may be added.
    pub new_surfaces: bool,
    /// Iterations before whoever leads looks again.
    pub iterations_max: usize,
    /// Sources read.
    pub sources_max: usize,
    /// Questions to the user at a time.
    pub questions_max: usize,
    /// When to stop or to hand over.
    pub stop: Vec<String>,
    /// Receipts that must be left.
    pub receipts: Vec<ReceiptKind>,
}

impl Profile {
    /// Reads a profile. `bound`, when given, is the profile that it must not widen.
    ///
    /// # Errors
    /// All that is wrong, each with its place in the text.
    pub fn parse(source_name: &str, text: &str, bound: Option<&Self>) -> Result<Self, ConfigErrors> {
        let root = Node::parse(source_name, text)?;
        let mut problems = Problems::new(text);
        let profile = File::read(&root, &mut problems).and_then(|file| lower(&file, text, bound, &mut problems));
        problems.finish(source_name, profile)
    }

    /// What it allows, without any policy token.
    pub const fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The kinds of effects that a policy token opens.
    pub const fn with_token(&self) -> Categories {
        self.with_token
    }

    /// The model to use after so many failures of the same kind.
    pub fn tier_after(&self, failures: usize) -> ModelTier {
        let climbed = failures.checked_div(self.escalate_after).unwrap_or(0).min(self.ladder.len().saturating_sub(1));
        self.ladder.get(climbed).copied().unwrap_or(ModelTier::Small)
    }
}

/// Eight profiles, one for each mood.
#[derive(Debug, Clone)]
pub struct Profiles(Vec<Profile>);

impl Profiles {
    /// Those that come with the program.
    ///
    /// # Errors
    /// When one of them is not sound.
    pub fn shipped() -> Result<Self, ConfigErrors> {
        let read = |(mood, text): &(Mood, &str)| {
            let name = format!("configs/moods/{}.yaml", mood.name());
            let profile = Profile::parse(&name, text, None)?;
            let misplaced = || Problem::new(0..0, format!("this is the profile of {}", profile.mood));
            if profile.mood == *mood { Ok(profile) } else { Err(ConfigErrors::new(&name, text, vec![misplaced()])) }
        };
        SHIPPED.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// With a user's own profile in the place of the shipped one, which it may only narrow.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn narrowed(mut self, source_name: &str, text: &str) -> Result<Self, ConfigErrors> {
        // Which mood it is must be known before it can be compared; what else is wrong is told either way.
        let mood = Profile::parse(source_name, text, None)?.mood;
        let narrowed = Profile::parse(source_name, text, Some(self.of(mood)))?;
        if let Some(profile) = self.0.get_mut(mood as usize) {
            *profile = narrowed;
        }
        Ok(self)
    }

    /// The profile of a mood.
    #[expect(clippy::indexing_slicing, reason = "`shipped` alone makes one, with a profile for each mood in their order")]
    pub fn of(&self, mood: Mood) -> &Profile {
        &self.0[mood as usize]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.0.iter()
    }
}

/// What every profile of a mood must leave: the union of the spec's sections 2 and 6.
fn due(mood: Mood) -> &'static [ReceiptKind] {
    use ReceiptKind as R;
    match mood {
        Mood::Calm => &[R::VerifierResults, R::PatchReceipt],
        Mood::Curious => &[R::EvidenceSetHash, R::RetrievalReceipt, R::ConjectureSet],
        Mood::Skeptical => &[R::VerifierAttestations, R::DiscrepancyReport],
        Mood::Paranoid => &[R::PolicyDecisionTokens, R::SecurityAttestations, R::HyperthesisDelta],
        Mood::Bold => &[R::ExpansionPlanReceipt, R::VerifierResults, R::PatchReceipt],
        Mood::Contrite => &[R::ProjectionRebuildReceipt],
        Mood::Petty => &[R::AttackReportReceipt, R::DisclosureObjects, R::MitigationProposals],
        Mood::Deferential => &[R::PreferenceDecisionReceipt],
    }
}

fn lower(file: &File, text: &str, bound: Option<&Profile>, problems: &mut Problems) -> Option<Profile> {
    let [tools, data, models] =
        [file.tools.as_ref().map(|at| &at.span), file.data.as_ref().map(|at| &at.span), file.models.as_ref().map(|at| &at.span)];
    let spans = (tools?.clone(), data?.clone(), models?.clone());
    let (tools, data, models) = (file.tools.as_ref()?, file.data.as_ref()?, file.models.as_ref()?);
    let (verifiers, outputs, budgets) = (file.verifiers.as_ref()?, file.outputs.as_ref()?, file.budgets.as_ref()?);
    let mood = file.mood.as_ref()?.value;
    let rights = bound.map(Profile::rights);

    let categories = |list: &[At<Category>]| list.iter().map(|at| at.value).collect::<Categories>();
    let with_token = categories(tools.with_token.as_ref()?);
    let (uses, delegates) = (tools.uses.as_ref()?, tools.delegates.as_ref()?);
    for at in uses.iter().chain(delegates.iter()).filter(|at| Categories::PRIVILEGED.contains(at.value)) {
        let message = format!("`{}` is never a mood's to use: it takes a policy token", at.value);
        problems.add(Problem::new(at.span.clone(), message).help("name it under `with_token`, or leave it out"));
    }
    for at in tools.with_token.iter().flat_map(|list| &list.value) {
        if !Categories::PRIVILEGED.contains(at.value) {
            let message = format!("`{}` needs no policy token", at.value);
            problems.add(Problem::new(at.span.clone(), message).help("name it under `uses`, or leave it out"));
        }
    }
    widened(uses, |value| rights.is_none_or(|rights| rights.uses.contains(value)), mood, problems);
    widened(delegates, |value| rights.is_none_or(|rights| rights.delegates.contains(value)), mood, problems);
    widened(tools.with_token.as_ref()?, |value| bound.is_none_or(|bound| bound.with_token.contains(value)), mood, problems);
    let (reads, writes) = (data.reads.as_ref()?, data.writes.as_ref()?);
    widened(reads, |value| rights.is_none_or(|rights| rights.reads.contains(value)), mood, problems);
    widened(writes, |value| rights.is_none_or(|rights| rights.writes.contains(value)), mood, problems);
    let ladder = models.ladder.as_ref()?;
    widened(ladder, |value| bound.is_none_or(|bound| bound.ladder.contains(&value)), mood, problems);
    let forms = outputs.forms.as_ref()?;
    widened(forms, |value| bound.is_none_or(|bound| bound.forms.contains(&value)), mood, problems);
    if ladder.is_empty() {
        problems.add(Problem::new(spans.2, "there is no model on the ladder").help("write at least `- small`"));
    }

    let mut hosts = |reach: &Required<Reach>, shipped: Option<&Hosts>| {
        let reach = reach.as_ref()?;
        if reach.value == Reach::Granted && shipped == Some(&Hosts::None) {
            problems.add(too_wide(reach.span.clone(), mood));
        }
        Some(if reach.value == Reach::Granted { Hosts::Granted } else { Hosts::None })
    };
    let network = hosts(&data.network, rights.map(|rights| &rights.hosts));
    let model_hosts = hosts(&data.model_hosts, rights.map(|rights| &rights.model_hosts));

    let shipped = rights.map(|rights| rights.budget);
    let mut figure = |read: &Required<At<usize>>, most: Option<u64>| {
        let at = read.as_ref()?;
        if most.is_some_and(|most| at.value.value as u64 > most) {
            problems.add(too_wide(at.value.span.clone(), mood));
        }
        Some(at.value.value as u64)
    };
    let minutes = figure(&budgets.minutes, shipped.map(|budget| budget.wall_ms / 60_000))?;
    let budget = Budget {
        wall_ms: minutes.saturating_mul(60_000),
        tokens: figure(&budgets.tokens, shipped.map(|budget| budget.tokens))?,
        calls: figure(&budgets.calls, shipped.map(|budget| budget.calls))?,
        money_micros: figure(&budgets.money_micros, shipped.map(|budget| budget.money_micros))?,
        files: figure(&budgets.files, shipped.map(|budget| budget.files))?,
        diff_lines: figure(&budgets.diff_lines, shipped.map(|budget| budget.diff_lines))?,
    };
    let iterations = figure(&budgets.iterations, bound.map(|bound| bound.iterations_max as u64))?;
    let sources = figure(&budgets.sources, bound.map(|bound| bound.sources_max as u64))?;
    let questions = figure(&budgets.questions, bound.map(|bound| bound.questions_max as u64))?;
    let parallel = figure(&tools.parallel_max, bound.map(|bound| bound.parallel_max as u64))?;

    let switches = [
        (&outputs.quarantine_first, bound.map(|bound| bound.quarantine_first), true),
        (&outputs.new_surfaces, bound.map(|bound| bound.new_surfaces), false),
        (&verifiers.independent, bound.map(|bound| bound.independent), true),
        (&outputs.no_copy, Some(true), true),
    ];
    for (switch, shipped, strict) in switches {
        let switch = switch.as_ref()?;
        if shipped == Some(strict) && switch.value != strict {
            problems.add(too_wide(switch.span.clone(), mood));
        }
    }
    let mandatory: Vec<_> = verifiers.mandatory.as_ref()?.iter().map(|at| at.value).collect();
    let receipts: Vec<_> = file.receipts.as_ref()?.iter().map(|at| at.value).collect();
    let always = [ReceiptKind::ContextFootprint, ReceiptKind::AhdbDelta];
    let names = |kind: &ReceiptKind| {
        use crate::foundation::config::Choice as _;
        ReceiptKind::NAMES.iter().find(|(_, named)| named == kind).map_or("", |(name, _)| *name)
    };
    for kind in always.iter().chain(due(mood)).filter(|kind| !receipts.contains(kind)) {
        let span = file.receipts.as_ref()?.span.clone();
        let message = format!("{mood} must leave the receipt `{}`", names(kind));
        problems.add(Problem::new(span, message).help(format!("add `- {}`", names(kind))));
    }
    if let Some(missing) = bound.and_then(|bound| bound.mandatory.iter().find(|check| !mandatory.contains(check))) {
        let span = verifiers.mandatory.as_ref()?.span.clone();
        problems.add(Problem::new(span, format!("the check {missing:?} of {mood} is left out")).help("add it again"));
    }

    Some(Profile {
        mood,
        version: file.version.as_ref()?.value,
        digest: Digest::of(text),
        purpose: file.purpose.as_ref()?.value.clone(),
        rights: Rights {
            uses: categories(uses),
            delegates: categories(delegates),
            reads: reads.iter().map(|at| at.value).collect(),
            writes: writes.iter().map(|at| at.value).collect(),
            hosts: network?,
            model_hosts: model_hosts?,
            budget,
        },
        with_token,
        parallel_max: parallel as usize,
        ladder: ladder.iter().map(|at| at.value).collect(),
        escalate_after: models.escalate_after.as_ref()?.value,
        strongest_for: models.strongest_for.as_ref()?.value.clone(),
        mandatory,
        independent: verifiers.independent.as_ref()?.value,
        challenge_hours: verifiers.challenge_hours.as_ref()?.value,
        forms: forms.iter().map(|at| at.value).collect(),
        quarantine_first: outputs.quarantine_first.as_ref()?.value,
        new_surfaces: outputs.new_surfaces.as_ref()?.value,
        iterations_max: iterations as usize,
        sources_max: sources as usize,
        questions_max: questions as usize,
        stop: file.stop.as_ref()?.value.clone(),
        receipts,
    })
}

fn widened<T: Copy>(list: &[At<T>], is_bounded: impl Fn(T) -> bool, mood: Mood, problems: &mut Problems) {
    for at in list.iter().filter(|at| !is_bounded(at.value)) {
        problems.add(too_wide(at.span.clone(), mood));
    }
}

fn too_wide(span: crate::foundation::config::Span, mood: Mood) -> Problem {
    let message = format!("this goes beyond the {mood} that comes with loom");
    Problem::new(span, message).label("wider").help(format!("a profile may only narrow it: `loom mood show {}`", mood.name()))
}
