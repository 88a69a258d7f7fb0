//! Runs the work items of a session: rollouts, scores, the report of the run. A *wave* runs all items whose
//! dependencies are done.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::claims;
use super::core::Session;
use super::outcome::{Found, FoundValue, SUSPECT, WorkItem, WorkItemKind, WorkItemResult, named_by_arm};

use super::question::StudyQuestion;
use super::setup::SessionError;
use crate::foundation::base::{Digest, canonical_json};
use crate::foundation::gate::{Budget, Category, CountedTokens, Effect, Scope};
use crate::foundation::store::receipts::LOG;
use crate::foundation::store::{RealDisk, require_no_links};
use crate::governance::mood::lint::suspicions;
use crate::governance::mood::{self, Mood};
use crate::simulation::authorizer::CallRequest;
use crate::simulation::judge::measured::measure;
use crate::simulation::persona::parse;
use crate::simulation::report::Report;
use crate::simulation::rollout::{
    Observer, Outcome, Run, RunPlan, StopFlag, Transcript, read_transcript, regulator_outcomes,
};

/// The work items with their dependencies.
pub(super) fn items(question: StudyQuestion) -> Vec<WorkItem> {
    let item = |kind, after: &[usize]| WorkItem { kind, after: after.to_vec(), done: false };
    if question.compares() {
        return vec![
            item(WorkItemKind::Pilot, &[]),
            item(WorkItemKind::Rollouts, &[0]),
            item(WorkItemKind::Baseline, &[0]),
            item(WorkItemKind::Measure, &[1, 2]),
            item(WorkItemKind::Score, &[1, 2]),
            item(WorkItemKind::Compare, &[3, 4]),
            item(WorkItemKind::Report, &[5]),
        ];
    }
    vec![
        item(WorkItemKind::Pilot, &[]),
        item(WorkItemKind::Rollouts, &[0]),
        item(WorkItemKind::Measure, &[1]),
        item(WorkItemKind::Score, &[1]),
        item(WorkItemKind::Report, &[1, 2, 3]),
    ]
}

impl Session {
    /// Runs every item whose dependencies are done. The regulator's signals of the rollouts become mood events.
    pub(super) async fn wave(&mut self) -> Result<(Vec<WorkItemResult>, Vec<mood::MoodEvent>), SessionError> {
        let items = self.state.work.items.clone();
        let done = |at: &usize| items.get(*at).is_some_and(|item| item.done);
        let ready = items.iter().enumerate().filter(|(_, item)| !item.done && item.after.iter().all(done));
        let (mut results, mut moods) = (Vec::new(), Vec::new());
        for (item, WorkItem { kind, .. }) in ready {
            let found = match kind {
                WorkItemKind::Pilot => self.rollouts(*kind, 1, 1).await,
                WorkItemKind::Rollouts | WorkItemKind::Baseline => {
                    let plan = &self.state.work.plan;
                    self.rollouts(*kind, plan.turns.value, plan.rollouts.value).await
                }
                WorkItemKind::Measure => self.measured(),
                WorkItemKind::Score => self.score().await,
                WorkItemKind::Compare => self.compare(),
                WorkItemKind::Report => self.reported(),
            };
            let (found, error) = match found {
                Ok(found) => (found, None),
                Err(SessionError::Log(error)) => return Err(SessionError::Log(error)),
                Err(SessionError::Ledger(error)) => return Err(SessionError::Ledger(error)),
                Err(SessionError::Receipts(error)) => return Err(SessionError::Receipts(error)),
                // A full disk stops the session until there is space again.
                Err(error) if is_full(&error) => {
                    return Err(SessionError::Message(format!(
                        "{error}: free some space, then run `loom session resume`"
                    )));
                }
                Err(error) => (Found::new(), Some(error.to_string())),
            };
            if matches!(kind, WorkItemKind::Rollouts | WorkItemKind::Baseline) && error.is_none() {
                let talks = self.transcripts(*kind)?;
                for regulation in talks.iter().flat_map(regulator_outcomes).chain(claims::doubted(&talks)?) {
                    let event = mood::MoodEvent::Regulated(regulation);
                    if !moods.contains(&event) {
                        moods.push(event);
                    }
                }
            }
            results.push(WorkItemResult { item, error, found });
        }
        Ok((results, moods))
    }

    /// The folder of a run in this round.
    pub(super) fn run_folder(&self, kind: WorkItemKind) -> PathBuf {
        self.folder.join("runs").join(format!("{:02}-{}", self.state.work.rounds, kind.folder()))
    }

    async fn rollouts(&mut self, kind: WorkItemKind, turns: usize, rollouts: usize) -> Result<Found, SessionError> {
        let folder = self.run_folder(kind);
        let (source, yaml) = self.config_of(kind)?;
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
            adversary: self.state.work.plan.other.value,
            persona: self.settings.persona_model.clone(),
            interlocutor: self.target_of(kind).clone(),
            judge: self.settings.model.clone(),
        };
        let [of_persona, of_interlocutor] = plan.calls_max()?;
        let tokens = (rollouts * turns) as u64 * self.settings.reply_tokens_max;
        let arguments = canonical_json(&serde_json::json!({
            "config": plan.config.digest, "seed": plan.seed, "rollouts": rollouts, "turns": turns,
            "adversary": plan.adversary, "persona": plan.persona, "interlocutor": plan.interlocutor,
        }))
        .map_err(SessionError::json)?;
        let effect = Effect::new(Category::Rollout, &arguments).costing(Budget { calls: 1, ..Budget::NOTHING });
        let permit = self.authorizer.permit(&effect)?;
        let other = if self.state.is_adversarial() { Mood::Petty } else { Mood::Calm };
        let mut roles = Vec::new();
        for (who, mood, chain, calls) in [
            ("persona", Mood::Calm, &plan.persona, of_persona),
            ("interlocutor", other, &plan.interlocutor, of_interlocutor),
        ] {
            let lease = self.authorizer.delegate_all(who, mood)?;
            let cost = Budget { tokens, calls, ..Budget::NOTHING };
            let (arguments, counted) = (arguments.as_str(), CountedTokens::Generated);
            // The run counts each of them, with receipts of its own.
            self.authorizer.permit_calls(&[CallRequest { lease, chain, arguments, cost, counted }])?;
            roles.push(lease);
        }
        let _spent = permit.spend(&effect, self.authorizer.now())?;
        require_no_links(&self.folder, &folder).map_err(|source| SessionError::Io {
            action: "write to",
            path: folder.display().to_string(),
            source,
        })?;
        let run = if folder.join("run.json").is_file() {
            Run::resume(&folder, &self.options)?
        } else {
            Run::create(&plan, &folder, &self.options)?
        };
        let observer: Observer = Arc::new(|_| {});
        let most = self.authorizer.profile().parallel_max;
        if most < self.settings.parallel.min(rollouts) {
            (self.on_message)(&format!(
                "[SESSION] Running {most} rollouts at a time: the limit of the mood {}",
                self.authorizer.mood().mood()
            ));
        }
        let parallel = self.settings.parallel.min(most).max(1);
        let summaries = run.execute(parallel, &observer, &StopFlag::default()).await?;
        drop(run);
        for lease in roles {
            self.authorizer.revoke(lease)?;
        }
        if let Some(Outcome::Stopped { reason, .. }) =
            summaries.iter().map(|summary| &summary.outcome).find(|outcome| matches!(outcome, Outcome::Stopped { .. }))
        {
            return Err(SessionError::Message(format!("a rollout was stopped: {reason}")));
        }
        self.record_results(kind)?;
        let talks = self.transcripts(kind)?;
        Ok(counted(&talks).into_iter().chain(suspect(&talks)).collect())
    }

    fn measured(&mut self) -> Result<Found, SessionError> {
        let mut found = Found::new();
        for run in self.arms() {
            let transcripts = self.transcripts(*run)?;
            let effect = Effect::new(Category::Score, transcript_digest(&transcripts).to_string());
            self.authorizer.allow(&effect)?;
            found.extend(named_by_arm(*run, scores(&transcripts)));
        }
        Ok(found)
    }

    fn reported(&mut self) -> Result<Found, SessionError> {
        let mut found = Found::new();
        for run in self.arms() {
            let effect = Effect::new(Category::Report, transcript_digest(&self.transcripts(*run)?).to_string())
                .writing(Scope::Notes)
                .costing(Budget { files: 1, ..Budget::NOTHING });
            self.authorizer.allow(&effect)?;
            let folder = self.run_folder(*run);
            let (report, conversations) = Report::with_conversations(&folder)?;
            report.write_to(&folder, &conversations)?;
            self.record_results(*run)?;
            let flags = Found::from([("flags".to_owned(), FoundValue::Count(report.flags.len() as u64))]);
            found.extend(named_by_arm(*run, flags));
        }
        Ok(found)
    }

    /// The transcripts of a run in order.
    pub(super) fn transcripts(&self, kind: WorkItemKind) -> Result<Vec<Transcript>, SessionError> {
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

/// Whether the cause is a full disk.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let full = |error: &std::io::Error| error.kind() == std::io::ErrorKind::StorageFull;
    error.downcast_ref().is_some_and(full) || error.source().is_some_and(is_full)
}

/// The digest of all messages in order.
pub(super) fn transcript_digest(transcripts: &[Transcript]) -> Digest {
    let mut text = String::new();
    for turn in transcripts.iter().flat_map(|transcript| &transcript.turns) {
        text.extend([&turn.persona.content, "\0", &turn.interlocutor.content, "\0"]);
    }
    Digest::of(text)
}

fn counted(transcripts: &[Transcript]) -> Found {
    let sum = |what: fn(&Transcript) -> usize| FoundValue::Count(transcripts.iter().map(what).sum::<usize>() as u64);
    Found::from([
        ("turns".to_owned(), sum(|transcript| transcript.turns.len())),
        ("failures".to_owned(), sum(|transcript| transcript.totals.failures)),
        ("monitor events".to_owned(), sum(|transcript| transcript.totals.monitor_events)),
        ("refusals".to_owned(), sum(|transcript| transcript.totals.refusals)),
        ("said".to_owned(), FoundValue::Text(transcript_digest(transcripts).to_string())),
    ])
}

/// The first suspicious reply of the persona (one that gives instructions to its reader), if any.
fn suspect(transcripts: &[Transcript]) -> Option<(String, FoundValue)> {
    let mut turns = transcripts.iter().flat_map(|transcript| &transcript.turns);
    let (turn, what) = turns.find_map(|turn| Some((turn.index, suspicions(&turn.persona.content).first()?.1)))?;
    Some((SUSPECT.to_owned(), FoundValue::Text(format!("turn {turn}: {what}"))))
}

/// The mean of each score over the rollouts that have it.
pub(super) fn scores(transcripts: &[Transcript]) -> Found {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for score in transcripts.iter().flat_map(|transcript| measure(transcript).scores) {
        values.entry(score.id).or_default().extend(score.value);
    }
    let mean = |(id, values): (String, Vec<f64>)| {
        (!values.is_empty()).then(|| (id, FoundValue::Number(values.iter().sum::<f64>() / values.len() as f64)))
    };
    values.into_iter().filter_map(mean).collect()
}

/// Whether a folder has no session log.
pub(super) fn is_fresh(folder: &Path) -> bool {
    !RealDisk::new(folder).root().join(LOG).exists()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::simulation::rollout::FileError;

    #[test]
    fn a_full_disk_is_distinguished_from_other_failures() {
        let file = |kind: io::ErrorKind| {
            SessionError::File(FileError::Io { path: PathBuf::from("rollout_000.json"), source: kind.into() })
        };
        assert!(is_full(&file(io::ErrorKind::StorageFull)));
        assert!(!is_full(&file(io::ErrorKind::PermissionDenied)));
        assert!(!is_full(&SessionError::Message("No space left on device".to_owned())));
    }
}
