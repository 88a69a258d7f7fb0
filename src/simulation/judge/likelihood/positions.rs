//! Scores candidate replies at positions in conversations, given as token ids. A position that continues the one before
//! it reuses its state; sequences of positions that share nothing are read concurrently.

use futures_util::{StreamExt as _, stream};

use crate::foundation::base::RngStream;
use crate::foundation::base::limits::SHADOWS_MAX;
use crate::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, Prompt, Request, Sampling, Scored, Snapshot, TokenId, TokenLogprob,
};
use crate::simulation::rollout::{ForbiddenPhraseLogprobs, PhraseLogprob};

/// The log-probabilities of a reply's tokens, or why they are missing.
pub(super) type ReplyLogprobs = Result<Vec<TokenLogprob>, String>;

/// A position in a conversation and the candidate replies to score there. One without candidates costs nothing.
#[derive(Default)]
pub(super) struct ScorePosition<'o> {
    /// All tokens before it, including the start of the model's own turn.
    pub(super) before: Vec<TokenId>,
    /// The forbidden phrases to score at the beginning of a reply, and the gains for that.
    pub(super) beginnings: Option<(&'o ForbiddenPhraseLogprobs, Option<DeltaGains>)>,
    pub(super) replies: Vec<CandidateReply>,
}

/// A reply to score.
pub(super) struct CandidateReply {
    pub(super) ids: Vec<TokenId>,
    /// The gains for the reply and for the tokens before it that are not read yet.
    pub(super) gains: Option<DeltaGains>,
}

/// The results at a position, in its order.
#[derive(Debug, Default)]
pub(super) struct PositionResult {
    /// `None` if the position requested none.
    pub(super) beginnings: Option<Result<Vec<PhraseLogprob>, String>>,
    pub(super) replies: Vec<ReplyLogprobs>,
}

/// Scores the replies at every position. A position whose tokens continue those of the one before it reuses the model's
/// state; every other one is read from its beginning. Errors are passed through.
pub(super) async fn read(
    model: &dyn LanguageModel,
    positions: Vec<Result<ScorePosition<'_>, String>>,
) -> Vec<Result<PositionResult, String>> {
    let mut slots = Vec::with_capacity(positions.len());
    let mut valid = Vec::with_capacity(positions.len());
    for position in positions {
        slots.push(position.map(|position| valid.push(position)));
    }
    let sequences = valid.chunk_by(|position, next| next.before.starts_with(&position.before));
    let sequences = stream::iter(sequences.map(|sequence| read_sequence(model, sequence)));
    let mut results = sequences.buffered(SHADOWS_MAX).concat().await.into_iter();
    slots.into_iter().map(|slot| slot.map(|()| results.next().unwrap_or_default())).collect()
}

/// Scores positions that continue each other, in order.
async fn read_sequence(model: &dyn LanguageModel, sequence: &[ScorePosition<'_>]) -> Vec<PositionResult> {
    let mut read: Option<Snapshot> = None;
    let mut results = Vec::with_capacity(sequence.len());
    let nexts = sequence.iter().skip(1).map(Some).chain([None]);
    for (position, next) in sequence.iter().zip(nexts) {
        let beginnings = match &position.beginnings {
            None => None,
            Some((beginnings, gains)) => {
                let found = beginnings.score(model, &position.before, read.clone(), gains.as_ref(), None).await;
                Some(found.map_err(|error| error.to_string()).map(|(found, at)| {
                    read = at.or(read.take());
                    found
                }))
            }
        };
        // The next position continues from the reply that was really given.
        let more = next.and_then(|next| next.before.strip_prefix(position.before.as_slice())).unwrap_or_default();
        let is_continued = |reply: &CandidateReply| more.starts_with(&reply.ids);
        let mut replies = Vec::with_capacity(position.replies.len());
        let mut end = None;
        for alike in position.replies.chunk_by(|one, other| one.gains == other.gains) {
            match score(model, &position.before, alike, alike.iter().any(is_continued), read.clone()).await {
                Ok(scored) => {
                    for (reply, scored) in alike.iter().zip(scored) {
                        read = scored.before.or(read);
                        end = scored.snapshot.filter(|_| is_continued(reply)).or(end);
                        replies.push(Ok(scored.tokens));
                    }
                }
                Err(why) => replies.extend(alike.iter().map(|_| Err(why.clone()))),
            }
        }
        read = end.or(read);
        results.push(PositionResult { beginnings, replies });
    }
    results
}

/// Scores replies that have the same gains.
async fn score(
    model: &dyn LanguageModel,
    before: &[TokenId],
    replies: &[CandidateReply],
    keep_state: bool,
    after: Option<Snapshot>,
) -> Result<Vec<Scored>, String> {
    let mut request = Request::new(Prompt::Ids(before.to_vec()), Sampling::greedy(), RngStream::root(0));
    (request.after, request.keep_state) = (after, keep_state);
    request.gains = replies.first().and_then(|reply| reply.gains.clone());
    let texts = replies.iter().map(|reply| Continuation::Ids(reply.ids.clone())).collect();
    model.score_each(request, texts).await.map_err(|error| error.to_string())
}
