//! With what a reply might have begun: the phrases that the persona must not say, and how likely each was before anything
//! was drawn. It is read where the reply begins, in forks that nobody remembers; words that several phrases begin with are
//! read once, and a phrase's last token is not read at all. What is made of it is the judge's business.

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::foundation::base::Stream;
use crate::foundation::base::limits::PREFIX_TOKENS_MIN;
use crate::foundation::chat::{
    BoxFuture, Continuation, DeltaGains, LanguageModel, ModelError, Prompt, Request, Sampling, Scored, Snapshot,
    TokenId, Vocabulary,
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

/// The same as [`Beginning::logprob`] for each of several texts, and the state before them all.
type Read = (Vec<Vec<f32>>, Option<Snapshot>);

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
        let texts: Vec<&[TokenId]> = self.0.iter().map(Vec::as_slice).collect();
        let (read, at) = branches(model, gains, before.to_vec(), after, &texts).await?;
        let each = self.0.iter().zip(read).map(|(ids, logprob)| Beginning { ids: ids.clone(), logprob });
        Ok((each.collect(), at))
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

/// Reads `texts` behind `before`, those with the same first token as one. Where `after` stands far from there, the first to
/// be read brings the others to the place; a few tokens each reads by itself sooner than it could wait for them.
fn branches<'a>(
    model: &'a dyn LanguageModel,
    gains: Option<&'a DeltaGains>,
    before: Vec<TokenId>,
    after: Option<Snapshot>,
    texts: &'a [&'a [TokenId]],
) -> BoxFuture<'a, Result<Read, ModelError>> {
    Box::pin(async move {
        let mut boughs = texts.chunk_by(|one, other| one.first() == other.first());
        let (mut read, mut at) = (Vec::new(), after);
        let short = before.len() - at.as_ref().map_or(0, Snapshot::tokens).min(before.len());
        if short >= PREFIX_TOKENS_MIN
            && let Some(first) = boughs.next()
        {
            let (first, there) = bough(model, gains, &before, at.clone(), first).await?;
            (read, at) = (first, there.or(at));
        }
        let others = join_all(boughs.map(|texts| bough(model, gains, &before, at.clone(), texts))).await;
        for other in others {
            let (more, there) = other?;
            read.extend(more);
            at = there.or(at);
        }
        Ok((read, at))
    })
}

/// Reads texts that begin alike.
async fn bough(
    model: &dyn LanguageModel,
    gains: Option<&DeltaGains>,
    before: &[TokenId],
    after: Option<Snapshot>,
    texts: &[&[TokenId]],
) -> Result<Read, ModelError> {
    let Some((first, others)) = texts.split_first() else { return Ok((Vec::new(), None)) };
    let alike = |text: &&[TokenId]| first.iter().zip(*text).take_while(|(one, other)| one == other).count();
    let (stem, _) = first.split_at(others.iter().map(alike).min().unwrap_or(first.len()));
    let mut request = Request::new(Prompt::Ids(before.to_vec()), Sampling::greedy(), Stream::root(0));
    (request.after, request.gains, request.goes_on) = (after, gains.cloned(), !others.is_empty());
    let Scored { tokens, snapshot, before: at, .. } = model.score(request, Continuation::Ids(stem.to_vec())).await?;
    let known: Option<Vec<f32>> = tokens.iter().map(|token| token.logprob).collect();
    let known = known.ok_or_else(|| ModelError::Unsupported {
        model: model.info().name.clone(),
        why: "it gives no log-probabilities of a text that it is given".to_owned(),
    })?;
    if others.is_empty() {
        return Ok((vec![known], at));
    }
    let rests: Vec<&[TokenId]> = texts.iter().filter_map(|text| text.strip_prefix(stem)).collect();
    let (rests, _) = branches(model, gains, [before, stem].concat(), snapshot, &rests).await?;
    Ok((rests.into_iter().map(|rest| [known.as_slice(), &rest].concat()).collect(), at))
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
    async fn what_is_read_as_a_tree_is_what_each_text_is_by_itself() {
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
