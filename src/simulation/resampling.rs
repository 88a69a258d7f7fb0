//! Confidence from several samples of one answer: what else the model says to the same question, and whether it takes its
//! answer for true. They cost more than one pass, so each says what it cost.
//!
//! Samples continue from one snapshot of the prompt, side by side. Two answers mean the same if they read the same (where
//! the caller says how an answer is read), if their words are equal, if their embeddings are close (with an embedder), or
//! else if the model finds each far likelier after the other has been given (both ways, so that an answer that merely says
//! less is another one; after Kuhn et al. 2023, who ask a model of inference). How alike two answers are is the cosine of
//! their embeddings, or else ROUGE-L (Lin 2004) over their words.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};

use crate::foundation::base::RngStream;
use crate::foundation::chat::{
    Completion, Continuation, DeltaGains, Embedder, LanguageModel, Message, ModelError, ModelInfo, Prompt, Request,
    Sampling, Scored, Snapshot, TokenLogprob,
};
use crate::foundation::gate::CallPermit;
use crate::foundation::text::words;
use crate::governance::regulator::{Estimates, LlmEvent, Regulator, Settings};

/// By how much an answer's mean log-probability per token rises after one of the same meaning, nats.
const SAME_GAIN: f64 = 1.0;
/// Cosine of embeddings from which two answers mean the same.
const SAME_COSINE: f64 = 0.85;

/// How answers are sampled.
#[derive(Clone)]
pub struct SamplingPlan {
    /// How many samples of each answer.
    pub samples: usize,
    /// Their temperature.
    pub temperature: f32,
    /// Alternatives per token, for group confidences.
    pub top_logprobs: usize,
    /// Tokens in a group.
    pub group_tokens: usize,
    /// Compares meanings in place of the model.
    pub embedder: Option<Arc<dyn Embedder>>,
}

/// What a group of estimators cost on one answer or on all.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Tokens read and written; what a snapshot had read is not read again.
    pub tokens: u64,
    /// Wall-clock time, seconds.
    pub seconds: f64,
}

impl Cost {
    /// Adds tokens and time.
    pub fn add(&mut self, tokens: u64, time: Duration) {
        self.tokens += tokens;
        self.seconds += time.as_secs_f64();
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { tokens: self.tokens + other.tokens, seconds: self.seconds + other.seconds }
    }
}

/// The costs of each group of estimators.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Costs {
    /// The answer itself, with every estimator of its tokens.
    pub single_pass: Cost,
    /// The samples: `answer_frequency`, the three of `CoCoA`, and what the next group needs.
    pub samples: Cost,
    /// The comparison of the samples' meanings, beside the samples: `semantic_entropy`, `self_consistency`, `deepconf_vote`.
    pub meanings: Cost,
    /// `p_true`.
    pub p_true: Cost,
}

impl Costs {
    /// The sum of both, group by group.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            single_pass: self.single_pass.plus(other.single_pass),
            samples: self.samples.plus(other.samples),
            meanings: self.meanings.plus(other.meanings),
            p_true: self.p_true.plus(other.p_true),
        }
    }
}

/// One token of an answer or a sample, as it is exported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenReading {
    /// Its text.
    pub token: String,
    /// Its log-probability, nats.
    pub logprob: Option<f32>,
    /// The entropy of the whole distribution, nats.
    pub entropy: Option<f32>,
    /// The log-probabilities of the most likely tokens, best first, nats.
    pub top: Vec<f32>,
}

impl TokenReading {
    /// The readings of `tokens`.
    pub fn of(tokens: &[TokenLogprob]) -> Vec<Self> {
        let reading = |token: &TokenLogprob| Self {
            token: token.text.clone(),
            logprob: token.logprob,
            entropy: token.entropy,
            top: token.top.iter().map(|(_, logprob)| *logprob).collect(),
        };
        tokens.iter().map(reading).collect()
    }
}

/// One sample of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// What it says.
    pub text: String,
    /// The number of its meaning; 0 is that of the answer.
    pub meaning: usize,
    /// How alike it and the answer are, in [0, 1].
    pub similarity: f64,
    /// Its group confidences, nats; absent without alternatives.
    pub groups: Option<GroupConfidence>,
    /// Its tokens.
    pub tokens: Vec<TokenReading>,
}

/// `DeepConf`'s confidences of one sample (Fu et al. 2025), nats; higher is more certain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GroupConfidence {
    /// The mean over all tokens.
    pub mean: f64,
    /// The mean of the lowest tenth of the groups.
    pub bottom: f64,
    /// The lowest group.
    pub lowest: f64,
    /// The last group.
    pub tail: f64,
}

impl GroupConfidence {
    /// Those of a sample with `tokens`; `None` if no token has alternatives.
    pub fn of(tokens: &[TokenLogprob], estimates: &Estimates) -> Option<Self> {
        let confidence = |token: &TokenLogprob| -> Option<f64> {
            let sum: f64 = token.top.iter().map(|(_, logprob)| -f64::from(*logprob)).sum();
            (!token.top.is_empty()).then(|| sum / token.top.len() as f64)
        };
        let each: Vec<f64> = tokens.iter().filter_map(confidence).filter(|value| value.is_finite()).collect();
        Some(Self {
            mean: crate::foundation::stats::mean(&each)?,
            bottom: estimates.group_confidence_bottom?,
            lowest: estimates.group_confidence_min?,
            tail: estimates.group_confidence_tail?,
        })
    }
}

/// The regulator's estimates for the tokens of a complete answer.
pub fn read_tokens(model: &dyn LanguageModel, tokens: &[TokenLogprob], group_tokens: Option<usize>) -> Estimates {
    let mut settings = Settings::default();
    settings.confidence.vocabulary = model.info().vocabulary;
    settings.confidence.group_tokens = group_tokens.unwrap_or(settings.confidence.group_tokens);
    let mut regulator = Regulator::new(settings);
    regulator.on_event(LlmEvent::TurnStart { user_message: "" });
    for token in tokens {
        // The answer is complete: nothing to stop.
        let _flow = regulator.on_token(token);
    }
    regulator.turn_stats().estimates
}

/// How an answer is read, where its text is more than the answer; `None` if it cannot be read.
pub type ReadAnswer<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// An answer whose prompt is answered again.
#[derive(Clone, Copy)]
pub struct Answered<'a> {
    /// What it answers.
    pub prompt: &'a [Message],
    /// The state before the answer, from which samples continue.
    pub before: Option<&'a Snapshot>,
    /// What it says.
    pub text: &'a str,
    /// The source of the samples' randomness; sample `k` uses its child `("sample", k)`.
    pub draws: &'a RngStream,
    /// The most tokens of a sample.
    pub tokens_max: usize,
    /// How it is read.
    pub read: Option<ReadAnswer<'a>>,
    /// Gains on Δ, as for the answer.
    pub gains: Option<&'a DeltaGains>,
    /// The permit that the calls count against.
    pub permit: Option<&'a CallPermit>,
}

/// The most calls that [`resample`] makes for so many samples: the samples, and four readings for each pair of meanings.
pub const fn calls_max(samples: u64) -> u64 {
    samples + 2 * samples * (samples + 1)
}

impl Answered<'_> {
    /// The request for sample number `number` of `model`, which may think before it answers.
    pub fn request(&self, model: &ModelInfo, plan: &SamplingPlan, number: usize) -> Request {
        let sampling = Sampling {
            temperature: plan.temperature,
            top_p: 1.0,
            max_tokens: self.tokens_max,
            top_logprobs: plan.top_logprobs,
            ..Sampling::greedy()
        };
        let stream = self.draws.child("sample", number as u64);
        let mut request = Request::new(Prompt::Chat(self.prompt.to_vec()), sampling, stream);
        request.allow_thought(model);
        self.with_state(request)
    }

    /// The request after the state before the answer, under its gains and permit.
    fn with_state(&self, mut request: Request) -> Request {
        request.after = self.before.cloned();
        request.gains = self.gains.cloned();
        request.permit = self.permit.cloned();
        request.keep_state = false;
        request
    }
}

/// Tokens that a completion read and wrote; not those that a snapshot or a cache held.
pub fn spent(completion: &Completion) -> u64 {
    let usage = completion.usage;
    usage.tokens_in.saturating_sub(usage.tokens_cached) + usage.tokens_out
}

/// Samples the answer again, and sets the estimates that follow from the samples and the answer's own `estimates`.
///
/// # Errors
/// The model's or the embedder's first error.
pub async fn resample(
    model: &Arc<dyn LanguageModel>,
    plan: &SamplingPlan,
    answer: Answered<'_>,
    estimates: &mut Estimates,
    costs: &mut Costs,
) -> Result<Vec<Sample>, ModelError> {
    if plan.samples == 0 {
        return Ok(Vec::new());
    }
    let began = Instant::now();
    let completions =
        try_join_all((0..plan.samples).map(|number| model.complete(answer.request(model.info(), plan, number), None)))
            .await?;
    let tokens = completions.iter().map(spent).sum();
    costs.samples.add(tokens, began.elapsed());
    let mut samples: Vec<Sample> = completions
        .into_iter()
        .map(|completion| Sample {
            groups: GroupConfidence::of(
                &completion.tokens,
                &read_tokens(&**model, &completion.tokens, Some(plan.group_tokens)),
            ),
            tokens: TokenReading::of(&completion.tokens),
            text: completion.message.content,
            meaning: 0,
            similarity: 0.0,
        })
        .collect();

    let began = Instant::now();
    let mut judge = MeaningJudge { model, plan, answer, tokens: 0 };
    judge.compare(&mut samples).await?;
    costs.meanings.add(judge.tokens, began.elapsed());
    complete(estimates, answer.text, &samples);
    Ok(samples)
}

/// Sets the estimates that follow from `samples` of an answer.
fn complete(estimates: &mut Estimates, answer: &str, samples: &[Sample]) {
    let of = samples.len() as f64;
    let meanings = samples.iter().map(|sample| sample.meaning).max().unwrap_or(0) + 1;
    let count = |meaning| samples.iter().filter(|sample| sample.meaning == meaning).count() as f64;
    let shares = || (0..meanings).map(|meaning| count(meaning) / of).filter(|share| *share > 0.0);
    estimates.semantic_entropy = Some(shares().map(|share| -share * libm::log(share)).sum());
    estimates.self_consistency = shares().reduce(f64::max);
    let said = words(answer);
    estimates.answer_frequency = Some(samples.iter().filter(|sample| words(&sample.text) == said).count() as f64 / of);
    let unlike = samples.iter().map(|sample| 1.0 - sample.similarity).sum::<f64>() / of;
    estimates.cocoa_msp = estimates.msp.map(|msp| msp * unlike);
    estimates.cocoa_ppl = estimates.ln_nll.map(|nll| nll * unlike);
    estimates.cocoa_mte = estimates.entropy_mean.map(|entropy| entropy * unlike);
    let weights: Option<Vec<f64>> =
        samples.iter().map(|sample| sample.groups.map(|groups| groups.lowest.max(0.0))).collect();
    estimates.deepconf_vote = weights.and_then(|weights| {
        let agreeing = samples.iter().zip(&weights).filter(|(sample, _)| sample.meaning == 0).map(|(_, weight)| weight);
        let all: f64 = weights.iter().sum();
        (all > 0.0).then(|| agreeing.sum::<f64>() / all)
    });
}

/// Whether the model takes its answer for true: the probability of "Yes" against "No" when it is asked (Kadavath et al. 2022).
///
/// # Errors
/// The model's error.
pub async fn p_true(
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
    let tokens = scored.iter().map(|one| one.tokens.len() as u64).sum::<u64>();
    costs.p_true.add(tokens + scored.first().map_or(0, |one| one.usage.tokens_in), began.elapsed());
    let sums: Vec<f64> = scored.iter().filter_map(sum_logprobs).collect();
    if let [yes, no] = sums[..] {
        estimates.p_true = Some(1.0 / (1.0 + libm::exp(no - yes)));
    }
    Ok(())
}

/// The log-probability of a scored text, nats; `None` if that of a token is not known.
fn sum_logprobs(scored: &Scored) -> Option<f64> {
    scored.tokens.iter().map(|token| token.logprob.map(f64::from)).sum()
}

/// Compares meanings.
struct MeaningJudge<'a> {
    model: &'a Arc<dyn LanguageModel>,
    plan: &'a SamplingPlan,
    answer: Answered<'a>,
    tokens: u64,
}

impl MeaningJudge<'_> {
    /// Sets each sample's meaning, and how alike it and the answer are.
    async fn compare(&mut self, samples: &mut [Sample]) -> Result<(), ModelError> {
        let texts: Vec<String> = std::iter::once(self.answer.text.to_owned())
            .chain(samples.iter().map(|sample| sample.text.clone()))
            .collect();
        let vectors = match &self.plan.embedder {
            Some(embedder) => {
                // An embedder refuses a text without tokens.
                let texts: Vec<&str> =
                    texts.iter().map(|text| if text.trim().is_empty() { "." } else { text.as_str() }).collect();
                Some(embedder.embed(&texts).await?)
            }
            None => None,
        };
        let cosine = |a: usize, b: usize| -> Option<f64> {
            let vectors = vectors.as_ref()?;
            let product = vectors.get(a)?.iter().zip(vectors.get(b)?).map(|(x, y)| f64::from(x * y)).sum::<f64>();
            Some(product.clamp(0.0, 1.0))
        };
        let read: Option<Vec<Option<String>>> =
            self.answer.read.map(|read| texts.iter().map(|text| read(text)).collect());
        let word_lists: Vec<Vec<String>> = texts.iter().map(|text| words(text)).collect();
        // The text that stands for each meaning; the answer's own is the first.
        let mut meanings: Vec<usize> = vec![0];
        for (at, sample) in (1..).zip(samples) {
            let (Some(own), Some(said)) = (word_lists.get(at), word_lists.first()) else { continue };
            sample.similarity = cosine(0, at).unwrap_or_else(|| rouge_l(said, own));
            let mut place = None;
            for (meaning, &other) in meanings.iter().enumerate() {
                let same = match &read {
                    Some(read) => match (read.get(other), read.get(at)) {
                        (Some(Some(a)), Some(Some(b))) => a == b,
                        _ => false,
                    },
                    None if word_lists.get(other) == Some(own) => true,
                    None if own.is_empty() || word_lists.get(other).is_none_or(Vec::is_empty) => false,
                    None => match (cosine(other, at), texts.get(other), texts.get(at)) {
                        (Some(cosine), ..) => cosine >= SAME_COSINE,
                        (None, Some(a), Some(b)) => self.entail(a, b).await?,
                        _ => false,
                    },
                };
                if same {
                    place = Some(meaning);
                    break;
                }
            }
            sample.meaning = place.unwrap_or_else(|| {
                meanings.push(at);
                meanings.len() - 1
            });
        }
        Ok(())
    }

    /// Whether the model finds each far likelier after the other.
    async fn entail(&mut self, a: &str, b: &str) -> Result<bool, ModelError> {
        Ok(self.gain(a, b).await? >= SAME_GAIN && self.gain(b, a).await? >= SAME_GAIN)
    }

    /// By how much the mean log-probability per token of `b` rises after `a` has been given, nats.
    async fn gain(&mut self, a: &str, b: &str) -> Result<f64, ModelError> {
        let mut after = self.answer.prompt.to_vec();
        after.push(Message::assistant(a));
        after.push(Message::user("Say that again in other words."));
        let with = self.mean(after, b).await?;
        let without = self.mean(self.answer.prompt.to_vec(), b).await?;
        Ok(with - without)
    }

    async fn mean(&mut self, prompt: Vec<Message>, text: &str) -> Result<f64, ModelError> {
        let request = Request::new(Prompt::Chat(prompt), Sampling::greedy(), RngStream::root(0));
        let request = self.answer.with_state(request);
        let scored = self.model.score(request, Continuation::Text(text.to_owned())).await?;
        self.tokens +=
            scored.usage.tokens_in.saturating_sub(scored.usage.tokens_cached).max(scored.tokens.len() as u64);
        sum_logprobs(&scored).map(|sum| sum / scored.tokens.len().max(1) as f64).ok_or_else(|| ModelError::Unsupported {
            model: self.model.info().name.clone(),
            why: "meanings are compared by log-probabilities, which it does not return; use `bundled` or `local:DIR`, or \
                  an embedder (`--embedder`)"
                .to_owned(),
        })
    }
}

/// ROUGE-L (Lin 2004): F₁ of the longest common subsequence of words; 0 if either has none.
fn rouge_l(a: &[String], b: &[String]) -> f64 {
    let mut row = vec![0_usize; b.len() + 1];
    for word in a {
        let mut diagonal = 0;
        let mut left = 0;
        for (cell, other) in row.iter_mut().skip(1).zip(b) {
            let above = *cell;
            *cell = if word == other { diagonal + 1 } else { above.max(left) };
            (diagonal, left) = (above, *cell);
        }
    }
    let common = row.last().copied().unwrap_or(0);
    if common == 0 { 0.0 } else { 2.0 * common as f64 / (a.len() + b.len()) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str, meaning: usize, similarity: f64, lowest: f64) -> Sample {
        let groups = Some(GroupConfidence { mean: lowest, bottom: lowest, lowest, tail: lowest });
        Sample { text: text.to_owned(), meaning, similarity, groups, tokens: Vec::new() }
    }

    fn near(found: Option<f64>, expected: f64) {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-12), "{found:?} {expected}");
    }

    #[test]
    fn estimates_follow_from_the_samples() {
        let mut estimates =
            Estimates { msp: Some(4.0), ln_nll: Some(0.5), entropy_mean: Some(1.5), ..Estimates::default() };
        let samples = [
            sample("Rome.", 0, 1.0, 6.0),
            sample("It's Rome", 0, 0.5, 2.0),
            sample("Paris", 1, 0.0, 2.0),
            sample("rome", 0, 1.0, 0.0),
        ];
        complete(&mut estimates, "Rome", &samples);
        near(estimates.answer_frequency, 0.5);
        near(estimates.self_consistency, 0.75);
        near(estimates.semantic_entropy, -(0.75 * 0.75_f64.ln() + 0.25 * 0.25_f64.ln()));
        // Mean dissimilarity: (0 + .5 + 1 + 0) / 4.
        near(estimates.cocoa_msp, 1.5);
        near(estimates.cocoa_ppl, 0.1875);
        near(estimates.cocoa_mte, 0.5625);
        near(estimates.deepconf_vote, 0.8);
        let mut bare = Estimates::default();
        complete(&mut bare, "Rome", &[Sample { groups: None, ..sample("Rome", 0, 1.0, 0.0) }]);
        assert_eq!((bare.cocoa_msp, bare.deepconf_vote, bare.semantic_entropy), (None, None, Some(0.0)));
    }

    #[test]
    fn rouge_l_is_the_longest_common_subsequence() {
        let of = |a: &str, b: &str| rouge_l(&words(a), &words(b));
        // police killed the gunman / police kill the gunman / the gunman kill police (Lin 2004, §3).
        assert!((of("police killed the gunman", "police kill the gunman") - 0.75).abs() < 1e-12);
        assert!((of("police killed the gunman", "the gunman kill police") - 0.5).abs() < 1e-12);
        assert!((of("", "a").abs() + of("a", "b").abs()) < 1e-12);
    }
}
