//! The data of a session, and helpers used by all of its parts: recording events and looking up texts.

use std::path::PathBuf;
use std::sync::Arc;

use super::outcome::{ActionOutcome, SessionEvent};
use super::setup::{SessionError, SessionSettings};
use super::state::SessionState;
use super::tools::Files;
use crate::foundation::base::Digest;
use crate::foundation::chat::LanguageModel;
use crate::foundation::gate::LedgerEntry;
use crate::foundation::store::receipts::{ContentStore, PublicKey};
use crate::governance::mood::{self, Heartbeat};
use crate::governance::statechart::Chart;
use crate::governance::statechart::hope::{Event, HopeVocabulary};
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;
use crate::simulation::persona::examples;

pub(super) type Model = Arc<dyn LanguageModel>;

/// A session.
pub struct Session {
    pub(super) folder: PathBuf,
    pub(super) settings: SessionSettings,
    pub(super) chart: Arc<Chart<HopeVocabulary>>,
    pub(super) state: SessionState,
    pub(super) authorizer: Authorizer,
    pub(super) contents: ContentStore,
    pub(super) files: Files,
    pub(super) options: OpenOptions,
    /// The key of the session's log.
    pub(super) key: PublicKey,
    pub(super) model: Model,
    /// The stronger model, used after repeated unsure answers.
    pub(super) strong: Option<Model>,
    /// Number of consecutive unsure answers in the current action.
    pub(super) unsure: usize,
    pub(super) beat: Heartbeat,
    /// Receives the messages to the user.
    pub(super) on_message: Box<dyn FnMut(&str) + Send>,
}

impl Session {
    /// Writes an event to the log, then applies it to the state.
    pub(super) fn note(&mut self, happened: &SessionEvent, moods: &[mood::MoodEvent]) -> Result<(), SessionError> {
        let body = serde_json::to_value(happened).map_err(SessionError::json)?;
        let mut entry = LedgerEntry::new(happened.kind(), body);
        if let SessionEvent::Answered { answer, .. } = happened
            && let Some(digest) = answer.words()
        {
            entry = entry.with_content("answer", digest);
        }
        self.authorizer.record_mood(moods, vec![entry])?;
        self.state.apply(&self.chart, happened, |digest| text(&self.contents, digest))?;
        Ok(())
    }

    pub(super) fn text_of(&self, digest: Digest) -> Option<String> {
        text(&self.contents, digest)
    }

    /// The persona's config: name and text.
    pub(super) fn config(&self) -> Result<(String, String), SessionError> {
        let name = &self.state.work.plan.persona.value;
        if let Some(digest) = self.settings.config {
            let missing = || SessionError::Message(format!("the text of the config `{name}` is missing in contents/"));
            return Ok((name.clone(), text(&self.contents, digest).ok_or_else(missing)?));
        }
        let found = examples().iter().find(|example| example.name == name);
        let unknown = || SessionError::Message(format!("there is no persona `{name}`: `loom examples` lists them"));
        found.map(|example| (example.path.to_owned(), example.yaml.to_owned())).ok_or_else(unknown)
    }
}

/// The result of an action: its outcome, the events to send to the chart, whether the session waits for the user, and
/// the mood events.
pub(super) struct Performed {
    pub(super) outcome: ActionOutcome,
    pub(super) next_events: Vec<Event>,
    pub(super) waits: bool,
    pub(super) moods: Vec<mood::MoodEvent>,
}

impl From<(ActionOutcome, Vec<Event>)> for Performed {
    fn from((outcome, next_events): (ActionOutcome, Vec<Event>)) -> Self {
        Self { outcome, next_events, waits: false, moods: Vec::new() }
    }
}

/// The text with this digest, if it exists.
pub(super) fn text(contents: &ContentStore, digest: Digest) -> Option<String> {
    contents.get(digest).ok().flatten().and_then(|bytes| String::from_utf8(bytes).ok())
}
