//! `loom regulate`: events as lines of JSON in, decisions as lines of JSON out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::input::read_file_limited;
use super::likelihood::ModelLikelihood;
use super::regulator_args::RegulatorArgs;
use super::{Exit, Failure, Terminal};
use crate::foundation::base::limits::{EVENT_LINE_BYTES_MAX, REGULATOR_STATE_BYTES_MAX};
use crate::foundation::chat::ModelChain;
use crate::foundation::store::{FileLock, open_regular, write_atomic};
use crate::governance::mood::Mood;
use crate::governance::regulator::{
    BreakAction, Calibration, Decision, EventLine, RankedDecision, Regulator, RegulatorState, SessionLog, Settings,
    StateError, bench, decision_changes, replay, signal_blocks,
};
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;

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
`session` on a line keeps sessions apart; `call_id` joins a call with its cost, or a tool call with its result.
A line may also be an OpenAI request, response or streaming chunk, or an OTLP/JSON export of model spans (OpenTelemetry GenAI,
OpenInference, Traceloop), as the collector's file exporter writes them.

Examples:
  my-agent --events | loom regulate --cost-cap-tokens 20000 --state ann.json
  loom regulate events.jsonl | jq -c 'select(.decision != \"continue\")'
  loom regulate traces.jsonl --cost-cap-tokens 20000
  loom regulate events.jsonl --replay scope.drift=0.3,0.4,0.6
  loom regulate --bench tests/data/sessions/held_back

Exit codes: 0 all lines were events, 1 a line was not an event or nothing was understood, 2 usage.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Args {
    /// The events; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    events: PathBuf,
    #[command(flatten)]
    regulator: RegulatorArgs,
    /// Load what was learned from this file and store it there, after every turn and correction
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// A calibration by `loom confidence fit` for the model that the events come from: confidence is then a probability
    /// of being right
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Judge whether a reply keeps to its task by how much more likely this local model finds it with the task than without
    #[arg(long, value_name = "MODEL")]
    model: Option<ModelChain>,
    /// The user's id
    #[arg(long, value_name = "ID")]
    user: Option<String>,
    /// Also print the statistics of each turn
    #[arg(long)]
    readings: bool,
    /// Answer every event that asks for permission: `turn_start`, `reserve`, `elapsed` and `tool_call`
    #[arg(long)]
    ack: bool,
    /// Measure false stops, false warnings and faults found on labelled logs (.jsonl, .jsonl.gz, or folders of them)
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["state", "user", "calibration", "signals", "replay", "ack"])]
    bench: Vec<PathBuf>,
    /// With --bench, also list each false decision and each missed fault
    #[arg(long, requires = "bench")]
    mistakes: bool,
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
        let settings = self.regulator.settings()?;
        if !self.bench.is_empty() {
            return self.measure(&settings, terminal);
        }
        let input: Box<dyn Read> = if self.events == Path::new("-") {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&self.events).map_err(|error| file_error(&self.events, "cannot be read", &error))?)
        };
        let mut reader = BufReader::new(input);
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
            calibration.check_use().map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            regulator.calibrate(calibration);
            regulator.set_model_scope(Some(scope));
        }
        if let Some(chain) = &self.model {
            let gate = Authorizer::for_models("regulate", Mood::Skeptical, &[chain], None)?;
            let model = gate.open_model(chain, &OpenOptions::new(None, None).naming(chain))?;
            regulator.set_likelihood(Some(Arc::new(ModelLikelihood::new(model)?)));
        }
        let mut sessions = Sessions { template: regulator, open: BTreeMap::new(), last_used: 0 };
        let outcome = self.regulate(&mut sessions, &mut reader, state.as_mut(), terminal);
        let regulator = sessions.unnamed();
        // Store the state even if the output was closed.
        if let Some(state) = &mut state {
            state.write(regulator, true)?;
        }
        let exit = outcome?;
        if let Some(date) = self.signals {
            write!(terminal.err, "{}", signal_blocks(&regulator.patterns(), date, 1))?;
        }
        Ok(exit)
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
        sessions: &mut Sessions,
        reader: &mut BufReader<Box<dyn Read>>,
        mut state: Option<&mut StateFile<'_>>,
        terminal: &mut Terminal,
    ) -> Result<Exit, Failure> {
        let mut last_line = 0;
        let exit = self.each_event(reader, terminal, |event, place, terminal| {
            last_line = place.line;
            if !event.session.is_empty() && state.is_some() {
                let why = "a state file holds what one session learned; leave out --state, or run one process for each session";
                return Err(Failure::usage(format!("line {}: session `{}`: {why}", place.line, event.session)));
            }
            let session = sessions.get(&event.session);
            let regulator = &mut session.regulator;
            regulator.on_event(event.event());
            // Before anything is said, so that a reader of a decision can rely on the state.
            if let Some(state) = &mut state {
                state.pending |= is_learned(event.kind());
            }
            if let Some(state) = state.as_mut().filter(|state| state.pending && state.is_due(place.waiting)) {
                state.write(regulator, false)?;
            }
            let at_end = event.kind() == "turn_complete";
            let name = event.session.as_str();
            if self.ack && asks_permission(event.kind()) {
                acknowledge(event.kind(), name, place.line, regulator, terminal)?;
            }
            if at_end && self.readings {
                let reading = json!({ "at": event.kind(), "line": place.line, "reading": regulator.turn_stats() });
                writeln!(terminal.out, "{}", in_session(reading, name))?;
            }
            if at_end || has_new(&session.reported, regulator.decide()) {
                report(event.kind(), name, place.line, regulator, terminal)?;
            }
            if at_end || session.reported != regulator.decide() {
                session.reported = regulator.decide().to_vec();
            }
            Ok(())
        })?;
        if exit == Exit::CheckFailed && last_line == 0 {
            return Ok(exit);
        }
        for (name, session) in sessions.all() {
            report("end_of_input", name, last_line, &session.regulator, terminal)?;
        }
        Ok(exit)
    }

    /// Measures the regulator on labelled logs, one table for each set of them.
    fn measure(&self, settings: &Settings, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let mut paths = Vec::new();
        for path in &self.bench {
            logs_in(path, &mut paths)?;
        }
        let mut sets: BTreeMap<String, Vec<SessionLog>> = BTreeMap::new();
        for path in paths {
            let log = SessionLog::parse(&read_log(&path)?)
                .map_err(|error| file_error(&path, "is no labelled log", &error))?;
            sets.entry(log.labels.half.clone()).or_default().push(log);
        }
        for (name, logs) in &sets {
            let report = bench(settings, logs);
            let title = if name.is_empty() { "all" } else { name };
            writeln!(terminal.out, "{title}\n\n{report}")?;
            if self.mistakes {
                for (session, turn, what) in &report.mistakes {
                    writeln!(terminal.out, "{session}, turn {turn}: {what}")?;
                }
            }
        }
        Ok(Exit::Ok)
    }

    fn vary(
        &self,
        settings: &Settings,
        reader: &mut BufReader<Box<dyn Read>>,
        terminal: &mut Terminal,
    ) -> Result<Exit, Failure> {
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

    /// Reads the events. A line that is not an event is reported, and with `--strict` ends the command. Input of which nothing
    /// was understood is an error.
    fn each_event(
        &self,
        reader: &mut BufReader<Box<dyn Read>>,
        terminal: &mut Terminal,
        mut each: impl FnMut(&EventLine, Place, &mut Terminal) -> Result<(), Failure>,
    ) -> Result<Exit, Failure> {
        let mut lines = Lines { reader, number: 0, buffer: Vec::new() };
        let mut exit = Exit::Ok;
        let mut warned: Vec<String> = Vec::new();
        let (mut parsed_lines, mut understood) = (0u64, false);
        while let Some(line) = lines.next()? {
            let parsed = match line {
                Ok(line) if line.trim().is_empty() => continue,
                Ok(line) => EventLine::parse_line(line).map_err(|error| error.to_string()),
                Err(why) => Err(why),
            };
            let place = Place { line: lines.number, waiting: lines.waiting() };
            let number = place.line;
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
            parsed_lines += 1;
            for event in events {
                understood = true;
                for field in &event.unknown_fields {
                    let kind = event.kind();
                    let name = format!("{kind}.{field}");
                    if !warned.contains(&name) && warned.len() < WARNED_MAX {
                        writeln!(terminal.err, "loom: line {number}: `{kind}` has no field `{field}`; it is ignored")?;
                        warned.push(name);
                    }
                }
                each(&event, place, terminal)?;
            }
        }
        if parsed_lines > 0 && !understood {
            writeln!(
                terminal.err,
                "loom: nothing was understood: none of the {parsed_lines} lines holds a model call or a tool span with attributes of \
                 OpenTelemetry GenAI (gen_ai.*), OpenInference (llm.*) or Traceloop (docs/REGULATOR.md)"
            )?;
            exit = Exit::CheckFailed;
        }
        Ok(exit)
    }
}

/// Where an event stands in the input.
#[derive(Debug, Clone, Copy)]
struct Place {
    line: u64,
    /// More input has arrived already.
    waiting: bool,
}

/// A regulator for each session.
struct Sessions {
    /// A regulator with the settings and calibration of all, to which nothing has happened; it is the unnamed session's.
    template: Regulator,
    open: BTreeMap<String, Session>,
    last_used: u64,
}

struct Session {
    regulator: Regulator,
    reported: Vec<RankedDecision>,
    used: u64,
}

impl Sessions {
    /// Most sessions at once; beyond it the one that was silent longest is forgotten.
    const MAX: usize = 1024;

    fn get(&mut self, name: &str) -> &mut Session {
        self.last_used += 1;
        if !self.open.contains_key(name) && self.open.len() >= Self::MAX {
            let oldest = self.open.iter().min_by_key(|(_, session)| session.used).map(|(name, _)| name.clone());
            oldest.and_then(|name| self.open.remove(&name));
        }
        let fresh = || Session { regulator: self.template.clone(), reported: Vec::new(), used: 0 };
        let session = self.open.entry(name.to_owned()).or_insert_with(fresh);
        session.used = self.last_used;
        session
    }

    fn unnamed(&self) -> &Regulator {
        self.open.get("").map_or(&self.template, |session| &session.regulator)
    }

    /// Every session; the unnamed one if there is none.
    fn all(&mut self) -> impl Iterator<Item = (&str, &Session)> {
        if self.open.is_empty() {
            self.get("");
        }
        self.open.iter().map(|(name, session)| (name.as_str(), session))
    }
}

/// Whether an event changes what is stored; tokens are counted when their turn ends.
fn is_learned(kind: &str) -> bool {
    !matches!(kind, "token" | "text" | "elapsed")
}

/// Whether the sender of an event waits for a yes or no.
fn asks_permission(kind: &str) -> bool {
    matches!(kind, "turn_start" | "reserve" | "elapsed" | "tool_call")
}

fn acknowledge(
    at: &str,
    session: &str,
    line: u64,
    regulator: &Regulator,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let first = regulator.decide().first().map(|ranked| &ranked.decision);
    let pauses = matches!(first, Some(Decision::CircuitBreak { action: BreakAction::PauseAndAsk, .. }));
    let stop = regulator.stop_requested();
    let decision = first.map_or("continue", Decision::kind);
    let answer = json!({ "ack": at, "line": line, "turn": regulator.turn(), "allow": !stop && !pauses, "stop": stop, "decision": decision });
    writeln!(terminal.out, "{}", in_session(answer, session))?;
    terminal.out.flush()?;
    Ok(())
}

/// Adds the session's name, if it has one.
fn in_session(mut line: Value, session: &str) -> Value {
    if let (Value::Object(fields), false) = (&mut line, session.is_empty()) {
        fields.insert("session".to_owned(), session.into());
    }
    line
}

/// The logs at a path: itself, or the logs in the folder.
fn logs_in(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if !path.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let unread = |error: io::Error| file_error(path, "cannot be read", &error);
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .map_err(unread)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(unread)?;
    entries.sort();
    for entry in entries {
        let name = entry.to_string_lossy();
        if entry.is_dir() || name.ends_with(".jsonl") || name.ends_with(".jsonl.gz") {
            logs_in(&entry, found)?;
        }
    }
    Ok(())
}

/// The text of a log, unpacked if its name ends in `.gz`.
fn read_log(path: &Path) -> Result<String, Failure> {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return read(path);
    }
    let unread = |error: io::Error| file_error(path, "cannot be read", &error);
    let file = open_regular(path).map_err(unread)?;
    let mut text = String::new();
    GzDecoder::new(file).take(REGULATOR_STATE_BYTES_MAX).read_to_string(&mut text).map_err(unread)?;
    Ok(text)
}

/// Most unknown fields reported.
const WARNED_MAX: usize = 100;

/// Whether there is a decision that was not reported before.
fn has_new(reported: &[RankedDecision], now: &[RankedDecision]) -> bool {
    now.iter().any(|ranked| ranked.decision != Decision::Continue && !reported.contains(ranked))
}

fn report(at: &str, session: &str, line: u64, regulator: &Regulator, terminal: &mut Terminal) -> Result<(), Failure> {
    let decisions = regulator.decide();
    for (ranked, rank) in decisions.iter().zip(1..) {
        let mut line = json!({ "at": at, "line": line, "turn": regulator.turn(), "rank": rank, "of": decisions.len(), "stop": regulator.stop_requested() });
        if let (Value::Object(line), Ok(Value::Object(decision))) = (&mut line, serde_json::to_value(ranked)) {
            line.extend(decision);
        }
        writeln!(terminal.out, "{}", in_session(line, session))?;
    }
    // The agent waits for the decision.
    terminal.out.flush()?;
    Ok(())
}

/// Reads lines of bounded length.
struct Lines<'r> {
    reader: &'r mut BufReader<Box<dyn Read>>,
    number: u64,
    buffer: Vec<u8>,
}

impl Lines<'_> {
    /// Whether another line has arrived already.
    fn waiting(&self) -> bool {
        self.reader.buffer().contains(&b'\n')
    }

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
    /// Whether something was learned since the last write.
    pending: bool,
}

impl<'a> StateFile<'a> {
    /// Longest time between two writes while more events wait.
    const EVERY: Duration = Duration::from_millis(50);

    fn open(path: &'a Path) -> Result<Self, Failure> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = File::create(&name).and_then(FileLock::exclusive);
        let Some(lock) = lock.map_err(|error| file_error(Path::new(&name), "cannot be locked", &error))? else {
            let why = "another `loom regulate` uses this state file; give each agent its own";
            return Err(file_error(path, "is in use", &why));
        };
        Ok(Self { path, _lock: lock, at: None, pending: false })
    }

    /// Writes the state: whole at any time, so that a kill leaves the last one or this one. Only the last write waits for the
    /// disk.
    fn write(&mut self, regulator: &Regulator, durable: bool) -> Result<(), Failure> {
        let json = regulator.export().to_json().map_err(|error| Failure::usage(error.to_string()))? + "\n";
        self.at = Some(Instant::now());
        self.pending = false;
        let written = if durable {
            write_atomic(self.path, json.as_bytes())
        } else {
            let mut name = self.path.as_os_str().to_owned();
            name.push(".new");
            fs::write(&name, json).and_then(|()| fs::rename(&name, self.path))
        };
        written.map_err(|error| file_error(self.path, "cannot be written", &error))
    }

    /// Whether to write now: always, unless more events wait and the last write was a moment ago.
    fn is_due(&self, waiting: bool) -> bool {
        !waiting || self.at.is_none_or(|at| at.elapsed() >= Self::EVERY)
    }
}
