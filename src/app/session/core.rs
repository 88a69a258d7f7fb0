//! What a session holds, and what all who work in it do: they note what happened, and look up texts.

use std::path::PathBuf;
use std::sync::Arc;

use super::course::Course;
use super::outcome::{Happened, Outcome};
use super::place::{SessionError, Settings};
use super::tools::Files;
use super::ward::Ward;
use crate::foundation::base::Digest;
use crate::foundation::chat::LanguageModel;
use crate::foundation::gate::Entry;
use crate::foundation::store::receipts::Contents;
use crate::governance::mood::{self, Heartbeat};
use crate::governance::statechart::Chart;
use crate::governance::statechart::hope::{Event, Hope};
use crate::inference::providers::OpenOptions;
use crate::simulation::persona::examples;

pub(super) type Model = Arc<dyn LanguageModel>;

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
    pub(super) model: Model,
    /// Who is asked where that one was unsure again and again.
    pub(super) strong: Option<Model>,
    /// How often in a row the model was unsure in this action.
    pub(super) unsure: usize,
    pub(super) beat: Heartbeat,
    /// Hears what is said to the user.
    pub(super) told: Box<dyn FnMut(&str) + Send>,
}

impl Session {
    /// Writes down what happened, then takes it in.
    pub(super) fn note(&mut self, happened: &Happened, moods: &[mood::Event]) -> Result<(), SessionError> {
        let body = serde_json::to_value(happened).map_err(SessionError::json)?;
        let mut entry = Entry::new(happened.kind(), body);
        if let Happened::Answered { answer, .. } = happened
            && let Some(digest) = answer.words()
        {
            entry = entry.with_content("answer", digest);
        }
        self.ward.record(moods, vec![entry])?;
        self.course.take(&self.chart, happened, |digest| text(&self.contents, digest))?;
        Ok(())
    }

    pub(super) fn text_of(&self, digest: Digest) -> Option<String> {
        text(&self.contents, digest)
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

/// What came of an action: what is remembered, what the chart is told, whether the user is waited for, what it means for the
/// mood.
pub(super) struct Performed {
    pub(super) outcome: Outcome,
    pub(super) tells: Vec<Event>,
    pub(super) waits: bool,
    pub(super) moods: Vec<mood::Event>,
}

impl From<(Outcome, Vec<Event>)> for Performed {
    fn from((outcome, tells): (Outcome, Vec<Event>)) -> Self {
        Self { outcome, tells, waits: false, moods: Vec::new() }
    }
}

/// The text of a digest, if it is there.
pub(super) fn text(contents: &Contents, digest: Digest) -> Option<String> {
    contents.get(digest).ok().flatten().and_then(|bytes| String::from_utf8(bytes).ok())
}
