//! A model that rates. Where it gives the log-probability of a text, the rating is the mean over the scale under its own
//! distribution at the score token (G-Eval, Liu et al., EMNLP 2023); where it writes and tells the likeliest
//! alternatives, the mean over those of them that are on the scale; else it writes its rating in strict JSON. What it
//! writes in another form is asked for again a few times. Which of the three is settled once and recorded with every
//! score.

use std::sync::Arc;

use serde::Deserialize;

use crate::foundation::base::Stream;
use crate::foundation::base::limits::JUDGE_REPAIRS_MAX;
use crate::foundation::chat::{
    Completion, Continuation, Finish, LanguageModel, Message, ModelChain, ModelError, ModelInfo, ModelSpec, Prompt,
    Request, Sampling, TokenLogprob,
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
/// How many alternatives a hosted judge is asked for: as many as the providers give at most.
const ALTERNATIVES: usize = 20;

/// What came of asking.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rated {
    /// In `[0, 1]`: 1 on the scale is 0, 5 is 1.
    pub(super) value: Result<f64, String>,
    /// How much probability lay on the scale; `None` for written ratings.
    pub(super) mass: Option<f64>,
    /// How many alternatives were told, where not all were: `mass` is then a lower bound.
    pub(super) top: Option<usize>,
}

impl Rated {
    /// A rating of which only the value is known.
    const fn bare(value: Result<f64, String>) -> Self {
        Self { value, mass: None, top: None }
    }

    /// The mean over the scale, of which each step has a probability.
    fn over(steps: &[f64], top: Option<usize>) -> Self {
        let mass: f64 = steps.iter().sum();
        let mean = steps.iter().zip(0u8..).map(|(p, step)| p * f64::from(step)).sum::<f64>() / mass;
        let value = if mass > 0.0 { Ok(mean / (SCALE.len() - 1) as f64) } else { Err(NO_MASS.to_owned()) };
        Self { value, mass: Some(mass), top }
    }
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
            Ok(_) | Err(ModelError::Unsupported { .. }) if is_hosted(model.info()) => Self::hosted(&*model).await?,
            Ok(_) | Err(ModelError::Unsupported { .. }) => ScoreMethod::WrittenRating,
            Err(error) => return Err(error),
        };
        Ok(Self { model, method })
    }

    /// Whether a provider tells alternatives is known once it was asked.
    async fn hosted(model: &dyn LanguageModel) -> Result<ScoreMethod, ModelError> {
        let asked = vec![Message::user(format!("How friendly is \"Good morning!\"?\n{IN_WORDS}"))];
        let answer = model.complete(telling(asked, Stream::root(0)), None).await?;
        let tells = answer.tokens.iter().any(|token| !token.top_texts.is_empty());
        Ok(if tells { ScoreMethod::TopLogprobRating } else { ScoreMethod::WrittenRating })
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
            _ => IN_WORDS,
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
        let steps = match self.method {
            ScoreMethod::WrittenRating => {
                let read = |answer: &Completion| parse(&answer.message.content);
                return Rated::bare(self.written(asked, stream, read).await);
            }
            ScoreMethod::TopLogprobRating => {
                let read = |answer: &Completion| Ok((said(answer, LEAD, &SCALE)?, answer.tokens.clone()));
                let answer = self.written(asked, stream, read).await;
                answer.and_then(|(label, tokens)| told(&tokens, label, &SCALE)).map(|(steps, top)| (steps, Some(top)))
            }
            _ => self.labels(asked, LEAD, &SCALE).await.map(|steps| (steps, None)),
        };
        match steps {
            Ok((steps, top)) => Rated::over(&steps, top),
            Err(why) => Rated::bare(Err(why)),
        }
    }

    /// How likely it finds the first of two, in `[0, 1]`; a written answer is 0 or 1.
    pub(super) async fn prefers_first(&self, prompt: &str, stream: Stream) -> Result<f64, String> {
        let asked = vec![Message::user(format!("{prompt}\nAnswer with one letter."))];
        let labels = match self.method {
            ScoreMethod::WrittenRating => {
                let said = said(&self.complete(asked, stream).await?, "", &CHOICES)?;
                CHOICES.map(|label| f64::from(u8::from(label == said))).to_vec()
            }
            ScoreMethod::TopLogprobRating => {
                let answer = self.complete(asked, stream).await?;
                told(&answer.tokens, said(&answer, "", &CHOICES)?, &CHOICES)?.0
            }
            _ => self.labels(asked, "", &CHOICES).await?,
        };
        let (first, sum) = (labels.first().copied().unwrap_or_default(), labels.iter().sum::<f64>());
        if sum > 0.0 { Ok(first / sum) } else { Err(NO_MASS.to_owned()) }
    }

    fn asked(&self, prompt: &str) -> String {
        format!("{prompt}\n{}", self.how())
    }

    /// The probability of each label where the labels part, after `lead`.
    async fn labels(&self, asked: Vec<Message>, lead: &str, labels: &[&str]) -> Result<Vec<f64>, String> {
        let mut request = Request::new(Prompt::Chat(asked), Sampling::greedy(), Stream::root(0));
        request.goes_on = false;
        let answers = labels.iter().map(|label| Continuation::Text(format!("{lead}{label}"))).collect();
        let scored = self.model.score_each(request, answers).await.map_err(|error| error.to_string())?;
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

    /// A rating that it writes, asked for again while `read` finds none.
    async fn written<T>(
        &self,
        asked: Vec<Message>,
        stream: Stream,
        read: impl Fn(&Completion) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut asked = asked;
        let mut why = String::new();
        for attempt in 0..=JUDGE_REPAIRS_MAX {
            let answer = self.complete(asked.clone(), stream.child("attempt", attempt as u64)).await?;
            match read(&answer) {
                Ok(value) => return Ok(value),
                Err(error) => why = error,
            }
            asked.push(Message::assistant(answer.message.content));
            asked.push(Message::user(format!("That is no such answer: {why}. {}", self.how())));
        }
        Err(format!("the judge gave no rating in {} answers: {why}", JUDGE_REPAIRS_MAX + 1))
    }

    async fn complete(&self, asked: Vec<Message>, stream: Stream) -> Result<Completion, String> {
        let request = if self.method == ScoreMethod::TopLogprobRating {
            telling(asked, stream)
        } else {
            let sampling = Sampling { max_tokens: WRITTEN_TOKENS_MAX, ..Sampling::greedy() };
            Request::new(Prompt::Chat(asked), sampling, stream)
        };
        let completion =
            self.model.complete(request, None).await.map_err(|error| format!("the judge failed: {error}"))?;
        if completion.finish == Finish::Refusal {
            return Err(format!("the judge refused: {}", clipped(&completion.message.content)));
        }
        Ok(completion)
    }
}

/// How a rating is asked for where its probability is read.
const IN_WORDS: &str = "Answer with \"Rating: \" and one number from 1 to 5.";
/// The answers to a choice between two.
const CHOICES: [&str; 2] = ["A", "B"];

/// Whether somebody else's machine answers.
fn is_hosted(info: &ModelInfo) -> bool {
    let hosted = |spec: &ModelSpec| {
        matches!(spec, ModelSpec::OpenAi(_) | ModelSpec::Anthropic(_) | ModelSpec::OpenAiCompatible { .. })
    };
    info.name.parse::<ModelChain>().is_ok_and(|chain| chain.specs().next().is_some_and(hosted))
}

/// A request whose answer comes with alternatives. At temperature 1 they are the model's own, whether a server reports
/// what it computed or what it drew from.
fn telling(asked: Vec<Message>, stream: Stream) -> Request {
    let sampling = Sampling { temperature: 1.0, top_p: 1.0, max_tokens: WRITTEN_TOKENS_MAX, ..Sampling::default() };
    Request::new(Prompt::Chat(asked), Sampling { top_logprobs: ALTERNATIVES, ..sampling }, stream)
}

/// Which of `labels` the answer is, behind `lead`.
fn said<'l>(answer: &Completion, lead: &str, labels: &[&'l str]) -> Result<&'l str, String> {
    let text = answer.message.content.trim();
    let label = text.strip_prefix(lead.trim_end()).map(|rest| rest.trim().trim_end_matches('.'));
    let known = label.and_then(|label| labels.iter().find(|known| **known == label));
    known.copied().ok_or_else(|| format!("`{}` is not {lead}{}", clipped(text), labels.join(" or ")))
}

/// The probability of each label among the alternatives where `said` was written, and how many of them were told.
fn told(tokens: &[TokenLogprob], said: &str, labels: &[&str]) -> Result<(Vec<f64>, usize), String> {
    let token = tokens.iter().rev().find(|token| token.text.contains(said));
    let token = token.filter(|token| !token.top_texts.is_empty());
    let token = token.ok_or("the judge told no alternatives at the score token, although it had told some before")?;
    let written = token.text.trim();
    let each = labels.iter().map(|label| {
        // A token may hold more than the label, the same for each of them.
        let wanted = written.replacen(said, label, 1);
        let alike = token.top_texts.iter().filter(|(text, _)| text.trim() == wanted);
        let sum: f64 = alike.map(|(_, logprob)| libm::exp(f64::from(*logprob))).sum();
        // Some servers leave out what was drawn when it is not among the likeliest.
        let drawn = token.logprob.filter(|_| *label == said && sum <= 0.0);
        drawn.map_or(sum, |logprob| libm::exp(f64::from(logprob)))
    });
    Ok((each.collect(), token.top_texts.len()))
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
