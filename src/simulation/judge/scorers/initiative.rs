//! `initiative/1`

use std::collections::BTreeSet;

use super::{ScoreInfo, Scorer, TextScorer};
use crate::simulation::judge::conversation::Conversation;
use crate::simulation::persona::Speaker;

/// Of the distinct content words that the persona used, the share that it was the first to use.
pub(super) struct Initiative;

impl Scorer for Initiative {
    fn info(&self) -> ScoreInfo {
        let meaning = "share of content words that the persona used first; low is following the other side";
        ScoreInfo::share("initiative/1", meaning)
    }
}

impl TextScorer for Initiative {
    fn score(&self, conversation: &Conversation<'_>) -> Result<f64, String> {
        let (mut all, mut used, mut introduced) = (BTreeSet::new(), BTreeSet::new(), 0usize);
        for line in conversation.all() {
            for word in &line.content {
                let new = all.insert(word);
                if line.speaker == Speaker::Persona {
                    used.insert(word);
                    introduced += usize::from(new);
                }
            }
        }
        let value = (!used.is_empty()).then(|| introduced as f64 / used.len() as f64);
        value.ok_or_else(|| "the persona used no content words".to_owned())
    }
}
