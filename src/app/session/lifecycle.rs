//! Starts, resumes and runs a session: the next step comes from the state, is performed, logged and applied.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::core::{Model, Performed, Session, text};
use super::outcome::SessionEvent;
use super::setup::{SessionEnv, SessionError, SessionSettings, SessionStatus, SessionTexts};
use super::state::{SessionState, Todo};
use super::tools::Files;
use super::{authorizer, documents, messages, need, wave};
use crate::foundation::base::limits::{self, RECEIPTS_BYTES_MAX};
use crate::foundation::gate::{Budget, LedgerEntry, Scope};
use crate::foundation::store::read_limited;
use crate::foundation::store::receipts::{ContentStore, LOG, PublicKey, Receipt, ReceiptLog, SharedLog, chain};
use crate::governance::mood::{
    self, Heartbeat, Mood, MoodFact, MoodFacts, MoodProfiles, MoodState, TransitionCounter, replay, step_entry,
};
use crate::governance::statechart::Chart;
use crate::governance::statechart::hope::{self, Action, HopeVocabulary};
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;

impl Session {
    /// Starts a session.
    ///
    /// # Errors
    /// If the folder already holds a session, or something it needs is missing.
    pub fn start(
        env: SessionEnv,
        need: &str,
        mut settings: SessionSettings,
        texts: &SessionTexts<'_>,
    ) -> Result<Self, SessionError> {
        if need.trim().is_empty() || need.len() > limits::SESSION_TEXT_BYTES_MAX {
            let most = limits::SESSION_TEXT_BYTES_MAX;
            return Err(SessionError::Message(format!("a need must have 1 to {most} bytes (SESSION_TEXT_BYTES_MAX)")));
        }
        need::check_scope(need, &settings.stated_plan()).map_err(SessionError::Message)?;
        let plan = need::Plan::read(need, &settings.stated_plan());
        if plan.threshold.is_some() && plan.measure.value.is_none() && plan.compared().is_none() {
            return Err(SessionError::Message("a threshold needs its score: name it with --measure ID".to_owned()));
        }
        let (log, opened) = ReceiptLog::open(Arc::clone(&env.disk), Arc::clone(&env.key), env.clock.now())?;
        if opened.receipts.iter().any(|receipt| receipt.entry.kind == "session.begun") {
            let folder = env.folder.display();
            return Err(SessionError::Message(format!(
                "{folder} already holds a session: name another folder, or resume it"
            )));
        }
        let contents = log.contents();
        let put = |text: &str| contents.put(text.as_bytes()).map_err(SessionError::io("keep a text in", &env.folder));
        let digest = put(need)?;
        settings.config = texts.config.map(put).transpose()?;
        if let Some((name, text)) = &texts.other_config {
            settings.other_config = Some((name.clone(), put(text)?));
        }
        settings.moods = texts.moods.iter().map(|text| put(text)).collect::<Result<_, _>>()?;
        let (chart, profiles) = (Arc::new(hope::chart()?), profiles(&settings, &contents)?);
        let begun =
            LedgerEntry::new("session.begun", json!({ "settings": &settings, "of": identity(&chart, &profiles) }));
        let entered = MoodState::enter(MoodFacts::of(&[MoodFact::Unaimed]));
        let entries =
            [begun.with_content("need", digest), step_entry(None, MoodFacts::of(&[MoodFact::Unaimed]), &entered)];
        let state = SessionState::begin(&chart, need, &settings.stated_plan(), settings.engagement);
        let (log, mood) = (SharedLog::new(log), (profiles, entered.state));
        let authorizer = authorizer::open(log, mood, &settings.hosts(), &Budget::NOTHING, env.clock)?;
        // A session whose models cannot be opened has not begun.
        let (model, strong) = models(&settings, &authorizer, &env.options)?;
        authorizer.record(entries.into())?;
        Self::assembled(
            (env.folder, env.options, env.key.public()),
            settings,
            chart,
            state,
            authorizer,
            contents,
            (model, strong),
        )
    }

    /// Resumes a session. Its log is verified and replayed. If it was not handed off cleanly it starts in CONTRITE. It
    /// continues only if chart, moods and program version are those it was started with.
    ///
    /// # Errors
    /// If there is no session, its log is damaged, or another version of the program wrote it.
    pub fn resume(env: SessionEnv) -> Result<Self, SessionError> {
        if wave::is_fresh(&env.folder) {
            return Err(SessionError::Message(format!("{} holds no session", env.folder.display())));
        }
        let now = env.clock.now();
        let (log, opened) = ReceiptLog::open(Arc::clone(&env.disk), Arc::clone(&env.key), now)?;
        let contents = log.contents();
        let LoggedSession { settings, of, state, clean, spent } = read(&opened.receipts, &contents, &env.folder)?;
        let (chart, profiles) = (Arc::new(hope::chart()?), profiles(&settings, &contents)?);
        let moods = replay(opened.receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry)))?;
        let missing = || SessionError::Message("the log has no mood: start a new session".to_owned());
        let mood_state = moods.into_iter().last().ok_or_else(missing)?.state;
        let authorizer = authorizer::open(
            SharedLog::new(log),
            (profiles.clone(), mood_state),
            &settings.hosts(),
            &spent,
            env.clock,
        )?;
        let (model, strong) = models(&settings, &authorizer, &env.options)?;
        let session = Self::assembled(
            (env.folder, env.options, env.key.public()),
            settings,
            chart,
            state,
            authorizer,
            contents,
            (model, strong),
        )?;
        let consistent = of == identity(&session.chart, &profiles);
        if !clean || !consistent {
            session.authorizer.record_mood(&[mood::MoodEvent::Restarted], Vec::new())?;
            let resumed = LedgerEntry::new("session.resumed", json!({"consistent": consistent, "was": of}));
            session.authorizer.record_mood(&[mood::MoodEvent::Projected { consistent }], vec![resumed])?;
        }
        if !consistent {
            let why = "this session was started with another chart, other moods or another version of loom: continue it with that version";
            return Err(SessionError::Message(why.to_owned()));
        }
        session.check_not_halted()?;
        Ok(session)
    }

    /// A session in `folder` whose parts are open.
    fn assembled(
        (folder, options, key): (PathBuf, OpenOptions, PublicKey),
        settings: SessionSettings,
        chart: Arc<Chart<HopeVocabulary>>,
        state: SessionState,
        authorizer: Authorizer,
        contents: ContentStore,
        (model, strong): (Model, Option<Model>),
    ) -> Result<Self, SessionError> {
        let files = Files::open(&folder, Scope::Notes).map_err(SessionError::io("open", &folder))?;
        Ok(Self {
            beat: beat(&authorizer),
            on_message: Box::new(|_: &str| {}),
            unsure: 0,
            folder,
            settings,
            chart,
            state,
            authorizer,
            contents,
            files,
            options,
            key,
            model,
            strong,
        })
    }

    /// A session whose transition counter is exhausted cannot continue.
    fn check_not_halted(&self) -> Result<(), SessionError> {
        self.authorizer.mood().halted().map_or(Ok(()), |counter| {
            Err(SessionError::Message(format!(
                "the session cannot continue: its {} are used up; its results are in its folder; start another one with `loom session start`",
                counter.name()
            )))
        })
    }

    /// The status of the session in a folder, from its log only; writes nothing.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn look(receipts: &[Receipt], contents: &ContentStore, folder: &Path) -> Result<SessionStatus, SessionError> {
        let LoggedSession { state, .. } = read(receipts, contents, folder)?;
        let moods = replay(receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry)))?;
        let (mood, halted) =
            moods.last().map_or((Mood::Contrite, None), |step| (step.state.mood(), step.state.halted()));
        Ok(session_status(&state, &hope::chart()?, mood, halted))
    }

    /// Sets the receiver of messages to the user.
    pub fn on_message(&mut self, listener: impl FnMut(&str) + Send + 'static) {
        self.on_message = Box::new(listener);
    }

    /// The status of the session.
    pub fn session_status(&self) -> SessionStatus {
        {
            let mood = self.authorizer.mood();
            session_status(&self.state, &self.chart, mood.mood(), mood.halted())
        }
    }

    /// Runs until the session waits for the user or is over.
    ///
    /// # Errors
    /// If a step fails that the session depends on; it can be resumed from there.
    pub async fn go(&mut self) -> Result<SessionStatus, SessionError> {
        while let Some(todo) = self.state.next() {
            self.check_heartbeat()?;
            self.check_not_halted()?;
            // The user's question is answered, or took its default.
            if self.authorizer.mood().mood() == Mood::Deferential && !self.state.waiting {
                self.authorizer.record_mood(&[mood::MoodEvent::PreferenceSet], Vec::new())?;
            }
            let (happened, moods) = match todo {
                Todo::Send(event) => (self.state.send(&self.chart, event), Vec::new()),
                Todo::Do(action) => {
                    let Performed { outcome, next_events, waits, moods } = self.perform(action).await?;
                    (SessionEvent::ActionDone { action, outcome, next_events, waits }, moods)
                }
            };
            self.note(&happened, &moods)?;
            if todo == Todo::Do(Action::RunWave) {
                // Rollouts may take hours; they write their own receipts.
                self.beat.last = self.authorizer.now();
            }
        }
        self.hand_off()?;
        Ok(self.session_status())
    }

    /// Hands the session off: what follows in the log is not a recovery.
    pub(super) fn hand_off(&mut self) -> Result<(), SessionError> {
        let handed = LedgerEntry::new("session.handed_off", json!({"stage": self.state.stage(&self.chart)}));
        self.authorizer.hand_off(handed)?;
        Ok(())
    }

    /// Records a heartbeat. An overdue heartbeat, or one from the future, counts as a crash (the machine slept, or its
    /// clock was set); then the log is verified again.
    fn check_heartbeat(&mut self) -> Result<(), SessionError> {
        let now = self.authorizer.now();
        if self.beat.is_stale(now) {
            self.authorizer.record_mood(&[mood::MoodEvent::HeartbeatStale], Vec::new())?;
            let log = read_limited(&self.folder.join(LOG), RECEIPTS_BYTES_MAX)
                .map_err(SessionError::io("read the log in", &self.folder))?;
            let whole = chain(&log);
            let last = json!({"consistent": whole.is_ok(), "last_heartbeat": self.beat.last.to_string()});
            let resumed = LedgerEntry::new("session.resumed", last);
            self.authorizer.record_mood(&[mood::MoodEvent::Projected { consistent: whole.is_ok() }], vec![resumed])?;
            whole.map_err(|fault| SessionError::Message(fault.to_string()))?;
        }
        self.beat.last = now;
        Ok(())
    }

    /// A summary for the person who resumes the work.
    pub fn recap(&self) -> String {
        messages::recap(&self.state, &self.state.stage(&self.chart))
    }
}

/// A session read from its log.
struct LoggedSession {
    settings: SessionSettings,
    of: Value,
    state: SessionState,
    clean: bool,
    spent: Budget,
}

/// Replays a session from its log.
fn read(receipts: &[Receipt], contents: &ContentStore, folder: &Path) -> Result<LoggedSession, SessionError> {
    let none = || SessionError::Message(format!("{} has no session: start it", folder.display()));
    let begun = receipts.iter().find(|receipt| receipt.entry.kind == "session.begun").ok_or_else(none)?;
    let field = |name: &str| begun.entry.body.get(name).cloned().unwrap_or_default();
    let settings: SessionSettings = serde_json::from_value(field("settings")).map_err(SessionError::json)?;
    let gone = || SessionError::Message("the text of the need is missing in contents/: start a new session".to_owned());
    let need = begun.entry.contents.get("need").and_then(|digest| text(contents, *digest)).ok_or_else(gone)?;
    let chart = Arc::new(hope::chart()?);
    let mut state = SessionState::begin(&chart, &need, &settings.stated_plan(), settings.engagement);
    let mut spent = Budget::NOTHING;
    for receipt in receipts {
        match receipt.entry.kind.as_str() {
            "session.did" | "session.told" | "session.answered" => {
                let happened: SessionEvent =
                    serde_json::from_value(receipt.entry.body.clone()).map_err(SessionError::json)?;
                state.apply(&chart, &happened, |digest| text(contents, digest))?;
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
    Ok(LoggedSession { settings, of: field("of"), state, clean, spent })
}

fn session_status(
    state: &SessionState,
    chart: &Chart<HopeVocabulary>,
    mood: Mood,
    halted: Option<TransitionCounter>,
) -> SessionStatus {
    let stage = state.stage(chart);
    SessionStatus {
        leaves: state.leaves(chart),
        question: state.is_open().then(|| messages::question(&stage, state)),
        file: (state.is_over() && state.facts.gate_passed).then(|| state.work.file("report")),
        stage,
        mood,
        halted,
        waiting: state.is_open(),
        conclusion: state.work.conclusion,
        footer: state.work.footer.as_ref().map(ToString::to_string),
        report: documents::report(&state.work, &state.facts),
    }
}

/// The moods' profiles, including those narrowed by the user.
fn profiles(settings: &SessionSettings, contents: &ContentStore) -> Result<MoodProfiles, SessionError> {
    let gone = || SessionError::Message("the text of a mood's profile is missing in contents/".to_owned());
    settings.moods.iter().try_fold(MoodProfiles::shipped()?, |profiles, digest| {
        Ok(profiles.narrowed("the user's profile", &text(contents, *digest).ok_or_else(gone)?)?)
    })
}

/// The identity of chart, moods and program that a log depends on.
fn identity(chart: &Chart<HopeVocabulary>, profiles: &MoodProfiles) -> Value {
    let moods: Vec<_> = profiles.iter().map(|profile| profile.digest).collect();
    json!({"chart": chart.digest(), "moods": moods, "loom": env!("CARGO_PKG_VERSION")})
}

/// The session's model and the stronger one, if named.
fn models(
    settings: &SessionSettings,
    authorizer: &Authorizer,
    options: &OpenOptions,
) -> Result<(Model, Option<Model>), SessionError> {
    let strong = settings.strong.as_ref().map(|chain| authorizer.open_model(chain, options)).transpose()?;
    Ok((authorizer.open_model(&settings.model, options)?, strong))
}

fn beat(authorizer: &Authorizer) -> Heartbeat {
    Heartbeat { last: authorizer.now(), every: SignedDuration::from_secs(limits::SESSION_HEARTBEAT_SECONDS_MAX) }
}
