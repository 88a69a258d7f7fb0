//! `loom delta sweep`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget};

use super::super::device::DeviceArg;
use super::super::{Exit, Failure, Terminal};
use crate::foundation::chat::ModelChain;
use crate::governance::mood::Mood;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;
use crate::studies::delta::{LayerSelection, SweepPlan, SweepReport, TokenWindow, passages, sweep};

/// Score texts under many gains: likelihood, divergence, half-life and repetition, compared with the model without gains
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom delta sweep --output sweep  the bundled model on `recall`
  loom delta sweep --text book.txt --gain g_decay=0,0.5,2 --output sweep
  loom delta sweep plan.yaml --output sweep

PLAN is YAML with the keys model, texts, gains, layers, windows, length, passages, continuation and top; \
flags override it. \
After an interruption, the same command resumes. docs/DELTA.md describes the measurements.")]
pub(super) struct Args {
    /// The plan; the default is every gain from 0.5 to 2 on `recall`
    #[arg(value_name = "PLAN")]
    plan: Option<PathBuf>,
    /// The output folder; a sweep in it is resumed
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// The model
    #[arg(long, short, value_name = "MODEL")]
    model: Option<ModelChain>,
    /// A text file, a transcript (.json), or `recall`; may be repeated
    #[arg(long = "text", value_name = "FILE")]
    texts: Vec<String>,
    /// A gain and its values, such as `g_delta=0.5,2`; may be repeated
    #[arg(long = "gain", value_name = "NAME=X,…")]
    gains: Vec<String>,
    /// `all`, `early`, `late`, or numbers from 0 such as `0,2`; may be repeated
    #[arg(long, value_name = "LAYERS")]
    layers: Vec<LayerSelection>,
    /// `all`, or tokens FROM:TO such as `0:64` or `64:`; may be repeated
    #[arg(long = "window", value_name = "FROM:TO")]
    windows: Vec<TokenWindow>,
    /// Longest passage, tokens
    #[arg(long, value_name = "N", value_parser = super::super::at_least_one)]
    length: Option<usize>,
    /// Most passages taken from one text
    #[arg(long, value_name = "N", value_parser = super::super::at_least_one)]
    passages: Option<usize>,
    /// Tokens generated greedily after each passage
    #[arg(long, value_name = "N")]
    continuation: Option<usize>,
    /// Alternatives per token for the divergence
    #[arg(long, value_name = "N", value_parser = super::super::at_least_one)]
    top: Option<usize>,
    /// Threads; default: all cores
    #[arg(long, value_name = "N", value_parser = super::super::at_least_one)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceArg,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let plan = self.plan()?;
        let chain: ModelChain = plan.model.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        let gate = Authorizer::for_models("delta sweep", Mood::Bold, &[&chain], Some(&self.output))?;
        let options = OpenOptions::new(self.threads, None).with_device(Some(self.device.decide(terminal)?));
        let model = gate.open_model(&chain, &options)?;
        let texts = passages(&*model, &plan.texts, plan.length, plan.passages)?;
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(sweep(&model, &plan, &texts, &self.output, |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        }));
        bar.finish_and_clear();
        gate.close()?;
        let report = SweepReport::of(&done?);
        report.write_to(&self.output)?;
        let tokens = report.rows.first().map_or(0, |row| row.tokens);
        writeln!(
            terminal.out,
            "{} on {}: {} passages, {tokens} tokens\n",
            plan.model,
            plan.texts.join(", "),
            texts.len()
        )?;
        write!(terminal.out, "{}", report.table())?;
        writeln!(terminal.out, "\nWritten: {}", self.output.display())?;
        Ok(Exit::Ok)
    }

    /// The plan file, overridden by flags.
    fn plan(&self) -> Result<SweepPlan, Failure> {
        let file = self.plan.as_deref().map(SweepPlan::load).transpose()?.unwrap_or_default();
        let or = |given: &Vec<String>, file: Vec<String>| if given.is_empty() { file } else { given.clone() };
        Ok(SweepPlan {
            model: self.model.as_ref().map_or(file.model, ToString::to_string),
            texts: or(&self.texts, file.texts),
            gains: or(&self.gains, file.gains),
            layers: if self.layers.is_empty() { file.layers } else { self.layers.clone() },
            windows: if self.windows.is_empty() { file.windows } else { self.windows.clone() },
            length: self.length.unwrap_or(file.length),
            passages: self.passages.unwrap_or(file.passages),
            continuation: self.continuation.unwrap_or(file.continuation),
            top: self.top.or(file.top),
        })
    }
}
