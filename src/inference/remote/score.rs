//! Teacher-forced scores from a server whose `/completions` echoes the prompt with log-probabilities, as vLLM,
//! llama.cpp's Python server and `loom serve` do. Whether a server does is tried once, never assumed.

use serde::Deserialize;
use serde_json::{Value, json};

use super::draft::known;
use super::fault::{Fault, Kind};
use super::hosted::HostedModel;
use crate::foundation::base::Stream;
use crate::foundation::chat::{
    Basis, Continuation, ModelError, Prompt, Reading, Request, Scored, TokenId, TokenLogprob, Usage,
};

/// What is echoed to find out whether a server does.
const PROBE: &str = "One two three four five six";

#[derive(Deserialize)]
struct Answer {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: String,
    logprobs: Option<Echo>,
}

/// Columns of one length, the prompt's tokens first.
#[derive(Deserialize)]
struct Echo {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    /// A map for each token; texts to log-probabilities.
    top_logprobs: Option<Vec<Option<serde_json::Map<String, Value>>>>,
    /// Where each token begins in the text, characters.
    text_offset: Option<Vec<usize>>,
}

impl HostedModel {
    /// How likely `continuation` is after the request's prompt.
    pub(super) async fn likelihood(&self, request: Request, continuation: Continuation) -> Result<Scored, ModelError> {
        if !self.dialect.scores() {
            return Err(self.unsupported("its provider scores no prompts; use `bundled` or `local:DIR`"));
        }
        if request.gains.is_some() {
            return Err(self.unsupported("it has no Δ to modulate; use `bundled` or `local:DIR`"));
        }
        let top = request.sampling.top_logprobs;
        let stream = request.stream;
        let (prompt, wanted) = match (request.prompt, continuation) {
            (Prompt::Text(text), Continuation::Text(more)) => {
                let begin = text.chars().count();
                let end = begin + more.chars().count();
                (json!(format!("{text}{more}")), Wanted::Chars { begin, end })
            }
            (Prompt::Ids(ids), Continuation::Ids(more)) => {
                let begin = ids.len();
                (json!([ids, more.clone()].concat()), Wanted::Ids { begin, ids: more })
            }
            (Prompt::Chat(_), _) => {
                return Err(self.unsupported("only its server knows its chat template; score bare text or token ids"));
            }
            _ => return Err(self.unsupported("prompt and continuation must both be text, or both token ids")),
        };
        self.echoes.get_or_try_init(|| self.probe(stream)).await?;
        let echo = self.echo(&prompt, top.max(1), stream).await.map_err(|fault| self.told(fault))?;
        let tokens = echo.tokens(&wanted, top).map_err(|why| self.unsupported(why))?;
        let usage = Usage { tokens_in: echo.logprobs.tokens.len() as u64, ..Usage::default() };
        Ok(Scored::new(tokens, usage, Reading::Fresh, None))
    }

    async fn probe(&self, stream: Stream) -> Result<(), ModelError> {
        let no = |why: String| {
            self.unsupported(format!(
                "its server does not echo log-probabilities ({why}); score with `bundled`, `local:DIR`, or a server such as vLLM"
            ))
        };
        let echo = match self.echo(&json!(PROBE), 1, stream).await {
            Ok(echo) => echo,
            Err(fault) if matches!(fault.kind, Kind::Request | Kind::Missing | Kind::Garbled | Kind::Overloaded) => {
                return Err(no(fault.why));
            }
            Err(fault) => return Err(self.told(fault)),
        };
        let end = PROBE.chars().count();
        let begin = "One".len();
        let tokens = echo.tokens(&Wanted::Chars { begin, end }, 0).map_err(no)?;
        let sane = |token: &TokenLogprob| token.logprob.is_some_and(|logprob| logprob <= 0.0);
        if tokens.iter().all(sane) { Ok(()) } else { Err(no("its numbers are no log-probabilities".to_owned())) }
    }

    /// One generated token is asked for: servers differ in what none means.
    async fn echo(&self, prompt: &Value, top: usize, stream: Stream) -> Result<Echoed, Fault> {
        let body = json!({
            "model": self.name, "prompt": prompt, "max_tokens": 1, "temperature": 0.0, "echo": true, "logprobs": top,
        });
        let answer = self.json("/completions", &body, stream).await?;
        let answer: Answer = serde_json::from_value(answer)
            .map_err(|error| Fault::new(Kind::Garbled, format!("its answer is no completion ({error})")))?;
        let choice = answer.choices.into_iter().next();
        let echoed = choice.and_then(|choice| Some(Echoed { text: choice.text, logprobs: choice.logprobs? }));
        echoed.ok_or_else(|| Fault::new(Kind::Garbled, "it gives no log-probabilities".to_owned()))
    }
}

/// Which tokens of an echo are meant.
enum Wanted {
    Chars { begin: usize, end: usize },
    Ids { begin: usize, ids: Vec<TokenId> },
}

struct Echoed {
    text: String,
    logprobs: Echo,
}

impl Echoed {
    fn tokens(&self, wanted: &Wanted, top: usize) -> Result<Vec<TokenLogprob>, String> {
        let Echo { tokens, token_logprobs, top_logprobs, text_offset } = &self.logprobs;
        if tokens.len() != token_logprobs.len() {
            return Err("its columns differ in length".to_owned());
        }
        let offsets = match text_offset {
            Some(offsets) if offsets.len() == tokens.len() => offsets.clone(),
            _ => tokens.iter().scan(0, |at, token| Some(std::mem::replace(at, *at + token.chars().count()))).collect(),
        };
        let (range, ids): (_, &[TokenId]) = match wanted {
            Wanted::Ids { begin, ids } => (*begin..begin + ids.len(), ids),
            Wanted::Chars { begin, end } => {
                // Several tokens may begin at one place, where the first ones are empty: a begin-of-text token, say.
                let last_at = |place: usize| offsets.iter().rposition(|&offset| offset == place);
                let first = if *begin > 0 { offsets.iter().position(|offset| offset == begin) } else { last_at(0) };
                let Some((first, end)) = first.zip(last_at(*end)) else {
                    return Err(
                        "in its vocabulary a token crosses the border of prompt and continuation; move the border, \
                                to before a space for example"
                            .to_owned(),
                    );
                };
                (first..end, &[])
            }
        };
        let mut read = Vec::new();
        for index in range.clone() {
            let (Some(text), Some(logprob)) = (tokens.get(index), token_logprobs.get(index)) else {
                return Err("its echo has fewer tokens than were sent".to_owned());
            };
            let slice = offsets.get(index).zip(offsets.get(index + 1)).filter(|_| ids.is_empty());
            let text = slice.map_or_else(
                || text.clone(),
                |(&from, &to)| self.text.chars().skip(from).take(to.saturating_sub(from)).collect(),
            );
            let mut token = TokenLogprob::unknown(ids.get(index - range.start).copied(), text);
            token.basis = Basis::Sampled;
            token.logprob = logprob.and_then(known);
            if top > 0 {
                let alternatives = top_logprobs.as_ref().and_then(|all| all.get(index)).and_then(Option::as_ref);
                let alternatives = alternatives.into_iter().flatten();
                token.top_texts =
                    alternatives.filter_map(|(text, value)| Some((text.clone(), known(value.as_f64()?)?))).collect();
                token.top_texts.sort_by(|a, b| b.1.total_cmp(&a.1));
                token.top_texts.truncate(top);
            }
            read.push(token);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echoed(tokens: &[&str], offsets: Option<&[usize]>) -> Echoed {
        let logprobs = tokens.iter().enumerate().map(|(index, _)| (index > 0).then_some(-(index as f64))).collect();
        Echoed {
            text: tokens.concat(),
            logprobs: Echo {
                tokens: tokens.iter().map(ToString::to_string).collect(),
                token_logprobs: logprobs,
                top_logprobs: None,
                text_offset: offsets.map(<[_]>::to_vec),
            },
        }
    }

    fn check(echoed: &Echoed, (begin, end): (usize, usize), expected: &[(&str, f32)]) {
        let tokens = echoed.tokens(&Wanted::Chars { begin, end }, 0).unwrap();
        let tokens: Vec<_> = tokens.iter().map(|token| (token.text.as_str(), token.logprob.unwrap())).collect();
        assert_eq!(tokens, expected);
    }

    #[test]
    fn the_continuation_is_found_by_its_characters() {
        check(&echoed(&["né", " two", " three", "!"], None), (2, 12), &[(" two", -1.0), (" three", -2.0)]);
        check(&echoed(&["One", " two", "!"], Some(&[0, 3, 7])), (3, 7), &[(" two", -1.0)]);
    }

    #[test]
    fn a_token_across_the_border_is_an_error_that_says_so() {
        let error = echoed(&["One tw", "o", "!"], None).tokens(&Wanted::Chars { begin: 3, end: 7 }, 0).unwrap_err();
        assert!(error.contains("crosses the border"), "{error}");
    }

    #[test]
    fn ids_are_counted() {
        let tokens = echoed(&["a", "b", "c", "x"], None).tokens(&Wanted::Ids { begin: 1, ids: vec![7, 8] }, 0).unwrap();
        let tokens: Vec<_> = tokens.iter().map(|token| (token.id, token.logprob)).collect();
        assert_eq!(tokens, [(Some(7), Some(-1.0)), (Some(8), Some(-2.0))]);
        assert!(echoed(&["a"], None).tokens(&Wanted::Ids { begin: 1, ids: vec![7] }, 0).unwrap_err().contains("fewer"));
    }
}
