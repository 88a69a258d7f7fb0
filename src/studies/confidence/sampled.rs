//! Estimates from several samples of an answer: what else the model says to the same question, and whether it takes its
//! answer for true. They cost more than one pass, so each says what it cost.
//!
//! Samples continue from one snapshot of the prompt. Two answers mean the same if their words are equal, if their embeddings are close
//! (with an embedder), or else if the model finds each far likelier after the other has been given (both ways, so that an
//! answer that merely says less is another one; after Kuhn et al. 2023, who ask a model of inference).

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::foundation::base::{Digest, RngStream};
use crate::foundation::chat::{
    Completion, Continuation, Embedder, LanguageModel, Message, ModelError, Prompt, Request, Sampling,
};
use crate::foundation::text::words;
use crate::governance::regulator::Estimates;

/// Longest free answer, tokens.
pub(super) const ANSWER_TOKENS_MAX: usize = 64;
/// By how much an answer's mean log-probability per token rises after one of the same meaning, nats.
const SAME_GAIN: f64 = 1.0;
/// Cosine of embeddings from which two answers mean the same.
const SAME_COSINE: f32 = 0.85;

/// How answers are sampled.
#[derive(Clone)]
pub struct SamplingPlan {
    /// How many samples of each free answer.
    pub samples: usize,
    /// Their temperature.
    pub temperature: f32,
    /// Compares meanings in place of the model.
    pub embedder: Option<Arc<dyn Embedder>>,
}

/// What a group of estimators cost on one item or on all.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Tokens read and written.
    pub tokens: u64,
    /// Wall-clock time, seconds.
    pub seconds: f64,
}

impl Cost {
    pub(super) fn add(&mut self, tokens: u64, time: Duration) {
        self.tokens += tokens;
        self.seconds += time.as_secs_f64();
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens + other.tokens, seconds: self.seconds + other.seconds }
    }
}

/// The costs of each group of estimators.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Costs {
    /// The answer itself, with every estimator of its tokens.
    pub single_pass: Cost,
    /// `answer_frequency`, `self_consistency`: the samples.
    pub samples: Cost,
    /// `semantic_entropy`: the comparison of the samples' meanings, beside the samples.
    pub meanings: Cost,
    /// `p_true`.
    pub p_true: Cost,
}

impl Costs {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            single_pass: self.single_pass.plus(other.single_pass),
            samples: self.samples.plus(other.samples),
            meanings: self.meanings.plus(other.meanings),
            p_true: self.p_true.plus(other.p_true),
        }
    }
}

/// Samples the answer again, and sets the estimates that follow; gives the samples.
pub(super) async fn sample(
    model: &Arc<dyn LanguageModel>,
    plan: &SamplingPlan,
    (item, prompt): (Digest, &[Message]),
    answer: &Completion,
    estimates: &mut Estimates,
    costs: &mut Costs,
) -> Result<Vec<String>, ModelError> {
    let began = Instant::now();
    let sampling =
        Sampling { temperature: plan.temperature, top_p: 1.0, max_tokens: ANSWER_TOKENS_MAX, ..Sampling::greedy() };
    let draws = RngStream::root(item.as_bytes().first_chunk().map_or(0, |first| u64::from_le_bytes(*first)));
    let mut samples = Vec::with_capacity(plan.samples);
    for number in 0..plan.samples as u64 {
        let stream = draws.child("sample", number);
        let mut request = Request::new(Prompt::Chat(prompt.to_vec()), sampling.clone(), stream);
        request.after.clone_from(&answer.before);
        request.keep_state = false;
        request.allow_thought(model.info());
        let completion = model.complete(request, None).await?;
        costs.samples.tokens += completion.tokens.len() as u64;
        samples.push(completion.message.content);
    }
    costs.samples.add(0, began.elapsed());
    let said = &answer.message.content;
    if samples.is_empty() {
        return Ok(samples);
    }

    let began = Instant::now();
    let mut judge = Judge { model, plan, prompt, tokens: 0 };
    // The answer's own cluster is the first.
    let mut clusters: Vec<(String, usize)> = vec![(said.clone(), 0)];
    for sample in &samples {
        let mut place = None;
        for (at, (representative, _)) in clusters.iter().enumerate() {
            if judge.same(representative, sample).await? {
                place = Some(at);
                break;
            }
        }
        match place.and_then(|at| clusters.get_mut(at)) {
            Some((_, count)) => *count += 1,
            None => clusters.push((sample.clone(), 1)),
        }
    }
    costs.meanings.add(judge.tokens, began.elapsed());
    let of = samples.len() as f64;
    let shares = || clusters.iter().map(|(_, count)| *count as f64 / of).filter(|share| *share > 0.0);
    estimates.semantic_entropy = Some(shares().map(|share| -share * share.ln()).sum());
    estimates.self_consistency = shares().reduce(f64::max);
    let words_said = words(said);
    estimates.answer_frequency = Some(samples.iter().filter(|sample| words(sample) == words_said).count() as f64 / of);
    Ok(samples)
}

/// Whether the model takes its answer for true: the probability of "Yes" against "No" when it is asked (Kadavath et al. 2022).
pub(super) async fn p_true(
    model: &Arc<dyn LanguageModel>,
    prompt: &[Message],
    answer: &str,
    estimates: &mut Estimates,
    costs: &mut Costs,
) -> Result<(), ModelError> {
    let began = Instant::now();
    let question = prompt.last().map(|message| message.content.as_str()).unwrap_or_default();
    let asked =
        format!("Question: {question}\nProposed answer: {answer}\nIs the proposed answer right? Answer yes or no.");
    let mut request = Request::new(Prompt::Chat(vec![Message::user(asked)]), Sampling::greedy(), RngStream::root(0));
    request.keep_state = false;
    let words = ["Yes", "No"].map(|word| Continuation::Text(word.to_owned())).to_vec();
    let scored = model.score_each(request, words).await?;
    let mut sums = Vec::new();
    for one in &scored {
        costs.p_true.tokens += one.tokens.len() as u64;
        let sum: Option<f64> = one.tokens.iter().map(|token| token.logprob.map(f64::from)).sum();
        sums.extend(sum);
    }
    costs.p_true.tokens += scored.first().map_or(0, |one| one.usage.tokens_in);
    costs.p_true.add(0, began.elapsed());
    if let [yes, no] = sums[..] {
        estimates.p_true = Some(1.0 / (1.0 + libm::exp(no - yes)));
    }
    Ok(())
}

/// Compares meanings.
struct Judge<'a> {
    model: &'a Arc<dyn LanguageModel>,
    plan: &'a SamplingPlan,
    prompt: &'a [Message],
    tokens: u64,
}

impl Judge<'_> {
    async fn same(&mut self, a: &str, b: &str) -> Result<bool, ModelError> {
        if words(a) == words(b) {
            return Ok(true);
        }
        if words(a).is_empty() || words(b).is_empty() {
            return Ok(false);
        }
        if let Some(embedder) = &self.plan.embedder {
            let vectors = embedder.embed(&[a, b]).await?;
            let [first, second] = &vectors[..] else { return Ok(false) };
            return Ok(first.iter().zip(second).map(|(x, y)| x * y).sum::<f32>() >= SAME_COSINE);
        }
        Ok(self.gain(a, b).await? >= SAME_GAIN && self.gain(b, a).await? >= SAME_GAIN)
    }

    /// By how much the mean log-probability per token of `b` rises after `a` has been given, nats.
    async fn gain(&mut self, a: &str, b: &str) -> Result<f64, ModelError> {
        let mut after = self.prompt.to_vec();
        after.push(Message::assistant(a));
        after.push(Message::user("Say that again in other words."));
        let with = self.mean(after, b).await?;
        let without = self.mean(self.prompt.to_vec(), b).await?;
        Ok(with - without)
    }

    async fn mean(&mut self, prompt: Vec<Message>, text: &str) -> Result<f64, ModelError> {
        let mut request = Request::new(Prompt::Chat(prompt), Sampling::greedy(), RngStream::root(0));
        request.keep_state = false;
        let scored = self.model.score(request, Continuation::Text(text.to_owned())).await?;
        self.tokens += scored.usage.tokens_in + scored.tokens.len() as u64;
        let sum: Option<f64> = scored.tokens.iter().map(|token| token.logprob.map(f64::from)).sum();
        sum.map(|sum| sum / scored.tokens.len().max(1) as f64).ok_or_else(|| ModelError::Unsupported {
            model: self.model.info().name.clone(),
            why: "meanings are compared by log-probabilities, which it does not return; use `bundled` or `local:DIR`, or \
                  --embedder"
                .to_owned(),
        })
    }
}
