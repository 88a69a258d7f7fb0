//! A session begun, answered, resumed and driven: what is next is asked of the course, done, written down and taken in.

use std::path::Path;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::core::{Model, Performed, Session, text};
use super::course::{Course, Todo};
use super::need::Said;
use super::outcome::Happened;
use super::place::{Place, SessionError, Settings, Standing, Texts};
use super::tools::Files;
use super::ward::Ward;
use super::{pages, say, wave};
use crate::foundation::base::limits;
use crate::foundation::gate::{Budget, Entry, Scope};
use crate::foundation::store::receipts::{Contents, LOG, Receipt, ReceiptLog, SharedLog, chain};
use crate::governance::mood::{self, Counter, Fact, Facts, Heartbeat, Mood, MoodState, Profiles, replay, step_entry};
use crate::governance::statechart::Chart;
use crate::governance::statechart::hope::{self, Action, Hope};
use crate::inference::providers::{self, OpenOptions};

impl Session {
    /// Begins a session.
    ///
    /// # Errors
    /// When the folder holds one already, or anything that it needs is not there.
    pub fn start(place: Place, need: &str, mut settings: Settings, texts: &Texts<'_>) -> Result<Self, SessionError> {
        if need.trim().is_empty() || need.len() > limits::SESSION_TEXT_BYTES_MAX {
            let most = limits::SESSION_TEXT_BYTES_MAX;
            return Err(SessionError::Told(format!("a need has from 1 to {most} bytes (SESSION_TEXT_BYTES_MAX)")));
        }
        let (model, strong) = models(&settings, &place.options)?;
        let (log, opened) = ReceiptLog::open(Arc::clone(&place.disk), Arc::clone(&place.key), place.clock.now())?;
        if opened.receipts.iter().any(|receipt| receipt.entry.kind == "session.begun") {
            let folder = place.folder.display();
            return Err(SessionError::Told(format!("{folder} holds a session: name another folder, or resume it")));
        }
        let contents = log.contents();
        let put = |text: &str| contents.put(text.as_bytes()).map_err(SessionError::io("keep a text in", &place.folder));
        let digest = put(need)?;
        settings.config = texts.config.map(put).transpose()?;
        settings.moods = texts.moods.iter().map(|text| put(text)).collect::<Result<_, _>>()?;
        let (chart, profiles) = (Arc::new(hope::chart()?), profiles(&settings, &contents)?);
        let begun = Entry::new("session.begun", json!({ "settings": &settings, "of": identity(&chart, &profiles) }));
        let entered = MoodState::enter(Facts::of(&[Fact::Unaimed]));
        let entries = [begun.with_content("need", digest), step_entry(None, Facts::of(&[Fact::Unaimed]), &entered)];
        let log = SharedLog::new(log);
        log.record(place.clock.now(), &entries)?;
        let course = Course::begin(&chart, need, &said(&settings), settings.engagement);
        let ward = Ward::open(log, (profiles, entered.state), &settings.hosts(), &Budget::NOTHING, place.clock)?;
        let files = Files::open(&place.folder, Scope::Notes).map_err(SessionError::io("open", &place.folder))?;
        let (folder, options, beat) = (place.folder, place.options, beat(&ward));
        let (told, unsure) = (Box::new(|_: &str| {}), 0);
        Ok(Self { folder, settings, chart, course, ward, contents, files, options, model, strong, unsure, beat, told })
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
        let (chart, profiles) = (Arc::new(hope::chart()?), profiles(&settings, &contents)?);
        let moods = replay(opened.receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry)))?;
        let missing = || SessionError::Told("the log has no mood: begin a new session".to_owned());
        let state = moods.into_iter().last().ok_or_else(missing)?.state;
        let (model, strong) = models(&settings, &place.options)?;
        let ward = Ward::open(SharedLog::new(log), (profiles.clone(), state), &settings.hosts(), &spent, place.clock)?;
        let files = Files::open(&place.folder, Scope::Notes).map_err(SessionError::io("open", &place.folder))?;
        let (folder, options, beat) = (place.folder, place.options, beat(&ward));
        let (told, unsure) = (Box::new(|_: &str| {}), 0);
        let mut session =
            Self { folder, settings, chart, course, ward, contents, files, options, model, strong, unsure, beat, told };
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
        session.is_movable()?;
        Ok(session)
    }

    /// Moods that have spent one of their counters only ask, for good.
    fn is_movable(&self) -> Result<(), SessionError> {
        self.ward.halted().map_or(Ok(()), |counter| {
            Err(SessionError::Told(format!(
                "the session may do nothing more: its {} are used up; what it found lies in its folder, and `loom session start` begins another",
                counter.name()
            )))
        })
    }

    /// Where the session in a folder stands, from its log alone; nothing is written.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn look(receipts: &[Receipt], contents: &Contents, folder: &Path) -> Result<Standing, SessionError> {
        let Told { course, .. } = read(receipts, contents, folder)?;
        let moods = replay(receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry)))?;
        let (mood, halted) =
            moods.last().map_or((Mood::Contrite, None), |step| (step.state.mood(), step.state.halted()));
        Ok(standing(&course, &hope::chart()?, mood, halted))
    }

    /// Has `told` hear what is said to the user.
    pub fn hear(&mut self, told: impl FnMut(&str) + Send + 'static) {
        self.told = Box::new(told);
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        standing(&self.course, &self.chart, self.ward.mood(), self.ward.halted())
    }

    /// Goes on until the session waits for the user or is over.
    ///
    /// # Errors
    /// When something that it cannot go on without fails; it can be resumed from there.
    pub async fn go(&mut self) -> Result<Standing, SessionError> {
        while let Some(todo) = self.course.next() {
            self.is_alive()?;
            self.is_movable()?;
            // What the user was asked is answered, or took its default.
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
            if todo == Todo::Do(Action::RunWave) {
                // Rollouts may take hours; their own receipts are their signs of life.
                self.beat.last = self.ward.now();
            }
        }
        self.hand_off()?;
        Ok(self.standing())
    }

    /// Leaves the session to whoever takes it up next: what follows this in the log is no recovery.
    pub(super) fn hand_off(&mut self) -> Result<(), SessionError> {
        let handed = Entry::new("session.handed_off", json!({"stage": self.course.stage(&self.chart)}));
        self.ward.record(&[], vec![handed])?;
        self.ward.log().log().seal()?;
        Ok(())
    }

    /// A sign of life. One that is overdue, or from the future, counts as a crash: the machine slept, or its clock was
    /// set. Then the log must still be whole.
    fn is_alive(&mut self) -> Result<(), SessionError> {
        let now = self.ward.now();
        if self.beat.is_stale(now) {
            self.ward.record(&[mood::Event::HeartbeatStale], Vec::new())?;
            let log =
                std::fs::read(self.folder.join(LOG)).map_err(SessionError::io("read the log in", &self.folder))?;
            let whole = chain(&log);
            let last = json!({"consistent": whole.is_ok(), "last_heartbeat": self.beat.last.to_string()});
            let resumed = Entry::new("session.resumed", last);
            self.ward.record(&[mood::Event::Projected { consistent: whole.is_ok() }], vec![resumed])?;
            whole.map_err(|fault| SessionError::Told(fault.to_string()))?;
        }
        self.beat.last = now;
        Ok(())
    }

    /// What stands in the log for whoever takes the work up again.
    pub fn recap(&self) -> String {
        say::recap(&self.course, &self.course.stage(&self.chart))
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
    let own = |receipt: &&Receipt| !["log.opened", "content.erased"].contains(&receipt.entry.kind.as_str());
    let last = receipts.iter().rev().find(own);
    let clean = last.is_some_and(|receipt| receipt.entry.kind == "session.handed_off");
    Ok(Told { settings, of: field("of"), course, clean, spent })
}

fn standing(course: &Course, chart: &Chart<Hope>, mood: Mood, halted: Option<Counter>) -> Standing {
    let stage = course.stage(chart);
    Standing {
        leaves: course.leaves(chart),
        asked: course.is_open().then(|| say::asked(&stage, course)),
        file: course.is_over().then(|| course.work.file("report")),
        stage,
        mood,
        halted,
        waiting: course.is_open(),
        conclusion: course.work.conclusion,
        footer: course.work.footer.as_ref().map(ToString::to_string),
        report: pages::report(&course.work, &course.facts),
    }
}

fn said(settings: &Settings) -> Said {
    let Settings { persona, turns, rollouts, other, .. } = settings;
    Said { persona: persona.clone(), turns: *turns, rollouts: *rollouts, other: *other }
}

/// The moods' profiles, those that the user narrowed among them.
fn profiles(settings: &Settings, contents: &Contents) -> Result<Profiles, SessionError> {
    let gone = || SessionError::Told("the text of a mood's profile is gone from contents/".to_owned());
    settings.moods.iter().try_fold(Profiles::shipped()?, |profiles, digest| {
        Ok(profiles.narrowed("the user's profile", &text(contents, *digest).ok_or_else(gone)?)?)
    })
}

/// What a log depends on, beside itself.
fn identity(chart: &Chart<Hope>, profiles: &Profiles) -> Value {
    let moods: Vec<_> = profiles.iter().map(|profile| profile.digest).collect();
    json!({"chart": chart.digest(), "moods": moods, "loom": env!("CARGO_PKG_VERSION")})
}

/// The session's own model and the stronger one; without a stronger one nobody is asked again.
fn models(settings: &Settings, options: &OpenOptions) -> Result<(Model, Option<Model>), SessionError> {
    let strong = settings.strong.as_ref().map(|chain| providers::open(chain, options)).transpose()?;
    Ok((providers::open(&settings.model, options)?, strong))
}

fn beat(ward: &Ward) -> Heartbeat {
    Heartbeat { last: ward.now(), every: SignedDuration::from_secs(limits::SESSION_HEARTBEAT_SECONDS_MAX) }
}
