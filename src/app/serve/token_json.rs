//! One token as JSON, with its log-probability, entropy, rank and alternatives. Log-probabilities are written as f64,
//! so that sums computed by clients are exact.

use serde_json::{Value, json};

use crate::foundation::chat::{TokenId, TokenLogprob, Vocabulary};

/// `{"id", "text", "logprob", "entropy", "rank", "top": [{"id", "text", "logprob"}]}`; unknown values are `null`.
pub(in crate::app) fn token_json(token: &TokenLogprob, vocabulary: Option<&dyn Vocabulary>) -> Value {
    let top = token
        .top
        .iter()
        .map(|&(id, logprob)| json!({ "id": id, "text": text_of(id, vocabulary), "logprob": f64::from(logprob) }));
    json!({
        "id": token.id,
        "text": token.text,
        "logprob": token.logprob.map(f64::from),
        "entropy": token.entropy.map(f64::from),
        "rank": token.rank,
        "top": top.collect::<Vec<_>>(),
    })
}

/// The text of the first token of a text: empty if it ends inside a character, which belongs to the token that
/// completes it.
pub(in crate::app) fn text_of_first(id: TokenId, vocabulary: &dyn Vocabulary) -> String {
    let text = text_of(id, Some(vocabulary)).unwrap_or_default();
    if text.ends_with(char::REPLACEMENT_CHARACTER) { String::new() } else { text }
}

/// The text of a single token.
pub(in crate::app) fn text_of(id: TokenId, vocabulary: Option<&dyn Vocabulary>) -> Option<String> {
    vocabulary?.decode(&[id]).ok()
}
