//! A session begun, answered, resumed and driven: what is next is asked of the course, done, written down and taken in.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::course::{Course, Mismatch, Todo};
use super::need::Said;
use super::outcome::{Answer, Conclusion, Happened};
use super::perform::Performed;
use super::tools::{Files, ToolError};
use super::ward::Ward;
use super::{say, wave};
use crate::app::watch::WatchError;
use crate::foundation::base::{Clock, Digest, limits};
use crate::foundation::chat::{LanguageModel, ModelChain, ModelError};
use crate::foundation::config::ConfigErrors;
use crate::foundation::gate::{Budget, Entry, LedgerError, Refusal, Scope};
use crate::foundation::store::Disk;
use crate::foundation::store::receipts::{Contents, Key, LogError, Receipt, ReceiptLog, SharedLog};
use crate::governance::mood::{self, Fact, Facts, Mood, MoodState, Profiles, replay, step_entry};
use crate::governance::statechart::Chart;
use crate::governance::statechart::hope::{self, Engagement, Event, Hope};
use crate::inference::providers::{self, OpenOptions};
use crate::simulation::persona::{AdversaryKind, examples};
use crate::simulation::report::ReportError;
use crate::simulation::rollout::{FileError, RunError};

/// What a session is begun with; kept in its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// How densely to ask; asked where it is not said.
    pub engagement: Option<Engagement>,
    /// The session's own model, which answers questions and lends the experts its voice.
    pub model: ModelChain,
    /// The persona's.
    pub persona_model: ModelChain,
    /// The other side's.
    pub target: ModelChain,
    /// Who judges; the session's own model where it passed its test, if not named.
    #[serde(default)]
    pub judge: Option<ModelChain>,
    /// A memory to search for what bears on the need, and to propose the verdict to.
    #[serde(default)]
    pub memory: Option<PathBuf>,
    /// The persona: the name of a config that comes with the program, or of the one in [`config`](Self::config).
    pub persona: Option<String>,
    /// The user's own config, its text by digest.
    pub config: Option<Digest>,
    /// Turns of a rollout.
    pub turns: Option<usize>,
    /// Rollouts.
    pub rollouts: Option<usize>,
    /// Who the persona talks with.
    pub other: Option<AdversaryKind>,
    /// Where all draws come from.
    pub seed: u64,
    /// Rollouts at the same time.
    pub parallel: usize,
    /// Longest reply that is budgeted for, tokens.
    pub reply_tokens_max: u64,
}

/// Where a session lives and what it is given.
pub struct Place {
    /// Its folder.
    pub folder: PathBuf,
    /// The same as a disk: the log goes through it.
    pub disk: Arc<dyn Disk>,
    /// What signs the log.
    pub key: Arc<Key>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How models are opened.
    pub options: OpenOptions,
}

/// Why a session does not go on. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log could not be written while the session ran.
    #[error("the log could not be written: {0}; go on with `loom session resume`")]
    Ledger(#[from] LedgerError),
    /// The gate said no.
    #[error("{0}")]
    Refused(Refusal),
    /// The receipts beside a run's results.
    #[error(transparent)]
    Watch(WatchError),
    /// A tool.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A run's files.
    #[error(transparent)]
    File(#[from] FileError),
    /// A run's report.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A config.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The log does not replay.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The moods of the log do not replay.
    #[error(transparent)]
    Moods(#[from] mood::ReplayError),
    /// The operating system.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// Anything else, told in full.
    #[error("{0}")]
    Told(String),
}

impl SessionError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { action, path: path.clone(), source }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
    pub(super) fn json(error: serde_json::Error) -> Self {
        Self::Told(error.to_string())
    }
}

/// Where a session stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// The chart's active leaves.
    pub leaves: Vec<String>,
    /// The stage of the work.
    pub stage: String,
    /// The mood.
    pub mood: Mood,
    /// Whether it waits for the user.
    pub waiting: bool,
    /// How it ended, if it did.
    pub conclusion: Option<Conclusion>,
    /// The last footer.
    pub footer: Option<String>,
    /// What was found, as text: equal for equal work.
    pub report: String,
}

/// A session.
pub struct Session {
    pub(super) folder: PathBuf,
    pub(super) settings: Settings,
    pub(super) chart: Arc<Chart<Hope>>,
    pub(super) course: Course,
    pub(super) ward: Ward,
    pub(super) contents: Contents,
    pub(super) files: Files,
    pub(super) options: OpenOptions,
    pub(super) model: Arc<dyn LanguageModel>,
    /// Hears what is said to the user.
    pub(super) told: Box<dyn FnMut(&str) + Send>,
}

impl Session {
    /// Begins a session. `config` is the text of the user's own persona config.
    ///
    /// # Errors
    /// When the folder holds one already, or anything that it needs is not there.
    pub fn start(place: Place, need: &str, mut settings: Settings, config: Option<&str>) -> Result<Self, SessionError> {
        if need.trim().is_empty() || need.len() > limits::SESSION_TEXT_BYTES_MAX {
            let most = limits::SESSION_TEXT_BYTES_MAX;
            return Err(SessionError::Told(format!("a need has from 1 to {most} bytes (SESSION_TEXT_BYTES_MAX)")));
        }
        let model = providers::open(&settings.model, &place.options)?;
        let (log, opened) = ReceiptLog::open(Arc::clone(&place.disk), Arc::clone(&place.key), place.clock.now())?;
        if opened.receipts.iter().any(|receipt| receipt.entry.kind == "session.begun") {
            let folder = place.folder.display();
            return Err(SessionError::Told(format!("{folder} holds a session: name another folder, or resume it")));
        }
        let contents = log.contents();
        let put = |text: &str| contents.put(text.as_bytes()).map_err(SessionError::io("keep a text in", &place.folder));
        let digest = put(need)?;
        settings.config = config.map(put).transpose()?;
        let (chart, profiles) = (Arc::new(hope::chart()?), Profiles::shipped()?);
        let begun = Entry::new("session.begun", json!({ "settings": &settings, "of": identity(&chart, &profiles) }));
        let entered = MoodState::enter(Facts::of(&[Fact::Unaimed]));
        let entries = [begun.with_content("need", digest), step_entry(None, Facts::of(&[Fact::Unaimed]), &entered)];
        let log = SharedLog::new(log);
        log.record(place.clock.now(), &entries)?;
        let course = Course::begin(&chart, need, &said(&settings), settings.engagement);
        let ward = Ward::open(log, (profiles, entered.state), &hosts(&settings), &Budget::NOTHING, place.clock)?;
        let files = Files::open(&place.folder, Scope::Notes).map_err(SessionError::io("open", &place.folder))?;
        let (folder, options) = (place.folder, place.options);
        Ok(Self { folder, settings, chart, course, ward, contents, files, options, model, told: Box::new(|_| {}) })
    }

    /// Takes a session up again. Its chain is verified and replayed; where it was not handed over cleanly it begins in
    /// CONTRITE, and goes on only when chart, moods and log agree with what it began with.
    ///
    /// # Errors
    /// When there is none, or its log is not as it was written, or another version of the program wrote it.
    pub fn resume(place: Place) -> Result<Self, SessionError> {
        if wave::is_fresh(&place.folder) {
            return Err(SessionError::Told(format!("{} holds no session", place.folder.display())));
        }
        let now = place.clock.now();
        let (log, opened) = ReceiptLog::open(Arc::clone(&place.disk), Arc::clone(&place.key), now)?;
        let contents = log.contents();
        let Told { settings, of, course, clean, spent } = read(&opened.receipts, &contents, &place.folder)?;
        let (chart, profiles) = (Arc::new(hope::chart()?), Profiles::shipped()?);
        let moods = replay(opened.receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry)))?;
        let missing = || SessionError::Told("the log has no mood: begin a new session".to_owned());
        let state = moods.into_iter().last().ok_or_else(missing)?.state;
        let model = providers::open(&settings.model, &place.options)?;
        let ward = Ward::open(SharedLog::new(log), (profiles.clone(), state), &hosts(&settings), &spent, place.clock)?;
        let files = Files::open(&place.folder, Scope::Notes).map_err(SessionError::io("open", &place.folder))?;
        let (folder, options) = (place.folder, place.options);
        let told = Box::new(|_: &str| {});
        let mut session = Self { folder, settings, chart, course, ward, contents, files, options, model, told };
        let consistent = of == identity(&session.chart, &profiles);
        if !clean || !consistent {
            session.ward.record(&[mood::Event::Restarted], Vec::new())?;
            let resumed = Entry::new("session.resumed", json!({"consistent": consistent, "was": of}));
            session.ward.record(&[mood::Event::Projected { consistent }], vec![resumed])?;
        }
        if !consistent {
            let why = "another chart, other moods or another version of loom began this session: go on with that one";
            return Err(SessionError::Told(why.to_owned()));
        }
        Ok(session)
    }

    /// Where the session in a folder stands, from its log alone; nothing is written.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn look(receipts: &[Receipt], contents: &Contents, folder: &Path) -> Result<Standing, SessionError> {
        let Told { course, .. } = read(receipts, contents, folder)?;
        let moods = replay(receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry)))?;
        let mood = moods.last().map_or(Mood::Contrite, |step| step.state.mood());
        Ok(standing(&course, &hope::chart()?, mood))
    }

    /// Has `told` hear what is said to the user.
    pub fn hear(&mut self, told: impl FnMut(&str) + Send + 'static) {
        self.told = Box::new(told);
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        standing(&self.course, &self.chart, self.ward.mood())
    }

    /// Goes on until the session waits for the user or is over.
    ///
    /// # Errors
    /// When something that it cannot go on without fails; it can be resumed from there.
    pub async fn go(&mut self) -> Result<Standing, SessionError> {
        while let Some(todo) = self.course.next() {
            if self.ward.mood() == Mood::Deferential && !self.course.waiting {
                self.ward.record(&[mood::Event::PreferenceSet], Vec::new())?;
            }
            let (happened, moods) = match todo {
                Todo::Tell(event) => (self.course.tell(&self.chart, event), Vec::new()),
                Todo::Do(action) => {
                    let Performed { outcome, tells, waits, moods } = self.perform(action).await?;
                    (Happened::Did { action, outcome, tells, waits }, moods)
                }
            };
            self.note(&happened, &moods)?;
        }
        let handed = Entry::new("session.handed_off", json!({"stage": self.standing().stage}));
        self.ward.record(&[], vec![handed])?;
        self.ward.log().log().seal()?;
        Ok(self.standing())
    }

    /// Takes the user's answer.
    ///
    /// # Errors
    /// When nothing was asked, or the answer is none that can be given here.
    pub fn answer(&mut self, text: &str) -> Result<(), SessionError> {
        let stage = self.course.stage(&self.chart);
        let asks_engagement = self.course.facts.engagement.is_none();
        if !self.course.waiting {
            return Err(SessionError::Told(
                "the session asked nothing: `loom session status` says where it stands".into(),
            ));
        }
        if text.len() > limits::SESSION_TEXT_BYTES_MAX {
            let most = limits::SESSION_TEXT_BYTES_MAX;
            return Err(SessionError::Told(format!("an answer has at most {most} bytes (SESSION_TEXT_BYTES_MAX)")));
        }
        let understood = if asks_engagement { engagement(text) } else { self.understand(&stage, text)? };
        let Some((answer, event)) = understood else {
            let hint = if asks_engagement { "AUTONOMOUS, COLLABORATIVE or GUIDED" } else { expected(&stage) };
            return Err(SessionError::Told(format!("I do not understand `{text}` here: answer {hint}")));
        };
        self.note(&Happened::Answered { answer, event }, &[])
    }

    fn understand(&self, stage: &str, text: &str) -> Result<Option<(Answer, Event)>, SessionError> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        let word = word.trim().to_lowercase();
        let words = |event| -> Result<_, SessionError> {
            if rest.trim().is_empty() {
                return Ok(Some((Answer::Plain, event)));
            }
            let put = self.contents.put(rest.trim().as_bytes());
            let digest = put.map_err(SessionError::io("keep a text in", &self.folder))?;
            Ok(Some((Answer::Words(digest), event)))
        };
        Ok(match (stage, word.as_str()) {
            (_, "cancel") => Some((Answer::Plain, Event::Cancel)),
            ("paused", "resume") => Some((Answer::Plain, Event::Resume)),
            ("paused", _) => None,
            (_, "pause") => Some((Answer::Plain, Event::Pause)),
            ("clarify", _) => choices(text).map(|choices| (Answer::Choices(choices), Event::Answered)),
            ("review_feedback", "satisfied" | "yes") => Some((Answer::Plain, Event::Satisfied)),
            ("review_feedback", "new") => words(Event::NewWork)?,
            ("echo_check" | "show_blueprint" | "show_risks" | "shape_approval", "yes") => {
                Some((Answer::Plain, Event::Yes))
            }
            ("echo_check" | "show_blueprint" | "show_risks" | "shape_approval", "edits" | "edit") => {
                words(Event::Edits)?
            }
            ("echo_check", "blueprint") => Some((Answer::Plain, Event::Blueprint)),
            ("echo_check", "risk") => Some((Answer::Plain, Event::Risk)),
            _ => None,
        })
    }

    /// Writes down what happened, then takes it in.
    fn note(&mut self, happened: &Happened, moods: &[mood::Event]) -> Result<(), SessionError> {
        let body = serde_json::to_value(happened).map_err(SessionError::json)?;
        let mut entry = Entry::new(happened.kind(), body);
        if let Happened::Answered { answer: Answer::Words(digest), .. } = happened {
            entry = entry.with_content("answer", *digest);
        }
        self.ward.record(moods, vec![entry])?;
        self.course.take(&self.chart, happened, |digest| text(&self.contents, digest))?;
        Ok(())
    }

    /// The persona's config: its name and its text.
    pub(super) fn config(&self) -> Result<(String, String), SessionError> {
        let name = &self.course.work.plan.persona.value;
        if let Some(digest) = self.settings.config {
            let missing = || SessionError::Told(format!("the text of the config `{name}` is gone from contents/"));
            return Ok((name.clone(), text(&self.contents, digest).ok_or_else(missing)?));
        }
        let found = examples().iter().find(|example| example.name == name);
        let unknown = || SessionError::Told(format!("no persona is called `{name}`: `loom examples` lists them"));
        found.map(|example| (example.path.to_owned(), example.yaml.to_owned())).ok_or_else(unknown)
    }
}

/// What a log tells.
struct Told {
    settings: Settings,
    of: Value,
    course: Course,
    clean: bool,
    spent: Budget,
}

/// A session from its log: replayed from its first word.
fn read(receipts: &[Receipt], contents: &Contents, folder: &Path) -> Result<Told, SessionError> {
    let none = || SessionError::Told(format!("{}: no session was begun here; start it", folder.display()));
    let begun = receipts.iter().find(|receipt| receipt.entry.kind == "session.begun").ok_or_else(none)?;
    let field = |name: &str| begun.entry.body.get(name).cloned().unwrap_or_default();
    let settings: Settings = serde_json::from_value(field("settings")).map_err(SessionError::json)?;
    let gone = || SessionError::Told("the text of the need is gone from contents/: begin a new session".to_owned());
    let need = begun.entry.contents.get("need").and_then(|digest| text(contents, *digest)).ok_or_else(gone)?;
    let chart = Arc::new(hope::chart()?);
    let mut course = Course::begin(&chart, &need, &said(&settings), settings.engagement);
    let mut spent = Budget::NOTHING;
    for receipt in receipts {
        match receipt.entry.kind.as_str() {
            "session.did" | "session.told" | "session.answered" => {
                let happened: Happened =
                    serde_json::from_value(receipt.entry.body.clone()).map_err(SessionError::json)?;
                course.take(&chart, &happened, |digest| text(contents, digest))?;
            }
            "gate.granted" => {
                let cost = receipt.entry.body.pointer("/request/effect/cost").cloned().unwrap_or_default();
                spent = spent.plus(&serde_json::from_value(cost).map_err(SessionError::json)?);
            }
            _ => {}
        }
    }
    let last = receipts.iter().rev().find(|receipt| receipt.entry.kind != "log.opened");
    let clean = last.is_some_and(|receipt| receipt.entry.kind == "session.handed_off");
    Ok(Told { settings, of: field("of"), course, clean, spent })
}

fn standing(course: &Course, chart: &Chart<Hope>, mood: Mood) -> Standing {
    Standing {
        leaves: course.leaves(chart),
        stage: course.stage(chart),
        mood,
        waiting: course.waiting,
        conclusion: course.work.conclusion,
        footer: course.work.footer.as_ref().map(ToString::to_string),
        report: say::report(&course.work, &course.facts),
    }
}

fn text(contents: &Contents, digest: Digest) -> Option<String> {
    contents.get(digest).ok().flatten().and_then(|bytes| String::from_utf8(bytes).ok())
}

fn said(settings: &Settings) -> Said {
    let Settings { persona, turns, rollouts, other, .. } = settings;
    Said { persona: persona.clone(), turns: *turns, rollouts: *rollouts, other: *other }
}

/// The hosts of the models that the user named: naming one is the grant for it.
fn hosts(settings: &Settings) -> Vec<String> {
    let chains = [&settings.model, &settings.persona_model, &settings.target];
    chains.into_iter().chain(&settings.judge).flat_map(ModelChain::specs).filter_map(providers::host).collect()
}

/// What a log depends on, beside itself.
fn identity(chart: &Chart<Hope>, profiles: &Profiles) -> Value {
    let moods: Vec<_> = profiles.iter().map(|profile| profile.digest).collect();
    json!({"chart": chart.digest(), "moods": moods, "loom": env!("CARGO_PKG_VERSION")})
}

fn engagement(text: &str) -> Option<(Answer, Event)> {
    let engagement = match text.trim().to_lowercase().as_str() {
        "autonomous" => Engagement::Autonomous,
        "collaborative" => Engagement::Collaborative,
        "guided" => Engagement::Guided,
        _ => return None,
    };
    Some((Answer::Engagement(engagement), Event::EngagementChosen))
}

/// `1A, 2B` as choices in the order of the questions; one that is left out, or `default`, keeps the recommended choice.
fn choices(text: &str) -> Option<Vec<usize>> {
    if text.trim().eq_ignore_ascii_case("default") {
        return Some(Vec::new());
    }
    let mut choices: Vec<usize> = Vec::new();
    for (index, part) in text.split(',').map(str::trim).enumerate() {
        let (number, letter) = part.split_at_checked(part.len().checked_sub(1)?)?;
        let letter = letter.chars().next()?.to_ascii_uppercase();
        if number.parse() != Ok(index + 1) || !letter.is_ascii_uppercase() {
            return None;
        }
        choices.push((letter as u8 - b'A') as usize);
    }
    (!choices.is_empty()).then_some(choices)
}

fn expected(stage: &str) -> &'static str {
    match stage {
        "clarify" => "like `1A, 2B`, in the order of the questions, or `default`",
        "echo_check" => "YES, EDITS: what to change, BLUEPRINT or RISK",
        "show_blueprint" | "show_risks" => "YES, or EDITS: what to change",
        "shape_approval" => "YES, EDITS: what to change, or CANCEL",
        "review_feedback" => "SATISFIED, or NEW: what else to do",
        "paused" => "RESUME or CANCEL",
        _ => "CANCEL or PAUSE",
    }
}
