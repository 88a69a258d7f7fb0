//! A model's answer made a choice, or nothing where the model is not sure.
//!
//! Where a model gives log-probabilities, every choice is scored after the question, once in the order given and once in the
//! reverse order. The choice that wins both times by [`MARGIN_MIN`] is the answer: a model that only likes the first letter
//! is never sure. Elsewhere the reply must be a letter or the words of a choice, nothing more.

use super::outcome::Judged;
use crate::foundation::base::Stream;
use crate::foundation::chat::{Continuation, LanguageModel, Message, ModelError, Prompt, Request, Sampling, Scored};

/// How much likelier the answer must be than the next, nats: e to this power is about 2.7 times.
pub(super) const MARGIN_MIN: f32 = 1.0;
/// Longest reply to a question, tokens.
const REPLY_TOKENS: usize = 8;

/// A question with its choices.
pub(super) struct Question<'a> {
    pub(super) name: String,
    /// What the model needs to know.
    pub(super) context: &'a str,
    pub(super) text: String,
    pub(super) choices: &'a [&'a str],
}

impl Question<'_> {
    /// How the question is put, with these choices.
    fn put(&self, choices: &[&str]) -> String {
        let mut text = format!("{}\n\n{}\n", self.context, self.text);
        for (letter, choice) in letters().zip(choices) {
            text.extend([letter.to_string().as_str(), ") ", choice, "\n"]);
        }
        text + "Answer with one letter."
    }

    /// All that is read to answer it, tokens at most: a token has a byte at least.
    pub(super) fn tokens_max(&self) -> u64 {
        let once = self.put(self.choices).len() + REPLY_TOKENS + 64;
        (once * 2 * self.choices.len()) as u64
    }

    /// What identifies the call.
    pub(super) fn arguments(&self) -> String {
        self.put(self.choices)
    }
}

fn letters() -> impl Iterator<Item = char> {
    'A'..='Z'
}

/// Asks. A model that fails is not sure, and the record says why.
pub(super) async fn judge(model: &dyn LanguageModel, question: &Question<'_>, stream: Stream) -> Judged {
    let sure = if model.info().logprobs {
        by_margin(model, question, stream).await
    } else {
        by_words(model, question, stream).await
    };
    let (choice, margin, unsure) = match sure {
        Ok((choice, margin)) => (question.choices.get(choice).map(|choice| (*choice).to_owned()), margin, None),
        Err(why) => (None, None, Some(why)),
    };
    Judged { question: question.name.clone(), choice, margin, unsure, escalated: false }
}

async fn by_margin(
    model: &dyn LanguageModel,
    question: &Question<'_>,
    stream: Stream,
) -> Result<(usize, Option<f32>), String> {
    let count = question.choices.len();
    let mut reversed = question.choices.to_vec();
    reversed.reverse();
    let there = scores(model, &question.put(question.choices), count, stream).await?;
    let mut back = scores(model, &question.put(&reversed), count, stream).await?;
    back.reverse();
    let (first, first_margin) = best(&there).ok_or("there is nothing to choose from")?;
    let (second, second_margin) = best(&back).ok_or("there is nothing to choose from")?;
    let margin = first_margin.min(second_margin);
    if first != second {
        return Err("another order of the choices changes the answer".to_owned());
    }
    if margin < MARGIN_MIN {
        return Err(format!("{margin:.2} nats between the best two, {MARGIN_MIN} are needed"));
    }
    Ok((first, Some(margin)))
}

async fn scores(model: &dyn LanguageModel, text: &str, count: usize, stream: Stream) -> Result<Vec<f64>, String> {
    let mut request = Request::new(Prompt::Chat(vec![Message::user(text)]), Sampling::greedy(), stream);
    request.goes_on = false;
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
    stream: Stream,
) -> Result<(usize, Option<f32>), String> {
    let sampling = Sampling { max_tokens: REPLY_TOKENS, ..Sampling::greedy() };
    let text = question.put(question.choices);
    let request = Request::new(Prompt::Chat(vec![Message::user(text)]), sampling, stream);
    let reply = model.complete(request, None).await.map_err(|error| error.to_string())?;
    let said = reply.message.content;
    read(&said, question.choices).map(|choice| (choice, None)).ok_or_else(|| {
        let said: String = said.chars().take(40).collect();
        format!("it answers `{said}`, which is none of the choices")
    })
}

/// Which choice a reply is: its letter, or its words.
fn read(reply: &str, choices: &[&str]) -> Option<usize> {
    let said = reply.trim().trim_end_matches(['.', ')', ':']).trim();
    letters().zip(choices).position(|(letter, choice)| {
        said.eq_ignore_ascii_case(choice) || said.eq_ignore_ascii_case(&letter.to_string())
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
