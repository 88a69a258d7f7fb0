//! What a session claims, wants, takes for granted and cannot see, as changes of the mood's registers; and how a finding
//! becomes an assertion: by a person's word, under a policy token, in PARANOID, and by the verifiers in SKEPTICAL.

use serde_json::json;

use super::core::Session;
use super::finding::{self, Finding};
use super::need::Plan;
use super::outcome::{ItemKind, ItemResult, Judged, Opinion, REPORT, SUSPECT, UNJUDGED};
use super::place::SessionError;
use super::{phrases, questions};
use crate::foundation::base::Digest;
use crate::foundation::gate::{Category, Effect, Entry};
use crate::governance::mood::lint::{RewardHackDisclosure, suspicions};
use crate::governance::mood::{
    self, AtomEvent, AtomState, Attestation, Belief, Believed, Challenge, Change, Conjecture, Drive, Event,
    Hyperthesis, Hypothesis, Impact, Invisible, Pointer, Privilege, Regulation, Suspicion, TestBudget, Text, Tier,
};
use crate::governance::regulator::{Decision, Ruling};
use crate::simulation::rollout::Transcript;

/// The claim of a session.
const CLAIM: &str = "holds";
/// Characters of an entry's text.
const TEXT_CHARS: usize = 1_000;

impl Session {
    /// The aim, once the brief is written: what will be shown, the conjecture with its edge, the hypothesis with its test.
    pub(super) fn aimed(&self) -> Result<Vec<Event>, SessionError> {
        let plan = &self.course.work.plan;
        let aim = phrases::echo(&self.course.work);
        let test =
            "the scores over all turns: measured from words, and how likely they are with and without the persona";
        let conjecture = Conjecture {
            claim: text("the persona holds for as long as was asked")?,
            test: text(test)?,
            edge: text("words can agree with the persona while the state behind them does not")?,
            observer_upgrade: text("a judge that passed its test, or people")?,
            scope: text(&aim)?,
        };
        let calls = u32::try_from(plan.turns.value.saturating_mul(plan.rollouts.value).saturating_mul(2)).ok();
        let calls = calls.and_then(std::num::NonZeroU32::new).unwrap_or(std::num::NonZeroU32::MIN);
        let tokens = u32::try_from(self.settings.reply_tokens_max).unwrap_or(u32::MAX).saturating_mul(calls.get());
        let hypothesis = Hypothesis {
            claim: conjecture.claim.clone(),
            scope: conjecture.scope.clone(),
            test: conjecture.test.clone(),
            budget: TestBudget { calls, tokens },
            promotion_rule: text(
                "the verify gate passes, a fact speaks for it and none against it, and a person says so",
            )?,
            impact: Impact::Medium,
        };
        Ok(vec![
            Event::Changed(Change::Demo(text(&aim)?)),
            Event::Changed(Change::Conjecture(text(CLAIM)?, conjecture)),
            Event::Changed(Change::Hypothesize(text(CLAIM)?, hypothesis)),
            Event::NextClear,
        ])
    }

    /// What the user said, as a drive: it is put in DEFERENTIAL, in the next version.
    pub(super) fn drive(&self, stage: &str, said: &str) -> Result<Vec<Event>, SessionError> {
        if said.trim().is_empty() {
            return Ok(Vec::new());
        }
        let id = text(stage)?;
        let version = self.ward.registers().drive.get(&id).map_or(0, |drive| drive.version) + 1;
        let drive = Drive {
            priority: text(said)?,
            trade_off: text("what was recommended before it")?,
            anti_drive: text("more than was said")?,
            version,
        };
        Ok(vec![Event::Changed(Change::Drive(id, drive))])
    }

    /// What a wave changed: blind spots that the scores left, and the report, which waits for its promotion.
    pub(super) fn learned(&self, results: &[ItemResult]) -> Result<Vec<Event>, SessionError> {
        let mut events = Vec::new();
        let done = |kind: ItemKind| {
            let is =
                |result: &&ItemResult| self.course.work.items.get(result.item).is_some_and(|item| item.kind == kind);
            results.iter().filter(is).find(|result| result.error.is_none())
        };
        if let Some(scored) = done(ItemKind::Score)
            && let Some(why) = scored.found.get(UNJUDGED)
        {
            let blind = Hyperthesis {
                blind_spot: text("how well the persona is kept, as somebody who reads it would rate it")?,
                why: Invisible::Tool,
                risk: text(&format!("nobody rated it: {}", phrases::told(why)))?,
                impact: Impact::Medium,
                bound: Some(text("scores from words and likelihoods")?),
            };
            events.push(Event::Changed(Change::Hyperthesis(text("ratings")?, blind)));
        }
        if done(ItemKind::Report).is_some()
            && let Some(Pointer { atom, .. }) = self.evidence()?
        {
            let state = self.ward.registers().atoms.get(&atom).map_or(AtomState::Untrusted, |atom| atom.state);
            let way: &[AtomEvent] = match state {
                AtomState::Untrusted => &[AtomEvent::Quarantine, AtomEvent::Propose],
                AtomState::Quarantined => &[AtomEvent::Propose],
                _ => &[],
            };
            events.extend(way.iter().map(|event| Event::Changed(Change::Atom(atom, *event))));
        }
        Ok(events)
    }

    /// What wants to be obeyed in the rollouts, disclosed in its form. The mitigation is in place: nobody who reads rates them.
    pub(super) fn disclosed(&mut self, results: &[ItemResult]) -> Result<Vec<Event>, SessionError> {
        let Some(found) = results.iter().find_map(|result| result.found.get(SUSPECT)) else { return Ok(Vec::new()) };
        let exploit = text(&phrases::told(found))?;
        let talks = self.transcripts(ItemKind::Rollouts)?;
        let reply = talks.iter().flat_map(|talk| &talk.turns).map(|turn| turn.persona.content.as_str());
        let Some(reply) = reply.into_iter().find(|reply| !suspicions(reply).is_empty()) else { return Ok(Vec::new()) };
        let test = self.contents.put(reply.as_bytes()).map_err(SessionError::io("keep a text in", &self.folder))?;
        let mitigation = text("neither a judge nor an expert rates the rollouts")?;
        let disclosure = RewardHackDisclosure {
            verifier: text("whoever reads the replies and rates them")?,
            exploit: exploit.clone(),
            evidence: Pointer { atom: test, start_byte: 0, end_byte: reply.len() as u64 },
            impact: Impact::Medium,
            mitigation: mitigation.clone(),
            regression_test: test,
        };
        let entry = Entry::new("mood.disclosed", json!(disclosure)).with_content("reply", test);
        self.ward.record(&[], vec![entry])?;
        let blind = Hyperthesis {
            blind_spot: text("what a reader of the replies would have said of them")?,
            why: Invisible::Adversary,
            risk: exploit,
            impact: Impact::Medium,
            bound: Some(mitigation),
        };
        Ok(vec![
            Event::Suspected(Suspicion::Injection),
            Event::Changed(Change::Hyperthesis(text("obedience")?, blind)),
            Event::Mitigated,
            Event::Disclosed,
        ])
    }

    /// New objections of experts, as a challenge of the report: it goes back into quarantine until it is made again.
    pub(super) fn challenged(&self, opinions: &[Opinion]) -> Result<Vec<Event>, SessionError> {
        let known: Vec<_> = self.course.work.objections.iter().map(|objection| &objection.expert).collect();
        let new: Vec<_> =
            opinions.iter().filter(|opinion| opinion.blocker && !known.contains(&&opinion.expert)).collect();
        let (Some(first), Some(evidence)) = (new.first(), self.evidence()?) else { return Ok(Vec::new()) };
        let pending = |state| state == AtomState::PromotionPending;
        if !self.ward.registers().atoms.get(&evidence.atom).is_some_and(|atom| pending(atom.state)) {
            return Ok(Vec::new());
        }
        let grounds: Vec<_> = new.iter().map(|opinion| format!("{}: yes", opinion.judged.question)).collect();
        let challenge = Challenge {
            atom: evidence.atom,
            grounds: text(&grounds.join("; "))?,
            evidence,
            settled_by: text("the report made again, with the objection on record in it")?,
        };
        let id = text(&format!("{}, round {}", first.expert, self.course.work.rounds))?;
        Ok(vec![Event::Changed(Change::Challenge(id, challenge))])
    }

    /// Asserts the finding, or drops the hypothesis that it refutes. The user said so; the gate passes once more in
    /// PARANOID, and the report is promoted under a permit for exactly that. What is asserted comes back, or why nothing is.
    pub(super) fn assert(&mut self) -> Result<Result<String, String>, SessionError> {
        let found = finding::of(&self.course.work);
        if let Err(why) = found.may_be_asserted() {
            return Ok(Err(why));
        }
        let Some(evidence) = self.evidence()? else { return Ok(Err("there is no report to rest it on".to_owned())) };
        let promote = Privilege::Promote;
        self.ward.record(&[Event::Crossing(promote), Event::Approved(promote)], Vec::new())?;
        let checks = self.verify()?;
        if checks.iter().any(|check| !check.passed) {
            self.ward.record(&[Event::Denied(promote)], Vec::new())?;
            return Ok(Err("the verify gate does not pass once more".to_owned()));
        }
        let attested = Entry::new("verifier.attested", json!({ "checks": checks }));
        let (_, receipts) = self.ward.record(&[Event::VerifiersPassed], vec![attested])?;
        let Some(receipt) = receipts.last().copied() else { return Ok(Err("there is no receipt of it".to_owned())) };
        let effect = Effect::new(Category::Promote, evidence.atom.to_string());
        self.ward.approve(&effect, "the user, by the answer PROMOTE")?;
        let permit = match self.ward.ask(&effect) {
            Ok(permit) => permit,
            Err(refusal) => {
                self.ward.record(&[Event::Denied(promote)], Vec::new())?;
                return Ok(Err(refusal.to_string()));
            }
        };
        let _spent = permit.spend(&effect, self.ward.now())?;
        // A session that was killed after the promotion finds it promoted.
        let promoted = self.ward.registers().atoms.get(&evidence.atom).map(|atom| atom.state);
        let change = Event::Changed(Change::Atom(evidence.atom, AtomEvent::Promote));
        let due = (promoted != Some(AtomState::Promoted)).then_some(change);
        let events: Vec<_> = due.into_iter().chain([Event::Crossed(promote)]).collect();
        self.ward.record(&events, Vec::new())?;
        let id = text(CLAIM)?;
        let change = match found {
            Finding::Holds => Change::Assert {
                id: id.clone(),
                evidence,
                more_evidence: Vec::new(),
                attestation: Attestation {
                    verifier: text("the verify gate")?,
                    version: text(env!("CARGO_PKG_VERSION"))?,
                    receipt,
                    independent: self
                        .settings
                        .judge
                        .as_ref()
                        .is_some_and(|judge| *judge != self.settings.persona_model),
                },
            },
            _ => Change::Refute(id.clone()),
        };
        if self.ward.registers().hypothesize.contains_key(&id) {
            let (effects, _) = self.ward.record(&[Event::Changed(change), Event::VerifiersPassed], Vec::new())?;
            if let Some(refused) = effects.into_iter().find_map(refused) {
                return Ok(Err(refused));
            }
        }
        Ok(Ok(format!("{found}; evidence {}", evidence.atom.short())))
    }

    /// The report on the rollouts, as evidence.
    fn evidence(&self) -> Result<Option<Pointer>, SessionError> {
        let path = self.run_folder(ItemKind::Rollouts).join(REPORT);
        if !path.is_file() {
            return Ok(None);
        }
        let report = std::fs::read(&path).map_err(SessionError::io("read", &path))?;
        Ok(Some(Pointer { atom: Digest::of(&report), start_byte: 0, end_byte: report.len() as u64 }))
    }
}

/// What the answers of the model say of the model: that it cannot tell such questions apart narrows what can be done.
pub(super) fn believed(judged: &[Judged]) -> Result<Vec<Event>, SessionError> {
    if judged.is_empty() || judged.iter().any(|one| one.choice.is_some()) {
        return Ok(Vec::new());
    }
    let belief = Belief {
        prior: text("the session's own model is never sure of questions of this kind: defaults carry the work")?,
        tier: Tier::Medium,
        update_trigger: text("one sure answer, or another model")?,
        effect: Believed::Tightens,
    };
    Ok(vec![Event::Changed(Change::Believe(text("judgement")?, belief))])
}

/// The answers to a round of questions, in words.
pub(super) fn chosen(plan: &Plan, choices: &[Option<usize>]) -> String {
    let asked = questions::open_questions(plan);
    let answer = |(index, asked): (usize, &questions::Asked)| {
        let question = &asked.question;
        let choice = choices.get(index).copied().flatten().or(question.default)?;
        Some(format!("{} {}", question.text, question.choices.get(choice)?.answer))
    };
    asked.iter().enumerate().filter_map(answer).collect::<Vec<_>>().join("; ")
}

/// What the regulator's doubts mean: the claim rests on replies of which the model itself found parts unlikely.
pub(super) fn doubted(talks: &[Transcript]) -> Result<Option<Regulation>, SessionError> {
    let rulings = talks.iter().flat_map(|talk| &talk.turns).flat_map(|turn| &turn.persona.regulator.decisions);
    let unlikely = |ruling: &Ruling| matches!(ruling.decision, Decision::LowConfidenceSpans { .. });
    let claims = vec![text(CLAIM)?];
    Ok(rulings.into_iter().any(unlikely).then_some(Regulation::LowConfidence { claims }))
}

fn refused(effect: mood::Effect) -> Option<String> {
    match effect {
        mood::Effect::Refused(error) => Some(error.to_string()),
        _ => None,
    }
}

/// The beginning of a text, as an entry's.
fn text(text: &str) -> Result<Text, SessionError> {
    let short: String = text.chars().take(TEXT_CHARS).collect();
    Text::try_from(short).map_err(SessionError::Told)
}
