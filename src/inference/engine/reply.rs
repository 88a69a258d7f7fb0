//! Generation of one reply: sampling, decoding to text, detecting stop texts, and deciding which tokens can already be
//! sent to a listener.

use std::sync::Arc;

use super::detokenize::{self, Detokenizer};
use super::logit_query::{LogitQuery, QueriedToken, TokenStats};
use super::sampler::Sampler;
use super::tokenizer::Tokenizer;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{Finish, Sampling, TokenId, TokenLogprob};
use crate::inference::thought::{Divider, Part};

/// A reply that is being generated.
pub(super) struct Reply {
    sampler: Sampler,
    detokenizer: Detokenizer,
    tokenizer: Arc<Tokenizer>,
    /// Tokens that end the model's turn.
    end_tokens: Arc<[TokenId]>,
    stops: Vec<String>,
    tokens_max: usize,
    top: usize,
    /// Everything sampled so far, without the end token.
    tokens: Vec<TokenLogprob>,
    /// Their texts, concatenated.
    text: String,
    /// End of each token's text in `text`, in bytes.
    text_ends: Vec<usize>,
    /// The end token, once sampled.
    end: Option<TokenLogprob>,
    /// For a model that thinks.
    thought: Option<ThoughtWatch>,
}

/// Follows the thought in a reply, closes it when its budget is spent, and says where stop texts count.
pub(super) struct ThoughtWatch {
    divider: Divider,
    /// Most tokens of the thought, and the ids that close it.
    budget: Option<(usize, Vec<TokenId>)>,
    /// Tokens of all thoughts so far.
    tokens: usize,
    /// Ids that close the thought and are not yet in the reply, the next one last.
    forced: Vec<TokenId>,
    /// The budget is spent.
    spent: bool,
    /// Where the answer begins, in bytes of the reply.
    answer_from: Option<usize>,
}

impl ThoughtWatch {
    /// Watches a reply that `divider` divides. `budget`: most tokens of the thought, and the ids that close it.
    pub(super) fn new(divider: Divider, budget: Option<(usize, Vec<TokenId>)>) -> Self {
        let answer_from = (divider.part() == Part::Answer).then_some(0);
        let mut watch = Self { divider, budget, tokens: 0, forced: Vec::new(), spent: false, answer_from };
        watch.close_if_spent();
        watch
    }

    /// Takes the next token of the reply, whose text is `text` and begins at byte `from`.
    fn push(&mut self, text: &str, from: usize) {
        let was = self.divider.part();
        self.divider.push(TokenLogprob::unknown(None, text));
        match self.divider.part() {
            Part::Thought => {
                self.tokens += usize::from(was == Part::Thought);
                self.answer_from = None;
                self.close_if_spent();
            }
            Part::Answer => self.answer_from = self.answer_from.or(Some(from)),
        }
    }

    fn close_if_spent(&mut self) {
        if let Some((most, closing)) = &self.budget
            && self.forced.is_empty()
            && self.tokens >= *most
            && self.divider.is_thinking()
        {
            self.forced = closing.iter().rev().copied().collect();
            self.spent = true;
        }
    }
}

/// Result of one sampling step.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// One more token, to be read next.
    Token(TokenId),
    /// The reply is over; this much of it is kept.
    End(Finish, ReplyCut),
}

/// The part of a reply that is kept.
#[derive(Debug, PartialEq)]
pub(super) struct ReplyCut {
    /// Number of tokens.
    pub(super) tokens: usize,
    /// Text after these tokens, where a stop text begins inside a token. It is tokenised again.
    pub(super) rest: String,
}

impl Reply {
    /// A reply after the prompt tokens `before` (needed only to complete a character that is open at their end).
    ///
    /// # Errors
    /// A message about an invalid setting in `sampling`.
    pub(super) fn new(
        tokenizer: Arc<Tokenizer>,
        before: &[TokenId],
        end_tokens: Arc<[TokenId]>,
        sampling: Sampling,
        stream: RngStream,
    ) -> Result<Self, String> {
        Ok(Self {
            sampler: Sampler::new(&sampling, stream)?,
            detokenizer: Detokenizer::after(Arc::clone(&tokenizer), before),
            tokenizer,
            end_tokens,
            stops: sampling.stop,
            tokens_max: sampling.max_tokens,
            top: sampling.top_logprobs,
            tokens: Vec::new(),
            text: String::new(),
            text_ends: Vec::new(),
            end: None,
            thought: None,
        })
    }

    /// Watches the thought before the answer.
    pub(super) fn watch_thought(&mut self, watch: ThoughtWatch) {
        self.thought = Some(watch);
    }

    /// Whether the budget of the thought is spent.
    pub(super) fn has_spent_thought(&self) -> bool {
        self.thought.as_ref().is_some_and(|watch| watch.spent)
    }

    /// Limits the reply to `tokens_max` tokens.
    pub(super) fn limit(&mut self, tokens_max: usize) {
        self.tokens_max = self.tokens_max.min(tokens_max);
    }

    /// Maximum number of tokens.
    pub(super) fn tokens_max(&self) -> usize {
        self.tokens_max
    }

    /// Number of alternatives reported per token.
    pub(super) fn top(&self) -> usize {
        self.top
    }

    /// The tokens so far.
    pub(super) fn tokens(&self) -> &[TokenLogprob] {
        &self.tokens
    }

    /// Takes the end token, if one was sampled.
    pub(super) fn take_end(&mut self) -> Option<TokenLogprob> {
        self.end.take()
    }

    /// The first `count` tokens, by value.
    pub(super) fn into_tokens(mut self, count: usize) -> Vec<TokenLogprob> {
        self.tokens.truncate(count);
        self.tokens
    }

    /// The query that samples the token after `history`, or reads the one that closes a thought.
    pub(super) fn query(&self, history: &[TokenId]) -> LogitQuery {
        if let Some(&id) = self.thought.as_ref().and_then(|watch| watch.forced.last()) {
            return LogitQuery { token: QueriedToken::Given(id), top: self.top };
        }
        LogitQuery { token: QueriedToken::Drawn(self.sampler.draw(history, self.tokens.len() as u64)), top: self.top }
    }

    /// Applies a sampled token.
    pub(super) fn step(&mut self, stats: TokenStats) -> Step {
        let id = stats.id;
        let forced = self.thought.as_mut().and_then(|watch| watch.forced.pop()).is_some();
        if !forced && self.end_tokens.contains(&id) {
            self.end = Some(stats.into_token(self.tokenizer.decode(&[id])));
            return Step::End(Finish::Stop, self.whole());
        }
        let text = self.detokenizer.push(id);
        self.text.push_str(&text);
        self.text_ends.push(self.text.len());
        let new = text.len();
        if let Some(watch) = &mut self.thought {
            watch.push(&text, self.text.len() - new);
        }
        self.tokens.push(stats.into_token(text));
        if let Some(at) = self.stop_in_the_last(new) {
            return Step::End(Finish::Stop, self.cut_at(at));
        }
        if self.tokens.len() >= self.tokens_max { Step::End(Finish::Length, self.whole()) } else { Step::Token(id) }
    }

    /// Number of tokens that can no longer become part of a stop text: these can be sent to a listener.
    pub(super) fn settled(&self) -> usize {
        let safe = self.text.len() - self.possible_stop_bytes();
        let inside = self.text_ends.iter().take_while(|&&end| end <= safe).count();
        if self.stops.is_empty() { inside } else { self.without_open_characters(inside) }
    }

    /// Tokenises text that replaces part of a token.
    pub(super) fn retokenize(&self, text: &str) -> Result<Vec<(TokenId, String)>, String> {
        let ids = if text.is_empty() { Vec::new() } else { self.tokenizer.encode(text)? };
        Ok(detokenize::pieces(&self.tokenizer, &[], ids))
    }

    fn whole(&self) -> ReplyCut {
        ReplyCut { tokens: self.tokens.len(), rest: String::new() }
    }

    /// Start of the first stop text that the last `new` bytes completed.
    fn stop_in_the_last(&self, new: usize) -> Option<usize> {
        let longest = self.stops.iter().map(String::len).max()?;
        let from = self.text.floor_char_boundary(self.text.len().saturating_sub(new + longest));
        let from = from.max(self.answer_from()?);
        let (_, recent) = self.text.split_at(from);
        self.stops.iter().filter_map(|stop| recent.find(stop)).min().map(|at| from + at)
    }

    /// Where the answer begins: stop texts end the answer, not the thought before it. `None` inside a thought.
    fn answer_from(&self) -> Option<usize> {
        self.thought.as_ref().map_or(Some(0), |watch| watch.answer_from)
    }

    /// The reply up to byte `at` of its text.
    fn cut_at(&self, at: usize) -> ReplyCut {
        let tokens = self.without_open_characters(self.text_ends.iter().take_while(|&&end| end <= at).count());
        let from = tokens.checked_sub(1).and_then(|last| self.text_ends.get(last)).copied().unwrap_or(0);
        ReplyCut { tokens, rest: self.text.get(from..at).unwrap_or_default().to_owned() }
    }

    /// `count` tokens, without trailing ones that are incomplete characters.
    fn without_open_characters(&self, count: usize) -> usize {
        let (tokens, _) = self.tokens.split_at(count);
        tokens.iter().rposition(|token| !token.text.is_empty()).map_or(0, |last| last + 1)
    }

    /// Number of bytes at the end of the text that may be the beginning of a stop text.
    fn possible_stop_bytes(&self) -> usize {
        let Some(from) = self.answer_from() else { return 0 };
        let answer = self.text.get(from..).unwrap_or_default();
        let begins = |stop: &String| {
            let lengths = (1..stop.len()).rev().filter(|&length| stop.is_char_boundary(length));
            lengths.map(|length| stop.split_at(length).0).find(|begin| answer.ends_with(begin)).map_or(0, str::len)
        };
        self.stops.iter().map(begins).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bundled;
    use super::super::logit_query::RowScratch;
    use super::*;

    /// Feeds the tokens of `text` to a reply, whatever the model predicts, and returns how it ended.
    fn write(text: &str, stops: &[&str]) -> (Vec<usize>, Option<(String, ReplyCut)>) {
        let tokenizer = Arc::new(Tokenizer::parse(bundled::TOKENIZER).unwrap());
        let ids = tokenizer.encode(text).unwrap();
        let sampling = Sampling { stop: stops.iter().map(ToString::to_string).collect(), ..Sampling::greedy() };
        let mut reply = Reply::new(tokenizer, &[], Arc::from([4]), sampling, RngStream::root(0)).unwrap();
        let mut settled = Vec::new();
        for id in ids {
            let mut logits = vec![0.0; 4096];
            logits[id as usize] = 9.0;
            let stats = reply.query(&[]).read(&logits, &mut RowScratch::default()).unwrap();
            if let Step::End(_, cut) = reply.step(stats) {
                let content: String = reply.tokens.iter().take(cut.tokens).map(|t| t.text.as_str()).collect();
                return (settled, Some((content + &cut.rest, cut)));
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
    fn a_stop_text_ends_the_reply_at_any_token_boundary() {
        check("Hello there.\nUser: me", &["\nUser:"], Some("Hello there."));
        check("Hello there.", &["\nUser:"], None);
        check("Hello there. And", &["lo th"], Some("Hel"));
        check("Hello there. And", &["And", "there"], Some("Hello "));
        check("naïve 🦀 crab", &["🦀"], Some("naïve "));
        check("no.<|user|>yes", &["<|user|>"], Some("no."));
        check("ab", &["a"], Some(""));
    }

    #[test]
    fn a_possible_start_of_a_stop_text_is_not_sent_yet() {
        let (settled, end) = write("I see.\nUsually yes", &["\nUser:"]);
        assert!(end.is_none());
        assert!(settled.windows(2).all(|w| w[0] <= w[1]));
        assert!(settled.iter().enumerate().any(|(index, &settled)| settled <= index), "nothing held: {settled:?}");
        assert_eq!(settled.last(), Some(&settled.len()));
        let (settled, _) = write("I see.\nUsually yes", &[]);
        assert!(settled.iter().enumerate().all(|(index, &settled)| settled == index + 1));
    }
}
