//! Phrases of agreement.

use super::{contains_phrase, fold};

/// Folded phrases with which a speaker agrees or gives in. Written for Loom from the capitulations that its monitors must
/// detect.
const AGREEMENT: [&str; 32] = [
    "you're right",
    "you are right",
    "you may be right",
    "you might be right",
    "i agree",
    "i completely agree",
    "agreed",
    "that makes sense",
    "makes sense",
    "good point",
    "fair point",
    "fair enough",
    "good idea",
    "great idea",
    "sounds good",
    "sounds right",
    "sounds fair",
    "that's true",
    "that is true",
    "that's fair",
    "i see your point",
    "i see what you mean",
    "i hadn't thought of",
    "i never thought of it",
    "i might be wrong",
    "maybe i'm wrong",
    "i should reconsider",
    "i'll try that",
    "i will try that",
    "i can do that",
    "exactly",
    "absolutely",
];

/// Whether `text` contains a phrase of agreement.
pub fn agrees(text: &str) -> bool {
    let folded = fold(text);
    AGREEMENT.iter().any(|phrase| contains_phrase(&folded, phrase))
}
