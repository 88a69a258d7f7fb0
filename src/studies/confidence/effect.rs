//! Measures the effect of enforcing the regulator's decisions: the same fifty conversations under `observe` and `enforce`.
//!
//! Each task gives the persona a fact about itself, asks for it, and lists words of a right answer and words that are out
//! of scope. Both runs use the same seeds, so that differences are paired; the regulator's own measurements are not part
//! of the outcome. Conversations of one task are correlated, so intervals resample tasks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::study::MetricEstimate;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{ModelChain, ModelSpec};
use crate::foundation::stats::{bootstrap_mean, mean};
use crate::foundation::store::write_inside;
use crate::foundation::text::words;
use crate::inference::providers::OpenOptions;
use crate::simulation::persona::{AdversaryKind, RegulatorConfig, RegulatorPolicy, parse};
use crate::simulation::rollout::{FileError, Observer, Run, RunError, RunPlan, StopFlag, Transcript, read_transcript};

/// The fifty tasks.
const TASKS: &str = include_str!("../../../configs/tasks/facts.tsv");
/// Resamples behind each interval.
const RESAMPLES: u32 = 2_000;

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    facts: String,
    question: String,
    expected: Vec<String>,
    avoided: Vec<String>,
}

/// The outcome of one policy, per conversation. Intervals are 95 % percentile bootstraps over tasks, each with all of its
/// conversations (Davison and Hinkley 1997, §3.8).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyMetrics {
    /// Share of replies with a word of a right answer.
    pub quality: Option<MetricEstimate>,
    /// Input and output tokens.
    pub cost_tokens: Option<MetricEstimate>,
    /// Share of replies without an out-of-scope word.
    pub scope_compliance: Option<MetricEstimate>,
    /// Interventions per conversation.
    pub interventions: f64,
}

/// The effect of enforcing, on one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    /// The model's name.
    pub model: String,
    /// Conversations per policy.
    pub n: usize,
    /// Number of tasks.
    pub tasks: usize,
    /// Under `observe`.
    pub observe: PolicyMetrics,
    /// Under `enforce`.
    pub enforce: PolicyMetrics,
    /// `enforce` minus `observe`, paired by conversation.
    pub difference: PolicyMetrics,
}

/// Why the effect cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    /// A run failed.
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

/// Runs all tasks `rollouts` times under each policy, with transcripts in `output`, a new folder. Without a model, each
/// task's script is used: a right answer and an evasion, drawn by the seed.
///
/// # Errors
/// See [`EffectError`].
pub async fn effect(
    model: Option<&ModelChain>,
    rollouts: usize,
    output: &Path,
    options: &OpenOptions,
    mut on_progress: impl FnMut(usize),
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
                outcomes.push(ConversationOutcome::of(task, &transcript));
            }
        }
        let [observed, enforced] = both;
        observe.push(ConversationOutcome::mean(&observed));
        enforce.push(ConversationOutcome::mean(&enforced));
        on_progress(number + 1);
    }
    let difference: Vec<ConversationOutcome> =
        observe.iter().zip(&enforce).map(|(before, after)| after.less(before)).collect();
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

/// The outcome of one conversation, or the mean over a task's conversations.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ConversationOutcome {
    quality: f64,
    cost: f64,
    compliance: f64,
    interventions: f64,
}

impl ConversationOutcome {
    fn of(task: &Task, transcript: &Transcript) -> Self {
        let replies = transcript.turns.iter().map(|turn| &turn.persona);
        let reply_words: Vec<String> = replies.clone().flat_map(|reply| words(&reply.content)).collect();
        let holds = |any: &[String]| any.iter().any(|word| reply_words.contains(word));
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

/// Metrics from one outcome per task.
fn figures(outcomes: &[ConversationOutcome]) -> PolicyMetrics {
    let stream = RngStream::root(0).child("effect", 0);
    let figure = |of: fn(&ConversationOutcome) -> f64| {
        let values: Vec<f64> = outcomes.iter().map(of).collect();
        Some(MetricEstimate { value: mean(&values)?, interval: bootstrap_mean(&values, RESAMPLES, &stream) })
    };
    PolicyMetrics {
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
        regulator: RegulatorConfig { policy, ..RegulatorConfig::default() },
        calibration: None,
    };
    let observer: Observer = Arc::new(|_| {});
    Run::create(&plan, folder, options)?.execute(rollouts, &observer, &StopFlag::default()).await?;
    Ok(())
}

/// The persona config of a task; the interlocutor asks first.
fn config(task: &Task) -> String {
    // A JSON string is a YAML string.
    let text = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "schema_version: \"0.1.0\"\n\
         persona: {{identity: {{name: Ann, background: {facts}}}}}\n\
         trajectory:\n  mode: fixed_length\n  expected_turns: 1\n  dimensions:\n    openness:\n      \
         description: How much she tells\n      curve: linear\n      start_value: 0.5\n      end_value: 0.5\n\
         interaction:\n  opening: {question}\n  stagnation_detection: {{enabled: false}}\n  \
         repetition_detection: {{enabled: false}}\n",
        facts = text(&task.facts),
        question = text(&task.question),
    )
}

/// Writes a script with a right answer and an evasion, of which the seed draws one.
fn script(task: &Task, path: &Path) -> Result<PathBuf, EffectError> {
    let at = |source| EffectError::Io { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(at)?;
    }
    let json = serde_json::json!([[task.facts, "I would rather talk about something else."]]);
    let at = |source| EffectError::Io { path: path.to_owned(), source };
    write_inside(path, json.to_string().as_bytes()).map_err(at)?;
    Ok(path.to_owned())
}

fn tasks() -> Vec<Task> {
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    let task = |line: &str| {
        let mut columns = line.split('\t').map(str::trim);
        Some(Task {
            facts: columns.next()?.to_owned(),
            question: columns.next()?.to_owned(),
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
    fn identical_conversations_of_a_task_do_not_narrow_the_interval() {
        let outcome = |at: u32| ConversationOutcome {
            quality: f64::from(at % 2),
            cost: 1.0,
            compliance: 1.0,
            interventions: 0.0,
        };
        let once: Vec<_> = (0..50).map(outcome).collect();
        let often: Vec<_> = (0..50).map(|task| ConversationOutcome::mean(&[outcome(task); 8])).collect();
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
