//! With what a reply might have begun: the phrases that the persona must not say, and how likely each was before anything
//! was drawn. They are read where the reply begins, side by side and in forks that nobody remembers; a phrase's last token
//! is not read at all. What is made of it is the judge's business.

use serde::{Deserialize, Serialize};

use crate::foundation::base::Stream;
use crate::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, ModelError, Prompt, Request, Sampling, Snapshot, TokenId, Vocabulary,
};

/// Phrases as a reply begins with them, in one model's tokens; none is the beginning of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginnings(Vec<Vec<TokenId>>);

/// One of them, read where a reply began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beginning {
    /// Its tokens.
    pub ids: Vec<TokenId>,
    /// ln p of each after those before it, nats.
    pub logprob: Vec<f32>,
}

/// Where a reply began.
pub(super) struct Place {
    /// Everything before it, the beginning of the model's own turn included.
    pub(super) before: Vec<TokenId>,
    /// What of that has been read.
    pub(super) after: Snapshot,
    pub(super) gains: Option<DeltaGains>,
}

impl Beginnings {
    /// `phrases` as they begin a reply, with a capital.
    ///
    /// # Errors
    /// When the tokenizer refuses one.
    pub fn new(phrases: &[String], vocabulary: &dyn Vocabulary) -> Result<Self, ModelError> {
        let mut all: Vec<Vec<TokenId>> = Vec::new();
        for phrase in capitals(phrases) {
            let ids = vocabulary.encode(&phrase)?;
            let known = |other: &Vec<TokenId>| ids.starts_with(other) || other.starts_with(&ids);
            if !ids.is_empty() && !all.iter().any(known) {
                all.push(ids);
            }
        }
        Ok(Self(all))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `read` is of these.
    pub fn are(&self, read: &[Beginning]) -> bool {
        self.0.iter().eq(read.iter().map(|beginning| &beginning.ids))
    }

    /// How likely each is behind `before`, of which `after` has been read, and the state between the two.
    ///
    /// # Errors
    /// As the model's own; also when it gives no log-probabilities.
    pub async fn read(
        &self,
        model: &dyn LanguageModel,
        before: &[TokenId],
        after: Option<Snapshot>,
        gains: Option<&DeltaGains>,
    ) -> Result<(Vec<Beginning>, Option<Snapshot>), ModelError> {
        let mut request = Request::new(Prompt::Ids(before.to_vec()), Sampling::greedy(), Stream::root(0));
        (request.after, request.gains, request.goes_on) = (after, gains.cloned(), false);
        let texts = self.0.iter().cloned().map(Continuation::Ids).collect();
        let scored = model.score_each(request, texts).await?;
        let at = scored.iter().find_map(|scored| scored.before.clone());
        let each = self.0.iter().zip(scored).map(|(ids, scored)| {
            let logprob: Option<_> = scored.tokens.iter().map(|token| token.logprob).collect();
            let unknown = || ModelError::Unsupported {
                model: model.info().name.clone(),
                why: "it gives no log-probabilities of a text that it is given".to_owned(),
            };
            Ok(Beginning { ids: ids.clone(), logprob: logprob.ok_or_else(unknown)? })
        });
        Ok((each.collect::<Result<_, _>>()?, at))
    }
}

/// How a reply begins with one of `phrases`: with a capital, none of them the beginning of another.
fn capitals(phrases: &[String]) -> Vec<String> {
    let capital = |phrase: &String| {
        let mut chars = phrase.trim().chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>())
    };
    let mut all: Vec<String> = phrases.iter().filter_map(capital).collect();
    all.sort();
    all.dedup_by(|later, earlier| later.starts_with(earlier.as_str()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::chat::Message;
    use crate::inference::providers::{OpenOptions, open};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn phrases_that_begin_a_reply_exclude_each_other() {
        assert_eq!(capitals(&texts(&["you're right", "you're right about"])), ["You're right"]);
        assert_eq!(capitals(&texts(&["I agree ", ""])), ["I agree"]);
    }

    #[tokio::test]
    async fn what_is_read_side_by_side_is_what_each_phrase_is_by_itself() {
        let model = open(&"bundled".parse().unwrap(), &OpenOptions::default()).unwrap();
        let vocabulary = model.vocabulary().unwrap();
        let phrases = ["you're right", "I might be wrong", "I might have been wrong", "I agree", "yes", "i see now"];
        let beginnings = Beginnings::new(&texts(&phrases), vocabulary).unwrap();
        let talk = [Message::system("Be Anna."), Message::user("It only rings.")];
        let before = vocabulary.chat(&talk).unwrap();
        let (read, at) = beginnings.read(model.as_ref(), &before, None, None).await.unwrap();
        assert!(beginnings.are(&read) && read.len() == phrases.len());
        assert_eq!(at.as_ref().unwrap().tokens(), before.len());
        let (again, _) = beginnings.read(model.as_ref(), &before, at, None).await.unwrap();
        assert_eq!(again, read);
        for beginning in read {
            let request = Request::new(Prompt::Ids(before.clone()), Sampling::greedy(), Stream::root(0));
            let alone = model.score(request, Continuation::Ids(beginning.ids)).await.unwrap();
            let bits = |logprobs: &[f32]| logprobs.iter().map(|logprob| logprob.to_bits()).collect::<Vec<_>>();
            let alone: Vec<f32> = alone.tokens.iter().map(|token| token.logprob.unwrap()).collect();
            assert_eq!(bits(&beginning.logprob), bits(&alone));
        }
        let (none, at) = Beginnings(Vec::new()).read(model.as_ref(), &before, None, None).await.unwrap();
        assert!(none.is_empty() && at.is_none());
    }
}
