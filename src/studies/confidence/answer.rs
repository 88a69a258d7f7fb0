//! Having a model answer the items of a task, and reading what the regulator's estimators say of each answer.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::task::{Item, Likelihood, Question, Task};
use crate::foundation::base::limits::ACTIVE_SEQUENCES_MAX;
use crate::foundation::base::{Digest, Stream};
use crate::foundation::chat::{
    Continuation, LanguageModel, Message, ModelError, Prompt, Request, Sampling, Scored, TokenLogprob,
};
use crate::governance::regulator::{Estimates, LlmEvent, Regulator, Settings};

/// Longest free answer, tokens.
const ANSWER_TOKENS_MAX: usize = 64;

/// How many alternatives per token are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alternatives {
    /// The likeliest ones.
    Top(usize),
    /// All, where the model tells how many there are: self-certainty needs them.
    All,
}

/// One answered item.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The item.
    pub id: Digest,
    /// Nothing may be fitted to it.
    pub held_out: bool,
    /// The answer was right.
    pub right: bool,
    /// What is known of how certain the model was.
    pub estimates: Estimates,
}

/// Has `model` answer every item of `task`, many at a time; the answers come in the items' order and do not depend on that.
/// `told` hears after each answer how many there are.
///
/// # Errors
/// The first of the model's.
pub async fn answer(
    model: &Arc<dyn LanguageModel>,
    task: &Task,
    alternatives: Alternatives,
    mut told: impl FnMut(usize),
) -> Result<Vec<Answered>, ModelError> {
    let top = match alternatives {
        Alternatives::Top(top) => top,
        Alternatives::All => model.info().vocabulary.unwrap_or(0),
    };
    let mut done = 0;
    stream::iter(&task.items)
        .map(|item| one(Arc::clone(model), item, top))
        .buffered(ACTIVE_SEQUENCES_MAX)
        .inspect_ok(|_| {
            done += 1;
            told(done);
        })
        .try_collect()
        .await
}

async fn one(model: Arc<dyn LanguageModel>, item: &Item, top: usize) -> Result<Answered, ModelError> {
    let sampling = Sampling { top_logprobs: top, max_tokens: ANSWER_TOKENS_MAX, ..Sampling::greedy() };
    let request = |prompt: &[Message]| Request::new(Prompt::Chat(prompt.to_vec()), sampling.clone(), Stream::root(0));
    let (right, estimates) = match &item.question {
        Question::Answer { prompt, references, matching } => {
            let completion = model.complete(request(prompt), None).await?;
            let content = &completion.message.content;
            let right = references.iter().any(|reference| matching.holds(content, reference));
            (right, read(&model, &completion.tokens))
        }
        Question::Choose { prompt, candidates, right, by } => {
            let mut request = request(prompt);
            request.goes_on = false;
            let texts = candidates.iter().cloned().map(Continuation::Text).collect();
            let each = model.score_each(request, texts).await?.into_iter().enumerate();
            let each = each.map(|(at, Scored { tokens, .. })| Ok((likelihood(&model, &tokens, *by)?, at, tokens)));
            let mut scored = each.collect::<Result<Vec<_>, ModelError>>()?;
            scored.sort_by(|a, b| b.0.total_cmp(&a.0));
            let mut best = scored.into_iter();
            let (Some((likeliest, chosen, tokens)), Some((next, ..))) = (best.next(), best.next()) else {
                return Err(ModelError::Unsupported {
                    model: model.info().name.clone(),
                    why: "there is no choice among fewer than two candidates".to_owned(),
                });
            };
            let mut estimates = read(&model, &tokens);
            estimates.choice_margin = Some(likeliest - next);
            // Of two that are equally likely, none was chosen.
            (chosen == *right && likeliest > next, estimates)
        }
    };
    Ok(Answered { id: item.id, held_out: item.held_out(), right, estimates })
}

fn likelihood(model: &Arc<dyn LanguageModel>, tokens: &[TokenLogprob], by: Likelihood) -> Result<f64, ModelError> {
    let sum: Option<f64> = tokens.iter().map(|token| token.logprob.map(f64::from)).sum();
    let sum = sum.ok_or_else(|| ModelError::Unsupported {
        model: model.info().name.clone(),
        why: "it does not tell how likely every token of a candidate is; use `bundled` or `local:DIR`".to_owned(),
    })?;
    Ok(match by {
        Likelihood::Whole => sum,
        Likelihood::PerToken => sum / tokens.len().max(1) as f64,
    })
}

/// What a regulator reads from the tokens of an answer.
fn read(model: &Arc<dyn LanguageModel>, tokens: &[TokenLogprob]) -> Estimates {
    let mut settings = Settings::default();
    settings.confidence.vocabulary = model.info().vocabulary;
    let mut regulator = Regulator::new(settings);
    regulator.on_event(LlmEvent::TurnStart { user_message: "" });
    for token in tokens {
        // The answer is there already: nothing is left to stop.
        let _flow = regulator.on_token(token);
    }
    regulator.turn_reading().estimates
}
