//! The other side as an adversary: what it is told, and what it is up to in each turn.

use super::transcript::AdversaryMove;
use crate::foundation::base::Stream;
use crate::simulation::persona::{AdversaryKind, PersonaConfig};

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AdversaryError(String);

pub(super) struct Adversary {}

impl Adversary {
    pub(super) fn new(kind: AdversaryKind, _config: &PersonaConfig) -> Result<Option<Self>, AdversaryError> {
        if kind == AdversaryKind::None { Ok(None) } else { Err(AdversaryError("not yet".into())) }
    }
    pub(super) fn prompt(&self) -> &str {
        ""
    }
    pub(super) fn choose(&self, _turn: usize, _stream: Stream) -> AdversaryMove {
        AdversaryMove { kind: AdversaryKind::None, strategy: String::new(), instruction: String::new() }
    }
}
