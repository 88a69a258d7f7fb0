//! Converts a profile file into a profile and compares it with the shipped one, which it must not exceed.

use super::MoodProfile;
use super::MoodProfiles;
use super::file::{Budgets, Data, File, Tools};
use super::vocabulary::{HostAccess, ReceiptKind, VerifierCheck};
use crate::foundation::base::Digest;
use crate::foundation::config::{Choice, Located, Problem, Problems, Required, Span};
use crate::foundation::gate::{Budget, Categories, Category, Hosts, Rights, Scope, Scopes};
use crate::governance::mood::name::Mood;

/// The receipts that a mood requires: the union of sections 2 and 6 of the specification.
fn due(mood: Mood) -> &'static [ReceiptKind] {
    use ReceiptKind as R;
    match mood {
        Mood::Calm => &[R::VerifierResults, R::PatchReceipt],
        Mood::Curious => &[R::EvidenceSetHash, R::RetrievalReceipt, R::ConjectureSet],
        Mood::Skeptical => &[R::VerifierAttestations, R::DiscrepancyReport],
        Mood::Paranoid => &[R::PolicyDecisionTokens, R::SecurityAttestations, R::BlindSpotDelta],
        Mood::Bold => &[R::ExpansionPlanReceipt, R::VerifierResults, R::PatchReceipt],
        Mood::Contrite => &[R::ProjectionRebuildReceipt],
        Mood::Petty => &[R::AttackReportReceipt, R::DisclosureObjects, R::MitigationProposals],
        Mood::Deferential => &[R::PreferenceDecisionReceipt],
    }
}

/// The profile described by a file.
pub(super) fn lower(
    file: &File,
    text: &str,
    shipped: Option<&MoodProfiles>,
    problems: &mut Problems,
) -> Option<MoodProfile> {
    let mood = file.mood.as_ref()?.value;
    let bound = shipped.map(|shipped| shipped.of(mood));
    let mut narrow = Narrow { mood, bound, problems };
    let tools = narrow.tools(file.tools.as_ref()?);
    let data = narrow.data(file.data.as_ref()?);
    let budgets = file.budgets.as_ref()?;
    let budget = narrow.budget(budgets);
    let bounded = |figure: fn(&MoodProfile) -> usize| bound.map(|bound| figure(bound) as u64);
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
    Some(MoodProfile {
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

/// Compares a profile with its upper bound.
struct Narrow<'a, 'p> {
    mood: Mood,
    bound: Option<&'a MoodProfile>,
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
        let set = |list: &[Located<Category>]| list.iter().map(|at| at.value).collect();
        Some((set(uses), set(delegates), set(with_token)))
    }

    fn data(&mut self, data: &Data) -> Option<(Scopes, Scopes, Hosts, Hosts)> {
        let (reads, writes, bound) = (data.reads.as_ref()?, data.writes.as_ref()?, self.bound);
        self.list(reads, |value| bound.is_none_or(|bound| bound.rights.reads.contains(value)));
        self.list(writes, |value| bound.is_none_or(|bound| bound.rights.writes.contains(value)));
        let hosts = self.hosts(&data.network, bound.map(|bound| &bound.rights.hosts));
        let model_hosts = self.hosts(&data.model_hosts, bound.map(|bound| &bound.rights.model_hosts));
        let set = |list: &[Located<Scope>]| list.iter().map(|at| at.value).collect();
        Some((set(reads), set(writes), hosts?, model_hosts?))
    }

    fn hosts(&mut self, reach: &Required<HostAccess>, bound: Option<&Hosts>) -> Option<Hosts> {
        let reach = reach.as_ref()?;
        let hosts = if reach.value == HostAccess::Granted { Hosts::Granted } else { Hosts::None };
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

    /// A switch with a strict value: if the bound has it, so must the profile.
    fn switch(&mut self, switch: &Required<bool>, bound: Option<bool>, strict: bool) {
        if let Some(at) = switch.as_ref()
            && bound == Some(strict)
            && at.value != strict
        {
            self.too_wide(&at.span);
        }
    }

    fn checks(&mut self, list: &Located<Vec<Located<VerifierCheck>>>) -> Vec<VerifierCheck> {
        let checks: Vec<_> = list.iter().map(|at| at.value).collect();
        if let Some(missing) = self.bound.and_then(|bound| bound.mandatory.iter().find(|check| !checks.contains(check)))
        {
            let message = format!("the check `{}` of {} is left out", name_of(*missing), self.mood);
            self.problems.add(Problem::new(list.span.clone(), message).help("add it again"));
        }
        checks
    }

    fn receipts(&mut self, list: &Located<Vec<Located<ReceiptKind>>>) -> Vec<ReceiptKind> {
        let receipts: Vec<_> = list.iter().map(|at| at.value).collect();
        let always = [ReceiptKind::ContextFootprint, ReceiptKind::AhdbDelta];
        for kind in always.iter().chain(due(self.mood)).filter(|kind| !receipts.contains(kind)) {
            let message = format!("{} must leave the receipt `{}`", self.mood, name_of(*kind));
            let problem = Problem::new(list.span.clone(), message).help(format!("add `{}`", name_of(*kind)));
            self.problems.add(problem);
        }
        receipts
    }

    fn list<T: Copy>(&mut self, list: &[Located<T>], is_bounded: impl Fn(T) -> bool) {
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

/// The name of a value in a profile.
fn name_of<T: Choice + PartialEq>(word: T) -> &'static str {
    T::NAMES.iter().find(|(_, named)| *named == word).map_or("", |(name, _)| *name)
}
