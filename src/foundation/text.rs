//! Text functions: typographic folding, words and content words, TF-IDF, lexical diversity, and text from outside made safe
//! to show.
//!
//! All comparisons use *folded* text ([`fold`]): lower case, straight quotes and dashes, single spaces. So a phrase typed
//! with straight quotes is found in prose that a model wrote with typographic quotes.

mod agreement;
mod content;
mod diversity;
mod ending;
mod fold;
mod outside;
mod tfidf;

pub use agreement::agrees;
pub use content::{content_words, is_stop_word};
pub use diversity::{distinct_n, moving_type_token_ratio, self_repetition};
pub use ending::ends_with_question;
pub use fold::{contains_phrase, fold, straighten, words};
pub use outside::{is_unsafe, markdown, markdown_code, printable};
pub use tfidf::{SparseVector, mean_pairwise_cosine, tfidf};
