//! What carrying out the regulator's decisions does: the same fifty conversations with it observing and enforcing.
//!
//! Each task gives the persona a fact about itself, asks for it, and tells words of a right answer and words that are
//! out of its scope. Both runs draw from the same seeds, so that differences are paired; the regulator's own figures take
//! no part in what counts as right. Conversations of one task are alike, so it is the tasks that intervals resample.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::study::Figure;
use crate::foundation::base::Stream;
use crate::foundation::chat::{ModelChain, ModelSpec};
use crate::foundation::stats::{bootstrap_mean, mean};
use crate::foundation::text::words;
use crate::inference::providers::OpenOptions;
use crate::simulation::persona::{AdversaryKind, Regulation, RegulatorPolicy, parse};
use crate::simulation::rollout::{FileError, Observer, Run, RunError, RunPlan, StopFlag, Transcript, read_transcript};

/// The fifty tasks.
const TASKS: &str = include_str!("../../../configs/tasks/facts.tsv");
/// Resamples behind each interval.
const RESAMPLES: u32 = 2_000;

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    facts: String,
    asked: String,
    expected: Vec<String>,
    avoided: Vec<String>,
}

/// How one policy did, per conversation. Intervals are 95 % percentile bootstraps over tasks, each with all of its
/// conversations (Davison and Hinkley 1997, §3.8): as many as there are tasks are drawn anew.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyFigures {
    /// Share of replies with a word of a right answer.
    pub quality: Option<Figure>,
    /// Tokens read and written.
    pub cost_tokens: Option<Figure>,
    /// Share of replies without a word that is out of scope.
    pub scope_compliance: Option<Figure>,
    /// Interventions per conversation.
    pub interventions: f64,
}

/// The effect of enforcing, on one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    /// The model, as it was named.
    pub model: String,
    /// Conversations per policy.
    pub n: usize,
    /// Tasks that they are on.
    pub tasks: usize,
    /// Observing.
    pub observe: PolicyFigures,
    /// Enforcing.
    pub enforce: PolicyFigures,
    /// Enforcing less observing, conversation by conversation.
    pub difference: PolicyFigures,
}

/// Why the effect cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// A run could not be played.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A file cannot be written or read.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A transcript cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Plays all tasks `rollouts` times under each policy, with transcripts in `output`, which must be new. `None` for a model
/// is the script that each task has: a right answer and an evasion, drawn by the seed.
///
/// # Errors
/// See [`EffectError`].
pub async fn effect(
    model: Option<&ModelChain>,
    rollouts: usize,
    output: &Path,
    options: &OpenOptions,
    mut told: impl FnMut(usize),
) -> Result<Effect, EffectError> {
    let (mut observe, mut enforce) = (Vec::new(), Vec::new());
    for (number, task) in tasks().iter().enumerate() {
        let mut both = [Vec::new(), Vec::new()];
        for (outcomes, policy) in both.iter_mut().zip([RegulatorPolicy::Observe, RegulatorPolicy::Enforce]) {
            let folder = output.join(match policy {
                RegulatorPolicy::Observe => "observe",
                RegulatorPolicy::Enforce => "enforce",
            });
            let run = folder.join(format!("{number:02}"));
            let persona = match model {
                Some(model) => model.clone(),
                None => ModelSpec::Scripted(script(task, &run.with_extension("script.json"))?).into(),
            };
            play(task, persona, policy, (number as u64, rollouts), &run, options).await?;
            for rollout in 0..rollouts {
                let transcript = read_transcript(&run.join(format!("rollout_{rollout:03}.json")))?;
                outcomes.push(Outcome::of(task, &transcript));
            }
        }
        let [observed, enforced] = both;
        observe.push(Outcome::mean(&observed));
        enforce.push(Outcome::mean(&enforced));
        told(number + 1);
    }
    let difference: Vec<Outcome> = observe.iter().zip(&enforce).map(|(before, after)| after.less(before)).collect();
    let name = model.map_or_else(|| "scripted".to_owned(), ToString::to_string);
    Ok(Effect {
        model: name,
        n: observe.len() * rollouts,
        tasks: observe.len(),
        observe: figures(&observe),
        enforce: figures(&enforce),
        difference: figures(&difference),
    })
}

/// What came of one conversation, in numbers; or of all conversations of a task, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Outcome {
    quality: f64,
    cost: f64,
    compliance: f64,
    interventions: f64,
}

impl Outcome {
    fn of(task: &Task, transcript: &Transcript) -> Self {
        let replies = transcript.turns.iter().map(|turn| &turn.persona);
        let said: Vec<String> = replies.clone().flat_map(|reply| words(&reply.content)).collect();
        let holds = |any: &[String]| any.iter().any(|word| said.contains(word));
        let totals = transcript.totals.persona;
        Self {
            quality: f64::from(holds(&task.expected)),
            cost: (totals.tokens_in + totals.tokens_out) as f64,
            compliance: f64::from(!holds(&task.avoided)),
            interventions: replies.map(|reply| reply.interventions.len()).sum::<usize>() as f64,
        }
    }

    fn mean(of: &[Self]) -> Self {
        let mean = |value: fn(&Self) -> f64| of.iter().map(value).sum::<f64>() / of.len().max(1) as f64;
        Self {
            quality: mean(|outcome| outcome.quality),
            cost: mean(|outcome| outcome.cost),
            compliance: mean(|outcome| outcome.compliance),
            interventions: mean(|outcome| outcome.interventions),
        }
    }

    fn less(&self, other: &Self) -> Self {
        Self {
            quality: self.quality - other.quality,
            cost: self.cost - other.cost,
            compliance: self.compliance - other.compliance,
            interventions: self.interventions - other.interventions,
        }
    }
}

/// Of one outcome per task, each of as many conversations.
fn figures(outcomes: &[Outcome]) -> PolicyFigures {
    let stream = Stream::root(0).child("effect", 0);
    let figure = |of: fn(&Outcome) -> f64| {
        let values: Vec<f64> = outcomes.iter().map(of).collect();
        Some(Figure { value: mean(&values)?, interval: bootstrap_mean(&values, RESAMPLES, &stream) })
    };
    PolicyFigures {
        quality: figure(|outcome| outcome.quality),
        cost_tokens: figure(|outcome| outcome.cost),
        scope_compliance: figure(|outcome| outcome.compliance),
        interventions: figure(|outcome| outcome.interventions).map_or(0.0, |figure| figure.value),
    }
}

async fn play(
    task: &Task,
    persona: ModelChain,
    policy: RegulatorPolicy,
    (seed, rollouts): (u64, usize),
    folder: &Path,
    options: &OpenOptions,
) -> Result<(), EffectError> {
    let yaml = config(task);
    let config = parse("facts.yaml", &yaml).map_err(RunError::Config)?;
    let plan = RunPlan {
        config: Arc::new(config),
        yaml,
        seed,
        rollouts,
        turns: 1,
        adversary: AdversaryKind::None,
        adversary_script: None,
        persona,
        interlocutor: ModelSpec::Echo.into(),
        judge: ModelSpec::Echo.into(),
        regulator: Regulation { policy, ..Regulation::default() },
        calibration: None,
    };
    let observer: Observer = Arc::new(|_| {});
    Run::create(&plan, folder, options)?.play(rollouts, &observer, &StopFlag::default()).await?;
    Ok(())
}

/// The persona of a task, which is asked before it speaks.
fn config(task: &Task) -> String {
    // JSON's texts are YAML's.
    let text = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "schema_version: \"0.1.0\"\n\
         persona: {{identity: {{name: Ann, background: {facts}}}}}\n\
         trajectory:\n  mode: fixed_length\n  expected_turns: 1\n  dimensions:\n    openness:\n      \
         description: How much she tells\n      curve: linear\n      start_value: 0.5\n      end_value: 0.5\n\
         interaction:\n  opening: {asked}\n  stagnation_detection: {{enabled: false}}\n  \
         repetition_detection: {{enabled: false}}\n",
        facts = text(&task.facts),
        asked = text(&task.asked),
    )
}

/// A script with a right answer and an evasion; the seed draws.
fn script(task: &Task, path: &Path) -> Result<PathBuf, EffectError> {
    let at = |source| EffectError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(at)?;
    }
    let json = serde_json::json!([[task.facts, "I would rather talk about something else."]]);
    let at = |source| EffectError::Io { path: path.to_owned(), source };
    std::fs::write(path, json.to_string()).map_err(at)?;
    Ok(path.to_owned())
}

fn tasks() -> Vec<Task> {
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    let task = |line: &str| {
        let mut columns = line.split('\t').map(str::trim);
        Some(Task {
            facts: columns.next()?.to_owned(),
            asked: columns.next()?.to_owned(),
            expected: list(columns.next()?),
            avoided: list(columns.next()?),
        })
    };
    TASKS.lines().filter(|line| !line.starts_with('#')).filter_map(task).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_fifty_sound_tasks() {
        let tasks = tasks();
        assert_eq!(tasks.len(), 50);
        for task in &tasks {
            assert!(parse("facts.yaml", &config(task)).is_ok(), "{}", config(task));
            let facts = words(&task.facts);
            assert!(task.expected.iter().any(|word| facts.contains(word)), "{}", task.facts);
            assert!(!task.avoided.iter().any(|word| facts.contains(word)), "{}", task.facts);
        }
    }

    #[test]
    fn more_conversations_of_a_task_that_are_all_alike_narrow_no_interval() {
        let outcome = |at: u32| Outcome { quality: f64::from(at % 2), cost: 1.0, compliance: 1.0, interventions: 0.0 };
        let once: Vec<_> = (0..50).map(outcome).collect();
        let often: Vec<_> = (0..50).map(|task| Outcome::mean(&[outcome(task); 8])).collect();
        assert_eq!(figures(&once), figures(&often));
        let interval = figures(&once).quality.unwrap().interval.unwrap();
        assert!(interval.high - interval.low > 0.2, "{interval:?}");
    }

    #[test]
    fn scripts_without_log_probabilities_give_enforcement_nothing_to_act_on() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let output = folder.path().join("effect");
        let effect = runtime.block_on(effect(None, 2, &output, &OpenOptions::default(), |_| {})).unwrap();
        assert_eq!((effect.n, effect.observe, effect.difference.interventions), (100, effect.enforce.clone(), 0.0));
        let quality = effect.enforce.quality.unwrap().value;
        assert!((0.3..0.7).contains(&quality), "the seed draws both answers: {quality}");
    }
}
