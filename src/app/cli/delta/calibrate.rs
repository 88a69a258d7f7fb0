//! `loom delta calibrate`.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use super::super::device::DeviceArg;
use super::super::output::require_writable_path;
use super::super::{Exit, Failure, Terminal};
use crate::foundation::chat::ModelChain;
use crate::foundation::store::write_atomic;
use crate::governance::mood::Mood;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;
use crate::studies::delta::{FitPlan, Gain, calibrate, passages};

/// Fit one gain per layer to a text, and test whether it helps on held-out text
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom delta calibrate --text book.txt --output delta.yaml
  loom delta calibrate --text rollout_000.json --gain g_decay --output delta.yaml

A persona config refers to the file (`delta: {policy: fixed, file: delta.yaml}`). Every second passage is held out.")]
pub(super) struct Args {
    /// A text file, a transcript (.json), or `recall`; may be repeated
    #[arg(long = "text", value_name = "FILE", required = true)]
    texts: Vec<String>,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Also write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The model
    #[arg(long, short, value_name = "MODEL", default_value = "bundled")]
    model: ModelChain,
    /// The gain to fit
    #[arg(long, value_name = "NAME", default_value = "g_delta")]
    gain: Gain,
    /// Most rounds over the layers
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = super::super::at_least_one)]
    rounds: usize,
    /// Longest passage, tokens
    #[arg(long, value_name = "N", default_value_t = 224, value_parser = super::super::at_least_one)]
    length: usize,
    /// Most passages taken from one text
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = super::super::at_least_one)]
    passages: usize,
    /// Threads; default: all cores
    #[arg(long, value_name = "N", value_parser = super::super::at_least_one)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceArg,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        require_writable_path([&self.output].into_iter().chain(&self.json))?;
        let gate = Authorizer::for_models("delta calibrate", Mood::Skeptical, &[&self.model], None)?;
        let options =
            OpenOptions::new(self.threads, None).with_device(Some(self.device.decide(terminal)?)).naming(&self.model);
        let model = gate.open_model(&self.model, &options)?;
        let texts = passages(&*model, &self.texts, self.length, self.passages)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let watched = std::io::stderr().is_terminal();
        let plan = FitPlan { gain: self.gain, rounds: self.rounds };
        let fit = runtime.block_on(calibrate(&model, plan, &texts, |round, nll| {
            if watched {
                // Ignore errors while showing progress.
                let _shown = writeln!(terminal.err, "round {round}: {nll:.4} nats per token");
            }
        }))?;
        let write = |path: &PathBuf, text: String| {
            write_atomic(path, text.as_bytes()).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
        };
        write(&self.output, fit.file(model.info()).yaml())?;
        if let Some(path) = &self.json {
            let json = serde_json::to_string_pretty(&fit).map_err(|error| Failure::usage(error.to_string()))?;
            write(path, json + "\n")?;
        }
        writeln!(terminal.out, "{} settings evaluated in {} rounds\n", fit.tried, fit.rounds)?;
        writeln!(
            terminal.out,
            "| | Passages | Tokens | NLL before | NLL after | Difference, nats/token |\n|---|---|---|---|---|---|"
        )?;
        for (name, c) in [("fitted on", &fit.train), ("held out", &fit.held_out)] {
            let around = c.interval.map_or_else(String::new, |i| format!(" ({:+.4} to {:+.4})", i.low, i.high));
            let difference = c.nll_after - c.nll_before;
            writeln!(
                terminal.out,
                "| {name} | {} | {} | {:.4} | {:.4} | {difference:+.4}{around} |",
                c.passages, c.tokens, c.nll_before, c.nll_after
            )?;
        }
        let verdict = if fit.helps() {
            "The gains help on held-out text."
        } else {
            "The gains do not help on held-out text: use the model without them."
        };
        writeln!(terminal.out, "\n{verdict}\nWritten: {}", self.output.display())?;
        Ok(Exit::Ok)
    }
}
