//! Scores of a session's rollouts taken by models: likelihoods by the persona's model, ratings by a tested judge. Clear
//! results become facts, with a receipt; missing scores are reported with their reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::core::Session;
use super::finding::{FACT, Reference, fact, references};
use super::outcome::{Found, FoundValue, UNJUDGED, WorkItemKind, named_by_arm};
use super::question::StudyQuestion;
use super::setup::SessionError;
use super::wave::transcript_digest;
use crate::foundation::chat::{ModelChain, Role};
use crate::foundation::gate::{Budget, Category, CountedTokens, Effect, LedgerEntry};
use crate::foundation::stats::mean;
use crate::governance::mood::Mood;
use crate::simulation::authorizer::{Authorizer, CallRequest};
use crate::simulation::judge::judged::{Judge, JudgeCheck, Rubric};
use crate::simulation::judge::likelihood::LikelihoodSet;
use crate::simulation::judge::measured::measure;
use crate::simulation::judge::scoring::{JudgeCheckFile, TranscriptScorer, judge_checks_folder, transcripts};
use crate::simulation::persona::parse;
use crate::simulation::rollout::{Reliability, Score, ScoreMethod, SealRenewal, Transcript};

/// Maximum calls per turn, of the persona's model and of the judge each.
const CALLS_PER_TURN: usize = 24;
impl Session {
    /// Takes the scores and stores them in the transcripts; existing ones are not taken again.
    pub(super) async fn score(&mut self) -> Result<Found, SessionError> {
        let mut found = Found::new();
        for run in self.arms() {
            let of_arm = self.score_arm(*run).await?;
            found.extend(named_by_arm(*run, of_arm));
        }
        Ok(found)
    }

    async fn score_arm(&mut self, run: WorkItemKind) -> Result<Found, SessionError> {
        let folder = self.run_folder(run);
        let talks = self.transcripts(run)?;
        let judge = self.settings.judge.clone().unwrap_or_else(|| self.settings.model.clone());
        let arguments = transcript_digest(&talks).to_string();
        let effect = Effect::new(Category::Score, format!("by models: {arguments}"));
        self.authorizer.allow(&effect)?;
        let turns: usize = talks.iter().map(|talk| talk.turns.len()).sum();
        let lease = self.authorizer.delegate_all("scores", Mood::Skeptical)?;
        let cost = Budget { calls: (turns * CALLS_PER_TURN) as u64, ..Budget::NOTHING };
        for chain in [&self.settings.persona_model, &judge] {
            let (arguments, counted) = (arguments.as_str(), CountedTokens::Generated);
            self.authorizer.permit_calls(&[CallRequest { lease, chain, arguments, cost, counted }])?;
        }
        let seal = SealRenewal::of(&folder);
        // The calls have their receipts in the run's folder, as in `loom score`.
        let scorer =
            Authorizer::for_models("score", Mood::Skeptical, &[&self.settings.persona_model, &judge], Some(&folder))
                .map_err(SessionError::Receipts)?;
        let suspect = self.state.work.is_suspect().then(|| "a reply gives instructions to its reader".to_owned());
        let judge = match suspect {
            Some(why) => Err(why),
            None => self.judge(&scorer, &judge).await,
        };
        let (judge, known, unjudged) = match judge {
            Ok((judge, known)) => (Some(judge), known, None),
            Err(why) => (None, None, Some(why)),
        };
        // An ablated persona is scored for the whole one, and so is the other arm, in the same way.
        let whole = match self.state.work.plan.question.value {
            StudyQuestion::Ablation => {
                let (source, yaml) = self.config()?;
                Some(Arc::new(parse(&source, &yaml)?))
            }
            _ => None,
        };
        let reader = match &whole {
            Some(_) => Some(scorer.open_model(&self.settings.persona_model, &self.options)?),
            None => None,
        };
        let scoring = TranscriptScorer {
            reader,
            scored_as: whole,
            judge,
            judge_check: known,
            window: None,
            rubrics: Vec::new(),
            likelihood_set: LikelihoodSet::Default,
            rescore: false,
            config: None,
            persona: Role::Assistant,
            options: scorer.guarded_options(self.options.clone()),
            receipts: Some(scorer.clone()),
        };
        let files = transcripts(&folder).map_err(|error| SessionError::Message(error.to_string()))?;
        for file in &files {
            scoring.score(file).await.map_err(|error| SessionError::Message(error.to_string()))?;
        }
        let head = scorer.close().map_err(SessionError::Receipts)?;
        seal.renew(head)?;
        self.authorizer.revoke(lease)?;
        self.record_results(run)?;
        let mut found = taken(&self.transcripts(run)?, &self.decisive());
        found.extend(unjudged.map(|why| (UNJUDGED.to_owned(), FoundValue::Text(why))));
        let facts: Vec<LedgerEntry> = found.iter().filter_map(|(name, value)| receipt(name, value, &found)).collect();
        self.authorizer.record(facts)?;
        Ok(found)
    }

    /// The scores that decide by themselves, with their reference values; none of a comparison.
    pub(super) fn decisive(&self) -> Vec<Reference> {
        let plan = &self.state.work.plan;
        if plan.question.value.compares() { Vec::new() } else { references(plan) }
    }

    /// The judge, if it is trusted: a named one, or the session's model if it passed the check.
    async fn judge(&self, scorer: &Authorizer, chain: &ModelChain) -> Result<(Judge, Option<JudgeCheck>), String> {
        let model = scorer.open_model(chain, &self.options).map_err(|error| error.to_string())?;
        let judge = Judge::new(model).await.map_err(|error| error.to_string())?;
        let folder = judge_checks_folder(|name| std::env::var_os(name));
        let known = folder.and_then(|folder| JudgeCheckFile::of(&folder, &judge).read(&judge));
        if self.settings.judge.is_some() {
            return Ok((judge, known));
        }
        let good = |check: &JudgeCheck| {
            Rubric::standard().all(|rubric| check.rubrics.get(&rubric.name).is_some_and(Reliability::is_reliable))
        };
        match known {
            Some(check) if good(&check) => Ok((judge, Some(check))),
            Some(_) => Err(format!("`{chain}` did not pass `loom judge check`; name another judge with --judge-model")),
            None => Err(format!("`{chain}` was not tested with `loom judge check`; name a judge with --judge-model")),
        }
    }
}

/// The model-taken scores in the transcripts: means, facts, and missing scores with their reason.
pub(super) fn taken(talks: &[Transcript], decisive: &[Reference]) -> Found {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for score in talks.iter().flat_map(|talk| &talk.scores).filter(|score| score.method != ScoreMethod::Measured) {
        if let Some(value) = score.value.filter(|value| value.is_finite()) {
            values.entry(name(score)).or_default().push(value);
        } else {
            let ids = missing.entry(score.why.as_deref().unwrap_or("no value")).or_default();
            if !ids.contains(&score.id.as_str()) {
                ids.push(&score.id);
            }
        }
    }
    let mut found: Found = values
        .into_iter()
        .map(|(name, values)| (name, FoundValue::Number(values.iter().sum::<f64>() / values.len() as f64)))
        .collect();
    for (id, reference) in decisive {
        // One value per rollout: the turns of a rollout are not independent.
        let values: Vec<f64> = talks.iter().filter_map(|talk| value_of(talk, id)).collect();
        if values.is_empty() {
            continue;
        }
        let fact = if same_conversation(talks) {
            format!("not distinguishable from {reference}: {SAME}")
        } else {
            fact(id, &values, *reference)
        };
        found.insert(format!("{id}{FACT}"), FoundValue::Text(fact));
    }
    for (number, (why, ids)) in (1..).zip(missing) {
        found.insert(format!("not taken {number}"), FoundValue::Text(format!("{}: {why}", ids.join(", "))));
    }
    found
}

/// The value of a score in one rollout, the mean over its turns. Ratings of a judge that did not pass its test do not count.
pub(super) fn value_of(talk: &Transcript, id: &str) -> Option<f64> {
    let stored = talk.scores.iter().find(|score| score.id == id && score.dimension.is_none());
    let value = match stored {
        Some(score) if is_trusted(score) => {
            let points: Vec<f64> = score.points.iter().filter_map(|point| point.value).collect();
            mean(&points).or(score.value)
        }
        Some(_) => None,
        None => measure(talk).scores.into_iter().find(|score| score.id == id)?.value,
    };
    value.filter(|value| value.is_finite())
}

/// The reason of [`same_conversation`].
pub(super) const SAME: &str = "all rollouts are the same conversation, which is one observation";

/// Whether all rollouts, more than one, are the same conversation: the models draw nothing at random.
pub(super) fn same_conversation(talks: &[Transcript]) -> bool {
    let digest = |talk: &Transcript| transcript_digest(std::slice::from_ref(talk));
    let mut digests = talks.iter().map(digest);
    let Some(first) = digests.next() else { return false };
    talks.len() > 1 && digests.all(|digest| digest == first)
}

/// A rating counts only if the judge is reliable; what is measured or a likelihood always counts.
pub(super) fn is_trusted(score: &Score) -> bool {
    let reliable = || score.judge.as_ref()?.reliability.as_ref().map(Reliability::is_reliable);
    matches!(score.method, ScoreMethod::Measured | ScoreMethod::Likelihood) || reliable() == Some(true)
}

fn name(score: &Score) -> String {
    score.dimension.as_ref().map_or_else(|| score.id.clone(), |dimension| format!("{} {dimension}", score.id))
}

/// The receipt of a fact.
fn receipt(name: &str, value: &FoundValue, found: &Found) -> Option<LedgerEntry> {
    let (Some(id), FoundValue::Text(fact)) = (name.strip_suffix(FACT), value) else { return None };
    Some(LedgerEntry::new("score.quantised", json!({"score": id, "mean": found.get(id), "fact": fact})))
}
