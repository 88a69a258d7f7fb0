//! `loom mood follow`: the moods of another program's run. It sends events, one JSON line each, and gets the mood, the facts,
//! what it has to do and what it may do. Receipts of every step make the run replayable and a restart noticed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::app::cli::{Exit, Failure, Terminal};
use crate::foundation::base::{Clock as _, SystemClock, limits};
use crate::foundation::gate::{LedgerEntry, Scopes};
use crate::foundation::store::receipts::{LOG, Receipt, ReceiptKey, ReceiptLog, chain};
use crate::foundation::store::{Disk, RealDisk};
use crate::governance::mood::{
    Mood, MoodEffect, MoodEvent, MoodFact, MoodFacts, MoodProfiles, MoodState, MoodStep, replay, step, step_entry,
};

/// The receipt of a clean end.
const HANDED_OFF: &str = "mood.handed_off";

/// What the person who starts it decides.
pub(super) struct Settings<'s> {
    /// The folder of the receipts.
    pub folder: &'s Path,
    /// How long a question waits for its answer.
    pub answer_within: Duration,
    /// How long the other program may be silent.
    pub heartbeat: Option<Duration>,
    /// Whether the other program asks the person for approvals itself.
    pub trust_approvals: bool,
}

/// A run that is followed.
struct Follower<'t> {
    state: MoodState,
    log: ReceiptLog,
    disk: Arc<RealDisk>,
    profiles: MoodProfiles,
    terminal: &'t mut Terminal,
    /// The question that waits for an answer.
    question: Option<Question>,
    refused: usize,
}

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    Preference,
    Approval(&'static str),
}

pub(super) fn follow(settings: &Settings<'_>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let failure =
        |error: &dyn std::fmt::Display| Failure::Message { message: error.to_string(), exit: Exit::CheckFailed };
    std::fs::create_dir_all(settings.folder)
        .map_err(|error| Failure::usage(format!("`{}` cannot be created: {error}", settings.folder.display())))?;
    let key = ReceiptKey::path().and_then(|path| ReceiptKey::open(&path)).map_err(|error| failure(&error))?;
    let disk = Arc::new(RealDisk::new(settings.folder));
    let (log, opened) = ReceiptLog::open(Arc::clone(&disk) as Arc<dyn Disk>, Arc::new(key), SystemClock.now())
        .map_err(|error| failure(&error))?;
    let steps = replay(opened.receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry)));
    // The log opened, so its chain is whole; whether its steps are those of the guards is the other half.
    let consistent = steps.is_ok();
    let last = steps.ok().and_then(|mut steps| steps.pop());
    let begun = last.is_none();
    let state = last.map_or_else(|| MoodState::begin(Mood::Calm), |last| last.state);
    let profiles = MoodProfiles::shipped()?;
    let mut follower = Follower { state, log, disk, profiles, terminal, question: None, refused: 0 };
    if begun {
        let entered = MoodState::enter(MoodFacts::NONE);
        follower.record(&[step_entry(None, MoodFacts::NONE, &entered)])?;
        follower.state = entered.state.clone();
        follower.print(None, &entered)?;
    } else if !ended_cleanly(&opened.receipts) {
        follower.take(&MoodEvent::Restarted)?;
        follower.take(&MoodEvent::Projected { consistent })?;
    }
    follower.run(&read_lines(), settings)?;
    let refused = follower.refused;
    follower.record(&[LedgerEntry::new(HANDED_OFF, json!({"mood": follower.state.mood().name()}))])?;
    follower.log.seal().map_err(|error| failure(&error))?;
    Ok(if refused == 0 { Exit::Ok } else { Exit::CheckFailed })
}

/// Whether the last process that followed a run here ended it.
fn ended_cleanly(receipts: &[Receipt]) -> bool {
    let of_moods = |receipt: &&Receipt| receipt.entry.kind.starts_with("mood.");
    receipts.iter().rfind(of_moods).is_none_or(|receipt| receipt.entry.kind == HANDED_OFF)
}

/// The lines of standard input, read by a thread, so that waiting for one can end.
fn read_lines() -> Receiver<std::io::Result<String>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let limit = limits::CONFIG_BYTES_MAX as usize;
        for line in BufReader::new(std::io::stdin()).lines() {
            let line = line.map(|line| if line.len() > limit { String::from("\"too long\"") } else { line });
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Follower<'_> {
    fn run(&mut self, lines: &Receiver<std::io::Result<String>>, settings: &Settings<'_>) -> Result<(), Failure> {
        let mut silent = false;
        let mut asked_at = SystemClock.now();
        while self.state.halted().is_none() {
            let was_asking = self.question.clone();
            let waited = SystemClock.now().duration_since(asked_at);
            let left = settings.answer_within.saturating_sub(waited.try_into().unwrap_or_default());
            let wait = match (&self.question, settings.heartbeat.filter(|_| !silent)) {
                (Some(_), Some(heartbeat)) => Some(left.min(heartbeat)),
                (Some(_), None) => Some(left),
                (None, heartbeat) => heartbeat,
            };
            let line = match wait {
                Some(wait) => lines.recv_timeout(wait),
                None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match line {
                Ok(line) => {
                    if std::mem::take(&mut silent) {
                        let consistent = self.log_is_consistent();
                        self.take(&MoodEvent::Projected { consistent })?;
                    }
                    self.line(&line?, settings)?;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if self.question.is_some() && left <= wait.unwrap_or_default() => {
                    self.time_out()?;
                }
                Err(RecvTimeoutError::Timeout) => {
                    silent = true;
                    self.take(&MoodEvent::HeartbeatStale)?;
                }
            }
            if self.question != was_asking {
                asked_at = SystemClock.now();
            }
        }
        Ok(())
    }

    /// Nobody answered: a preference takes its default, an approval is denied. The receipt says which.
    fn time_out(&mut self) -> Result<(), Failure> {
        let (asked, outcome) = match self.question.take() {
            Some(Question::Approval(privilege)) => (format!("approval to {privilege}"), "denied"),
            _ => ("a preference".to_owned(), "the default is used"),
        };
        let body = json!({"asked": asked, "outcome": outcome});
        self.record(&[LedgerEntry::new("mood.timed_out", body.clone())])?;
        writeln!(self.terminal.out, "{}", json!({"timed_out": body}))?;
        self.take(&MoodEvent::TimedOut)
    }

    /// Whether the receipts on disk replay to the present state.
    fn log_is_consistent(&self) -> bool {
        let bytes = self.disk.read(LOG).ok().flatten().unwrap_or_default();
        let steps = chain(&bytes)
            .ok()
            .and_then(|(receipts, _)| replay(receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry))).ok());
        steps.and_then(|mut steps| steps.pop()).is_some_and(|last| last.state == self.state)
    }

    fn line(&mut self, line: &str, settings: &Settings<'_>) -> Result<(), Failure> {
        if line.trim().is_empty() {
            return Ok(());
        }
        match serde_json::from_str::<MoodEvent>(line) {
            Ok(MoodEvent::Approved(_)) if !settings.trust_approvals => {
                self.refuse("an approval comes from a person: start with --trust-approvals if your program asks one")
            }
            Ok(
                MoodEvent::Restarted | MoodEvent::HeartbeatStale | MoodEvent::Projected { .. } | MoodEvent::TimedOut,
            ) => self.refuse("this event is observed here, not sent"),
            Ok(event) => self.take(&event),
            Err(error) => self.refuse(&format!("not an event: {error}")),
        }
    }

    fn refuse(&mut self, why: &str) -> Result<(), Failure> {
        self.refused += 1;
        writeln!(self.terminal.out, "{}", json!({"refused": why}))?;
        self.terminal.out.flush()?;
        Ok(())
    }

    fn take(&mut self, event: &MoodEvent) -> Result<(), Failure> {
        let after = step(&self.state, event);
        self.record(&[step_entry(Some(event), MoodFacts::NONE, &after)])?;
        self.state = after.state.clone();
        for effect in &after.effects {
            match effect {
                MoodEffect::AskPreference => self.question = Some(Question::Preference),
                MoodEffect::AskApproval(privilege) => {
                    self.question = Some(Question::Approval(privilege.category().name()));
                }
                _ => {}
            }
        }
        if self.state.mood() != Mood::Deferential {
            self.question = None;
        }
        self.print(Some(event), &after)
    }

    fn record(&mut self, entries: &[LedgerEntry]) -> Result<(), Failure> {
        let failure = |error| Failure::Message { message: format!("{error}"), exit: Exit::CheckFailed };
        self.log.commit(SystemClock.now(), entries).map(drop).map_err(failure)
    }

    fn print(&mut self, event: Option<&MoodEvent>, after: &MoodStep) -> Result<(), Failure> {
        let rights = self.state.rights(&self.profiles);
        let facts: Vec<&str> = self.state.facts().iter().map(MoodFact::name).collect();
        let scopes = |scopes: Scopes| scopes.iter().map(crate::foundation::gate::Scope::name).collect::<Vec<_>>();
        let uses: Vec<_> = rights.uses.iter().map(crate::foundation::gate::Category::name).collect();
        let line = json!({
            "event": event, "taken": after.taken, "mood": self.state.mood().name(), "facts": facts,
            "effects": after.effects, "uses": uses, "reads": scopes(rights.reads), "writes": scopes(rights.writes),
            "halted": self.state.halted().map(|counter| Value::from(counter.name())),
        });
        writeln!(self.terminal.out, "{line}")?;
        self.terminal.out.flush()?;
        Ok(())
    }
}
