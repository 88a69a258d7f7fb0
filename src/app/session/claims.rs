//! Records a session's conjectures, drives, beliefs and blind spots in the mood's registers, and asserts its finding:
//! with a person's approval, under a policy token, in PARANOID, attested by the verifiers in SKEPTICAL.

use serde_json::json;

use super::core::Session;
use super::finding::{self, Finding};
use super::need::Plan;
use super::outcome::{
    ExpertOpinion, ModelJudgement, REPORT, SUSPECT, UNJUDGED, WorkItemKind, WorkItemResult, all_hold, numbered,
};
use super::setup::SessionError;
use super::{phrases, questions};
use crate::foundation::base::Digest;
use crate::foundation::base::limits::RESULT_BYTES_MAX;
use crate::foundation::gate::{Category, Effect, LedgerEntry};
use crate::foundation::store::read_limited;
use crate::governance::mood::lint::{RewardHackDisclosure, suspicions};
use crate::governance::mood::{
    self, AtomEvent, AtomState, Attestation, Belief, BeliefEffect, BeliefTier, BlindSpot, BlindSpotCause, Challenge,
    Conjecture, Drive, EntryText, EvidencePointer, Hypothesis, ImpactLevel, MoodEvent, Privilege, RegisterChange,
    RegulatorSignal, Suspicion, TestBudget,
};
use crate::governance::regulator::{Decision, RankedDecision};
use crate::simulation::rollout::Transcript;

/// The id of a session's claim.
const CLAIM: &str = "holds";
/// Maximum characters of an entry's text.
const TEXT_CHARS: usize = 1_000;

impl Session {
    /// The aim after the brief is written: the deliverable, the conjecture with its limits, the hypothesis with its
    /// test.
    pub(super) fn aimed(&self) -> Result<Vec<MoodEvent>, SessionError> {
        let plan = &self.state.work.plan;
        let aim = phrases::echo(&self.state.work);
        let test = "the scores over all turns: measured from words, and likelihoods with and without the persona";
        let conjecture = Conjecture {
            claim: text(&finding::hypothesis(&self.state.work))?,
            test: text(test)?,
            edge: text("the words can match the persona while the model's state does not")?,
            observer_upgrade: text("a judge that passed its test, or people")?,
            scope: text(&aim)?,
        };
        let messages = plan.turns.value.saturating_mul(plan.rollouts.value).saturating_mul(2 * self.arms().len());
        let calls = u32::try_from(messages).ok();
        let calls = calls.and_then(std::num::NonZeroU32::new).unwrap_or(std::num::NonZeroU32::MIN);
        let tokens = u32::try_from(self.settings.reply_tokens_max).unwrap_or(u32::MAX).saturating_mul(calls.get());
        let hypothesis = Hypothesis {
            claim: conjecture.claim.clone(),
            scope: conjecture.scope.clone(),
            test: conjecture.test.clone(),
            budget: TestBudget { calls, tokens },
            promotion_rule: text(
                "verification passes, a fact supports it and none contradicts it, and a person approves",
            )?,
            impact: ImpactLevel::Medium,
        };
        Ok(vec![
            MoodEvent::Changed(RegisterChange::Demo(text(&aim)?)),
            MoodEvent::Changed(RegisterChange::Conjecture(text(CLAIM)?, conjecture)),
            MoodEvent::Changed(RegisterChange::Hypothesize(text(CLAIM)?, hypothesis)),
            MoodEvent::NextClear,
        ])
    }

    /// The user's preference as a drive, in the next version; it is set in DEFERENTIAL.
    pub(super) fn drive(&self, stage: &str, said: &str) -> Result<Vec<MoodEvent>, SessionError> {
        if said.trim().is_empty() {
            return Ok(Vec::new());
        }
        let id = text(stage)?;
        let version = self.authorizer.mood().registers.drive.get(&id).map_or(0, |drive| drive.version) + 1;
        let drive = Drive {
            priority: text(said)?,
            trade_off: text("the recommended default")?,
            anti_drive: text("more than the user stated")?,
            version,
        };
        Ok(vec![MoodEvent::Changed(RegisterChange::Drive(id, drive))])
    }

    /// The register changes of a wave: blind spots left by the scores, and the report, which waits for its promotion.
    pub(super) fn learned(&self, results: &[WorkItemResult]) -> Result<Vec<MoodEvent>, SessionError> {
        let mut events = Vec::new();
        let done = |kind: WorkItemKind| {
            let is =
                |result: &&WorkItemResult| self.state.work.items.get(result.item).is_some_and(|item| item.kind == kind);
            results.iter().filter(is).find(|result| result.error.is_none())
        };
        if let Some(scored) = done(WorkItemKind::Score)
            && let Some(why) = scored.found.get(UNJUDGED)
        {
            let blind = BlindSpot {
                blind_spot: text("how well the persona is kept, as rated by a reader")?,
                why: BlindSpotCause::Tool,
                risk: text(&format!("not rated: {}", phrases::format_value(why)))?,
                impact: ImpactLevel::Medium,
                bound: Some(text("scores from words and likelihoods")?),
            };
            events.push(MoodEvent::Changed(RegisterChange::BlindSpot(text("ratings")?, blind)));
        }
        if done(WorkItemKind::Report).is_some()
            && let Some(EvidencePointer { atom, .. }) = self.evidence()?
        {
            let state =
                self.authorizer.mood().registers.atoms.get(&atom).map_or(AtomState::Untrusted, |atom| atom.state);
            let way: &[AtomEvent] = match state {
                AtomState::Untrusted => &[AtomEvent::Quarantine, AtomEvent::Propose],
                AtomState::Quarantined => &[AtomEvent::Propose],
                _ => &[],
            };
            events.extend(way.iter().map(|event| MoodEvent::Changed(RegisterChange::Atom(atom, *event))));
        }
        Ok(events)
    }

    /// Discloses a suspicious reply (one that gives instructions to its reader). The mitigation is in place: neither
    /// judge nor experts read it.
    pub(super) fn disclosed(&mut self, results: &[WorkItemResult]) -> Result<Vec<MoodEvent>, SessionError> {
        let Some(found) = results.iter().find_map(|result| result.found.get(SUSPECT)) else { return Ok(Vec::new()) };
        let exploit = text(&phrases::format_value(found))?;
        let mut talks = Vec::new();
        for run in self.arms() {
            talks.extend(self.transcripts(*run)?);
        }
        let reply = talks.iter().flat_map(|talk| &talk.turns).map(|turn| turn.persona.content.as_str());
        let Some(reply) = reply.into_iter().find(|reply| !suspicions(reply).is_empty()) else { return Ok(Vec::new()) };
        let test = self.contents.put(reply.as_bytes()).map_err(SessionError::io("keep a text in", &self.folder))?;
        let mitigation = text("neither a judge nor an expert rates the rollouts")?;
        let disclosure = RewardHackDisclosure {
            verifier: text("a judge or an expert who rates the replies")?,
            exploit: exploit.clone(),
            evidence: EvidencePointer { atom: test, start_byte: 0, end_byte: reply.len() as u64 },
            impact: ImpactLevel::Medium,
            mitigation: mitigation.clone(),
            regression_test: test,
        };
        let entry = LedgerEntry::new("mood.disclosed", json!(disclosure)).with_content("reply", test);
        self.authorizer.record(vec![entry])?;
        let blind = BlindSpot {
            blind_spot: text("how a reader would have rated the replies")?,
            why: BlindSpotCause::Adversary,
            risk: exploit,
            impact: ImpactLevel::Medium,
            bound: Some(mitigation),
        };
        Ok(vec![
            MoodEvent::Suspected(Suspicion::Injection),
            MoodEvent::Changed(RegisterChange::BlindSpot(text("obedience")?, blind)),
            MoodEvent::Mitigated,
            MoodEvent::Disclosed,
        ])
    }

    /// New objections of experts as a challenge of the report, which returns to quarantine until it is made again.
    pub(super) fn challenged(&self, opinions: &[ExpertOpinion]) -> Result<Vec<MoodEvent>, SessionError> {
        let known: Vec<_> = self.state.work.objections.iter().map(|objection| &objection.expert).collect();
        let new: Vec<_> =
            opinions.iter().filter(|opinion| opinion.blocker && !known.contains(&&opinion.expert)).collect();
        let (Some(first), Some(evidence)) = (new.first(), self.evidence()?) else { return Ok(Vec::new()) };
        let pending = |state| state == AtomState::PromotionPending;
        if !self.authorizer.mood().registers.atoms.get(&evidence.atom).is_some_and(|atom| pending(atom.state)) {
            return Ok(Vec::new());
        }
        let grounds: Vec<_> = new.iter().map(|opinion| format!("{}: yes", opinion.judged.question)).collect();
        let challenge = Challenge {
            atom: evidence.atom,
            grounds: text(&grounds.join("; "))?,
            evidence,
            settled_by: text("a new report that records the objection")?,
        };
        let id = text(&format!("{}, round {}", first.expert, self.state.work.rounds))?;
        Ok(vec![MoodEvent::Changed(RegisterChange::Challenge(id, challenge))])
    }

    /// Asserts the finding, or refutes the hypothesis. After the user's approval the work is verified once more in
    /// PARANOID, and the report is promoted under a permit for exactly that. Returns what is asserted, or why nothing
    /// is.
    pub(super) fn assert(&mut self) -> Result<Result<String, String>, SessionError> {
        let found = finding::of(&self.state.work);
        if let Err(why) = found.may_be_asserted() {
            return Ok(Err(why));
        }
        let Some(evidence) = self.evidence()? else { return Ok(Err("there is no report as evidence".to_owned())) };
        let promote = Privilege::Promote;
        self.authorizer.record_mood(&[MoodEvent::Crossing(promote), MoodEvent::Approved(promote)], Vec::new())?;
        let checks = self.verify();
        if !all_hold(&checks) {
            self.authorizer.record_mood(&[MoodEvent::Denied(promote)], Vec::new())?;
            return Ok(Err("the verification did not pass again".to_owned()));
        }
        let attested = LedgerEntry::new("verifier.attested", json!({ "checks": checks }));
        let (_, receipts) = self.authorizer.record_mood(&[MoodEvent::VerifiersPassed], vec![attested])?;
        let Some(receipt) = receipts.last().copied() else {
            return Ok(Err("the verification has no receipt".to_owned()));
        };
        let effect = Effect::new(Category::Promote, evidence.atom.to_string());
        let permit = match self.authorizer.permit_approved("the user, by the answer PROMOTE", &effect) {
            Ok(permit) => permit,
            Err(refusal) => {
                self.authorizer.record_mood(&[MoodEvent::Denied(promote)], Vec::new())?;
                return Ok(Err(refusal.to_string()));
            }
        };
        let _spent = permit.spend(&effect, self.authorizer.now())?;
        // A session that was killed after the promotion finds it already promoted.
        let promoted = self.authorizer.mood().registers.atoms.get(&evidence.atom).map(|atom| atom.state);
        let change = MoodEvent::Changed(RegisterChange::Atom(evidence.atom, AtomEvent::Promote));
        let due = (promoted != Some(AtomState::Promoted)).then_some(change);
        let events: Vec<_> = due.into_iter().chain([MoodEvent::Crossed(promote)]).collect();
        self.authorizer.record_mood(&events, Vec::new())?;
        let id = text(CLAIM)?;
        let change = match found {
            Finding::Holds => RegisterChange::Assert {
                id: id.clone(),
                evidence,
                more_evidence: Vec::new(),
                attestation: Attestation {
                    verifier: text("the verification")?,
                    version: text(env!("CARGO_PKG_VERSION"))?,
                    receipt,
                    independent: self
                        .settings
                        .judge
                        .as_ref()
                        .is_some_and(|judge| *judge != self.settings.persona_model),
                },
            },
            _ => RegisterChange::Refute(id.clone()),
        };
        if self.authorizer.mood().registers.hypothesize.contains_key(&id) {
            let (effects, _) =
                self.authorizer.record_mood(&[MoodEvent::Changed(change), MoodEvent::VerifiersPassed], Vec::new())?;
            if let Some(refused) = effects.into_iter().find_map(refused) {
                return Ok(Err(refused));
            }
        }
        Ok(Ok(format!("{}; evidence {}", finding::sentence(&self.state.work), evidence.atom.short())))
    }

    /// The report on the rollouts as evidence, or the comparison of the arms.
    fn evidence(&self) -> Result<Option<EvidencePointer>, SessionError> {
        let work = &self.state.work;
        let path = if work.plan.question.value.compares() {
            self.folder.join(numbered("comparison", work.rounds, "md"))
        } else {
            self.run_folder(WorkItemKind::Rollouts).join(REPORT)
        };
        if !path.is_file() {
            return Ok(None);
        }
        let report = read_limited(&path, RESULT_BYTES_MAX).map_err(SessionError::io("read", &path))?;
        Ok(Some(EvidencePointer { atom: Digest::of(&report), start_byte: 0, end_byte: report.len() as u64 }))
    }
}

/// A belief about the model: if all its answers are unsure, that narrows what can be done.
pub(super) fn believed(judged: &[ModelJudgement]) -> Result<Vec<MoodEvent>, SessionError> {
    if judged.is_empty() || judged.iter().any(|one| one.choice.is_some()) {
        return Ok(Vec::new());
    }
    let belief = Belief {
        prior: text("the session's model is always unsure about questions of this kind: the defaults are used")?,
        tier: BeliefTier::Medium,
        update_trigger: text("one sure answer, or another model")?,
        effect: BeliefEffect::Tightens,
    };
    Ok(vec![MoodEvent::Changed(RegisterChange::Believe(text("judgement")?, belief))])
}

/// The answers to a round of questions as text.
pub(super) fn chosen(plan: &Plan, choices: &[Option<usize>]) -> String {
    let asked = questions::open_questions(plan);
    let answer = |(index, asked): (usize, &questions::PlanQuestion)| {
        let question = &asked.question;
        let choice = choices.get(index).copied().flatten().or(question.default)?;
        Some(format!("{} {}", question.text, question.choices.get(choice)?.answer))
    };
    asked.iter().enumerate().filter_map(answer).collect::<Vec<_>>().join("; ")
}

/// The regulator signal for replies with unlikely spans: the claim depends on them.
pub(super) fn doubted(talks: &[Transcript]) -> Result<Option<RegulatorSignal>, SessionError> {
    let rulings = talks.iter().flat_map(|talk| &talk.turns).flat_map(|turn| &turn.persona.regulator.decisions);
    let unlikely = |ruling: &RankedDecision| matches!(ruling.decision, Decision::LowConfidenceSpans { .. });
    let claims = vec![text(CLAIM)?];
    Ok(rulings.into_iter().any(unlikely).then_some(RegulatorSignal::LowConfidence { claims }))
}

fn refused(effect: mood::MoodEffect) -> Option<String> {
    match effect {
        mood::MoodEffect::Refused(error) => Some(error.to_string()),
        _ => None,
    }
}

/// The beginning of a text as an entry's text.
fn text(text: &str) -> Result<EntryText, SessionError> {
    let short: String = text.chars().take(TEXT_CHARS).collect();
    EntryText::try_from(short).map_err(SessionError::Message)
}
