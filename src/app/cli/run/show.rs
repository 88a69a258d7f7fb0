//! Prints a run's progress: a headline, a bar on a terminal or a few lines elsewhere, and a summary per rollout.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc::unbounded_channel;

use super::count;
use crate::app::cli::terminal::printable;
use crate::app::cli::{Exit, Failure, Terminal};
use crate::foundation::base::limits;
use crate::simulation::persona::AdversaryKind;
use crate::simulation::rollout::{Observer, Outcome, Progress, RolloutSummary, Run, RunError, StopFlag};

/// Number of progress lines without a terminal.
const PLAIN_LINES: u64 = 10;

/// Executes the run and prints its progress. Also returns whether it was interrupted.
pub(in crate::app::cli) async fn execute(
    run: &Run,
    parallel: usize,
    terminal: &mut Terminal,
) -> Result<(Result<Vec<RolloutSummary>, RunError>, bool), Failure> {
    let (sender, mut events) = unbounded_channel();
    let observer: Observer = Arc::new(move |progress| {
        // The receiver is dropped when the run is over.
        let _ = sender.send(progress);
    });
    let stop = StopFlag::default();
    let mut display = ProgressDisplay::new(run);
    let mut interrupted = false;
    let parallel = parallel.min(limits::ROLLOUTS_MAX);
    let execution = run.execute(parallel, &observer, &stop);
    // Created once, outside the loop, so that a signal during printing is not lost.
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(execution, interrupt);
    let result = loop {
        tokio::select! {
            biased;
            signal = &mut interrupt => {
                signal?;
                interrupt.set(tokio::signal::ctrl_c());
                if interrupted {
                    std::process::exit(Exit::Interrupted as i32);
                }
                interrupted = true;
                stop.request();
                display.line("Finishing the current turns; press Ctrl-C again to quit at once.", terminal)?;
            }
            Some(progress) = events.recv() => display.progress(&progress, terminal)?,
            result = &mut execution => break result,
        }
    };
    while let Ok(progress) = events.try_recv() {
        display.progress(&progress, terminal)?;
    }
    display.bar.finish_and_clear();
    Ok((result, interrupted))
}

/// A progress bar on a terminal, a few lines elsewhere.
struct ProgressDisplay {
    bar: ProgressBar,
    begun: Instant,
    total: u64,
    done: u64,
    printed: u64,
    tokens: u64,
}

impl ProgressDisplay {
    fn new(run: &Run) -> Self {
        let total = (run.manifest().rollouts * run.manifest().turns) as u64;
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} turns  {msg}  {eta} left") {
            bar.set_style(style);
        }
        Self { bar, begun: Instant::now(), total, done: 0, printed: 0, tokens: 0 }
    }

    fn progress(&mut self, progress: &Progress, terminal: &mut Terminal) -> Result<(), Failure> {
        match progress {
            Progress::Started { rollout, turns } if *turns > 0 => {
                self.done += *turns as u64;
                self.printed = self.done;
                self.bar.set_position(self.done);
                self.bar.reset_eta();
                self.line(&format!("rollout {rollout} resumes after turn {}", turns - 1), terminal)?;
            }
            Progress::Turn { tokens, .. } => {
                self.done += 1;
                self.tokens += tokens;
                self.bar.set_message(self.speed());
                self.bar.set_position(self.done);
                if self.bar.is_hidden() && (self.done - self.printed) * PLAIN_LINES >= self.total {
                    self.printed = self.done;
                    writeln!(terminal.err, "{}/{} turns  {}", self.done, self.total, self.speed())?;
                }
            }
            Progress::Notice { rollout, text } => self.line(&format!("rollout {rollout}: {text}"), terminal)?,
            Progress::Finished { rollout, outcome: Outcome::Stopped { reason, .. } } => {
                self.line(&format!("rollout {rollout} was stopped: {reason}"), terminal)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn speed(&self) -> String {
        format!("{:.0} tokens/s", self.tokens as f64 / self.begun.elapsed().as_secs_f64().max(1e-3))
    }

    fn line(&self, text: &str, terminal: &mut Terminal) -> Result<(), Failure> {
        let text = printable(text);
        self.bar.suspend(|| writeln!(terminal.err, "{text}"))?;
        Ok(())
    }
}

pub(in crate::app::cli) fn headline(run: &Run) -> String {
    let manifest = run.manifest();
    let (persona, other) = (&manifest.models.persona.spec, &manifest.models.interlocutor.spec);
    let who = match manifest.adversary {
        AdversaryKind::None => "a target",
        AdversaryKind::Contradiction => "a contradiction adversary",
        AdversaryKind::Helpfulness => "a helpfulness adversary",
        AdversaryKind::Both => "a contradiction and a helpfulness adversary",
    };
    format!(
        "{} ({persona}) talks with {who} ({other}): {}, {}{}, seed {}",
        manifest.config.name,
        count(manifest.rollouts, "rollout"),
        count(manifest.turns, "turn"),
        if manifest.rollouts == 1 { "" } else { " each" },
        manifest.seed
    )
}

pub(super) fn summary(terminal: &mut Terminal, folder: &Path, summaries: &[RolloutSummary]) -> Result<(), Failure> {
    for RolloutSummary { rollout, outcome, totals, .. } in summaries {
        let how = match outcome {
            Outcome::Complete => "complete",
            Outcome::Stopped { .. } => "stopped",
            Outcome::Unfinished => "unfinished",
        };
        let tokens = totals.persona.tokens_out + totals.interlocutor.tokens_out;
        let speed = totals.timing.tokens_per_second.map_or_else(String::new, |speed| format!(" at {speed:.0}/s"));
        write!(terminal.out, "rollout {rollout:03}  {how}: {}, {tokens} tokens{speed}", count(totals.turns, "turn"))?;
        for (number, what) in [
            (totals.monitor_events, "monitor event"),
            (totals.failures, "failure"),
            (totals.refusals, "refusal"),
            (totals.fallbacks, "fallback"),
        ] {
            if number > 0 {
                write!(terminal.out, ", {}", count(number, what))?;
            }
        }
        writeln!(terminal.out)?;
    }
    writeln!(terminal.out, "Transcripts: {}", folder.display())?;
    Ok(())
}
