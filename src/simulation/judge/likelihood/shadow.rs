//! Conversations read beside the real one, in token ids. What one place has in common with the next is read once, and
//! what has nothing in common is read at the same time.

use futures_util::{StreamExt as _, stream};

use crate::foundation::base::Stream;
use crate::foundation::base::limits::SHADOWS_MAX;
use crate::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, Prompt, Request, Sampling, Scored, Snapshot, TokenId, TokenLogprob,
};
use crate::simulation::rollout::{Beginning, Beginnings};

/// How likely a text was token by token, or why that is not known.
pub(super) type Likely = Result<Vec<TokenLogprob>, String>;

/// A place in a conversation, and what might be said there. One without either is passed by.
#[derive(Default)]
pub(super) struct Place<'o> {
    /// Everything before it, the beginning of the model's own turn included.
    pub(super) before: Vec<TokenId>,
    /// With what a reply might begin, and under which gains.
    pub(super) beginnings: Option<(&'o Beginnings, Option<DeltaGains>)>,
    pub(super) replies: Vec<Reply>,
}

/// Something that might be said.
pub(super) struct Reply {
    pub(super) ids: Vec<TokenId>,
    /// Under which it is read, and whatever is new before it.
    pub(super) gains: Option<DeltaGains>,
}

/// What was found at a place, in its order.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// `None` where the place asked for none.
    pub(super) beginnings: Option<Result<Vec<Beginning>, String>>,
    pub(super) replies: Vec<Likely>,
}

/// How likely each reply is at its place. A place that goes on where the one before it stood is read on from there; every
/// other one begins anew. Those that are no place stay what they are.
pub(super) async fn read(
    model: &dyn LanguageModel,
    places: Vec<Result<Place<'_>, String>>,
) -> Vec<Result<Found, String>> {
    let mut gaps = Vec::with_capacity(places.len());
    let mut known = Vec::with_capacity(places.len());
    for place in places {
        gaps.push(place.map(|place| known.push(place)));
    }
    let strands = known.chunk_by(|place, next| next.before.starts_with(&place.before));
    let strands = stream::iter(strands.map(|strand| follow(model, strand)));
    let mut each = strands.buffered(SHADOWS_MAX).concat().await.into_iter();
    gaps.into_iter().map(|gap| gap.map(|()| each.next().unwrap_or_default())).collect()
}

/// One place after the other.
async fn follow(model: &dyn LanguageModel, strand: &[Place<'_>]) -> Vec<Found> {
    let mut read: Option<Snapshot> = None;
    let mut each = Vec::with_capacity(strand.len());
    let nexts = strand.iter().skip(1).map(Some).chain([None]);
    for (place, next) in strand.iter().zip(nexts) {
        let beginnings = match &place.beginnings {
            None => None,
            Some((beginnings, gains)) => {
                let found = beginnings.read(model, &place.before, read.clone(), gains.as_ref()).await;
                Some(found.map_err(|error| error.to_string()).map(|(found, at)| {
                    read = at.or(read.take());
                    found
                }))
            }
        };
        // What was really said is gone on from.
        let more = next.and_then(|next| next.before.strip_prefix(place.before.as_slice())).unwrap_or_default();
        let said = |reply: &Reply| more.starts_with(&reply.ids);
        let mut replies = Vec::with_capacity(place.replies.len());
        let mut end = None;
        for alike in place.replies.chunk_by(|one, other| one.gains == other.gains) {
            match score(model, &place.before, alike, alike.iter().any(said), read.clone()).await {
                Ok(scored) => {
                    for (reply, scored) in alike.iter().zip(scored) {
                        read = scored.before.or(read);
                        end = scored.snapshot.filter(|_| said(reply)).or(end);
                        replies.push(Ok(scored.tokens));
                    }
                }
                Err(why) => replies.extend(alike.iter().map(|_| Err(why.clone()))),
            }
        }
        read = end.or(read);
        each.push(Found { beginnings, replies });
    }
    each
}

/// Scores replies that have the same gains.
async fn score(
    model: &dyn LanguageModel,
    before: &[TokenId],
    replies: &[Reply],
    goes_on: bool,
    after: Option<Snapshot>,
) -> Result<Vec<Scored>, String> {
    let mut request = Request::new(Prompt::Ids(before.to_vec()), Sampling::greedy(), Stream::root(0));
    (request.after, request.goes_on) = (after, goes_on);
    request.gains = replies.first().and_then(|reply| reply.gains.clone());
    let texts = replies.iter().map(|reply| Continuation::Ids(reply.ids.clone())).collect();
    model.score_each(request, texts).await.map_err(|error| error.to_string())
}
