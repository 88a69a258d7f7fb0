//! One token as JSON: everything that the model thought of it. Log-probabilities are written as the f64 that the f32 is,
//! so that sums made elsewhere are the sums made here.

use serde_json::{Value, json};

use crate::foundation::chat::{TokenId, TokenLogprob, Vocabulary};

/// `{"id", "text", "logprob", "entropy", "rank", "top": [{"id", "text", "logprob"}]}`; what is not known is `null`.
pub(in crate::app) fn reading(token: &TokenLogprob, vocabulary: Option<&dyn Vocabulary>) -> Value {
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

/// The text of one token by itself.
pub(in crate::app) fn text_of(id: TokenId, vocabulary: Option<&dyn Vocabulary>) -> Option<String> {
    vocabulary?.decode(&[id]).ok()
}
