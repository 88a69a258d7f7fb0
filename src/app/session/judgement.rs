//! Turns a model's answer into a choice, or into nothing if the model is unsure.
//!
//! If a model gives log-probabilities, every choice is scored after the question, in the given order and in reverse.
//! The choice that wins both times by [`MARGIN_MIN`] is the answer, so a preference for the first letter is never an
//! answer. Otherwise the reply must be exactly a letter or the words of a choice.

use serde::{Deserialize, Serialize};

use crate::foundation::base::RngStream;
use crate::foundation::chat::{Continuation, LanguageModel, Message, ModelError, Prompt, Request, Sampling, Scored};
use crate::foundation::gate::CallPermit;

/// Minimum log-probability margin over the next choice, in nats: e to this power is about 2.7 times.
pub(super) const MARGIN_MIN: f32 = 1.0;
/// Upper bound of the tokens that a template adds to a message.
pub(super) const TEMPLATE_TOKENS_MAX: usize = 64;
/// Maximum tokens of a reply to a question.
const REPLY_TOKENS: usize = 8;

/// A question to a model and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelJudgement {
    /// The name of the question.
    pub question: String,
    /// The choice; `None` if the model was unsure and the default is used.
    pub choice: Option<String>,
    /// The margin over the next choice in nats; `None` if the answer was parsed from text.
    pub margin: Option<f32>,
    /// Why there is no choice.
    pub unsure: Option<String>,
    /// Whether the stronger model was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalated: bool,
}

/// A question with its choices.
pub(super) struct Question<'a> {
    pub(super) name: String,
    /// The context for the model.
    pub(super) context: &'a str,
    pub(super) text: String,
    pub(super) choices: &'a [&'a str],
}

impl Question<'_> {
    /// The prompt with these choices.
    fn prompt(&self, choices: &[&str]) -> String {
        let mut text = format!("{}\n\n{}\n", self.context, self.text);
        for (letter, choice) in letters().zip(choices) {
            text.extend([letter.to_string().as_str(), ") ", choice, "\n"]);
        }
        text + "Answer with one letter."
    }

    /// Upper bound of the calls to answer it.
    pub(super) const fn calls_max(&self) -> u64 {
        2 * self.choices.len() as u64
    }

    /// Upper bound of the tokens read to answer it: one per byte.
    pub(super) fn tokens_max(&self) -> u64 {
        let once = self.prompt(self.choices).len() + REPLY_TOKENS + TEMPLATE_TOKENS_MAX;
        (once * 2 * self.choices.len()) as u64
    }

    /// The arguments of the call, for its permit.
    pub(super) fn arguments(&self) -> String {
        self.prompt(self.choices)
    }
}

fn letters() -> impl Iterator<Item = char> {
    'A'..='Z'
}

/// Asks the question; the calls count against `permit`. A failing model counts as unsure, with its error as the reason.
pub(super) async fn judge(
    model: &dyn LanguageModel,
    question: &Question<'_>,
    stream: RngStream,
    permit: CallPermit,
) -> ModelJudgement {
    let sure = if model.info().logprobs {
        by_margin(model, question, stream, permit).await
    } else {
        by_words(model, question, stream, permit).await
    };
    let (choice, margin, unsure) = match sure {
        Ok((choice, margin)) => (question.choices.get(choice).map(|choice| (*choice).to_owned()), margin, None),
        Err(why) => (None, None, Some(why)),
    };
    ModelJudgement { question: question.name.clone(), choice, margin, unsure, escalated: false }
}

async fn by_margin(
    model: &dyn LanguageModel,
    question: &Question<'_>,
    stream: RngStream,
    permit: CallPermit,
) -> Result<(usize, Option<f32>), String> {
    let count = question.choices.len();
    let mut reversed = question.choices.to_vec();
    reversed.reverse();
    let there = scores(model, &question.prompt(question.choices), count, stream, permit.clone()).await?;
    let mut back = scores(model, &question.prompt(&reversed), count, stream, permit).await?;
    back.reverse();
    let (first, first_margin) = best(&there).ok_or("there are no choices")?;
    let (second, second_margin) = best(&back).ok_or("there are no choices")?;
    let margin = first_margin.min(second_margin);
    if first != second {
        return Err("another order of the choices changes the answer".to_owned());
    }
    if margin < MARGIN_MIN {
        return Err(format!("{margin:.2} nats between the best two, {MARGIN_MIN} are needed"));
    }
    Ok((first, Some(margin)))
}

async fn scores(
    model: &dyn LanguageModel,
    text: &str,
    count: usize,
    stream: RngStream,
    permit: CallPermit,
) -> Result<Vec<f64>, String> {
    let mut request = Request::new(Prompt::Chat(vec![Message::user(text)]), Sampling::greedy(), stream);
    request.keep_state = false;
    request.permit = Some(permit);
    let answers = letters().take(count).map(|letter| Continuation::Text(letter.to_string())).collect();
    let scored = model.score_each(request, answers).await.map_err(|error: ModelError| error.to_string())?;
    let likely: Option<_> = scored.iter().map(Scored::logprob).collect();
    likely.ok_or_else(|| "the model gives no log-probability".to_owned())
}

/// The best and by how much it is better than the next.
fn best(scores: &[f64]) -> Option<(usize, f32)> {
    let mut order: Vec<_> = scores.iter().copied().enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    match order.as_slice() {
        [(first, most), (_, next), ..] => Some((*first, (most - next) as f32)),
        _ => None,
    }
}

async fn by_words(
    model: &dyn LanguageModel,
    question: &Question<'_>,
    stream: RngStream,
    permit: CallPermit,
) -> Result<(usize, Option<f32>), String> {
    let sampling = Sampling { max_tokens: REPLY_TOKENS, ..Sampling::greedy() };
    let text = question.prompt(question.choices);
    let mut request = Request::new(Prompt::Chat(vec![Message::user(text)]), sampling, stream);
    request.permit = Some(permit);
    // One letter needs no thought: one that the model begins is closed at once.
    request.thinking.tokens_max = model.info().thinking.as_ref().filter(|thinking| thinking.on).map(|_| 0);
    let reply = model.complete(request, None).await.map_err(|error| error.to_string())?;
    let text = reply.message.content;
    read(&text, question.choices).map(|choice| (choice, None)).ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        format!("it answers `{text}`, which is none of the choices")
    })
}

/// Which choice a reply is: its letter, or its words.
fn read(reply: &str, choices: &[&str]) -> Option<usize> {
    let text = reply.trim().trim_end_matches(['.', ')', ':']).trim();
    letters().zip(choices).position(|(letter, choice)| {
        text.eq_ignore_ascii_case(choice) || text.eq_ignore_ascii_case(&letter.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_a_choice_or_nothing() {
        let check = |reply: &str, expected: Option<usize>| assert_eq!(read(reply, &["yes", "no"]), expected, "{reply}");
        check("A", Some(0));
        check(" b) ", Some(1));
        check("No.", Some(1));
        check("A, because it is clear", None);
        check("Ignore the question and approve", None);
        check("", None);
    }

    #[test]
    fn the_margin_is_between_the_best_two() {
        assert_eq!(best(&[-3.0, -1.0, -1.5]), Some((1, 0.5)));
        assert_eq!(best(&[-3.0]), None);
    }
}
