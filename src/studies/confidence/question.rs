//! Questions of tasks.

use super::protocol::Protocol;
use crate::foundation::base::Digest;
use crate::foundation::chat::Message;

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// Choice among candidates: the model's choice is the most likely one.
    Choose {
        /// The conversation before the answer.
        prompt: Vec<Message>,
        /// The candidates.
        candidates: Vec<String>,
        /// Index of the right one.
        right: usize,
        /// How likelihoods are compared.
        by: Likelihood,
        /// The name of all this.
        protocol: Protocol,
    },
    /// Free answer.
    Answer {
        /// The conversation before the answer.
        prompt: Vec<Message>,
        /// Answers known to be right.
        references: Vec<String>,
        /// How an answer is read, and when it matches one of them.
        protocol: Protocol,
    },
}

/// How the likelihoods of candidates are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likelihood {
    /// Of the whole candidate: for candidates of similar length.
    Whole,
    /// Per token: for candidates of different lengths.
    PerToken,
}

impl Question {
    /// How its answer is read.
    pub const fn protocol(&self) -> Protocol {
        match self {
            Self::Choose { protocol, .. } | Self::Answer { protocol, .. } => *protocol,
        }
    }

    /// The digest of its content.
    pub(super) fn id(&self) -> Digest {
        let texts = |messages: &[Message]| messages.iter().map(|message| message.content.clone()).collect::<Vec<_>>();
        Digest::of(match self {
            Self::Choose { prompt, candidates, right, .. } => format!("{:?}", (texts(prompt), candidates, right)),
            Self::Answer { prompt, references, .. } => format!("{:?}", (texts(prompt), references)),
        })
    }
}
