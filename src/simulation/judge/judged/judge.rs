//! A model that rates. Where it gives the log-probability of a text, the rating is the mean over the scale under its own
//! distribution at the score token (G-Eval, Liu et al., EMNLP 2023); else it writes its rating in strict JSON and is
//! asked again a few times where it does not. Which of the two is settled once and recorded with every score.

use std::sync::Arc;

use futures_util::future::join_all;
use serde::Deserialize;

use crate::foundation::base::Stream;
use crate::foundation::base::limits::JUDGE_REPAIRS_MAX;
use crate::foundation::chat::{
    Continuation, Finish, LanguageModel, Message, ModelError, ModelInfo, Prompt, Request, Sampling, Snapshot,
    TokenLogprob,
};
use crate::simulation::rollout::ScoreMethod;

/// The scale of every rating.
const SCALE: [&str; 5] = ["1", "2", "3", "4", "5"];
/// What a rating begins with: the score is the last token, read after this.
const LEAD: &str = "Rating: ";
/// Room in the judge's window for its answer, tokens.
const ANSWER_TOKENS: usize = 8;
/// Longest written answer, tokens.
const WRITTEN_TOKENS_MAX: usize = 64;

/// What came of asking.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rated {
    /// In `[0, 1]`: 1 on the scale is 0, 5 is 1.
    pub(super) value: Result<f64, String>,
    /// How much probability lay on the scale; `None` for written ratings.
    pub(super) mass: Option<f64>,
}

/// A model that rates.
pub struct Judge {
    model: Arc<dyn LanguageModel>,
    method: ScoreMethod,
}

impl Judge {
    /// Settles how `model` answers.
    ///
    /// # Errors
    /// When it cannot be asked at all.
    pub async fn new(model: Arc<dyn LanguageModel>) -> Result<Self, ModelError> {
        let prompt = Prompt::Chat(vec![Message::user("Rate this from 1 to 5.")]);
        let request = Request::new(prompt, Sampling::greedy(), Stream::root(0));
        let method = match model.score(request, Continuation::Text(format!("{LEAD}1"))).await {
            Ok(scored) if scored.logprob().is_some() => ScoreMethod::LogprobRating,
            Ok(_) | Err(ModelError::Unsupported { .. }) => ScoreMethod::WrittenRating,
            Err(error) => return Err(error),
        };
        Ok(Self { model, method })
    }

    /// How it answers.
    pub const fn method(&self) -> ScoreMethod {
        self.method
    }

    /// What is known of it.
    pub fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    /// How it is told to answer a rating.
    pub(super) const fn how(&self) -> &'static str {
        match self.method {
            ScoreMethod::WrittenRating => {
                "Answer with one line of JSON and nothing else: {\"rating\": N}, N a whole number from 1 to 5."
            }
            _ => "Answer with \"Rating: \" and one number from 1 to 5.",
        }
    }

    /// Whether `prompt` and an answer fit into its window.
    ///
    /// # Errors
    /// How long it is, and how much fits.
    pub(super) fn fits(&self, prompt: &str) -> Result<(), String> {
        let Some(window) = self.info().window_tokens else { return Ok(()) };
        let Some(tokens) = self.model.count(&[Message::user(self.asked(prompt))]) else { return Ok(()) };
        if tokens + ANSWER_TOKENS <= window {
            return Ok(());
        }
        Err(format!("one turn and the question take {tokens} tokens, and the judge reads {window} well"))
    }

    /// Its rating.
    pub(super) async fn rate(&self, prompt: &str, stream: Stream) -> Rated {
        let asked = vec![Message::user(self.asked(prompt))];
        if self.method == ScoreMethod::WrittenRating {
            return Rated { value: self.written(asked, stream).await, mass: None };
        }
        match self.labels(asked, LEAD, &SCALE).await {
            Ok(labels) => {
                let mass: f64 = labels.iter().sum();
                let mean = labels.iter().zip(0u8..).map(|(p, step)| p * f64::from(step)).sum::<f64>() / mass;
                let value = if mass > 0.0 { Ok(mean / (SCALE.len() - 1) as f64) } else { Err(NO_MASS.to_owned()) };
                Rated { value, mass: Some(mass) }
            }
            Err(why) => Rated { value: Err(why), mass: None },
        }
    }

    /// How likely it finds the first of two, in `[0, 1]`; a written answer is 0 or 1.
    pub(super) async fn prefers_first(&self, prompt: &str, stream: Stream) -> Result<f64, String> {
        let asked = vec![Message::user(format!("{prompt}\nAnswer with one letter."))];
        if self.method == ScoreMethod::WrittenRating {
            let answer = self.complete(asked, stream).await?;
            return match answer.trim().trim_end_matches('.') {
                "A" => Ok(1.0),
                "B" => Ok(0.0),
                other => Err(format!("the judge answered `{}`, not A or B", clipped(other))),
            };
        }
        let labels = self.labels(asked, "", &["A", "B"]).await?;
        let (first, sum) = (labels.first().copied().unwrap_or_default(), labels.iter().sum::<f64>());
        if sum > 0.0 { Ok(first / sum) } else { Err(NO_MASS.to_owned()) }
    }

    fn asked(&self, prompt: &str) -> String {
        format!("{prompt}\n{}", self.how())
    }

    /// The probability of each label where the labels part, after `lead`.
    async fn labels(&self, asked: Vec<Message>, lead: &str, labels: &[&str]) -> Result<Vec<f64>, String> {
        let score = |label: &str, after: Option<Snapshot>| {
            let mut request = Request::new(Prompt::Chat(asked.clone()), Sampling::greedy(), Stream::root(0));
            request.after = after;
            self.model.score(request, Continuation::Text(format!("{lead}{label}")))
        };
        let Some((first, rest)) = labels.split_first() else { return Ok(Vec::new()) };
        // The first label brings the others to the place before the answer: the prompt is read once.
        let first = score(first, None).await.map_err(|error| error.to_string())?;
        let rest = join_all(rest.iter().map(|label| score(label, first.before.clone()))).await;
        let scored: Result<Vec<_>, _> = std::iter::once(Ok(first)).chain(rest).collect();
        let scored = scored.map_err(|error| error.to_string())?;
        let tokens: Vec<&[TokenLogprob]> = scored.iter().map(|scored| scored.tokens.as_slice()).collect();
        let shared = shared(&tokens);
        let each: Option<Vec<f64>> = tokens
            .iter()
            .map(|tokens| {
                let sum: Option<f64> = tokens.iter().skip(shared).map(|token| token.logprob.map(f64::from)).sum();
                sum.map(libm::exp)
            })
            .collect();
        each.ok_or_else(|| "the judge gave no log-probability at the score token".to_owned())
    }

    /// A rating that it writes, asked for again while it is none.
    async fn written(&self, asked: Vec<Message>, stream: Stream) -> Result<f64, String> {
        let mut asked = asked;
        let mut why = String::new();
        for attempt in 0..=JUDGE_REPAIRS_MAX {
            let answer = self.complete(asked.clone(), stream.child("attempt", attempt as u64)).await?;
            match parse(&answer) {
                Ok(value) => return Ok(value),
                Err(error) => why = error,
            }
            asked.push(Message::assistant(answer));
            asked.push(Message::user(format!("That is no such answer: {why}. {}", self.how())));
        }
        Err(format!("the judge gave no rating in {} answers: {why}", JUDGE_REPAIRS_MAX + 1))
    }

    async fn complete(&self, asked: Vec<Message>, stream: Stream) -> Result<String, String> {
        let sampling = Sampling { max_tokens: WRITTEN_TOKENS_MAX, ..Sampling::greedy() };
        let request = Request::new(Prompt::Chat(asked), sampling, stream);
        let completion =
            self.model.complete(request, None).await.map_err(|error| format!("the judge failed: {error}"))?;
        if completion.finish == Finish::Refusal {
            return Err(format!("the judge refused: {}", clipped(&completion.message.content)));
        }
        Ok(completion.message.content)
    }
}

const NO_MASS: &str = "the judge gave none of the answers any probability";

/// How many tokens all texts begin with.
fn shared(texts: &[&[TokenLogprob]]) -> usize {
    let Some((first, rest)) = texts.split_first() else { return 0 };
    let same = |at: usize, token: &TokenLogprob| {
        rest.iter().all(|text| text.get(at).is_some_and(|other| (other.id, &other.text) == (token.id, &token.text)))
    };
    first.iter().enumerate().take_while(|(at, token)| same(*at, token)).count()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    rating: u8,
}

/// A written rating as a value in `[0, 1]`.
fn parse(answer: &str) -> Result<f64, String> {
    let Written { rating } = serde_json::from_str(answer.trim())
        .map_err(|error| format!("`{}` is not that JSON ({error})", clipped(answer)))?;
    let steps = SCALE.len() - 1;
    match usize::from(rating).checked_sub(1) {
        Some(step) if step <= steps => Ok(step as f64 / steps as f64),
        _ => Err(format!("{rating} is outside the scale of 1 to 5")),
    }
}

/// The beginning of an answer, for messages.
fn clipped(text: &str) -> String {
    text.trim().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_rating_is_strict() {
        assert_eq!(parse(" {\"rating\": 5}\n"), Ok(1.0));
        assert_eq!(parse("{\"rating\": 2}"), Ok(0.25));
        for answer in
            ["4", "Rating: 4", "{\"rating\": 0}", "{\"rating\": 6}", "{\"rating\": 2.5}", "{\"rating\": 3, \"x\": 1}"]
        {
            assert!(parse(answer).is_err(), "{answer}");
        }
    }

    #[test]
    fn labels_part_where_their_tokens_do() {
        let tokens = |texts: &[&str]| texts.iter().map(|text| TokenLogprob::unknown(None, *text)).collect::<Vec<_>>();
        let (one, two) = (tokens(&["Rat", "ing:", " 1"]), tokens(&["Rat", "ing:", " 2"]));
        assert_eq!(shared(&[&one, &two]), 2);
        assert_eq!(shared(&[&one]), 3);
    }
}
