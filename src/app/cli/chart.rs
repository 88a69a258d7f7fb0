//! `loom chart`: shows and checks statecharts.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};

use super::input::read_text_limited;
use super::{Exit, Failure, Terminal};
use crate::foundation::base::limits;
use crate::governance::statechart::Chart;
use crate::governance::statechart::hope::{self, HopeVocabulary};

/// Show statecharts as diagrams, or check them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a chart as a diagram
    #[command(after_help = "\
Examples:
  loom chart show  the lifecycle of a piece of work, for Mermaid
  loom chart show --format svg > hope.svg
  loom chart show --format dot | dot -Tpng > hope.png
  loom chart show my.chart --format text

Graphviz draws the dot format as PNG or PDF.")]
    Show {
        /// A chart file; `hope` is the built-in chart
        #[arg(default_value = "hope", value_name = "CHART")]
        chart: PathBuf,
        /// The diagram's language
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Check charts; every problem is shown with its line and a fix
    #[command(after_help = "\
A chart is valid if it uses only loom's events, guards and actions (`loom chart show --format text` \
shows them all), every state is reachable, every handled event has an unconditional fallback, and \
every cycle is limited by a counter.

Exit codes: 0 all are valid, 3 one is not.")]
    Check {
        /// The charts to check
        #[arg(required = true, value_name = "FILE")]
        charts: Vec<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// A Mermaid flowchart
    #[default]
    Mermaid,
    /// Graphviz
    Dot,
    /// SVG, drawn without another program
    Svg,
    /// The chart itself
    Text,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.command {
            Command::Show { chart, format } => {
                let text = text_of(chart)?;
                let read = Chart::<HopeVocabulary>::load(&chart.display().to_string(), &text)?;
                let shown = match format {
                    Format::Mermaid => read.to_mermaid(),
                    Format::Dot => read.to_dot(),
                    Format::Svg => read.to_svg(),
                    Format::Text => text,
                };
                write!(terminal.out, "{shown}")?;
                Ok(Exit::Ok)
            }
            Command::Check { charts } => check(charts, terminal),
        }
    }
}

fn check(charts: &[PathBuf], terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut exit = Exit::Ok;
    for path in charts {
        let name = path.display().to_string();
        match Chart::<HopeVocabulary>::load(&name, &text_of(path)?) {
            Ok(chart) => {
                let (states, transitions) = (chart.states().count(), chart.transitions().count());
                let counters = chart.counters().len();
                writeln!(terminal.out, "{name}: ok, {states} states, {transitions} transitions, {counters} counters")?;
            }
            Err(errors) => {
                exit = Exit::BadConfig;
                terminal.out.flush()?;
                terminal.show_problems(&errors)?;
            }
        }
    }
    Ok(exit)
}

/// The text of a chart: the built-in one, or a file's.
fn text_of(path: &Path) -> Result<String, Failure> {
    if path == Path::new("hope") {
        return Ok(hope::TEXT.to_owned());
    }
    read_text_limited(path, limits::CONFIG_BYTES_MAX)
}
