//! `loom mood`: show, explain, replay and check moods.

mod follow;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;

use super::input::{read_bytes_limited, read_text_limited};
use super::{Exit, Failure, Terminal};
use crate::foundation::base::limits;
use crate::foundation::config::nearest;
use crate::foundation::store::receipts::{LOG, chain};
use crate::governance::mood::{
    GUARDS, Mood, MoodFact, MoodFacts, MoodProfiles, MoodState, SHIPPED_PROFILES, explain, lint, replay,
};

/// Show moods, explain a selection, follow a run, replay a log, check profiles, or check the form of a text
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the profile of a mood, or the rights of all moods
    Show {
        /// The mood: calm, curious, skeptical, paranoid, bold, contrite, petty, deferential
        #[arg(value_parser = mood)]
        mood: Option<Mood>,
    },
    /// Show which mood results from some facts, and by which guard
    #[command(after_help = "\
Examples:
  loom mood explain          list all facts
  loom mood explain failing  the initial mood after failures
  loom mood explain --in bold failing exposed  the mood after BOLD")]
    Explain {
        /// The present mood; without it, the initial mood is computed
        #[arg(long = "in", value_name = "MOOD", value_parser = mood)]
        mood: Option<Mood>,
        /// Facts that hold
        #[arg(value_name = "FACT", value_parser = fact)]
        facts: Vec<MoodFact>,
    },
    /// Replay the moods of a log and compare
    #[command(after_help = "Exit codes: 0 identical, 1 different.")]
    Replay {
        /// A log of receipts, or its folder
        log: PathBuf,
    },
    /// Check user profiles; every problem is shown with its line
    #[command(after_help = "\
A profile may only narrow the shipped one: `loom mood show MOOD` prints it.

Exit codes: 0 all are valid, 3 one is not.")]
    Check {
        /// The profiles to check
        #[arg(required = true, value_name = "FILE")]
        profiles: Vec<PathBuf>,
    },
    /// Follow the moods of another program's run: events in, moods, effects and rights out, with receipts
    #[command(after_help = "\
The events come on standard input, one JSON line each: \"verifiers_failed\", {\"crossing\": \"publish\"},
{\"changed\": {\"atom\": [DIGEST, \"retract\"]}}. Each is answered by one line. What is observed here is not sent: a
restart without a clean end, silence beyond --heartbeat, a question without an answer within --answer-within. A
preference then takes its default, an approval is denied.

`loom mood replay FOLDER` checks the receipts.

Exit codes: 0 ended, 1 an event was refused.")]
    Follow {
        /// The folder for the receipts
        folder: PathBuf,
        /// Seconds until a question to the user counts as unanswered
        #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = seconds)]
        answer_within: f64,
        /// Seconds of silence that count as a crash of the other program; never if not given
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        heartbeat: Option<f64>,
        /// Accept approvals from the other program, because it asks a person itself
        #[arg(long)]
        trust_approvals: bool,
    },
    /// Check the form of a text: stubs, copied passages, unfalsifiable claims, instructions to the reader
    #[command(after_help = "\
Examples:
  loom mood lint src/lib.rs                          placeholders for missing work
  loom mood lint tests/new.rs --before tests/old.rs  weakened tests
  loom mood lint report.md --source transcript.txt   copied passages
  my-agent | loom mood lint -                        instructions to the reader

A lint checks forms, not intentions: a clean result proves nothing.

Exit codes: 0 no finding, 1 at least one.")]
    Lint {
        /// The text; `-` is standard input
        text: PathBuf,
        /// The text as it was before the change
        #[arg(long, value_name = "FILE")]
        before: Option<PathBuf>,
        /// A text that must be cited rather than copied; can be repeated
        #[arg(long, value_name = "FILE")]
        source: Vec<PathBuf>,
    },
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    if (0.0..=1e6).contains(&seconds) { Ok(seconds) } else { Err("use 0 to 1000000".to_owned()) }
}

fn mood(name: &str) -> Result<Mood, String> {
    Mood::named(name).ok_or_else(|| unknown(name, Mood::ALL.iter().map(|mood| mood.name())))
}

fn fact(name: &str) -> Result<MoodFact, String> {
    let known = || MoodFact::ALL.iter().copied();
    known().find(|fact| fact.name() == name).ok_or_else(|| unknown(name, known().map(MoodFact::name)))
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.collect();
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("write one of: {}", known.join(", ")),
    }
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.command {
            Command::Show { mood } => show(*mood, terminal),
            Command::Explain { mood: None, facts } if facts.is_empty() => {
                for fact in MoodFact::ALL {
                    writeln!(terminal.out, "{:<14} {}", fact.name(), fact.meaning())?;
                }
                Ok(Exit::Ok)
            }
            Command::Explain { mood, facts } => explain_mood(*mood, MoodFacts::of(facts), terminal),
            Command::Replay { log } => replay_log(log, terminal),
            Command::Check { profiles } => check(profiles, terminal),
            Command::Follow { folder, answer_within, heartbeat, trust_approvals } => {
                let settings = follow::Settings {
                    folder,
                    answer_within: Duration::from_secs_f64(*answer_within),
                    heartbeat: heartbeat.map(Duration::from_secs_f64),
                    trust_approvals: *trust_approvals,
                };
                follow::follow(&settings, terminal)
            }
            Command::Lint { text, before, source } => lint_text(text, before.as_deref(), source, terminal),
        }
    }
}

fn show(mood: Option<Mood>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if let Some(mood) = mood {
        let text = SHIPPED_PROFILES.iter().find(|(named, _)| *named == mood).map_or("", |(_, text)| *text);
        write!(terminal.out, "{text}")?;
        return Ok(Exit::Ok);
    }
    for profile in MoodProfiles::shipped()?.iter() {
        let rights = profile.rights();
        writeln!(terminal.out, "{}  {}", profile.mood, profile.purpose)?;
        writeln!(terminal.out, "    uses {}", rights.uses)?;
        writeln!(terminal.out, "    reads {}", rights.reads)?;
        writeln!(terminal.out, "    writes {}", rights.writes)?;
        if !profile.with_token().is_empty() {
            writeln!(terminal.out, "    with a policy token {}", profile.with_token())?;
        }
    }
    Ok(Exit::Ok)
}

fn explain_mood(mood: Option<Mood>, facts: MoodFacts, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let Some(mood) = mood else {
        let entered = MoodState::enter(facts);
        let by = if entered.taken.is_empty() { "no guard applies".to_owned() } else { entered.taken.join(", then ") };
        writeln!(terminal.out, "{}  {by}", entered.state.mood())?;
        return Ok(Exit::Ok);
    };
    let (passed, found) = explain(mood, facts);
    let number = |name: &str| GUARDS.iter().position(|guard| guard.name == name).map_or(0, |at| at + 1);
    for guard in passed {
        let lacking: Vec<_> = guard.needs.without(facts).iter().map(|fact| format!("needs {}", fact.name())).collect();
        let hindering: Vec<_> = guard
            .lacks
            .iter()
            .filter(|fact| facts.holds(*fact))
            .map(|fact| format!("not with {}", fact.name()))
            .collect();
        let reason = [lacking, hindering].concat().join(", ");
        writeln!(terminal.out, "  {:>2} {:<22} does not hold: {reason}", number(guard.name), guard.name)?;
    }
    match found {
        None => writeln!(terminal.out, "{mood} stays: no guard holds")?,
        Some(guard) => {
            writeln!(terminal.out, "  {:>2} {:<22} holds (spec {})", number(guard.name), guard.name, guard.source)?;
            let settled = MoodState::within(mood, facts);
            let way = if settled.taken.is_empty() { "waiting".to_owned() } else { settled.taken.join(", then ") };
            writeln!(terminal.out, "{mood} becomes {}: {way}", settled.state.mood())?;
        }
    }
    Ok(Exit::Ok)
}

fn replay_log(log: &Path, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let path = if log.is_dir() { log.join(LOG) } else { log.to_owned() };
    let failure = |message: String| Failure::Message {
        message: format!("{}: {message}", path.display()),
        exit: Exit::CheckFailed,
    };
    let text = read_bytes_limited(&path, limits::RECEIPTS_BYTES_MAX)?;
    let (receipts, _) = chain(&text).map_err(|fault| failure(fault.to_string()))?;
    let entries = receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry));
    let steps = replay(entries).map_err(|error| failure(error.to_string()))?;
    if steps.is_empty() {
        return Err(failure("no mood is recorded in this log, so there is nothing to replay".to_owned()));
    }
    for step in steps.iter().filter(|step| !step.taken.is_empty()) {
        writeln!(terminal.out, "{:>6}  {:<12} {}", step.line, step.state.mood().to_string(), step.taken.join(", "))?;
    }
    let last = steps.last().map_or_else(|| "no mood".to_owned(), |step| step.state.mood().to_string());
    writeln!(terminal.out, "{} steps replayed, all as recorded; final mood {last}", steps.len())?;
    Ok(Exit::Ok)
}

fn check(files: &[PathBuf], terminal: &mut Terminal) -> Result<Exit, Failure> {
    let shipped = MoodProfiles::shipped()?;
    let mut exit = Exit::Ok;
    for path in files {
        let name = path.display().to_string();
        let text = text_of(path)?;
        match shipped.clone().narrowed(&name, &text) {
            Ok(_) => writeln!(terminal.out, "{name}: ok")?,
            Err(errors) => {
                exit = Exit::BadConfig;
                terminal.out.flush()?;
                terminal.show_problems(&errors)?;
            }
        }
    }
    Ok(exit)
}

fn lint_text(
    path: &Path,
    before: Option<&Path>,
    sources: &[PathBuf],
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let (text, before) = (text_of(path)?, before.map(text_of).transpose()?);
    let sources = sources.iter().map(|source| text_of(source)).collect::<Result<Vec<_>, _>>()?;
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let mut found: Vec<String> =
        lint::stubs(&text).into_iter().map(|stub| format!("line {}: {}", stub.line, stub.what)).collect();
    found.extend(lint::suspicions(&text).into_iter().map(|(kind, what)| format!("{kind:?}: {what}")));
    found.extend(lint::copied_passages(&text, &sources).into_iter().map(|copy| format!("copied: \"{}\"", copy.text)));
    if let Some(before) = before {
        let moved = |hack: lint::SuspiciousChange| {
            let (was, is) = hack.before_after;
            format!("{}: {was} before, {is} now", hack.what)
        };
        found.extend(lint::suspicious_changes(&before, &text).into_iter().map(moved));
    }
    for line in &found {
        writeln!(terminal.out, "{line}")?;
    }
    Ok(if found.is_empty() { Exit::Ok } else { Exit::CheckFailed })
}

fn text_of(path: &Path) -> Result<String, Failure> {
    read_text_limited(path, limits::CONFIG_BYTES_MAX)
}
