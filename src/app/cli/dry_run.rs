//! `loom dry-run`: the prompts of the persona's model, turn by turn, without opening a model.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serializer as _;

use super::output::OutputFormat;
use super::{Exit, Failure, Terminal};
use crate::simulation::persona::{
    self, AssembleError, Assembler, InjectionKind, PersonaConfig, PromptBudget, PromptSections, TrajectoryMode,
    TurnInput, TurnPlan,
};

/// Show the prompts of the persona's model at every turn, without opening a model
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom dry-run anna.yaml               every turn, and the prompt where it changes
  loom dry-run anna.yaml --turn 20     one turn and its full prompt
  loom dry-run anna.yaml --budget 112  the compact prompt for small models
  loom dry-run anna.yaml --format json | jq '.[].intensities'

There are no messages in a dry run: a phase with a trigger lasts until its `max_turns`, and no revelation is used.")]
pub(super) struct Args {
    /// The persona's config
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Number of turns of the run [default: the config's `expected_turns`]
    #[arg(long, value_name = "N")]
    turns: Option<usize>,
    /// Show only this turn, counted from 0
    #[arg(long, value_name = "K")]
    turn: Option<usize>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
    /// Show the compact prompt for this token budget (estimated as three bytes per token)
    #[arg(long, value_name = "TOKENS")]
    budget: Option<usize>,
}

/// Bytes of English per token, without a tokenizer: fewer than most tokenizers need, as a conservative estimate.
const BYTES_PER_TOKEN: usize = 3;

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let config = Arc::new(persona::load(&self.config)?);
        let turns = self.turns(&config)?;
        let budget = self.budget.map(|tokens_max| PromptBudget {
            tokens_max,
            count: Arc::new(|text: &str| text.len().div_ceil(BYTES_PER_TOKEN)),
        });
        let assembler = Assembler::new(Arc::clone(&config), turns, budget).map_err(|error| failure(&error))?;
        let shown = match self.turn {
            None => 0..turns,
            Some(turn) if turn < turns => turn..turn + 1,
            Some(turn) => {
                let last = turns - 1;
                return Err(Failure::usage(format!("there is no turn {turn}: the run has turns 0 to {last}")));
            }
        };
        let plans = shown.map(|turn| assembler.plan(&TurnInput::new(turn, &[])));
        match self.format {
            OutputFormat::Json => {
                // One plan at a time: together they can be thousands of prompts.
                let mut json = serde_json::Serializer::pretty(&mut terminal.out);
                json.collect_seq(plans).map_err(std::io::Error::from)?;
                writeln!(terminal.out)?;
            }
            OutputFormat::Text => {
                let form =
                    self.budget.map_or_else(String::new, |tokens| format!(", compact prompt within {tokens} tokens"));
                let turns = if turns == 1 { "1 turn".to_owned() } else { format!("{turns} turns") };
                let mut page = PlanPrinter { color: terminal.color, width: terminal.width, out: &mut *terminal.out };
                page.heading(&format!("{}, {turns}{form}", config.persona.name))?;
                let plans: Vec<TurnPlan> = plans.map(|plan| self.shortened(plan)).collect();
                page.table(&plans)?;
                page.told(&assembler)?;
                page.revelations(&plans)?;
                page.prompts(&plans, self.turn.is_some())?;
            }
        }
        Ok(Exit::Ok)
    }

    /// The plan without the texts that are not shown.
    fn shortened(&self, plan: TurnPlan) -> TurnPlan {
        let first = plan.turn == 0 || self.turn.is_some();
        let shown = first || plan.injection == InjectionKind::Change;
        TurnPlan {
            opening: if first { plan.opening } else { String::new() },
            state: if first { plan.state } else { String::new() },
            message: plan.message.filter(|_| shown),
            sections: PromptSections::default(),
            prompt: String::new(),
            dropped: if first { plan.dropped } else { Vec::new() },
            ..plan
        }
    }

    fn turns(&self, config: &PersonaConfig) -> Result<usize, Failure> {
        let expected = match config.trajectory.mode {
            TrajectoryMode::FixedLength { turns } => Some(turns),
            TrajectoryMode::PhaseGated { turns } => turns,
            TrajectoryMode::OpenEnded => None,
        };
        self.turns.or(expected).ok_or_else(|| {
            Failure::usage("this config does not set the number of turns: add, for example, `--turns 20`")
        })
    }
}

fn failure(error: &AssembleError) -> Failure {
    let exit = match error {
        AssembleError::Turns(_) | AssembleError::Budget { .. } => Exit::Usage,
        AssembleError::Placeholder { .. } | AssembleError::TooLarge { .. } => Exit::BadConfig,
        AssembleError::Template(_) => Exit::Bug,
    };
    Failure::Message { message: error.to_string(), exit }
}

/// Prints plans as text.
struct PlanPrinter<'a> {
    out: &'a mut dyn Write,
    color: bool,
    width: usize,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";
/// The column `told` where the instruction names what is prescribed.
const TOLD_AS: &str = "as prescribed";
const BARS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

impl PlanPrinter<'_> {
    fn heading(&mut self, text: &str) -> Result<(), Failure> {
        let text = self.styled(BOLD, text);
        writeln!(self.out, "{text}\n")?;
        Ok(())
    }

    /// One row per turn: phase, a bar per dimension, and the kind of prompt.
    fn table(&mut self, plans: &[TurnPlan]) -> Result<(), Failure> {
        let Some(first) = plans.first() else { return Ok(()) };
        let phases = plans.iter().filter_map(|plan| plan.phase.as_deref());
        let phase_width = phases.map(width).max().map_or(0, |longest| longest.max("phase".len()).min(20));
        let phase_column =
            |text: &str| if phase_width == 0 { String::new() } else { format!("  {}", fitted(text, phase_width)) };
        // The columns of turn, phase and prompt are fixed; the dimensions share the rest.
        let used = 4 + if phase_width == 0 { 0 } else { phase_width + 2 } + 2 + "reminder".len() + 2 + TOLD_AS.len();
        let share = self.width.saturating_sub(used) / first.intensities.len().max(1);
        let column = share.saturating_sub(2).clamp(4, 24);

        let mut header = format!("turn{}", phase_column("phase"));
        for (name, _) in &first.intensities {
            header.extend(["  ", &fitted(name, column)]);
        }
        header.push_str("  given     told");
        let header = self.styled(DIM, &header);
        writeln!(self.out, "{header}")?;
        let mut phase_before = None;
        for plan in plans {
            let phase = plan.phase.as_deref().unwrap_or_default();
            // A phase is named in its first row.
            let name = if phase_before == Some(phase) { "" } else { phase };
            phase_before = Some(phase);
            write!(self.out, "{:>4}{}", plan.turn, phase_column(name))?;
            for (_, value) in &plan.intensities {
                write!(self.out, "  {value:.2}{}", bar(*value, column.saturating_sub(4)))?;
            }
            let given = match plan.injection {
                InjectionKind::Full => self.styled(BOLD, "full    "),
                InjectionKind::Reminder => "reminder".to_owned(),
                InjectionKind::Change => self.styled(BOLD, "change  "),
                InjectionKind::None => self.styled(DIM, "·       "),
            };
            let told = if plan.told == plan.prescribed() {
                self.styled(DIM, TOLD_AS)
            } else {
                let levels = plan.told.levels.iter().map(|told| told.level.name());
                plan.told.phase.as_deref().into_iter().chain(levels).collect::<Vec<_>>().join(" ")
            };
            writeln!(self.out, "  {given}  {told}")?;
        }
        writeln!(self.out)?;
        Ok(())
    }

    /// At which turns the model is told something else than prescribed, and what else works against itself.
    fn told(&mut self, assembler: &Assembler) -> Result<(), Failure> {
        let differing = assembler.differences().len();
        let turns = assembler.turns();
        let text = if differing == 0 {
            "At every turn the newest instruction names the prescribed phase and levels.".to_owned()
        } else {
            format!(
                "At {differing} of {turns} turns the newest instruction names another phase or level than prescribed."
            )
        };
        self.text(&text, "")?;
        for warning in assembler.warnings() {
            self.text(&format!("Warning: {warning}."), "")?;
        }
        writeln!(self.out)?;
        Ok(())
    }

    /// The turn in which each topic opens.
    fn revelations(&mut self, plans: &[TurnPlan]) -> Result<(), Failure> {
        let mut seen: Vec<&str> = Vec::new();
        let mut any = false;
        for plan in plans {
            let fresh: Vec<&str> =
                plan.revelations.iter().map(String::as_str).filter(|topic| !seen.contains(topic)).collect();
            if fresh.is_empty() {
                continue;
            }
            if !any {
                self.heading("Revelations, by the turn from which they are available")?;
                any = true;
            }
            writeln!(self.out, "{:>4}  {}", plan.turn, fresh.join(", "))?;
            seen.extend(fresh);
        }
        if any {
            writeln!(self.out)?;
        }
        Ok(())
    }

    /// The opening, and the instructions: those given at a change, or with `always` those of every turn.
    fn prompts(&mut self, plans: &[TurnPlan], always: bool) -> Result<(), Failure> {
        let Some(first) = plans.first() else { return Ok(()) };
        self.rule("the opening, given once")?;
        self.text(&first.opening, "")?;
        writeln!(self.out)?;
        if let Some(dropped) = first.dropped.first() {
            let count = first.dropped.len();
            let note = format!("left out: {count}, the first “{}” ({})", dropped.item, dropped.reason);
            self.text(&note, "")?;
            writeln!(self.out)?;
        }
        let mut before: Option<&str> = None;
        for plan in plans {
            let phase = plan.phase.as_ref().map_or_else(String::new, |phase| format!(", {phase}"));
            let (what, text) = match (&plan.message, plan.injection) {
                (Some(message), InjectionKind::Full) if plan.turn > 0 => ("the state, with the rules again", message),
                (Some(message), InjectionKind::Reminder) => ("the state, with the reminder", message),
                (Some(message), _) => ("the state", message),
                (None, _) if always => ("nothing is given; the state would be", &plan.state),
                (None, _) => continue,
            };
            // Scheduled repetitions between changes differ only in their numbers.
            if !always && plan.turn > 0 && plan.injection != InjectionKind::Change {
                continue;
            }
            self.rule(&format!("turn {}{phase}: {what}", plan.turn))?;
            self.text(text, before.unwrap_or_default())?;
            writeln!(self.out)?;
            before = Some(text);
        }
        Ok(())
    }

    /// Wrapped text; lines that are not in `old` are marked, if there is an old text.
    fn text(&mut self, text: &str, old: &str) -> Result<(), Failure> {
        for line in text.lines() {
            let is_new = !old.is_empty() && !line.trim().is_empty() && !old.lines().any(|other| other == line);
            let margin = if is_new { self.styled(GREEN, "▌ ") } else { "  ".to_owned() };
            let hang = if line.starts_with("- ") { "  " } else { "" };
            for (index, part) in wrapped(line, self.width.saturating_sub(4)).into_iter().enumerate() {
                let hang = if index == 0 { "" } else { hang };
                writeln!(self.out, "{}", format!("{margin}{hang}{part}").trim_end())?;
            }
        }
        Ok(())
    }

    fn rule(&mut self, what: &str) -> Result<(), Failure> {
        let title = format!("── {what} ");
        let rest = "─".repeat(self.width.saturating_sub(width(&title)));
        let line = self.styled(DIM, &format!("{title}{rest}"));
        writeln!(self.out, "{line}\n")?;
        Ok(())
    }

    fn styled(&self, style: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// A bar for a value in `[0, 1]`, with a blank before it, `columns` wide; blank if it does not fit.
fn bar(value: f64, columns: usize) -> String {
    let Some(cells) = columns.checked_sub(1).filter(|cells| *cells > 0) else { return " ".repeat(columns) };
    let eighths = (value.clamp(0.0, 1.0) * (cells * BARS.len()) as f64).round() as usize;
    let (whole, part) = (eighths / BARS.len(), eighths % BARS.len());
    let mut bar: String = " ".to_owned() + &"█".repeat(whole);
    bar.extend(part.checked_sub(1).and_then(|part| BARS.get(part)));
    fitted(&bar, columns)
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Cut or filled to `columns`.
fn fitted(text: &str, columns: usize) -> String {
    if width(text) > columns {
        text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
    } else {
        format!("{text:<columns$}")
    }
}

/// A line broken between words into parts of at most `columns`; a longer word is its own part.
fn wrapped(line: &str, columns: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in line.split(' ') {
        match parts.last_mut() {
            Some(part) if part.is_empty() => part.push_str(word),
            Some(part) if width(part) + 1 + width(word) <= columns => {
                part.push(' ');
                part.push_str(word);
            }
            _ => parts.push(word.to_owned()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_with_their_value() {
        let check = |value: f64, columns: usize, expected: &str| assert_eq!(bar(value, columns), expected);
        check(0.0, 5, "     ");
        check(0.5, 5, " ██  ");
        check(1.0, 5, " ████");
        check(0.28125, 5, " █▏  ");
        check(0.5, 1, " ");
        check(0.5, 0, "");
    }

    #[test]
    fn lines_break_between_words() {
        let check = |line: &str, columns: usize, expected: &[&str]| assert_eq!(wrapped(line, columns), expected);
        check("one two three", 7, &["one two", "three"]);
        check("extraordinary", 5, &["extraordinary"]);
        check("", 5, &[""]);
        check("Größe — über", 7, &["Größe —", "über"]);
    }

    #[test]
    fn columns_are_cut_or_filled() {
        assert_eq!(fitted("belief_intensity", 8), "belief_…");
        assert_eq!(fitted("ok", 4), "ok  ");
    }
}
