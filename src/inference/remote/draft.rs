//! A reply while it comes, whatever the provider's way of telling it.

use crate::foundation::chat::{Basis, Finish, TokenLogprob, Usage};

/// Providers write this, or less, where they give no log-probability (OpenAI's reference for `logprob`).
const NO_LOGPROB: f64 = -9999.0;

/// What has come so far.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) tokens: Vec<TokenLogprob>,
    /// How many alternatives to each token were asked for, if that is known.
    pub(super) asked: Option<usize>,
    /// The text as it came, apart from what tokens say.
    spelled: String,
    /// The beginning of a character whose rest is in the next token.
    open: Vec<u8>,
    pub(super) finish: Option<Finish>,
    pub(super) usage: Option<Usage>,
    pub(super) served: Option<String>,
    /// Why the rest was not read.
    pub(super) cut: Option<String>,
    /// The provider has said that nothing more will come.
    pub(super) over: bool,
}

/// An alternative: its text and its log-probability.
pub(super) type Alternative = (String, f64);

impl Draft {
    /// Nothing yet, of a reply whose tokens come with `asked` alternatives.
    pub(super) fn of(asked: Option<usize>) -> Self {
        Self { asked, ..Self::default() }
    }

    /// Text came.
    pub(super) fn spell(&mut self, text: &str) {
        self.spelled.push_str(text);
    }

    /// Text came of which no tokens are known: it counts as one.
    pub(super) fn piece(&mut self, text: &str) {
        if !text.is_empty() {
            self.spell(text);
            self.tokens.push(TokenLogprob::unknown(None, text));
        }
    }

    /// A token came. Tokens that end inside a character carry no text; the one that completes it carries it.
    pub(super) fn token(&mut self, text: &str, bytes: Option<&[u8]>, logprob: f64, top: Vec<Alternative>) {
        let text = match bytes {
            Some(bytes) => self.complete(bytes),
            None => text.to_owned(),
        };
        let mut token = TokenLogprob::unknown(None, text);
        token.basis = Basis::Sampled;
        token.logprob = known(logprob);
        token.top_texts = top.into_iter().filter_map(|(text, logprob)| Some((text, known(logprob)?))).collect();
        // Among fewer alternatives than there are tokens, a place is known only to a token that is one of them. Some servers
        // add it to those that were asked for: it is behind them then, and how far is not known. Nor is it where
        // several alternatives may go by one text, as parts of characters do.
        let own = token.logprob.filter(|own| token.top_texts.iter().any(|(_, other)| other <= own));
        let own = own.filter(|_| token.top_texts.iter().all(|(text, _)| !text.is_empty()));
        let before = own.map(|own| token.top_texts.iter().filter(|(_, other)| *other > own).count());
        token.rank = before.filter(|before| self.asked.is_none_or(|asked| *before < asked)).map(|before| before as u32);
        self.tokens.push(token);
    }

    fn complete(&mut self, bytes: &[u8]) -> String {
        self.open.extend_from_slice(bytes);
        let mut text = String::new();
        while !self.open.is_empty() {
            match std::str::from_utf8(&self.open) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.open.clear();
                }
                Err(error) => {
                    let (good, rest) = self.open.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(good));
                    let Some(bad) = error.error_len() else {
                        self.open = rest.to_vec();
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.open = rest.split_at(bad).1.to_vec();
                }
            }
        }
        text
    }

    /// The reply's text. The tokens must spell it; where a provider's do not, they are given up for the text, and the
    /// answer says so.
    pub(super) fn settle(&mut self) -> (String, Option<String>) {
        let joined: String = self.tokens.iter().map(|token| token.text.as_str()).collect();
        if self.finish == Some(Finish::Asked) || joined == self.spelled {
            return (joined, None);
        }
        self.tokens = vec![TokenLogprob::unknown(None, self.spelled.as_str())];
        (self.spelled.clone(), Some("logprobs: the provider's tokens do not spell its text".to_owned()))
    }
}

pub(super) fn known(logprob: f64) -> Option<f32> {
    (logprob.is_finite() && logprob > NO_LOGPROB).then_some(logprob as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_in_pieces_is_carried_by_the_token_that_completes_it() {
        let mut draft = Draft::default();
        for bytes in [b"a\xf0\x9f".as_slice(), b"\xa6", b"\x80!"] {
            draft.token("?", Some(bytes), -1.0, Vec::new());
        }
        draft.spell("a🦀!");
        let texts: Vec<_> = draft.tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(texts, ["a", "", "🦀!"]);
        assert_eq!(draft.settle(), ("a🦀!".to_owned(), None));
    }

    #[test]
    fn a_rank_is_told_only_where_it_follows_from_the_alternatives() {
        let top = |logprobs: &[f64]| logprobs.iter().map(|&logprob| ("x".to_owned(), logprob)).collect::<Vec<_>>();
        let mut draft = Draft::default();
        draft.token("b", None, -2.0, top(&[-0.5, -2.0]));
        draft.token("c", None, -5.0, top(&[-0.5, -2.0]));
        draft.token("d", None, -9999.0, top(&[-0.5, -9999.0]));
        draft.token("e", None, -1.0, Vec::new());
        let ranks: Vec<_> = draft.tokens.iter().map(|token| (token.logprob, token.rank)).collect();
        assert_eq!(ranks, [(Some(-2.0), Some(1)), (Some(-5.0), None), (None, None), (Some(-1.0), None)]);
        assert_eq!(draft.tokens[2].top_texts.len(), 1);
    }

    #[test]
    fn a_token_that_was_added_to_the_alternatives_has_no_rank() {
        let mut draft = Draft { asked: Some(2), ..Draft::default() };
        let top = |texts: [(&str, f64); 3]| texts.map(|(text, logprob)| (text.to_owned(), logprob)).to_vec();
        draft.token("c", None, -4.0, top([("a", -1.0), ("b", -2.0), ("c", -4.0)]));
        draft.token("b", None, -2.0, top([("a", -1.0), ("b", -2.0), ("c", -4.0)]));
        // Two bytes that make no character go by the same text.
        draft.token("b", None, -2.0, top([("", -1.0), ("b", -2.0), ("c", -4.0)]));
        assert_eq!(draft.tokens.iter().map(|token| token.rank).collect::<Vec<_>>(), [None, Some(1), None]);
    }

    #[test]
    fn tokens_that_spell_something_else_are_given_up_for_the_text() {
        let mut draft = Draft { finish: Some(Finish::Stop), ..Draft::default() };
        draft.token("<s>", None, -1.0, Vec::new());
        draft.spell("Hello");
        let (content, left_out) = draft.settle();
        assert_eq!((content.as_str(), draft.tokens.len()), ("Hello", 1));
        assert_eq!(draft.tokens[0].logprob, None);
        assert!(left_out.is_some());
    }
}
