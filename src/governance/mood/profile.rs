//! A mood's profile: everything that the spec says a mood is, as a versioned YAML file, and the rights that it compiles into.
//!
//! The shipped profiles are the widest. A user's own may narrow one; what widens it is refused with its line underlined.

use crate::foundation::base::Digest;
use crate::foundation::config::{At, Choice, ConfigErrors, Node, Problem, Problems, Read as _, Required, Span};
use crate::foundation::gate::{Budget, Categories, Category, Hosts, Rights, Scope, Scopes};
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
        parallel_max: Required<usize>,
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
    /// Reads a profile. `shipped`, when given, has the one that it must not widen.
    ///
    /// # Errors
    /// All that is wrong, each with its place in the text.
    pub fn parse(source_name: &str, text: &str, shipped: Option<&Profiles>) -> Result<Self, ConfigErrors> {
        let root = Node::parse(source_name, text)?;
        let mut problems = Problems::new(text);
        let profile = File::read(&root, &mut problems).and_then(|file| lower(&file, text, shipped, &mut problems));
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

    /// What it allows once a person's word opened `privilege`, if it is one that a word opens here. What is applied to the
    /// memory is written there.
    #[must_use]
    pub fn opened(&self, privilege: Category) -> Rights {
        let mut rights = self.rights.clone();
        if self.with_token.contains(privilege) {
            rights.uses = rights.uses.join(privilege.into());
            if privilege == Category::MemoryApply {
                let memory = Scopes::from(Scope::Knowledge);
                (rights.reads, rights.writes) = (rights.reads.join(memory), rights.writes.join(memory));
            }
        }
        rights
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
        let narrowed = Profile::parse(source_name, text, Some(&self))?;
        if let Some(profile) = self.0.get_mut(narrowed.mood as usize) {
            *profile = narrowed;
        }
        Ok(self)
    }

    /// The profile of a mood.
    #[expect(
        clippy::indexing_slicing,
        reason = "`shipped` alone makes one, with a profile for each mood in their order"
    )]
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

fn lower(file: &File, text: &str, shipped: Option<&Profiles>, problems: &mut Problems) -> Option<Profile> {
    let mood = file.mood.as_ref()?.value;
    let bound = shipped.map(|shipped| shipped.of(mood));
    let mut narrow = Narrow { mood, bound, problems };
    let tools = narrow.tools(file.tools.as_ref()?);
    let data = narrow.data(file.data.as_ref()?);
    let budgets = file.budgets.as_ref()?;
    let budget = narrow.budget(budgets);
    let bounded = |figure: fn(&Profile) -> usize| bound.map(|bound| figure(bound) as u64);
    let iterations_max = narrow.figure(&budgets.iterations, bounded(|profile| profile.iterations_max));
    let sources_max = narrow.figure(&budgets.sources, bounded(|profile| profile.sources_max));
    let questions_max = narrow.figure(&budgets.questions, bounded(|profile| profile.questions_max));
    let parallel_max = narrow.figure(&file.tools.as_ref()?.parallel_max, bounded(|profile| profile.parallel_max));
    let models = file.models.as_ref()?;
    let ladder = models.ladder.as_ref()?;
    narrow.list(ladder, |value| bound.is_none_or(|bound| bound.ladder.contains(&value)));
    if ladder.is_empty() {
        let problem = Problem::new(ladder.span.clone(), "there is no model on the ladder");
        narrow.problems.add(problem.help("write at least `[small]`"));
    }
    let (verifiers, outputs) = (file.verifiers.as_ref()?, file.outputs.as_ref()?);
    let forms = outputs.forms.as_ref()?;
    narrow.list(forms, |value| bound.is_none_or(|bound| bound.forms.contains(&value)));
    narrow.switch(&outputs.no_copy, Some(true), true);
    narrow.switch(&outputs.quarantine_first, bound.map(|bound| bound.quarantine_first), true);
    narrow.switch(&outputs.new_surfaces, bound.map(|bound| bound.new_surfaces), false);
    narrow.switch(&verifiers.independent, bound.map(|bound| bound.independent), true);
    let mandatory = narrow.checks(verifiers.mandatory.as_ref()?);
    let receipts = narrow.receipts(file.receipts.as_ref()?);
    let ((uses, delegates, with_token), (reads, writes, hosts, model_hosts)) = (tools?, data?);
    Some(Profile {
        mood,
        version: file.version.as_ref()?.value,
        digest: Digest::of(text),
        purpose: file.purpose.as_ref()?.value.clone(),
        rights: Rights { uses, delegates, reads, writes, hosts, model_hosts, budget: budget? },
        with_token,
        parallel_max: parallel_max? as usize,
        ladder: ladder.iter().map(|at| at.value).collect(),
        escalate_after: models.escalate_after.as_ref()?.value,
        strongest_for: models.strongest_for.as_ref()?.value.clone(),
        mandatory,
        independent: verifiers.independent.as_ref()?.value,
        challenge_hours: verifiers.challenge_hours.as_ref()?.value,
        forms: forms.iter().map(|at| at.value).collect(),
        quarantine_first: outputs.quarantine_first.as_ref()?.value,
        new_surfaces: outputs.new_surfaces.as_ref()?.value,
        iterations_max: iterations_max? as usize,
        sources_max: sources_max? as usize,
        questions_max: questions_max? as usize,
        stop: file.stop.as_ref()?.value.clone(),
        receipts,
    })
}

/// Compares a profile with the one that it must not widen.
struct Narrow<'a, 'p> {
    mood: Mood,
    bound: Option<&'a Profile>,
    problems: &'a mut Problems<'p>,
}

impl Narrow<'_, '_> {
    fn tools(&mut self, tools: &Tools) -> Option<(Categories, Categories, Categories)> {
        let (uses, delegates) = (tools.uses.as_ref()?, tools.delegates.as_ref()?);
        let with_token = tools.with_token.as_ref()?;
        for at in uses.iter().chain(delegates.iter()).filter(|at| Categories::PRIVILEGED.contains(at.value)) {
            let message = format!("`{}` is never a mood's to use: it takes a policy token", at.value);
            let problem = Problem::new(at.span.clone(), message);
            self.problems.add(problem.help("name it under `with_token`, or leave it out"));
        }
        for at in with_token.iter().filter(|at| !Categories::PRIVILEGED.contains(at.value)) {
            let problem = Problem::new(at.span.clone(), format!("`{}` needs no policy token", at.value));
            self.problems.add(problem.help("name it under `uses`, or leave it out"));
        }
        let bound = self.bound;
        self.list(uses, |value| bound.is_none_or(|bound| bound.rights.uses.contains(value)));
        self.list(delegates, |value| bound.is_none_or(|bound| bound.rights.delegates.contains(value)));
        self.list(with_token, |value| bound.is_none_or(|bound| bound.with_token.contains(value)));
        let set = |list: &[At<Category>]| list.iter().map(|at| at.value).collect();
        Some((set(uses), set(delegates), set(with_token)))
    }

    fn data(&mut self, data: &Data) -> Option<(Scopes, Scopes, Hosts, Hosts)> {
        let (reads, writes, bound) = (data.reads.as_ref()?, data.writes.as_ref()?, self.bound);
        self.list(reads, |value| bound.is_none_or(|bound| bound.rights.reads.contains(value)));
        self.list(writes, |value| bound.is_none_or(|bound| bound.rights.writes.contains(value)));
        let hosts = self.hosts(&data.network, bound.map(|bound| &bound.rights.hosts));
        let model_hosts = self.hosts(&data.model_hosts, bound.map(|bound| &bound.rights.model_hosts));
        let set = |list: &[At<Scope>]| list.iter().map(|at| at.value).collect();
        Some((set(reads), set(writes), hosts?, model_hosts?))
    }

    fn hosts(&mut self, reach: &Required<Reach>, bound: Option<&Hosts>) -> Option<Hosts> {
        let reach = reach.as_ref()?;
        let hosts = if reach.value == Reach::Granted { Hosts::Granted } else { Hosts::None };
        if bound.is_some_and(|bound| !hosts.within(bound)) {
            self.too_wide(&reach.span);
        }
        Some(hosts)
    }

    fn budget(&mut self, budgets: &Budgets) -> Option<Budget> {
        let most = self.bound.map(|bound| bound.rights.budget);
        let wall_ms = self.figure(&budgets.minutes, most.map(|most| most.wall_ms / 60_000))?.saturating_mul(60_000);
        Some(Budget {
            wall_ms,
            tokens: self.figure(&budgets.tokens, most.map(|most| most.tokens))?,
            calls: self.figure(&budgets.calls, most.map(|most| most.calls))?,
            money_micros: self.figure(&budgets.money_micros, most.map(|most| most.money_micros))?,
            files: self.figure(&budgets.files, most.map(|most| most.files))?,
            diff_lines: self.figure(&budgets.diff_lines, most.map(|most| most.diff_lines))?,
        })
    }

    fn figure(&mut self, read: &Required<usize>, most: Option<u64>) -> Option<u64> {
        let at = read.as_ref()?;
        let figure = at.value as u64;
        if most.is_some_and(|most| figure > most) {
            self.too_wide(&at.span);
        }
        Some(figure)
    }

    /// A switch whose one position is the strict one: where the bound has it, so must this.
    fn switch(&mut self, switch: &Required<bool>, bound: Option<bool>, strict: bool) {
        if let Some(at) = switch.as_ref()
            && bound == Some(strict)
            && at.value != strict
        {
            self.too_wide(&at.span);
        }
    }

    fn checks(&mut self, list: &At<Vec<At<Check>>>) -> Vec<Check> {
        let checks: Vec<_> = list.iter().map(|at| at.value).collect();
        if let Some(missing) = self.bound.and_then(|bound| bound.mandatory.iter().find(|check| !checks.contains(check)))
        {
            let message = format!("the check `{}` of {} is left out", name_of(*missing), self.mood);
            self.problems.add(Problem::new(list.span.clone(), message).help("add it again"));
        }
        checks
    }

    fn receipts(&mut self, list: &At<Vec<At<ReceiptKind>>>) -> Vec<ReceiptKind> {
        let receipts: Vec<_> = list.iter().map(|at| at.value).collect();
        let always = [ReceiptKind::ContextFootprint, ReceiptKind::AhdbDelta];
        for kind in always.iter().chain(due(self.mood)).filter(|kind| !receipts.contains(kind)) {
            let message = format!("{} must leave the receipt `{}`", self.mood, name_of(*kind));
            let problem = Problem::new(list.span.clone(), message).help(format!("add `{}`", name_of(*kind)));
            self.problems.add(problem);
        }
        receipts
    }

    fn list<T: Copy>(&mut self, list: &[At<T>], is_bounded: impl Fn(T) -> bool) {
        for at in list.iter().filter(|at| !is_bounded(at.value)) {
            self.too_wide(&at.span);
        }
    }

    fn too_wide(&mut self, span: &Span) {
        let message = format!("this goes beyond the {} that comes with loom", self.mood);
        let help = format!("a profile may only narrow it: `loom mood show {}`", self.mood.name());
        self.problems.add(Problem::new(span.clone(), message).label("wider").help(help));
    }
}

/// How a word is written in a profile.
fn name_of<T: Choice + PartialEq>(word: T) -> &'static str {
    T::NAMES.iter().find(|(_, named)| *named == word).map_or("", |(name, _)| *name)
}
