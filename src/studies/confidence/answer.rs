//! Runs a model on the items of a task and computes the regulator's estimates for each answer.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use super::question::{Likelihood, Question};
use super::task::{Task, TaskItem};
use super::vote::{Vote, votes};
use crate::foundation::base::limits::ACTIVE_SEQUENCES_MAX;
use crate::foundation::base::{Digest, RngStream};
use crate::foundation::chat::{
    Completion, Continuation, LanguageModel, Message, ModelError, Prompt, Request, Sampling, Scored, TokenLogprob,
};
use crate::governance::regulator::Estimates;
use crate::simulation::resampling::{
    Answered, Costs, Sample, SamplingPlan, TokenReading, p_true, read_tokens, resample,
};

/// How many alternatives per token are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alternatives {
    /// The most likely ones.
    Top(usize),
    /// The whole vocabulary, if the model reports its size: needed for self-certainty.
    All,
}

/// One answered item.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnsweredItem {
    /// The item's id.
    pub id: Digest,
    /// It is excluded from every fit.
    pub held_out: bool,
    /// How the answer was read.
    pub protocol: &'static str,
    /// What was asked.
    pub question: String,
    /// The answer was right.
    pub right: bool,
    /// The answer's text.
    pub answer: String,
    /// The answer as it was read; `None` if it could not be.
    pub read: Option<String>,
    /// The model's uncertainty estimates.
    pub estimates: Estimates,
    /// The estimates for the thought before the answer, which are in none of the others; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<Estimates>,
    /// The answer's tokens.
    pub tokens: Vec<TokenReading>,
    /// The other answers that were sampled.
    pub samples: Vec<Sample>,
    /// The answers that the samples voted for.
    pub votes: Vec<Vote>,
    /// What the estimates cost.
    pub costs: Costs,
}

/// How a model is run on a task.
#[derive(Clone)]
pub struct AnswerPlan {
    /// Alternatives per token.
    pub alternatives: Alternatives,
    /// Tokens in a group; the default of the regulator's settings if `None`.
    pub group_tokens: Option<usize>,
    /// How answers are sampled again, if they are.
    pub sampling: Option<SamplingPlan>,
    /// Whether the samples also vote.
    pub vote: bool,
}

/// Runs `model` on every item of `task`, many concurrently (one by one where answers are sampled, so that each item's time is its
/// own); the answers are in the items' order and do not depend on the concurrency. `on_progress` is called after each answer with the number done.
///
/// # Errors
/// The model's first error.
pub async fn answer(
    model: &Arc<dyn LanguageModel>,
    task: &Task,
    plan: &AnswerPlan,
    mut on_progress: impl FnMut(usize),
) -> Result<Vec<AnsweredItem>, ModelError> {
    // Where time is measured, items wait for one another.
    let at_once = if plan.sampling.is_some() { 1 } else { ACTIVE_SEQUENCES_MAX };
    let mut done = 0;
    stream::iter(&task.items)
        .map(|item| one(Arc::clone(model), item, plan))
        .buffered(at_once)
        .inspect_ok(|_| {
            done += 1;
            on_progress(done);
        })
        .try_collect()
        .await
}

async fn one(model: Arc<dyn LanguageModel>, item: &TaskItem, plan: &AnswerPlan) -> Result<AnsweredItem, ModelError> {
    let began = Instant::now();
    let mut costs = Costs::default();
    let protocol = item.question.protocol();
    let top_logprobs = match plan.alternatives {
        Alternatives::Top(top) => top,
        Alternatives::All => model.info().vocabulary.unwrap_or(0),
    };
    let sampling = Sampling { top_logprobs, max_tokens: protocol.tokens_max(), ..Sampling::greedy() };
    let request = |prompt: &[Message]| {
        let mut request = Request::new(Prompt::Chat(prompt.to_vec()), sampling.clone(), RngStream::root(0));
        request.allow_thought(model.info());
        request
    };
    let mut thought = None;
    let (Question::Answer { prompt, .. } | Question::Choose { prompt, .. }) = &item.question;
    let (mut samples, mut voted) = (Vec::new(), Vec::new());
    let (right, mut estimates, tokens, answer) = match &item.question {
        Question::Answer { prompt, references, .. } => {
            let completion = model.complete(request(prompt), None).await?;
            let Completion { message, tokens, before, usage, thought: thoughts, .. } = completion;
            thought = thoughts.map(|thought| read_tokens(&*model, &thought.tokens, plan.group_tokens));
            let mut estimates = read_tokens(&*model, &tokens, plan.group_tokens);
            costs.single_pass.add(usage.tokens_in + usage.tokens_out, began.elapsed());
            if let Some(sampling) = &plan.sampling {
                let draws =
                    RngStream::root(item.id.as_bytes().first_chunk().map_or(0, |first| u64::from_le_bytes(*first)));
                let read = |text: &str| protocol.read(text);
                let answered = Answered {
                    prompt,
                    before: before.as_ref(),
                    text: &message.content,
                    draws: &draws,
                    tokens_max: protocol.tokens_max(),
                    read: if protocol.extracts() { Some(&read) } else { None },
                    gains: None,
                    permit: None,
                };
                samples = resample(&model, sampling, answered, &mut estimates, &mut costs).await?;
                if plan.vote {
                    let right = |text: &str| protocol.right(text, references);
                    voted = votes(&model, sampling, answered, &samples, right, &costs).await?;
                }
            }
            (protocol.right(&message.content, references), estimates, tokens, message.content)
        }
        Question::Choose { prompt, candidates, right, by, .. } => {
            let mut request = request(prompt);
            request.keep_state = false;
            let texts = candidates.iter().cloned().map(Continuation::Text).collect();
            let each = model.score_each(request, texts).await?;
            let prompt_tokens = each.first().map_or(0, |one| one.usage.tokens_in);
            let scored_tokens = each.iter().map(|one| one.tokens.len() as u64).sum::<u64>() + prompt_tokens;
            let each = each.into_iter().enumerate();
            let each = each.map(|(at, Scored { tokens, .. })| Ok((likelihood(&model, &tokens, *by)?, at, tokens)));
            let mut scored = each.collect::<Result<Vec<_>, ModelError>>()?;
            scored.sort_by(|a, b| b.0.total_cmp(&a.0));
            let mut best = scored.into_iter();
            let (Some((likeliest, chosen, tokens)), Some((next, ..))) = (best.next(), best.next()) else {
                return Err(ModelError::Unsupported {
                    model: model.info().name.clone(),
                    why: "a choice needs at least two candidates".to_owned(),
                });
            };
            let mut estimates = read_tokens(&*model, &tokens, plan.group_tokens);
            estimates.choice_margin = Some(likeliest - next);
            costs.single_pass.add(scored_tokens, began.elapsed());
            let answer = candidates.get(chosen).cloned().unwrap_or_default();
            // If the two best are equally likely, none was chosen.
            (chosen == *right && likeliest > next, estimates, tokens, answer)
        }
    };
    if plan.sampling.is_some() {
        p_true(&model, prompt, &answer, &mut estimates, &mut costs).await?;
    }
    Ok(AnsweredItem {
        id: item.id,
        held_out: item.held_out(),
        protocol: protocol.name(),
        question: prompt.last().map(|message| message.content.clone()).unwrap_or_default(),
        right,
        read: protocol.read(&answer),
        answer,
        estimates,
        thought,
        tokens: TokenReading::of(&tokens),
        samples,
        votes: voted,
        costs,
    })
}

fn likelihood(model: &Arc<dyn LanguageModel>, tokens: &[TokenLogprob], by: Likelihood) -> Result<f64, ModelError> {
    let sum: Option<f64> = tokens.iter().map(|token| token.logprob.map(f64::from)).sum();
    let sum = sum.ok_or_else(|| ModelError::Unsupported {
        model: model.info().name.clone(),
        why: "it does not return the log-probability of every token of a candidate; use `bundled` or `local:DIR`"
            .to_owned(),
    })?;
    Ok(match by {
        Likelihood::Whole => sum,
        Likelihood::PerToken => sum / tokens.len().max(1) as f64,
    })
}
