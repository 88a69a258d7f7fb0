//! The output of scoring: a progress bar, a line per file, and a note on outdated reports.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::app::cli::terminal::quoted;
use crate::app::cli::{Failure, Terminal};
use crate::simulation::judge::scoring::ScoredFile;

/// Refresh interval of the bar: one file can take an hour.
const TICK: Duration = Duration::from_secs(1);

/// A bar over `files`, on a terminal only.
pub(super) fn bar(files: usize) -> ProgressBar {
    let terminal = std::io::stderr().is_terminal();
    let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(files as u64), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} files scored  {elapsed} so far") {
        bar.set_style(style);
    }
    if terminal {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// Prints which reports do not include the new scores in `folders`.
pub(super) fn outdated(terminal: &mut Terminal, folders: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    let mut sweeps = BTreeSet::new();
    for folder in folders {
        if folder.join("report.json").is_file() {
            let folder = quoted(folder);
            writeln!(terminal.out, "The report in {folder} is older than these scores: loom report {folder}")?;
        }
        sweeps.extend(folder.parent().filter(|sweep| sweep.join("sweep_report.json").is_file()));
    }
    for sweep in sweeps {
        let sweep = quoted(sweep);
        writeln!(terminal.out, "The sweep's report is older than these scores: loom merge {sweep} --output {sweep}")?;
    }
    Ok(())
}

pub(super) fn print(terminal: &mut Terminal, scored: &ScoredFile) -> Result<(), Failure> {
    let path = scored.path.display();
    if scored.computed == 0 {
        writeln!(terminal.out, "{path}  already scored")?;
        return Ok(());
    }
    write!(terminal.out, "{path}  {} scores", scored.computed)?;
    if scored.scores_path != scored.path {
        write!(terminal.out, " in {}", scored.scores_path.display())?;
    }
    let share = |seconds: f64| {
        let share = (scored.rollout_seconds > 0.0)
            .then(|| format!(", {:.0} % of the rollout's own time", 100.0 * seconds / scored.rollout_seconds));
        format!("{seconds:.2} s{}", share.unwrap_or_default())
    };
    if scored.likelihood_seconds > 0.0 {
        write!(terminal.out, "; likelihoods {}", share(scored.likelihood_seconds))?;
    }
    if scored.variants_seconds > 0.0 {
        write!(terminal.out, "; variants {}", share(scored.variants_seconds))?;
    }
    if scored.judging_seconds > 0.0 {
        write!(terminal.out, "; judging {:.2} s", scored.judging_seconds)?;
    }
    writeln!(terminal.out)?;
    terminal.out.flush()?;
    Ok(())
}
