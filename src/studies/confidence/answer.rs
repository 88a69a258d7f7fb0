//! Runs a model on the items of a task and computes the regulator's estimates for each answer.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use super::sampled::{ANSWER_TOKENS_MAX, Costs, SamplingPlan, p_true, sample};
use super::task::{Likelihood, Question, Task, TaskItem};
use crate::foundation::base::limits::ACTIVE_SEQUENCES_MAX;
use crate::foundation::base::{Digest, RngStream};
use crate::foundation::chat::{
    Continuation, LanguageModel, Message, ModelError, Prompt, Request, Sampling, Scored, TokenLogprob,
};
use crate::governance::regulator::{Estimates, LlmEvent, Regulator, Settings};

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
    /// The answer was right.
    pub right: bool,
    /// The model's uncertainty estimates.
    pub estimates: Estimates,
    /// The answer.
    pub answer: String,
    /// The estimates for the thought before the answer, which are in none of the others; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<Estimates>,
    /// The other answers that were sampled.
    pub samples: Vec<String>,
    /// What the estimates cost.
    pub costs: Costs,
}

/// Runs `model` on every item of `task`, many concurrently (one by one with a sampling plan, so that each item's time is its
/// own); the answers are in the items' order and do not depend on the concurrency. `on_progress` is called after each answer with the number done.
///
/// # Errors
/// The model's first error.
pub async fn answer(
    model: &Arc<dyn LanguageModel>,
    task: &Task,
    alternatives: Alternatives,
    plan: Option<&SamplingPlan>,
    mut on_progress: impl FnMut(usize),
) -> Result<Vec<AnsweredItem>, ModelError> {
    let top = match alternatives {
        Alternatives::Top(top) => top,
        Alternatives::All => model.info().vocabulary.unwrap_or(0),
    };
    // Where time is measured, items wait for one another.
    let at_once = if plan.is_some() { 1 } else { ACTIVE_SEQUENCES_MAX };
    let mut done = 0;
    stream::iter(&task.items)
        .map(|item| one(Arc::clone(model), item, top, plan))
        .buffered(at_once)
        .inspect_ok(|_| {
            done += 1;
            on_progress(done);
        })
        .try_collect()
        .await
}

async fn one(
    model: Arc<dyn LanguageModel>,
    item: &TaskItem,
    top: usize,
    plan: Option<&SamplingPlan>,
) -> Result<AnsweredItem, ModelError> {
    let began = Instant::now();
    let (mut costs, mut samples) = (Costs::default(), Vec::new());
    let sampling = Sampling { top_logprobs: top, max_tokens: ANSWER_TOKENS_MAX, ..Sampling::greedy() };
    let request = |prompt: &[Message]| {
        let mut request = Request::new(Prompt::Chat(prompt.to_vec()), sampling.clone(), RngStream::root(0));
        request.allow_thought(model.info());
        request
    };
    let mut thought = None;
    let (right, mut estimates, answer) = match &item.question {
        Question::Answer { prompt, references, matching } => {
            let completion = model.complete(request(prompt), None).await?;
            let content = &completion.message.content;
            let right = references.iter().any(|reference| matching.holds(content, reference));
            let mut estimates = read(&model, &completion.tokens);
            thought = completion.thought.as_ref().map(|thought| read(&model, &thought.tokens));
            costs.single_pass.add(completion.usage.tokens_in + completion.usage.tokens_out, began.elapsed());
            if let Some(plan) = plan {
                samples = sample(&model, plan, (item.id, prompt), &completion, &mut estimates, &mut costs).await?;
            }
            (right, estimates, completion.message.content)
        }
        Question::Choose { prompt, candidates, right, by } => {
            let mut request = request(prompt);
            request.keep_state = false;
            let texts = candidates.iter().cloned().map(Continuation::Text).collect();
            let each = model.score_each(request, texts).await?;
            let prompt_tokens = each.first().map_or(0, |one| one.usage.tokens_in);
            let read_tokens = each.iter().map(|one| one.tokens.len() as u64).sum::<u64>() + prompt_tokens;
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
            let mut estimates = read(&model, &tokens);
            estimates.choice_margin = Some(likeliest - next);
            // If the two best are equally likely, none was chosen.
            costs.single_pass.add(read_tokens, began.elapsed());
            let answer = candidates.get(chosen).cloned().unwrap_or_default();
            (chosen == *right && likeliest > next, estimates, answer)
        }
    };
    if plan.is_some() {
        let (Question::Answer { prompt, .. } | Question::Choose { prompt, .. }) = &item.question;
        p_true(&model, prompt, &answer, &mut estimates, &mut costs).await?;
    }
    Ok(AnsweredItem { id: item.id, held_out: item.held_out(), right, estimates, answer, thought, samples, costs })
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

/// The regulator's estimates for the tokens of an answer.
fn read(model: &Arc<dyn LanguageModel>, tokens: &[TokenLogprob]) -> Estimates {
    let mut settings = Settings::default();
    settings.confidence.vocabulary = model.info().vocabulary;
    let mut regulator = Regulator::new(settings);
    regulator.on_event(LlmEvent::TurnStart { user_message: "" });
    for token in tokens {
        // The answer is complete: nothing to stop.
        let _flow = regulator.on_token(token);
    }
    regulator.turn_stats().estimates
}
