//! A reply under construction, for every provider format.

use crate::foundation::chat::{Basis, Finish, TokenLogprob, Usage};

/// Providers send this value, or less, where they have no log-probability (OpenAI's reference for `logprob`).
const NO_LOGPROB: f64 = -9999.0;

/// The part of a reply received so far.
#[derive(Debug, Default)]
pub(super) struct PartialReply {
    pub(super) tokens: Vec<TokenLogprob>,
    /// The tokens of the thought that the provider sends apart from the answer.
    pub(super) thought_tokens: Vec<TokenLogprob>,
    /// The thought's text as received; `None` if there was none.
    pub(super) thought: Option<String>,
    /// The number of alternatives requested per token, if known.
    pub(super) top_requested: Option<usize>,
    /// The text as received, independent of the tokens.
    text: String,
    /// The first bytes of a character whose rest is in the next token.
    incomplete: Vec<u8>,
    pub(super) finish: Option<Finish>,
    pub(super) usage: Option<Usage>,
    pub(super) served: Option<String>,
    /// Why reading stopped early.
    pub(super) cut_reason: Option<String>,
    /// The provider has ended the reply.
    pub(super) ended: bool,
}

/// An alternative token: text and log-probability.
pub(super) type Alternative = (String, f64);

impl PartialReply {
    /// An empty reply whose tokens come with `top_requested` alternatives.
    pub(super) fn with_top(top_requested: Option<usize>) -> Self {
        Self { top_requested, ..Self::default() }
    }

    /// Adds text.
    pub(super) fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds text of a thought.
    pub(super) fn push_thought(&mut self, text: &str) {
        self.thought.get_or_insert_default().push_str(text);
    }

    /// Adds a token of a thought, of which nothing but the text is known.
    pub(super) fn push_untokenized_thought(&mut self, text: &str) {
        self.thought_tokens.push(TokenLogprob::unknown(None, text));
    }

    /// Whether a thought has begun and the answer has not.
    pub(super) fn is_before_answer(&self) -> bool {
        self.thought.is_some() && self.text.is_empty()
    }

    /// Adds text without token information; it counts as one token.
    pub(super) fn push_untokenized(&mut self, text: &str) {
        if !text.is_empty() {
            self.push_text(text);
            self.tokens.push(TokenLogprob::unknown(None, text));
        }
    }

    /// Adds a token. A token that ends inside a character has no text; the token that completes the character has it.
    pub(super) fn push_token(&mut self, text: &str, bytes: Option<&[u8]>, logprob: f64, top: Vec<Alternative>) {
        let text = match bytes {
            Some(bytes) => self.complete(bytes),
            None => text.to_owned(),
        };
        let mut token = TokenLogprob::unknown(None, text);
        token.basis = Basis::Sampled;
        token.logprob = known(logprob);
        token.top_texts = top.into_iter().filter_map(|(text, logprob)| Some((text, known(logprob)?))).collect();
        // The rank is known only if the token is among the requested alternatives. Some servers append it to them: then
        // its rank is unknown. It is also unknown if several alternatives have one text, as partial characters do.
        let own = token.logprob.filter(|own| token.top_texts.iter().any(|(_, other)| other <= own));
        let own = own.filter(|_| token.top_texts.iter().all(|(text, _)| !text.is_empty()));
        let before = own.map(|own| token.top_texts.iter().filter(|(_, other)| *other > own).count());
        token.rank =
            before.filter(|before| self.top_requested.is_none_or(|count| *before < count)).map(|before| before as u32);
        self.tokens.push(token);
    }

    fn complete(&mut self, bytes: &[u8]) -> String {
        self.incomplete.extend_from_slice(bytes);
        let mut text = String::new();
        while !self.incomplete.is_empty() {
            match std::str::from_utf8(&self.incomplete) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.incomplete.clear();
                }
                Err(error) => {
                    let (good, rest) = self.incomplete.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(good));
                    let Some(bad) = error.error_len() else {
                        self.incomplete = rest.to_vec();
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.incomplete = rest.split_at(bad).1.to_vec();
                }
            }
        }
        text
    }

    /// The reply's text. If the tokens do not add up to the text, they are dropped and the reply says so.
    pub(super) fn settle(&mut self) -> (String, Option<String>) {
        if let Some(thought) = self.thought.as_mut().filter(|_| self.finish != Some(Finish::Cancelled)) {
            let joined: String = self.thought_tokens.iter().map(|token| token.text.as_str()).collect();
            if joined != *thought {
                self.thought_tokens = vec![TokenLogprob::unknown(None, thought.as_str())];
            }
        }
        let joined: String = self.tokens.iter().map(|token| token.text.as_str()).collect();
        if self.finish == Some(Finish::Cancelled) || joined == self.text {
            return (joined, None);
        }
        self.tokens = vec![TokenLogprob::unknown(None, self.text.as_str())];
        (self.text.clone(), Some("logprobs: the provider's tokens do not add up to its text".to_owned()))
    }
}

pub(super) fn known(logprob: f64) -> Option<f32> {
    (logprob.is_finite() && logprob > NO_LOGPROB).then_some(logprob as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_character_belongs_to_the_token_that_completes_it() {
        let mut partial = PartialReply::default();
        for bytes in [b"a\xf0\x9f".as_slice(), b"\xa6", b"\x80!"] {
            partial.push_token("?", Some(bytes), -1.0, Vec::new());
        }
        partial.push_text("a🦀!");
        let texts: Vec<_> = partial.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["a", "", "🦀!"]);
        assert_eq!(partial.settle(), ("a🦀!".to_owned(), None));
    }

    #[test]
    fn a_rank_needs_the_token_among_the_alternatives() {
        let top = |logprobs: &[f64]| logprobs.iter().map(|&logprob| ("x".to_owned(), logprob)).collect::<Vec<_>>();
        let mut partial = PartialReply::default();
        partial.push_token("b", None, -2.0, top(&[-0.5, -2.0]));
        partial.push_token("c", None, -5.0, top(&[-0.5, -2.0]));
        partial.push_token("d", None, -9999.0, top(&[-0.5, -9999.0]));
        partial.push_token("e", None, -1.0, Vec::new());
        let ranks: Vec<_> = partial.tokens.iter().map(|token| (token.logprob, token.rank)).collect();
        assert_eq!(ranks, [(Some(-2.0), Some(1)), (Some(-5.0), None), (None, None), (Some(-1.0), None)]);
        assert_eq!(partial.tokens[2].top_texts.len(), 1);
    }

    #[test]
    fn a_token_appended_to_the_alternatives_has_no_rank() {
        let mut partial = PartialReply { top_requested: Some(2), ..PartialReply::default() };
        let top = |texts: [(&str, f64); 3]| texts.map(|(text, logprob)| (text.to_owned(), logprob)).to_vec();
        partial.push_token("c", None, -4.0, top([("a", -1.0), ("b", -2.0), ("c", -4.0)]));
        partial.push_token("b", None, -2.0, top([("a", -1.0), ("b", -2.0), ("c", -4.0)]));
        // Two bytes that are not a character have the same text.
        partial.push_token("b", None, -2.0, top([("", -1.0), ("b", -2.0), ("c", -4.0)]));
        assert_eq!(partial.tokens.iter().map(|token| token.rank).collect::<Vec<_>>(), [None, Some(1), None]);
    }

    #[test]
    fn tokens_that_do_not_add_up_to_the_text_are_dropped() {
        let mut partial = PartialReply { finish: Some(Finish::Stop), ..PartialReply::default() };
        partial.push_token("<s>", None, -1.0, Vec::new());
        partial.push_text("Hello");
        let (content, left_out) = partial.settle();
        assert_eq!((content.as_str(), partial.tokens.len()), ("Hello", 1));
        assert_eq!(partial.tokens[0].logprob, None);
        assert!(left_out.is_some());
    }
}
