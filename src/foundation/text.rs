//! Texts: typographic folding, words and content words, TF-IDF, lexical diversity. Pure; knows no persona and no model.
//!
//! Everything compares *folded* text ([`fold`]): lower case, straight quotes and dashes, single spaces. So a phrase that
//! a user typed on a keyboard is found in prose that a model set with typographic quotes.

mod agreement;
mod content;
mod diversity;
mod ending;
mod fold;
mod tfidf;

pub use agreement::agrees;
pub use content::{content_words, is_stop_word};
pub use diversity::{distinct_n, moving_type_token_ratio, self_repetition};
pub use ending::ends_with_question;
pub use fold::{contains_phrase, fold, straighten, words};
pub use tfidf::{SparseVector, mean_pairwise_cosine, tfidf};
