//! The real work of a session, item by item: rollouts, scores, the run's report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::claims;
use super::core::Session;
use super::outcome::{Found, Item, ItemKind, ItemResult, SUSPECT, Value};
use super::place::SessionError;
use crate::foundation::base::{Digest, canonical_json, limits};
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{Budget, Category, Effect, Scope};
use crate::foundation::store::RealDisk;
use crate::foundation::store::receipts::LOG;
use crate::governance::mood::lint::suspicions;
use crate::governance::mood::{self, Mood};
use crate::simulation::judge::measured::measure;
use crate::simulation::persona::parse;
use crate::simulation::report::Report;
use crate::simulation::rollout::{Observer, Outcome, Run, RunPlan, StopFlag, Transcript, read_transcript, regulations};

/// The items of the work, each after what it rests on.
pub(super) fn items() -> Vec<Item> {
    let item = |kind, after: &[usize]| Item { kind, after: after.to_vec(), done: false };
    vec![
        item(ItemKind::Pilot, &[]),
        item(ItemKind::Rollouts, &[0]),
        item(ItemKind::Measure, &[1]),
        item(ItemKind::Score, &[1]),
        item(ItemKind::Report, &[1, 2, 3]),
    ]
}

impl Session {
    /// Runs every item whose dependencies are resolved. What the regulator saw in the rollouts is told to the mood.
    pub(super) async fn wave(&mut self) -> Result<(Vec<ItemResult>, Vec<mood::Event>), SessionError> {
        let items = self.course.work.items.clone();
        let done = |at: &usize| items.get(*at).is_some_and(|item| item.done);
        let ready = items.iter().enumerate().filter(|(_, item)| !item.done && item.after.iter().all(done));
        let (mut results, mut moods) = (Vec::new(), Vec::new());
        for (item, Item { kind, .. }) in ready {
            let found = match kind {
                ItemKind::Pilot => self.rollouts(*kind, 1, 1).await,
                ItemKind::Rollouts => {
                    let plan = &self.course.work.plan;
                    self.rollouts(*kind, plan.turns.value, plan.rollouts.value).await
                }
                ItemKind::Measure => self.measured(),
                ItemKind::Score => self.score().await,
                ItemKind::Report => self.reported(),
            };
            let (found, error) = match found {
                Ok(found) => (found, None),
                Err(SessionError::Log(error)) => return Err(SessionError::Log(error)),
                Err(SessionError::Ledger(error)) => return Err(SessionError::Ledger(error)),
                Err(SessionError::Watch(error)) => return Err(SessionError::Watch(error)),
                // That no work can mend: the session waits until there is room again.
                Err(error) if is_full(&error) => {
                    return Err(SessionError::Told(format!("{error}: free some space, then `loom session resume`")));
                }
                Err(error) => (Found::new(), Some(error.to_string())),
            };
            if *kind == ItemKind::Rollouts && error.is_none() {
                let talks = self.transcripts(*kind)?;
                for regulation in talks.iter().flat_map(regulations).chain(claims::doubted(&talks)?) {
                    let event = mood::Event::Regulated(regulation);
                    if !moods.contains(&event) {
                        moods.push(event);
                    }
                }
            }
            results.push(ItemResult { item, error, found });
        }
        Ok((results, moods))
    }

    /// The folder of a run of this round.
    pub(super) fn run_folder(&self, kind: ItemKind) -> PathBuf {
        let name = if kind == ItemKind::Pilot { "pilot" } else { "rollouts" };
        self.folder.join("runs").join(format!("{:02}-{name}", self.course.work.rounds))
    }

    async fn rollouts(&mut self, kind: ItemKind, turns: usize, rollouts: usize) -> Result<Found, SessionError> {
        let folder = self.run_folder(kind);
        let (source, yaml) = self.config()?;
        let config = Arc::new(parse(&source, &yaml)?);
        let plan = RunPlan {
            adversary_script: None,
            regulator: config.regulator,
            calibration: None,
            config,
            yaml,
            seed: self.settings.seed,
            rollouts,
            turns,
            adversary: self.course.work.plan.other.value,
            persona: self.settings.persona_model.clone(),
            interlocutor: self.settings.target.clone(),
            judge: self.settings.model.clone(),
        };
        let calls = (rollouts * turns * 2 * (1 + limits::RETRIES_MAX)) as u64;
        let tokens = (rollouts * turns) as u64 * self.settings.reply_tokens_max;
        let arguments = canonical_json(&serde_json::json!({
            "config": plan.config.digest, "seed": plan.seed, "rollouts": rollouts, "turns": turns,
            "adversary": plan.adversary, "persona": plan.persona, "interlocutor": plan.interlocutor,
        }))
        .map_err(SessionError::json)?;
        let effect = Effect::new(Category::Rollout, &arguments).costing(Budget { calls: 1, ..Budget::NOTHING });
        let permit = self.ward.ask(&effect)?;
        let other = if self.course.is_adversarial() { Mood::Petty } else { Mood::Calm };
        let mut roles = Vec::new();
        for (who, mood, chain) in [("persona", Mood::Calm, &plan.persona), ("interlocutor", other, &plan.interlocutor)]
        {
            let lease = self.ward.child(who, mood)?;
            let cost = Budget { calls: calls / 2, tokens, ..Budget::NOTHING };
            for effect in model_effects(chain, &arguments, cost) {
                let permit = self.ward.ask_for(lease, &effect)?;
                permit.spend(&effect, self.ward.now())?;
            }
            roles.push(lease);
        }
        let _spent = permit.spend(&effect, self.ward.now())?;
        let run = if folder.join("run.json").is_file() {
            Run::resume(&folder, &self.options)?
        } else {
            Run::create(&plan, &folder, &self.options)?
        };
        let observer: Observer = Arc::new(|_| {});
        let most = self.ward.profile().parallel_max;
        if most < self.settings.parallel.min(rollouts) {
            (self.told)(&format!("[SESSION] {most} at the same time: {} allows no more", self.ward.mood()));
        }
        let parallel = self.settings.parallel.min(most).max(1);
        let summaries = run.play(parallel, &observer, &StopFlag::default()).await?;
        drop(run);
        for lease in roles {
            self.ward.dismiss(lease)?;
        }
        if let Some(Outcome::Stopped { reason, .. }) =
            summaries.iter().map(|summary| &summary.outcome).find(|outcome| matches!(outcome, Outcome::Stopped { .. }))
        {
            return Err(SessionError::Told(format!("a rollout was stopped: {reason}")));
        }
        let talks = self.transcripts(kind)?;
        Ok(counted(&talks).into_iter().chain(suspect(&talks)).collect())
    }

    fn measured(&mut self) -> Result<Found, SessionError> {
        let transcripts = self.transcripts(ItemKind::Rollouts)?;
        let effect = Effect::new(Category::Score, said(&transcripts).to_string());
        let permit = self.ward.ask(&effect)?;
        let _spent = permit.spend(&effect, self.ward.now())?;
        Ok(scores(&transcripts))
    }

    fn reported(&mut self) -> Result<Found, SessionError> {
        let folder = self.run_folder(ItemKind::Rollouts);
        let effect = Effect::new(Category::Report, said(&self.transcripts(ItemKind::Rollouts)?).to_string())
            .writing(Scope::Notes)
            .costing(Budget { files: 1, ..Budget::NOTHING });
        let permit = self.ward.ask(&effect)?;
        let _spent = permit.spend(&effect, self.ward.now())?;
        let (report, conversations) = Report::with_conversations(&folder)?;
        report.write_to(&folder, &conversations)?;
        Ok(Found::from([("flags".to_owned(), Value::Count(report.flags.len() as u64))]))
    }

    /// The transcripts of a run, in order.
    pub(super) fn transcripts(&self, kind: ItemKind) -> Result<Vec<Transcript>, SessionError> {
        let folder = self.run_folder(kind);
        let mut transcripts = Vec::new();
        for rollout in 0.. {
            let path = folder.join(format!("rollout_{rollout:03}.json"));
            if !path.is_file() {
                break;
            }
            transcripts.push(read_transcript(&path)?);
        }
        Ok(transcripts)
    }
}

/// Whether it was for want of space.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let full = |error: &std::io::Error| error.kind() == std::io::ErrorKind::StorageFull;
    error.downcast_ref().is_some_and(full) || error.source().is_some_and(is_full)
}

/// The effects of calling the models of a chain: one for each host that may be reached, one for a model on this machine.
pub(super) fn model_effects(chain: &ModelChain, arguments: &str, cost: Budget) -> Vec<Effect> {
    let mut effects: Vec<Effect> = Vec::new();
    for host in chain.specs().map(crate::inference::providers::host) {
        let effect = Effect::new(Category::Model, arguments).costing(cost);
        let effect = host.into_iter().fold(effect, Effect::reaching);
        if !effects.contains(&effect) {
            effects.push(effect);
        }
    }
    effects
}

/// The digest of all that was said, in order.
pub(super) fn said(transcripts: &[Transcript]) -> Digest {
    let mut text = String::new();
    for turn in transcripts.iter().flat_map(|transcript| &transcript.turns) {
        text.extend([&turn.persona.content, "\0", &turn.interlocutor.content, "\0"]);
    }
    Digest::of(text)
}

fn counted(transcripts: &[Transcript]) -> Found {
    let sum = |what: fn(&Transcript) -> usize| Value::Count(transcripts.iter().map(what).sum::<usize>() as u64);
    Found::from([
        ("turns".to_owned(), sum(|transcript| transcript.turns.len())),
        ("failures".to_owned(), sum(|transcript| transcript.totals.failures)),
        ("monitor events".to_owned(), sum(|transcript| transcript.totals.monitor_events)),
        ("refusals".to_owned(), sum(|transcript| transcript.totals.refusals)),
        ("said".to_owned(), Value::Text(said(transcripts).to_string())),
    ])
}

/// What in the persona's replies wants to be obeyed by whoever reads them, if anything does.
fn suspect(transcripts: &[Transcript]) -> Option<(String, Value)> {
    let mut turns = transcripts.iter().flat_map(|transcript| &transcript.turns);
    let (turn, what) = turns.find_map(|turn| Some((turn.index, suspicions(&turn.persona.content).first()?.1)))?;
    Some((SUSPECT.to_owned(), Value::Text(format!("turn {turn}: {what}"))))
}

/// The mean of every score over the rollouts that have it.
pub(super) fn scores(transcripts: &[Transcript]) -> Found {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for score in transcripts.iter().flat_map(|transcript| measure(transcript).scores) {
        values.entry(score.id).or_default().extend(score.value);
    }
    let mean = |(id, values): (String, Vec<f64>)| {
        (!values.is_empty()).then(|| (id, Value::Number(values.iter().sum::<f64>() / values.len() as f64)))
    };
    values.into_iter().filter_map(mean).collect()
}

/// Whether a folder holds anything.
pub(super) fn is_fresh(folder: &Path) -> bool {
    !RealDisk::new(folder).root().join(LOG).exists()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::simulation::rollout::FileError;

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let file = |kind: io::ErrorKind| {
            SessionError::File(FileError::Io { path: PathBuf::from("rollout_000.json"), source: kind.into() })
        };
        assert!(is_full(&file(io::ErrorKind::StorageFull)));
        assert!(!is_full(&file(io::ErrorKind::PermissionDenied)));
        assert!(!is_full(&SessionError::Told("No space left on device".to_owned())));
    }
}
