//! A judge model. There are three methods. If the model scores given texts, the rating is the mean over the scale under
//! its distribution at the score token (G-Eval, Liu et al., EMNLP 2023). If it returns the most likely alternatives of
//! each token, the rating is the mean over those alternatives that are on the scale. Otherwise the model writes its rating
//! as JSON. An answer in another format is requested again a few times. The method is determined once per judge
//! and recorded with every score.

use std::sync::Arc;

use serde::Deserialize;

use crate::foundation::base::RngStream;
use crate::foundation::base::limits::JUDGE_REPAIRS_MAX;
use crate::foundation::chat::{
    Completion, Continuation, Finish, LanguageModel, Message, ModelChain, ModelError, ModelInfo, ModelSpec, Prompt,
    Request, Sampling, TokenLogprob,
};
use crate::simulation::rollout::ScoreMethod;

/// The scale of every rating.
const SCALE: [&str; 5] = ["1", "2", "3", "4", "5"];
/// The prefix of an answer; the score token follows it.
const LEAD: &str = "Rating: ";
/// Tokens reserved in the judge's window for its answer.
const ANSWER_TOKENS: usize = 8;
/// Maximum length of a written answer, tokens.
const WRITTEN_TOKENS_MAX: usize = 64;
/// How many alternatives per token are requested from a hosted judge: the most that providers return.
const ALTERNATIVES: usize = 20;

/// A rating, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rating {
    /// In `[0, 1]`: 1 on the scale is 0, 5 is 1.
    pub(super) value: Result<f64, String>,
    /// The total probability of the answers on the scale; `None` for written ratings.
    pub(super) mass: Option<f64>,
    /// How many alternatives the provider returned, if not all: `mass` is then a lower bound.
    pub(super) top: Option<usize>,
}

impl Rating {
    /// A rating without probabilities.
    const fn without_mass(value: Result<f64, String>) -> Self {
        Self { value, mass: None, top: None }
    }

    /// The mean over the scale, given the probability of each step.
    fn from_probabilities(steps: &[f64], top: Option<usize>) -> Self {
        let mass: f64 = steps.iter().sum();
        let mean = steps.iter().zip(0u8..).map(|(p, step)| p * f64::from(step)).sum::<f64>() / mass;
        let value = if mass > 0.0 { Ok(mean / (SCALE.len() - 1) as f64) } else { Err(NO_MASS.to_owned()) };
        Self { value, mass: Some(mass), top }
    }
}

/// A model that rates conversations.
pub struct Judge {
    model: Arc<dyn LanguageModel>,
    method: ScoreMethod,
}

impl Judge {
    /// Determines the method that `model` supports.
    ///
    /// # Errors
    /// If the model cannot be called.
    pub async fn new(model: Arc<dyn LanguageModel>) -> Result<Self, ModelError> {
        let prompt = Prompt::Chat(vec![Message::user("Rate this from 1 to 5.")]);
        let request = Request::new(prompt, Sampling::greedy(), RngStream::root(0));
        let method = match model.score(request, Continuation::Text(format!("{LEAD}1"))).await {
            Ok(scored) if scored.logprob().is_some() => ScoreMethod::LogprobRating,
            Ok(_) | Err(ModelError::Unsupported { .. }) if is_hosted(model.info()) => {
                Self::method_of_hosted(&*model).await?
            }
            Ok(_) | Err(ModelError::Unsupported { .. }) => ScoreMethod::WrittenRating,
            Err(error) => return Err(error),
        };
        Ok(Self { model, method })
    }

    /// A hosted model's method: one request shows whether the provider returns alternatives.
    async fn method_of_hosted(model: &dyn LanguageModel) -> Result<ScoreMethod, ModelError> {
        let question = vec![Message::user(format!("How friendly is \"Good morning!\"?\n{LABEL_FORMAT}"))];
        let answer = model.complete(with_alternatives(question, RngStream::root(0)), None).await?;
        let has_alternatives = answer.tokens.iter().any(|token| !token.top_texts.is_empty());
        Ok(if has_alternatives { ScoreMethod::TopLogprobRating } else { ScoreMethod::WrittenRating })
    }

    /// How ratings are read.
    pub const fn method(&self) -> ScoreMethod {
        self.method
    }

    /// The model's description.
    pub fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    /// The instruction on how to write a rating.
    pub(super) const fn answer_format(&self) -> &'static str {
        match self.method {
            ScoreMethod::WrittenRating => {
                "Answer with one line of JSON and nothing else: {\"rating\": N}, N a whole number from 1 to 5."
            }
            _ => LABEL_FORMAT,
        }
    }

    /// Checks that `prompt` and an answer fit into the model's window.
    ///
    /// # Errors
    /// The prompt's length and the window's.
    pub(super) fn fits(&self, prompt: &str) -> Result<(), String> {
        let Some(window) = self.info().window_tokens else { return Ok(()) };
        let Some(tokens) = self.model.count(&[Message::user(self.question(prompt))]) else { return Ok(()) };
        if tokens + ANSWER_TOKENS <= window {
            return Ok(());
        }
        Err(format!("one turn and the question take {tokens} tokens, and the judge reads {window} well"))
    }

    /// The rating of `prompt`.
    pub(super) async fn rate(&self, prompt: &str, stream: RngStream) -> Rating {
        let question = vec![Message::user(self.question(prompt))];
        let steps = match self.method {
            ScoreMethod::WrittenRating => {
                let read = |answer: &Completion| parse(&answer.message.content);
                return Rating::without_mass(self.complete_with_repairs(question, stream, read).await);
            }
            ScoreMethod::TopLogprobRating => {
                let read = |answer: &Completion| Ok((parse_label(answer, LEAD, &SCALE)?, answer.tokens.clone()));
                let answer = self.complete_with_repairs(question, stream, read).await;
                answer
                    .and_then(|(label, tokens)| label_probabilities(&tokens, label, &SCALE))
                    .map(|(steps, top)| (steps, Some(top)))
            }
            _ => self.score_labels(question, LEAD, &SCALE).await.map(|steps| (steps, None)),
        };
        match steps {
            Ok((steps, top)) => Rating::from_probabilities(&steps, top),
            Err(why) => Rating::without_mass(Err(why)),
        }
    }

    /// The probability that the judge prefers the first of two windows, in `[0, 1]`; a written answer is 0 or 1.
    pub(super) async fn prefers_first(&self, prompt: &str, stream: RngStream) -> Result<f64, String> {
        let question = vec![Message::user(format!("{prompt}\nAnswer with one letter."))];
        let labels = match self.method {
            ScoreMethod::WrittenRating => {
                let chosen = parse_label(&self.complete(question, stream).await?, "", &CHOICES)?;
                CHOICES.map(|label| f64::from(u8::from(label == chosen))).to_vec()
            }
            ScoreMethod::TopLogprobRating => {
                let answer = self.complete(question, stream).await?;
                label_probabilities(&answer.tokens, parse_label(&answer, "", &CHOICES)?, &CHOICES)?.0
            }
            _ => self.score_labels(question, "", &CHOICES).await?,
        };
        let (first, sum) = (labels.first().copied().unwrap_or_default(), labels.iter().sum::<f64>());
        if sum > 0.0 { Ok(first / sum) } else { Err(NO_MASS.to_owned()) }
    }

    fn question(&self, prompt: &str) -> String {
        format!("{prompt}\n{}", self.answer_format())
    }

    /// The probability of each label after `lead`, from the first token in which the labels differ.
    async fn score_labels(&self, question: Vec<Message>, lead: &str, labels: &[&str]) -> Result<Vec<f64>, String> {
        let mut request = Request::new(Prompt::Chat(question), Sampling::greedy(), RngStream::root(0));
        request.keep_state = false;
        let answers = labels.iter().map(|label| Continuation::Text(format!("{lead}{label}"))).collect();
        let scored = self.model.score_each(request, answers).await.map_err(|error| error.to_string())?;
        let tokens: Vec<&[TokenLogprob]> = scored.iter().map(|scored| scored.tokens.as_slice()).collect();
        let shared = shared_prefix(&tokens);
        let each: Option<Vec<f64>> = tokens
            .iter()
            .map(|tokens| {
                let sum: Option<f64> = tokens.iter().skip(shared).map(|token| token.logprob.map(f64::from)).sum();
                sum.map(libm::exp)
            })
            .collect();
        each.ok_or_else(|| "the judge gave no log-probability at the score token".to_owned())
    }

    /// A written answer; requested again, with the error, while `read` rejects it.
    async fn complete_with_repairs<T>(
        &self,
        mut messages: Vec<Message>,
        stream: RngStream,
        read: impl Fn(&Completion) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut why = String::new();
        for attempt in 0..=JUDGE_REPAIRS_MAX {
            let answer = self.complete(messages.clone(), stream.child("attempt", attempt as u64)).await?;
            match read(&answer) {
                Ok(value) => return Ok(value),
                Err(error) => why = error,
            }
            messages.push(Message::assistant(answer.message.content));
            messages.push(Message::user(format!("That is no such answer: {why}. {}", self.answer_format())));
        }
        Err(format!("the judge gave no rating in {} answers: {why}", JUDGE_REPAIRS_MAX + 1))
    }

    async fn complete(&self, messages: Vec<Message>, stream: RngStream) -> Result<Completion, String> {
        let mut request = if self.method == ScoreMethod::TopLogprobRating {
            with_alternatives(messages, stream)
        } else {
            let sampling = Sampling { max_tokens: WRITTEN_TOKENS_MAX, ..Sampling::greedy() };
            Request::new(Prompt::Chat(messages), sampling, stream)
        };
        request.allow_thought(self.model.info());
        let completion =
            self.model.complete(request, None).await.map_err(|error| format!("the judge failed: {error}"))?;
        if completion.finish == Finish::Refusal {
            return Err(format!("the judge refused: {}", clipped(&completion.message.content)));
        }
        Ok(completion)
    }
}

/// The answer format when the score token's probability is read.
const LABEL_FORMAT: &str = "Answer with \"Rating: \" and one number from 1 to 5.";
/// The answers to a choice between two.
const CHOICES: [&str; 2] = ["A", "B"];

/// Whether the model is behind a provider's API.
fn is_hosted(info: &ModelInfo) -> bool {
    let hosted = |spec: &ModelSpec| {
        matches!(spec, ModelSpec::OpenAi(_) | ModelSpec::Anthropic(_) | ModelSpec::OpenAiCompatible { .. })
    };
    info.name.parse::<ModelChain>().is_ok_and(|chain| chain.specs().next().is_some_and(hosted))
}

/// A request for an answer with alternatives per token. At temperature 1 the alternatives are the model's own
/// distribution, whether the server reports probabilities before or after temperature.
fn with_alternatives(messages: Vec<Message>, stream: RngStream) -> Request {
    let sampling = Sampling { temperature: 1.0, top_p: 1.0, max_tokens: WRITTEN_TOKENS_MAX, ..Sampling::default() };
    Request::new(Prompt::Chat(messages), Sampling { top_logprobs: ALTERNATIVES, ..sampling }, stream)
}

/// The label that the answer gives after `lead`; the text around it may be anything.
fn parse_label<'l>(answer: &Completion, lead: &str, labels: &[&'l str]) -> Result<&'l str, String> {
    let text = answer.message.content.trim();
    let lead_word = lead.trim_end();
    let after = if lead_word.is_empty() {
        Some(text)
    } else {
        text.rfind(lead_word).and_then(|at| text.get(at + lead_word.len()..))
    };
    let label = after.and_then(|rest| {
        let rest = rest.trim_start_matches([' ', '*', '_', '`']);
        let known = labels.iter().find(|label| rest.starts_with(**label))?;
        // `45` and `4.5` are not 4; a label without a lead must be the whole answer.
        let end = rest.get(known.len()..)?.trim_end_matches(['.', '*', '_', '`', ' ']);
        let mut next = end.chars();
        let ends = match (next.next(), next.next()) {
            (Some(c), _) if c.is_alphanumeric() => false,
            (Some('.' | ','), Some(c)) if c.is_ascii_digit() => false,
            _ => true,
        };
        (ends && (!lead_word.is_empty() || end.is_empty())).then_some(*known)
    });
    label.ok_or_else(|| format!("`{}` is not {lead}{}", clipped(text), labels.join(" or ")))
}

/// The probability of each label among the alternatives of the token with which `written_label` was written, and the
/// number of alternatives.
fn label_probabilities(
    tokens: &[TokenLogprob],
    written_label: &str,
    labels: &[&str],
) -> Result<(Vec<f64>, usize), String> {
    let token = tokens.iter().rev().find(|token| token.text.contains(written_label));
    let token = token.filter(|token| !token.top_texts.is_empty());
    let token = token.ok_or("the judge returned no alternatives at the score token, although it did so before")?;
    let written = token.text.trim();
    let each = labels.iter().map(|label| {
        // A token may contain more text than the label, the same for each label.
        let wanted = written.replacen(written_label, label, 1);
        let alike = token.top_texts.iter().filter(|(text, _)| text.trim() == wanted);
        let sum: f64 = alike.map(|(_, logprob)| libm::exp(f64::from(*logprob))).sum();
        // Some servers leave out the sampled token when it is not among the most likely ones.
        let drawn = token.logprob.filter(|_| *label == written_label && sum <= 0.0);
        drawn.map_or(sum, |logprob| libm::exp(f64::from(logprob)))
    });
    Ok((each.collect(), token.top_texts.len()))
}

const NO_MASS: &str = "the judge gave no probability to any answer on the scale";

/// The length of the texts' common prefix, tokens.
fn shared_prefix(texts: &[&[TokenLogprob]]) -> usize {
    let Some((first, rest)) = texts.split_first() else { return 0 };
    let same = |at: usize, token: &TokenLogprob| {
        rest.iter().all(|text| text.get(at).is_some_and(|other| (other.id, &other.text) == (token.id, &token.text)))
    };
    first.iter().enumerate().take_while(|(at, token)| same(*at, token)).count()
}

#[derive(Deserialize)]
struct Written {
    rating: u8,
}

/// A written rating as a value in `[0, 1]`: the JSON that was asked for, also inside a fence or a sentence, or the words
/// `Rating: N`. Several different ratings are none.
fn parse(answer: &str) -> Result<f64, String> {
    let mut ratings: Vec<u8> = answer
        .match_indices('{')
        .filter_map(|(at, _)| {
            let object = answer.get(at..)?;
            serde_json::Deserializer::from_str(object).into_iter::<Written>().next()?.ok()
        })
        .map(|written| written.rating)
        .collect();
    if ratings.is_empty() {
        let lower = answer.to_lowercase();
        ratings = lower
            .match_indices("rating")
            .filter_map(|(at, word)| number_after(lower.get(at + word.len()..)?))
            .collect();
    }
    ratings.dedup();
    let rating = match ratings.as_slice() {
        [rating] => *rating,
        [] => return Err(format!("`{}` is not that JSON", clipped(answer))),
        _ => return Err(format!("`{}` gives several ratings", clipped(answer))),
    };
    let steps = SCALE.len() - 1;
    match usize::from(rating).checked_sub(1) {
        Some(step) if step <= steps => Ok(step as f64 / steps as f64),
        _ => Err(format!("{rating} is outside the scale of 1 to 5")),
    }
}

/// The whole number right after a word such as `rating`, over punctuation and `is` or `of`.
fn number_after(text: &str) -> Option<u8> {
    let text = text.trim_start_matches(['"', '\'', '*', '_', ':', '=', ' ']);
    let text = text.strip_prefix("is ").or_else(|| text.strip_prefix("of ")).unwrap_or(text);
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let mut rest = text.get(digits.len()..)?.chars();
    let is_fraction = matches!((rest.next(), rest.next()), (Some('.' | ','), Some(c)) if c.is_ascii_digit());
    if is_fraction { None } else { digits.parse().ok() }
}

/// The beginning of an answer, for messages.
fn clipped(text: &str) -> String {
    text.trim().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_rating_is_read_whatever_is_around_it() {
        for (answer, value) in [
            (" {\"rating\": 5}\n", 1.0),
            ("{\"rating\": 2}", 0.25),
            ("```json\n{\"rating\": 4}\n```", 0.75),
            ("I think she stays in character. {\"rating\": 4, \"why\": \"tone\"}", 0.75),
            ("Rating: 3", 0.5),
            ("My **rating** is 5, since nothing repeats.", 1.0),
        ] {
            assert_eq!(parse(answer), Ok(value), "{answer}");
        }
        for answer in [
            "four",
            "{\"rating\": 0}",
            "{\"rating\": 6}",
            "{\"rating\": 2.5}",
            "Rating: 2.5",
            "{\"rating\": 2} or {\"rating\": 4}",
        ] {
            assert!(parse(answer).is_err(), "{answer}");
        }
    }

    #[test]
    fn the_common_prefix_of_labels_is_found() {
        let tokens = |texts: &[&str]| texts.iter().map(|text| TokenLogprob::unknown(None, *text)).collect::<Vec<_>>();
        let (one, two) = (tokens(&["Rat", "ing:", " 1"]), tokens(&["Rat", "ing:", " 2"]));
        assert_eq!(shared_prefix(&[&one, &two]), 2);
        assert_eq!(shared_prefix(&[&one]), 3);
    }
}
