//! One side's regulator, listening to its model.

use super::transcript::{TokenLine, Utterance};
use crate::foundation::chat::{Completion, Flow, TokenLogprob, TokenSink};

/// A regulator.
#[derive(Clone)]
pub(super) struct Watch {}

impl Watch {
    pub(super) fn new() -> Self {
        Self {}
    }
    pub(super) fn heard(&mut self, _text: &str) {}
    pub(super) fn sink(&mut self) -> Box<dyn TokenSink + '_> {
        Box::new(|_: &TokenLogprob| Flow::Continue)
    }
    pub(super) fn complete(&mut self, _before: &Self, _completion: &Completion) {}
    pub(super) fn replay<'a>(&mut self, _utterance: &Utterance, _lines: impl Iterator<Item = &'a TokenLine>) {}
}
