//! One reply while it is written: drawing, decoding to text, watching for stop texts, and saying which tokens a
//! listener may already have.

use std::sync::Arc;

use super::detokenize::{self, Detokenizer};
use super::row::{Entry, RowAsk, RowReading};
use super::sampler::Sampler;
use super::tokenizer::Tokenizer;
use crate::foundation::base::Stream;
use crate::foundation::chat::{Finish, Sampling, TokenId, TokenLogprob};

/// A reply that is being written.
pub(super) struct Reply {
    sampler: Sampler,
    detokenizer: Detokenizer,
    tokenizer: Arc<Tokenizer>,
    /// Tokens that end the model's turn.
    ends: Arc<[TokenId]>,
    stops: Vec<String>,
    tokens_max: usize,
    top: usize,
    /// Everything drawn so far, the end token left out.
    tokens: Vec<TokenLogprob>,
    /// Their texts, joined.
    text: String,
    /// Where each token's text ends in `text`.
    ends_at: Vec<usize>,
    /// The end token, once it is drawn.
    end: Option<TokenLogprob>,
}

/// What a row of logits led to.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// One more token, to be read next.
    Token(TokenId),
    /// The reply is over, with this much of it kept.
    End(Finish, Kept),
}

/// The part of a reply that stays.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    /// How many of its tokens.
    pub(super) tokens: usize,
    /// Text after these tokens, where a stop text begins inside a token; it is spelled anew.
    pub(super) rest: String,
}

impl Reply {
    /// A reply to a prompt whose tokens are `before`, as far as they matter to its text.
    ///
    /// # Errors
    /// What in `sampling` makes no sense, in words.
    pub(super) fn new(
        tokenizer: Arc<Tokenizer>,
        before: &[TokenId],
        ends: Arc<[TokenId]>,
        sampling: Sampling,
        stream: Stream,
    ) -> Result<Self, String> {
        Ok(Self {
            sampler: Sampler::new(&sampling, stream)?,
            detokenizer: Detokenizer::after(Arc::clone(&tokenizer), before),
            tokenizer,
            ends,
            stops: sampling.stop,
            tokens_max: sampling.max_tokens,
            top: sampling.top_logprobs,
            tokens: Vec::new(),
            text: String::new(),
            ends_at: Vec::new(),
            end: None,
        })
    }

    /// Ends the reply after `tokens_max` tokens if it would be longer.
    pub(super) fn limit(&mut self, tokens_max: usize) {
        self.tokens_max = self.tokens_max.min(tokens_max);
    }

    /// How many tokens it has at most.
    pub(super) fn tokens_max(&self) -> usize {
        self.tokens_max
    }

    /// How many alternatives per token are reported.
    pub(super) fn top(&self) -> usize {
        self.top
    }

    /// The tokens so far.
    pub(super) fn tokens(&self) -> &[TokenLogprob] {
        &self.tokens
    }

    /// The end token, if one was drawn.
    pub(super) fn take_end(&mut self) -> Option<TokenLogprob> {
        self.end.take()
    }

    /// The first `count` tokens, by value.
    pub(super) fn into_tokens(mut self, count: usize) -> Vec<TokenLogprob> {
        self.tokens.truncate(count);
        self.tokens
    }

    /// What is asked of the row after `history`: the next token.
    pub(super) fn ask(&self, history: &[TokenId]) -> RowAsk {
        RowAsk { entry: Entry::Drawn(self.sampler.draw(history, self.tokens.len() as u64)), top: self.top }
    }

    /// Goes on with the token that was drawn.
    pub(super) fn step(&mut self, reading: RowReading) -> Step {
        let id = reading.id;
        if self.ends.contains(&id) {
            self.end = Some(reading.into_token(self.tokenizer.decode(&[id])));
            return Step::End(Finish::Stop, self.whole());
        }
        let text = self.detokenizer.push(id);
        self.text.push_str(&text);
        self.ends_at.push(self.text.len());
        let new = text.len();
        self.tokens.push(reading.into_token(text));
        if let Some(at) = self.stop_in_the_last(new) {
            return Step::End(Finish::Stop, self.cut_at(at));
        }
        if self.tokens.len() >= self.tokens_max { Step::End(Finish::Length, self.whole()) } else { Step::Token(id) }
    }

    /// How many tokens can no longer become part of a stop text: those a listener may have.
    pub(super) fn settled(&self) -> usize {
        let safe = self.text.len() - self.held_back();
        let inside = self.ends_at.iter().take_while(|&&end| end <= safe).count();
        if self.stops.is_empty() { inside } else { self.without_open_characters(inside) }
    }

    /// The spelling of a text that stands in for the part of a token.
    pub(super) fn respell(&self, text: &str) -> Result<Vec<(TokenId, String)>, String> {
        let ids = if text.is_empty() { Vec::new() } else { self.tokenizer.encode(text)? };
        Ok(detokenize::pieces(&self.tokenizer, &[], ids))
    }

    fn whole(&self) -> Kept {
        Kept { tokens: self.tokens.len(), rest: String::new() }
    }

    /// Where the first stop text begins, if the last `new` bytes completed one.
    fn stop_in_the_last(&self, new: usize) -> Option<usize> {
        let longest = self.stops.iter().map(String::len).max()?;
        let from = self.text.floor_char_boundary(self.text.len().saturating_sub(new + longest));
        let (_, recent) = self.text.split_at(from);
        self.stops.iter().filter_map(|stop| recent.find(stop)).min().map(|at| from + at)
    }

    /// The reply up to the byte `at` of its text.
    fn cut_at(&self, at: usize) -> Kept {
        let tokens = self.without_open_characters(self.ends_at.iter().take_while(|&&end| end <= at).count());
        let from = tokens.checked_sub(1).and_then(|last| self.ends_at.get(last)).copied().unwrap_or(0);
        Kept { tokens, rest: self.text.get(from..at).unwrap_or_default().to_owned() }
    }

    /// `count` tokens, less those at their end that wait for the rest of a character.
    fn without_open_characters(&self, count: usize) -> usize {
        let (tokens, _) = self.tokens.split_at(count);
        tokens.iter().rposition(|token| !token.text.is_empty()).map_or(0, |last| last + 1)
    }

    /// How many bytes at the end of the text may be the beginning of a stop text.
    fn held_back(&self) -> usize {
        let begins = |stop: &String| {
            let lengths = (1..stop.len()).rev().filter(|&length| stop.is_char_boundary(length));
            lengths.map(|length| stop.split_at(length).0).find(|begin| self.text.ends_with(begin)).map_or(0, str::len)
        };
        self.stops.iter().map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bundled;
    use super::super::row::Scratch;
    use super::*;

    /// Feeds a reply the tokens of `text`, whatever the model would say, and tells how it ended.
    fn write(text: &str, stops: &[&str]) -> (Vec<usize>, Option<(String, Kept)>) {
        let tokenizer = Arc::new(Tokenizer::parse(bundled::TOKENIZER).unwrap());
        let ids = tokenizer.encode(text).unwrap();
        let sampling = Sampling { stop: stops.iter().map(ToString::to_string).collect(), ..Sampling::greedy() };
        let mut reply = Reply::new(tokenizer, &[], Arc::from([4]), sampling, Stream::root(0)).unwrap();
        let mut settled = Vec::new();
        for id in ids {
            let mut logits = vec![0.0; 4096];
            logits[id as usize] = 9.0;
            let reading = reply.ask(&[]).read(&logits, &mut Scratch::default()).unwrap();
            if let Step::End(_, kept) = reply.step(reading) {
                let content: String = reply.tokens.iter().take(kept.tokens).map(|t| t.text.as_str()).collect();
                return (settled, Some((content + &kept.rest, kept)));
            }
            settled.push(reply.settled());
        }
        (settled, None)
    }

    fn check(text: &str, stops: &[&str], expected: Option<&str>) {
        let (_, end) = write(text, stops);
        assert_eq!(end.map(|(content, _)| content).as_deref(), expected, "{text:?} until {stops:?}");
    }

    #[test]
    fn a_stop_text_ends_the_reply_wherever_its_tokens_begin_and_end() {
        check("Hello there.\nUser: me", &["\nUser:"], Some("Hello there."));
        check("Hello there.", &["\nUser:"], None);
        check("Hello there. And", &["lo th"], Some("Hel"));
        check("Hello there. And", &["And", "there"], Some("Hello "));
        check("naïve 🦀 crab", &["🦀"], Some("naïve "));
        check("no.<|user|>yes", &["<|user|>"], Some("no."));
        check("ab", &["a"], Some(""));
    }

    #[test]
    fn text_that_may_begin_a_stop_text_is_held_back() {
        let (settled, end) = write("I see.\nUsually yes", &["\nUser:"]);
        assert!(end.is_none());
        assert!(settled.windows(2).all(|w| w[0] <= w[1]));
        assert!(settled.iter().enumerate().any(|(index, &settled)| settled <= index), "nothing held: {settled:?}");
        assert_eq!(settled.last(), Some(&settled.len()));
        let (settled, _) = write("I see.\nUsually yes", &[]);
        assert!(settled.iter().enumerate().all(|(index, &settled)| settled == index + 1));
    }
}
