//! Teacher-forced scores from a server whose `/completions` echoes the prompt with log-probabilities, such as vLLM,
//! llama.cpp's Python server and `loom serve`. Support is tested once per model, never assumed.

use serde::Deserialize;
use serde_json::{Value, json};

use super::hosted::HostedModel;
use super::partial_reply::known;
use super::provider_error::{ProviderError, ProviderErrorKind};
use crate::foundation::base::RngStream;
use crate::foundation::chat::{
    Basis, Continuation, ModelError, PrefixReuse, Prompt, Request, Scored, TokenId, TokenLogprob, Usage,
};

/// The text of the support test.
const PROBE: &str = "One two three four five six";

#[derive(Deserialize)]
struct Answer {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: String,
    logprobs: Option<EchoLogprobs>,
}

/// Columns of equal length, the prompt's tokens first.
#[derive(Deserialize)]
struct EchoLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f64>>,
    /// One map per token, from text to log-probability.
    top_logprobs: Option<Vec<Option<serde_json::Map<String, Value>>>>,
    /// The offset of each token in the text, in characters.
    text_offset: Option<Vec<usize>>,
}

impl HostedModel {
    /// The log-probability of `continuation` after the request's prompt.
    pub(super) async fn score_by_echo(
        &self,
        request: Request,
        continuation: Continuation,
    ) -> Result<Scored, ModelError> {
        if !self.api.scores() {
            return Err(self.unsupported("its provider cannot score prompts; use `bundled` or `local:DIR`"));
        }
        self.check(request.gains.as_ref())?;
        let top = request.sampling.top_logprobs;
        let stream = request.stream;
        let (prompt, wanted) = match (request.prompt, continuation) {
            (Prompt::Text(text), Continuation::Text(more)) => {
                let begin = text.chars().count();
                let end = begin + more.chars().count();
                (json!(format!("{text}{more}")), ScoredSpan::Chars { begin, end })
            }
            (Prompt::Ids(ids), Continuation::Ids(more)) => {
                let begin = ids.len();
                (json!([ids, more.clone()].concat()), ScoredSpan::Ids { begin, ids: more })
            }
            (Prompt::Chat(_), _) => {
                return Err(
                    self.unsupported("its chat template is known only to its server; score plain text or token ids")
                );
            }
            _ => return Err(self.unsupported("prompt and continuation must both be text, or both token ids")),
        };
        self.echoes.get_or_try_init(|| self.probe(stream)).await?;
        let echo = self.echo(&prompt, top.max(1), stream).await.map_err(|error| self.model_error(error))?;
        let tokens = echo.tokens(&wanted, top).map_err(|why| self.unsupported(why))?;
        let usage = Usage { tokens_in: echo.logprobs.tokens.len() as u64, ..Usage::default() };
        Ok(Scored::new(tokens, usage, PrefixReuse::Fresh, None))
    }

    async fn probe(&self, stream: RngStream) -> Result<(), ModelError> {
        let no = |why: String| {
            let why = self.credentials.redact(&why);
            self.unsupported(format!(
                "its server does not echo log-probabilities ({why}); score with `bundled`, `local:DIR`, or a server such as vLLM"
            ))
        };
        let echo = match self.echo(&json!(PROBE), 1, stream).await {
            Ok(echo) => echo,
            Err(error)
                if matches!(
                    error.kind,
                    ProviderErrorKind::Request
                        | ProviderErrorKind::Missing
                        | ProviderErrorKind::Garbled
                        | ProviderErrorKind::Overloaded
                ) =>
            {
                return Err(no(error.why));
            }
            Err(error) => return Err(self.model_error(error)),
        };
        let end = PROBE.chars().count();
        let begin = "One".len();
        let tokens = echo.tokens(&ScoredSpan::Chars { begin, end }, 0).map_err(no)?;
        let sane = |token: &TokenLogprob| token.logprob.is_some_and(|logprob| logprob <= 0.0);
        if tokens.iter().all(sane) { Ok(()) } else { Err(no("its values are not log-probabilities".to_owned())) }
    }

    /// Requests one generated token, because servers interpret 0 differently.
    async fn echo(&self, prompt: &Value, top: usize, stream: RngStream) -> Result<EchoedPrompt, ProviderError> {
        let body = json!({
            "model": self.name, "prompt": prompt, "max_tokens": 1, "temperature": 0.0, "echo": true, "logprobs": top,
        });
        let answer = self.post_json("/completions", &body, stream).await?;
        let answer: Answer = serde_json::from_value(answer).map_err(|error| {
            ProviderError::new(ProviderErrorKind::Garbled, format!("its response is not a completion ({error})"))
        })?;
        let choice = answer.choices.into_iter().next();
        let echoed = choice.and_then(|choice| Some(EchoedPrompt { text: choice.text, logprobs: choice.logprobs? }));
        echoed.ok_or_else(|| ProviderError::new(ProviderErrorKind::Garbled, "it gives no log-probabilities".to_owned()))
    }
}

/// The tokens of an echo to score.
enum ScoredSpan {
    Chars { begin: usize, end: usize },
    Ids { begin: usize, ids: Vec<TokenId> },
}

struct EchoedPrompt {
    text: String,
    logprobs: EchoLogprobs,
}

impl EchoedPrompt {
    fn tokens(&self, wanted: &ScoredSpan, top: usize) -> Result<Vec<TokenLogprob>, String> {
        let EchoLogprobs { tokens, token_logprobs, top_logprobs, text_offset } = &self.logprobs;
        if tokens.len() != token_logprobs.len() {
            return Err("its columns differ in length".to_owned());
        }
        let offsets = match text_offset {
            Some(offsets) if offsets.len() == tokens.len() => offsets.clone(),
            _ => tokens.iter().scan(0, |at, token| Some(std::mem::replace(at, *at + token.chars().count()))).collect(),
        };
        let (range, ids): (_, &[TokenId]) = match wanted {
            ScoredSpan::Ids { begin, ids } => (*begin..begin + ids.len(), ids),
            ScoredSpan::Chars { begin, end } => {
                // Several tokens may have one offset, the first ones without text: a begin-of-text token, for example.
                let last_at = |at: usize| offsets.iter().rposition(|&offset| offset == at);
                let first = if *begin > 0 { offsets.iter().position(|offset| offset == begin) } else { last_at(0) };
                let Some((first, end)) = first.zip(last_at(*end)) else {
                    return Err(
                        "a token of its vocabulary crosses the boundary of prompt and continuation; move the boundary,  \
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
    use wiremock::matchers::method;
    use wiremock::{Mock, MockServer, ResponseTemplate};

    use super::super::RemoteOptions;
    use super::super::credentials::Credentials;
    use super::super::openai::OpenAi;
    use super::*;
    use crate::foundation::chat::{DeltaGains, LayerGains, Sampling};

    #[tokio::test]
    async fn a_key_sent_back_by_the_server_is_removed_from_the_error() {
        let server = MockServer::start().await;
        let answer = ResponseTemplate::new(400).set_body_json(json!({"error": {"message": "what is sk-1?"}}));
        Mock::given(method("POST")).respond_with(answer).mount(&server).await;
        let credentials = Credentials::new("A_KEY", &server.uri(), Some("sk-1".to_owned()), true).unwrap();
        let (name, api) = ("m".to_owned(), Box::new(OpenAi::Compatible));
        let model = HostedModel::new(name.clone(), name, api, credentials, &RemoteOptions::default()).unwrap();
        let mut request = Request::new(Prompt::Text("a".to_owned()), Sampling::greedy(), RngStream::root(0));
        // Gains of 1 are allowed, as for replies.
        request.gains = Some(DeltaGains::Uniform(LayerGains::ONE));
        let error = model.score_by_echo(request, Continuation::Text(" b".to_owned())).await.err().unwrap().to_string();
        assert!(error.contains("what is …?"), "{error}");
    }

    fn echoed(tokens: &[&str], offsets: Option<&[usize]>) -> EchoedPrompt {
        let logprobs = tokens.iter().enumerate().map(|(index, _)| (index > 0).then_some(-(index as f64))).collect();
        EchoedPrompt {
            text: tokens.concat(),
            logprobs: EchoLogprobs {
                tokens: tokens.iter().map(ToString::to_string).collect(),
                token_logprobs: logprobs,
                top_logprobs: None,
                text_offset: offsets.map(<[_]>::to_vec),
            },
        }
    }

    fn check(echoed: &EchoedPrompt, (begin, end): (usize, usize), expected: &[(&str, f32)]) {
        let tokens = echoed.tokens(&ScoredSpan::Chars { begin, end }, 0).unwrap();
        let tokens: Vec<_> = tokens.iter().map(|token| (token.text.as_str(), token.logprob.unwrap())).collect();
        assert_eq!(tokens, expected);
    }

    #[test]
    fn the_continuation_is_found_by_character_offsets() {
        check(&echoed(&["né", " two", " three", "!"], None), (2, 12), &[(" two", -1.0), (" three", -2.0)]);
        check(&echoed(&["One", " two", "!"], Some(&[0, 3, 7])), (3, 7), &[(" two", -1.0)]);
    }

    #[test]
    fn a_token_across_the_boundary_is_an_error() {
        let error = echoed(&["One tw", "o", "!"], None).tokens(&ScoredSpan::Chars { begin: 3, end: 7 }, 0).unwrap_err();
        assert!(error.contains("crosses the boundary"), "{error}");
    }

    #[test]
    fn the_continuation_is_found_by_token_count() {
        let tokens =
            echoed(&["a", "b", "c", "x"], None).tokens(&ScoredSpan::Ids { begin: 1, ids: vec![7, 8] }, 0).unwrap();
        let tokens: Vec<_> = tokens.iter().map(|token| (token.id, token.logprob)).collect();
        assert_eq!(tokens, [(Some(7), Some(-1.0)), (Some(8), Some(-2.0))]);
        assert!(
            echoed(&["a"], None).tokens(&ScoredSpan::Ids { begin: 1, ids: vec![7] }, 0).unwrap_err().contains("fewer")
        );
    }
}
