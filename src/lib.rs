//! Loom runs persona simulations on local models, monitors them token by token, and measures whether the persona held.
//!
//! From a persona's YAML to a report, with the model that is built into the crate:
//!
//! ```
//! # #[cfg(feature = "inference")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use loom_agent::{Observer, OpenOptions, Report, Run, RunPlan, StopFlag, TranscriptScorer, transcripts};
//! # let folder = tempfile::tempdir()?;
//! # let output = folder.path().join("results");
//!
//! // Plan: everything that is not set comes from the YAML; models default to the bundled one.
//! let plan = RunPlan::from_file("configs/personas/mania_patient.yaml")?.seed(7).turns(2).build()?;
//!
//! // Run: each turn is durable before the next one begins; `Run::resume` continues an interrupted run.
//! let options = OpenOptions::default();
//! let run = Run::create(&plan, &output, &options)?;
//! let observer: Observer = Arc::new(|progress| println!("{progress:?}"));
//! run.execute(1, &observer, &StopFlag::default()).await?;
//!
//! // Score: statistics of the text and likelihoods by the persona's own model; set `judge` for judged scores too.
//! let scorer = TranscriptScorer::new(options);
//! for transcript in transcripts(run.path())? {
//!     scorer.score(&transcript).await?;
//! }
//!
//! // Report: a verdict with its evidence, as data, Markdown or HTML.
//! let report = Report::on(run.path())?;
//! println!("{}", report.markdown(None)?);
//! # assert_eq!(report.rollouts.len(), 1);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "inference"))]
//! # fn main() {}
//! ```
//!
//! More in `examples/`: from YAML to report with a judge, log-probabilities of a local model, gains on a Mamba's Δ, and
//! the regulator with any other agent.
//!
//! # Layers
//!
//! A module imports only modules of lower layers; `tests/it/layers.rs` checks it:
//!
//! | Layer | Module | Contents |
//! |---|---|---|
//! | 0 | `loom_kernels` | numeric kernels on slices |
//! | 1 | [`foundation`] | types shared by all layers, configuration, storage, random streams |
//! | 2 | [`inference`], [`governance`] | model execution; regulator, statecharts, moods, memory |
//! | 3 | [`simulation`] | personas, rollouts, scores, reports |
//! | 4 | [`studies`] | confidence benchmark, Δ studies, sweeps, import and export |
//! | 5 | `app` | the program `loom`; not public API |
//!
//! # Features
//!
//! | Feature | Adds |
//! |---|---|
//! | none | [`foundation`] and [`governance`]: a small library for any Rust agent, without candle, tokio or network |
//! | `inference` | [`inference`], [`simulation`] and [`studies`] |
//! | `app` (default) | the program: command line, server, MCP, sessions |
//! | `cuda` | local models on NVIDIA GPUs |

pub mod foundation;
pub mod governance;

#[cfg(feature = "app")]
#[doc(hidden)]
pub mod app;
#[cfg(feature = "inference")]
pub mod inference;
#[cfg(feature = "inference")]
pub mod simulation;
#[cfg(feature = "inference")]
pub mod studies;

pub use foundation::base::RngStream;
pub use foundation::chat::{
    Completion, Continuation, DeltaGains, Embedder, Flow, LanguageModel, LayerGains, Message, ModelChain, ModelError,
    ModelSpec, Prompt, Request, Sampling, Scored, Snapshot, TokenLogprob, TokenSink,
};
pub use governance::regulator::Regulator;
#[cfg(feature = "inference")]
pub use inference::engine::{EngineOptions, LocalModel};
#[cfg(feature = "inference")]
pub use inference::providers::{OpenOptions, open};
#[cfg(feature = "inference")]
pub use simulation::judge::judged::Judge;
#[cfg(feature = "inference")]
pub use simulation::judge::scoring::{TranscriptScorer, transcripts};
#[cfg(feature = "inference")]
pub use simulation::persona::PersonaConfig;
#[cfg(feature = "inference")]
pub use simulation::report::Report;
#[cfg(feature = "inference")]
pub use simulation::rollout::{
    Observer, PlanError, Progress, RolloutSummary, Run, RunError, RunPlan, RunPlanBuilder, StopFlag, Transcript,
    read_transcript,
};
