//! The log-probabilities of the persona's forbidden phrases at the start of a reply, before anything is sampled. They are
//! computed in one batch from forks of the state at that position, which are then discarded; a phrase's last token is never
//! processed. `simulation::judge` turns them into a score.

use serde::{Deserialize, Serialize};

use crate::foundation::base::RngStream;
use crate::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, ModelError, Prompt, Request, Sampling, Snapshot, TokenId, Vocabulary,
};
use crate::foundation::gate::CallPermit;

/// Phrases as they would begin a reply, in one model's tokens; none is a prefix of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForbiddenPhraseLogprobs(Vec<Vec<TokenId>>);

/// The log-probabilities of one phrase at the start of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhraseLogprob {
    /// Its tokens.
    pub ids: Vec<TokenId>,
    /// ln p of each after those before it, nats.
    pub logprob: Vec<f32>,
}

/// The position at the start of a reply.
pub(super) struct ReplyStart {
    /// All tokens before it, including the header of the model's turn.
    pub(super) before: Vec<TokenId>,
    /// The model's state, up to some point of `before`.
    pub(super) after: Snapshot,
    pub(super) gains: Option<DeltaGains>,
}

impl ForbiddenPhraseLogprobs {
    /// `phrases` with a capital first letter, as they would begin a reply.
    ///
    /// # Errors
    /// When the tokenizer rejects one.
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

    /// Whether `read` contains exactly these phrases.
    pub fn matches(&self, read: &[PhraseLogprob]) -> bool {
        self.0.iter().eq(read.iter().map(|phrase| &phrase.ids))
    }

    /// The log-probabilities of each phrase after `before`, and the state at that position. `after` is the state to continue
    /// from.
    ///
    /// # Errors
    /// Those of the model; also when it gives no log-probabilities.
    pub async fn score(
        &self,
        model: &dyn LanguageModel,
        before: &[TokenId],
        after: Option<Snapshot>,
        gains: Option<&DeltaGains>,
        permit: Option<CallPermit>,
    ) -> Result<(Vec<PhraseLogprob>, Option<Snapshot>), ModelError> {
        let mut request = Request::new(Prompt::Ids(before.to_vec()), Sampling::greedy(), RngStream::root(0));
        (request.after, request.gains, request.keep_state) = (after, gains.cloned(), false);
        request.permit = permit;
        let texts = self.0.iter().cloned().map(Continuation::Ids).collect();
        let scored = model.score_each(request, texts).await?;
        let at = scored.iter().find_map(|scored| scored.before.clone());
        let each = self.0.iter().zip(scored).map(|(ids, scored)| {
            let logprob: Option<_> = scored.tokens.iter().map(|token| token.logprob).collect();
            let unknown = || ModelError::Unsupported {
                model: model.info().name.clone(),
                why: "it gives no log-probabilities of a given text".to_owned(),
            };
            Ok(PhraseLogprob { ids: ids.clone(), logprob: logprob.ok_or_else(unknown)? })
        });
        Ok((each.collect::<Result<_, _>>()?, at))
    }
}

/// `phrases` with a capital first letter, without those that have another one as a prefix.
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
    fn no_phrase_is_a_prefix_of_another() {
        assert_eq!(capitals(&texts(&["you're right", "you're right about"])), ["You're right"]);
        assert_eq!(capitals(&texts(&["I agree ", ""])), ["I agree"]);
    }

    #[tokio::test]
    async fn a_batch_gives_the_same_logprobs_as_single_phrases() {
        let model = open(&"bundled".parse().unwrap(), &OpenOptions::default()).unwrap();
        let vocabulary = model.vocabulary().unwrap();
        let phrases = ["you're right", "I might be wrong", "I might have been wrong", "I agree", "yes", "i see now"];
        let forbidden = ForbiddenPhraseLogprobs::new(&texts(&phrases), vocabulary).unwrap();
        let talk = [Message::system("Be Anna."), Message::user("It only rings.")];
        let before = vocabulary.chat(&talk).unwrap();
        let (read, at) = forbidden.score(model.as_ref(), &before, None, None, None).await.unwrap();
        assert!(forbidden.matches(&read) && read.len() == phrases.len());
        assert_eq!(at.as_ref().unwrap().tokens(), before.len());
        let (again, _) = forbidden.score(model.as_ref(), &before, at, None, None).await.unwrap();
        assert_eq!(again, read);
        for phrase in read {
            let request = Request::new(Prompt::Ids(before.clone()), Sampling::greedy(), RngStream::root(0));
            let alone = model.score(request, Continuation::Ids(phrase.ids)).await.unwrap();
            let bits = |logprobs: &[f32]| logprobs.iter().map(|logprob| logprob.to_bits()).collect::<Vec<_>>();
            let alone: Vec<f32> = alone.tokens.iter().map(|token| token.logprob.unwrap()).collect();
            assert_eq!(bits(&phrase.logprob), bits(&alone));
        }
        let (none, at) =
            ForbiddenPhraseLogprobs(Vec::new()).score(model.as_ref(), &before, None, None, None).await.unwrap();
        assert!(none.is_empty() && at.is_none());
    }
}
