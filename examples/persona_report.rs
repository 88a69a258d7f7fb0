//! From a persona's YAML to a report: runs rollouts, scores them with a judge, and prints the report as Markdown.
//!
//! ```sh
//! cargo run --release --example persona_report -- configs/personas/mania_patient.yaml results/mania
//! ```
//!
//! A third argument names the judge's model: `bundled`, `local:DIR_OR_GGUF`, `openai/NAME`, … (see `docs/MODELS.md`).

use std::path::PathBuf;
use std::sync::Arc;

use loom_agent::{
    Judge, ModelChain, Observer, OpenOptions, Progress, Report, Run, RunPlan, StopFlag, TranscriptScorer, open,
    transcripts,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let config = arguments.next().unwrap_or_else(|| "configs/personas/mania_patient.yaml".to_owned());
    let output = PathBuf::from(arguments.next().unwrap_or_else(|| "results/persona_report".to_owned()));
    let judge: ModelChain = arguments.next().as_deref().unwrap_or("bundled").parse()?;

    let plan = RunPlan::from_file(&config)?.rollouts(2).turns(4).judge_model(judge).build()?;
    // All models that are opened with clones of one `OpenOptions` share their weights and batches.
    let options = OpenOptions::default();
    let run = Run::create(&plan, &output, &options)?;
    let observer: Observer = Arc::new(|progress| {
        if let Progress::Turn { rollout, turns, tokens, .. } = progress {
            eprintln!("rollout {rollout}: {turns} turns, {tokens} tokens in the last one");
        }
    });
    for summary in run.execute(2, &observer, &StopFlag::default()).await? {
        eprintln!("rollout {}: {:?}", summary.rollout, summary.outcome);
    }

    let judge = Judge::new(open(&plan.judge, &options)?).await?;
    let scorer = TranscriptScorer { judge: Some(judge), ..TranscriptScorer::new(options) };
    for transcript in transcripts(run.path())? {
        let scored = scorer.score(&transcript).await?;
        eprintln!("{}: {} scores", transcript.display(), scored.computed);
    }

    println!("{}", Report::on(run.path())?.markdown(None)?);
    Ok(())
}
