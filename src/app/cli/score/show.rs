//! What scoring tells: a bar while it goes on, what was taken of a file, and which reports are older than that.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::app::cli::terminal::quoted;
use crate::app::cli::{Failure, Terminal};
use crate::simulation::judge::scoring::Scored;

/// How often the bar shows that it is alive: a judge can be at one file for an hour.
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

/// Says which reports that are there tell nothing of the scores that were taken in `folders` just now.
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

pub(super) fn tell(terminal: &mut Terminal, scored: &Scored) -> Result<(), Failure> {
    let path = scored.path.display();
    if scored.taken == 0 {
        writeln!(terminal.out, "{path}  scored already")?;
        return Ok(());
    }
    write!(terminal.out, "{path}  {} scores", scored.taken)?;
    if scored.kept_in != scored.path {
        write!(terminal.out, " in {}", scored.kept_in.display())?;
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
