//! Scores that models take of a session's rollouts: likelihoods by the persona's own model, ratings by a judge that may be
//! believed. What they come to is made a fact by its margin, with a receipt; what is not taken is told, with why.

use std::collections::BTreeMap;

use serde_json::json;

use super::core::Session;
use super::finding::{ERRORS, FACT, MARKS, fact};
use super::outcome::{Found, ItemKind, UNJUDGED, Value};
use super::place::SessionError;
use super::wave::{model_effects, said};
use crate::app::watch::Watch;
use crate::foundation::chat::{ModelChain, Role};
use crate::foundation::gate::{Budget, Category, Effect, Entry};
use crate::governance::mood::Mood;
use crate::simulation::judge::judged::{Check, Judge, Rubric};
use crate::simulation::judge::likelihood::Extent;
use crate::simulation::judge::scoring::{CheckFile, Scoring, checks_folder, transcripts};
use crate::simulation::rollout::{Reliability, Score, ScoreMethod, Transcript};

/// Calls that one turn takes at most, of the persona's model and of the judge each: its shadows, or its rubrics.
const CALLS_PER_TURN: usize = 24;
impl Session {
    /// Takes them, and keeps them in the transcripts; those that are there are not taken again.
    pub(super) async fn score(&mut self) -> Result<Found, SessionError> {
        let folder = self.run_folder(ItemKind::Rollouts);
        let talks = self.transcripts(ItemKind::Rollouts)?;
        let judge = self.settings.judge.clone().unwrap_or_else(|| self.settings.model.clone());
        let arguments = said(&talks).to_string();
        let effect = Effect::new(Category::Score, format!("by models: {arguments}"));
        self.ward.ask(&effect)?.spend(&effect, self.ward.now())?;
        let turns: usize = talks.iter().map(|talk| talk.turns.len()).sum();
        let lease = self.ward.child("scores", Mood::Skeptical)?;
        let cost = Budget { calls: (turns * CALLS_PER_TURN) as u64, ..Budget::NOTHING };
        for chain in [&self.settings.persona_model, &judge] {
            for effect in model_effects(chain, &arguments, cost) {
                self.ward.ask_for(lease, &effect)?.spend(&effect, self.ward.now())?;
            }
        }
        // The calls themselves have their receipts beside the run's, as everybody's who scores.
        let watch = Watch::models("score", Mood::Skeptical, &[&self.settings.persona_model, &judge], Some(&folder))
            .map_err(SessionError::Watch)?;
        let suspect =
            self.course.work.is_suspect().then(|| "a reply wants to be obeyed by whoever rates it".to_owned());
        let judge = match suspect {
            Some(why) => Err(why),
            None => self.judge(&watch, &judge).await,
        };
        let (judge, known, unjudged) = match judge {
            Ok((judge, known)) => (Some(judge), known, None),
            Err(why) => (None, None, Some(why)),
        };
        let scoring = Scoring {
            judge,
            known,
            window: None,
            extent: Extent::Default,
            again: false,
            config: None,
            persona: Role::Assistant,
            options: watch.over(self.options.clone()),
        };
        let files = transcripts(&folder).map_err(|error| SessionError::Told(error.to_string()))?;
        for file in &files {
            scoring.score(file).await.map_err(|error| SessionError::Told(error.to_string()))?;
        }
        watch.close().map_err(SessionError::Watch)?;
        self.ward.dismiss(lease)?;
        let mut found = taken(&self.transcripts(ItemKind::Rollouts)?);
        found.extend(unjudged.map(|why| (UNJUDGED.to_owned(), Value::Text(why))));
        let facts: Vec<Entry> = found.iter().filter_map(|(name, value)| receipt(name, value, &found)).collect();
        self.ward.record(&[], facts)?;
        Ok(found)
    }

    /// The judge, if it may be believed: one that was named, or the session's own model where it passed its test.
    async fn judge(&self, watch: &Watch, chain: &ModelChain) -> Result<(Judge, Option<Check>), String> {
        let model = watch.model(chain, &self.options).map_err(|error| error.to_string())?;
        let judge = Judge::new(model).await.map_err(|error| error.to_string())?;
        let folder = checks_folder(|name| std::env::var_os(name));
        let known = folder.and_then(|folder| CheckFile::of(&folder, &judge).read(&judge));
        if self.settings.judge.is_some() {
            return Ok((judge, known));
        }
        let good = |check: &Check| {
            Rubric::ALL.iter().all(|rubric| check.rubrics.get(rubric).is_some_and(Reliability::is_reliable))
        };
        match known {
            Some(check) if good(&check) => Ok((judge, Some(check))),
            Some(_) => Err(format!("`{chain}` did not pass `loom judge check`; name a judge with --judge-model")),
            None => Err(format!("`{chain}` was not tested by `loom judge check`; name a judge with --judge-model")),
        }
    }
}

/// What the transcripts hold of scores that models took: means, facts, and what was not taken with why.
pub(super) fn taken(talks: &[Transcript]) -> Found {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut readings: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for score in talks.iter().flat_map(|talk| &talk.scores).filter(|score| score.method != ScoreMethod::Measured) {
        if let Some(value) = score.value.filter(|value| value.is_finite()) {
            values.entry(name(score)).or_default().push(value);
        } else {
            let ids = missing.entry(score.why.as_deref().unwrap_or("nothing had a value")).or_default();
            if !ids.contains(&score.id.as_str()) {
                ids.push(&score.id);
            }
        }
        if believed(score) && MARKS.iter().any(|(id, _)| *id == score.id) {
            let found = score.points.iter().filter_map(|point| point.value).filter(|value| value.is_finite());
            readings.entry(&score.id).or_default().extend(found);
        }
    }
    let mut found: Found = values
        .into_iter()
        .map(|(name, values)| (name, Value::Number(values.iter().sum::<f64>() / values.len() as f64)))
        .collect();
    for (id, mark) in MARKS {
        if let Some(values) = readings.get(id).filter(|values| !values.is_empty()) {
            found.insert(format!("{id}{FACT}"), Value::Text(fact(values, mark)));
        }
    }
    for (number, (why, ids)) in (1..).zip(missing) {
        found.insert(format!("not taken {number}"), Value::Text(format!("{}: {why}", ids.join(", "))));
    }
    found
}

/// A rating counts where the judge's are reliable; a likelihood is no opinion.
fn believed(score: &Score) -> bool {
    let reliable = || score.judge.as_ref()?.reliability.as_ref().map(Reliability::is_reliable);
    score.method == ScoreMethod::Likelihood || reliable() == Some(true)
}

fn name(score: &Score) -> String {
    score.dimension.as_ref().map_or_else(|| score.id.clone(), |dimension| format!("{} {dimension}", score.id))
}

/// The receipt of a fact.
fn receipt(name: &str, value: &Value, found: &Found) -> Option<Entry> {
    let (Some(id), Value::Text(fact)) = (name.strip_suffix(FACT), value) else { return None };
    Some(Entry::new("score.quantised", json!({"score": id, "mean": found.get(id), "fact": fact, "errors": ERRORS})))
}
