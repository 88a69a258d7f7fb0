//! `loom regulate`: events as lines of JSON in, decisions as lines of JSON out.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::input::read_file_limited;
use super::{Exit, Failure, Terminal};
use crate::foundation::base::limits::{EVENT_LINE_BYTES_MAX, REGULATOR_STATE_BYTES_MAX};
use crate::foundation::store::{FileLock, write_atomic};
use crate::governance::regulator::{
    BreakAction, Calibration, Decision, EventLine, RankedDecision, Regulator, RegulatorState, Settings, StateError,
    decision_changes, replay, signal_blocks,
};

/// Monitor an agent's model calls: reads events and writes decisions, one JSON object per line
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Events, one per line:
  {\"type\": \"turn_start\", \"user_message\": \"Refactor this to be async.\"}
  {\"type\": \"token\", \"token\": \"Done\", \"logprob\": -0.2, \"index\": 0}
  {\"type\": \"turn_complete\", \"full_response\": \"Done.\"}
  {\"type\": \"cost\", \"tokens_in\": 400, \"tokens_out\": 25, \"wallclock_ms\": 900}
  {\"type\": \"user_correction\", \"correction_message\": \"No docstrings!\", \"corrects_last\": true}
  {\"type\": \"quality_feedback\", \"quality\": 0.4}
  {\"type\": \"tool_call\", \"tool_name\": \"read\", \"args_json\": \"{}\"}
  {\"type\": \"tool_result\", \"tool_name\": \"read\", \"success\": true, \"duration_ms\": 3, \"result\": \"…\"}
  also: task, text, reserve, elapsed, and `top` on a token (docs/REGULATOR.md)
A line may also be an OTLP/JSON export of OpenTelemetry's GenAI spans, as the collector's file exporter writes them.

Examples:
  my-agent --events | loom regulate --cost-cap-tokens 20000 --state ann.json
  loom regulate events.jsonl | jq -c 'select(.decision != \"continue\")'
  loom regulate traces.jsonl --cost-cap-tokens 20000
  loom regulate events.jsonl --replay scope.drift=0.3,0.4,0.6

Exit codes: 0 all lines were events, 1 a line was not an event, 2 usage.")]
pub(super) struct Args {
    /// The events; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    events: PathBuf,
    /// Hard cap on tokens, input and output together
    #[arg(long, value_name = "N")]
    cost_cap_tokens: Option<u64>,
    /// Hard cap on output tokens
    #[arg(long, value_name = "N")]
    cost_cap_tokens_out: Option<u64>,
    /// Hard cap on money, in millionths of the currency
    #[arg(long, value_name = "N")]
    cost_cap_money_micros: Option<u64>,
    /// Hard cap on wall-clock time, in milliseconds
    #[arg(long, value_name = "N")]
    cost_cap_wallclock_ms: Option<u64>,
    /// Soft cap on tokens, input and output together: the decision is to throttle
    #[arg(long, value_name = "N")]
    cost_soft_cap_tokens: Option<u64>,
    /// At a hard cap, decide `pause_and_ask` instead of `stop`
    #[arg(long)]
    pause_and_ask: bool,
    /// Warn of replies whose drift from the task is at least this, 0 to 1
    #[arg(long, value_name = "SCORE")]
    drift: Option<f64>,
    /// Settings file, JSON; flags override it
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Load what was learned from this file and store it there, after every turn and correction
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// A calibration by `loom confidence fit` for the model that the events come from: confidence is then a probability
    /// of being right
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// The user's id
    #[arg(long, value_name = "ID")]
    user: Option<String>,
    /// Also print the statistics of each turn
    #[arg(long)]
    readings: bool,
    /// At the end, print the learned rules to standard error, as pending signal blocks for the governed memory
    #[arg(long, value_name = "YYYY-MM-DD")]
    signals: Option<jiff::civil::Date>,
    /// Replay the events with other values of a setting, and print the turns whose decisions differ, as in
    /// `scope.drift=0.3,0.5`; may be repeated
    #[arg(
        long,
        value_name = "SETTING=VALUES",
        conflicts_with_all = ["state", "user", "calibration", "readings", "signals"]
    )]
    replay: Vec<String>,
    /// Stop at the first line that is not an event
    #[arg(long)]
    strict: bool,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let settings = self.settings()?;
        let mut reader: Box<dyn BufRead> = if self.events == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            let file = File::open(&self.events).map_err(|error| file_error(&self.events, "cannot be read", &error))?;
            Box::new(BufReader::new(file))
        };
        if !self.replay.is_empty() {
            return self.vary(&settings, &mut reader, terminal);
        }
        let mut state = self.state.as_deref().map(StateFile::open).transpose()?;
        let mut regulator = self.regulator(settings)?;
        if let Some(path) = &self.calibration {
            let calibration = Calibration::from_json(&read(path)?)
                .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            let (scope, provenance) = (calibration.scope.clone(), &calibration.provenance);
            writeln!(
                terminal.err,
                "loom: confidence is calibrated for model {} ({}) on {}; events do not name their model, so check that they \
                 come from it",
                provenance.model,
                scope.model.short(),
                scope.task
            )?;
            regulator.calibrate(calibration);
            regulator.set_model_scope(Some(scope));
        }
        let outcome = self.regulate(&mut regulator, &mut reader, state.as_mut(), terminal);
        // Store the state even if the output was closed.
        if let Some(state) = &mut state {
            state.write(&regulator)?;
        }
        let exit = outcome?;
        if let Some(date) = self.signals {
            write!(terminal.err, "{}", signal_blocks(&regulator.patterns(), date, 1))?;
        }
        Ok(exit)
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = match &self.settings {
            None => Settings::default(),
            Some(path) => serde_json::from_str(&read(path)?)
                .map_err(|error| Failure::usage(format!("{}: no regulator settings: {error}", path.display())))?,
        };
        let hard = &mut settings.cost.hard;
        hard.tokens = self.cost_cap_tokens.or(hard.tokens);
        hard.tokens_out = self.cost_cap_tokens_out.or(hard.tokens_out);
        hard.money_micros = self.cost_cap_money_micros.or(hard.money_micros);
        hard.wallclock_ms = self.cost_cap_wallclock_ms.or(hard.wallclock_ms);
        settings.cost.soft.tokens = self.cost_soft_cap_tokens.or(settings.cost.soft.tokens);
        if self.pause_and_ask {
            settings.cost.hard_action = BreakAction::PauseAndAsk;
        }
        if let Some(drift) = self.drift {
            settings.scope.drift = drift;
        }
        settings.check().map_err(|error| Failure::usage(error.to_string()))?;
        Ok(settings)
    }

    fn regulator(&self, settings: Settings) -> Result<Regulator, Failure> {
        let Some(path) = self.state.as_ref().filter(|path| path.exists()) else {
            return Ok(Regulator::with_user(settings, self.user.clone().unwrap_or_default()));
        };
        let refused = |error: StateError| Failure::usage(format!("{}: {error}", path.display()));
        let mut state = RegulatorState::from_json(&read(path)?).map_err(refused)?;
        if let Some(user) = &self.user {
            state = state.claimed_by(user).map_err(refused)?;
        }
        Ok(Regulator::import(settings, state))
    }

    fn regulate(
        &self,
        regulator: &mut Regulator,
        reader: &mut dyn BufRead,
        mut state: Option<&mut StateFile<'_>>,
        terminal: &mut Terminal,
    ) -> Result<Exit, Failure> {
        let mut reported: Vec<RankedDecision> = Vec::new();
        let mut last_line = 0;
        let exit = self.each_event(reader, terminal, |event, line, terminal| {
            last_line = line;
            regulator.on_event(event.event());
            let at_end = event.kind() == "turn_complete";
            let taught = at_end || event.kind() == "user_correction";
            if let Some(state) = state.as_mut().filter(|state| taught && state.is_due()) {
                state.write(regulator)?;
            }
            if at_end && self.readings {
                let reading = json!({ "at": event.kind(), "line": line, "reading": regulator.turn_stats() });
                writeln!(terminal.out, "{reading}")?;
            }
            if at_end || has_new(&reported, regulator.decide()) {
                report(event.kind(), line, regulator, terminal)?;
            }
            if at_end || reported != regulator.decide() {
                reported = regulator.decide().to_vec();
            }
            Ok(())
        })?;
        report("end_of_input", last_line, regulator, terminal)?;
        Ok(exit)
    }

    fn vary(&self, settings: &Settings, reader: &mut dyn BufRead, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let mut varied = Vec::new();
        for vary in &self.replay {
            let (path, values) = vary
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("--replay {vary}: `SETTING=VALUE,VALUE` is needed")))?;
            for value in values.split(',') {
                let json = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
                let other = settings.with(path, &json).map_err(|error| Failure::usage(error.to_string()))?;
                varied.push((path, json, other));
            }
        }
        let mut events = Vec::new();
        let exit = self.each_event(reader, terminal, |event, _, _| {
            events.push(event.clone());
            Ok(())
        })?;
        let before = replay(settings, &events);
        for (setting, value, other) in varied {
            let found = decision_changes(&before, &replay(&other, &events));
            let (turns, changed) = (before.len(), found.len());
            let line =
                json!({ "setting": setting, "value": value, "turns": turns, "changed": changed, "changes": found });
            writeln!(terminal.out, "{line}")?;
        }
        Ok(exit)
    }

    /// Reads the events. A line that is not an event is reported, and with `--strict` ends the command.
    fn each_event(
        &self,
        reader: &mut dyn BufRead,
        terminal: &mut Terminal,
        mut each: impl FnMut(&EventLine, u64, &mut Terminal) -> Result<(), Failure>,
    ) -> Result<Exit, Failure> {
        let mut lines = Lines { reader, number: 0, buffer: Vec::new() };
        let mut exit = Exit::Ok;
        let mut warned: Vec<String> = Vec::new();
        while let Some(line) = lines.next()? {
            let parsed = match line {
                Ok(line) if line.trim().is_empty() => continue,
                Ok(line) => EventLine::parse_line(line).map_err(|error| error.to_string()),
                Err(why) => Err(why),
            };
            let number = lines.number;
            let events = match parsed {
                Ok(events) => events,
                Err(why) => {
                    writeln!(terminal.err, "loom: line {number}: {why}")?;
                    exit = Exit::CheckFailed;
                    if self.strict {
                        break;
                    }
                    continue;
                }
            };
            for event in events {
                for field in &event.unknown_fields {
                    let kind = event.kind();
                    let name = format!("{kind}.{field}");
                    if !warned.contains(&name) && warned.len() < WARNED_MAX {
                        writeln!(terminal.err, "loom: line {number}: `{kind}` has no field `{field}`; it is ignored")?;
                        warned.push(name);
                    }
                }
                each(&event, number, terminal)?;
            }
        }
        Ok(exit)
    }
}

/// Most unknown fields reported.
const WARNED_MAX: usize = 100;

/// Whether there is a decision that was not reported before.
fn has_new(reported: &[RankedDecision], now: &[RankedDecision]) -> bool {
    now.iter().any(|ranked| ranked.decision != Decision::Continue && !reported.contains(ranked))
}

fn report(at: &str, line: u64, regulator: &Regulator, terminal: &mut Terminal) -> Result<(), Failure> {
    let decisions = regulator.decide();
    for (ranked, rank) in decisions.iter().zip(1..) {
        let mut line = json!({ "at": at, "line": line, "turn": regulator.turn(), "rank": rank, "of": decisions.len(), "stop": regulator.should_stop() });
        if let (Value::Object(line), Ok(Value::Object(decision))) = (&mut line, serde_json::to_value(ranked)) {
            line.extend(decision);
        }
        writeln!(terminal.out, "{line}")?;
    }
    // The agent waits for the decision.
    terminal.out.flush()?;
    Ok(())
}

/// Reads lines of bounded length.
struct Lines<'r> {
    reader: &'r mut dyn BufRead,
    number: u64,
    buffer: Vec<u8>,
}

impl Lines<'_> {
    /// The next line, or what is wrong with it; `None` at the end.
    fn next(&mut self) -> Result<Option<Result<&str, String>>, Failure> {
        self.buffer.clear();
        let limit = EVENT_LINE_BYTES_MAX + 1;
        let read = |error: io::Error| Failure::usage(format!("the events could not be read: {error}"));
        let bytes = (&mut *self.reader).take(limit).read_until(b'\n', &mut self.buffer).map_err(read)?;
        if bytes == 0 {
            return Ok(None);
        }
        self.number += 1;
        if bytes as u64 == limit && self.buffer.last() != Some(&b'\n') {
            self.reader.skip_until(b'\n').map_err(read)?;
            return Ok(Some(Err(format!("longer than {EVENT_LINE_BYTES_MAX} bytes (EVENT_LINE_BYTES_MAX): split it"))));
        }
        let line = std::str::from_utf8(&self.buffer).map_err(|error| format!("this is not UTF-8: {error}"));
        // Some editors and shells begin a file with a byte order mark.
        let unmarked = |line| if self.number == 1 { str::trim_start_matches(line, '\u{feff}') } else { line };
        Ok(Some(line.map(unmarked)))
    }
}

fn file_error(path: &Path, what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{} {what}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, Failure> {
    read_file_limited(path, REGULATOR_STATE_BYTES_MAX)
}

/// The state file, locked while this exists.
struct StateFile<'a> {
    path: &'a Path,
    _lock: FileLock,
    /// When it was last written.
    at: Option<Instant>,
}

impl<'a> StateFile<'a> {
    /// Least time between two writes.
    const EVERY: Duration = Duration::from_secs(1);

    fn open(path: &'a Path) -> Result<Self, Failure> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = File::create(&name).and_then(FileLock::exclusive);
        let Some(lock) = lock.map_err(|error| file_error(Path::new(&name), "cannot be locked", &error))? else {
            let why = "another `loom regulate` uses this state file; give each agent its own";
            return Err(file_error(path, "is in use", &why));
        };
        Ok(Self { path, _lock: lock, at: None })
    }

    fn write(&mut self, regulator: &Regulator) -> Result<(), Failure> {
        let json = regulator.export().to_json().map_err(|error| Failure::usage(error.to_string()))?;
        self.at = Some(Instant::now());
        write_atomic(self.path, (json + "\n").as_bytes())
            .map_err(|error| file_error(self.path, "cannot be written", &error))
    }

    fn is_due(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= Self::EVERY)
    }
}
