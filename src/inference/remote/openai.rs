//! OpenAI's chat completions API, as served by OpenAI and compatible servers.

use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::credentials::Credentials;
use super::partial_reply::{PartialReply, known};
use super::provider_error::{ProviderError, ProviderErrorKind, quote};
use super::{ChatRequest, ProviderApi};
use crate::foundation::chat::{Finish, TokenId, Usage};

/// Maximum number of stop texts at OpenAI.
const STOPS_MAX: usize = 4;
/// Maximum number of alternatives per token at OpenAI.
const ALTERNATIVES_MAX: usize = 20;

/// OpenAI's own service, or a compatible server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenAi {
    Own,
    /// Accepts the additional settings of vLLM and llama.cpp's server: `top_k`, `min_p`, `repetition_penalty`.
    Compatible,
}

#[derive(Deserialize)]
struct Chunk {
    error: Option<Value>,
    model: Option<String>,
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: usize,
    delta: Option<Delta>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    /// The thought, as vLLM and llama.cpp's server name it.
    reasoning_content: Option<String>,
    /// The same, as newer versions of vLLM name it.
    reasoning: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Logprobs {
    content: Option<Vec<Token>>,
}

#[derive(Deserialize)]
struct Token {
    /// Sent by llama.cpp's server, not by OpenAI.
    id: Option<TokenId>,
    #[serde(rename = "token")]
    text: String,
    logprob: Option<f64>,
    bytes: Option<Vec<u8>>,
    top_logprobs: Option<Vec<Token>>,
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl ProviderApi for OpenAi {
    fn name(&self) -> &'static str {
        match self {
            Self::Own => "openai",
            Self::Compatible => "openai-compatible",
        }
    }

    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn scores(&self) -> bool {
        *self == Self::Compatible
    }

    fn headers(&self, credentials: &Credentials) -> Result<HeaderMap, String> {
        Ok(credentials.header("Bearer ")?.map(|key| (AUTHORIZATION, key)).into_iter().collect())
    }

    fn body(&self, request: &ChatRequest<'_>) -> Result<Map<String, Value>, String> {
        let sampling = request.sampling;
        let messages = request.messages.iter();
        let messages: Vec<_> = messages.map(|m| json!({"role": m.role.as_str(), "content": m.content})).collect();
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
        set("model", json!(request.model));
        set("messages", json!(messages));
        set("logprobs", json!(true));
        if sampling.top_logprobs > 0 {
            set("top_logprobs", json!(sampling.top_logprobs));
        }
        // Values equal to the API's defaults are left out: reasoning models reject these settings.
        if sampling.temperature.to_bits() != 1f32.to_bits() {
            set("temperature", number(sampling.temperature));
        }
        if sampling.top_p < 1.0 {
            set("top_p", number(sampling.top_p));
        }
        if !sampling.stop.is_empty() {
            set("stop", json!(sampling.stop));
        }
        if let Some(seed) = request.seed {
            set("seed", json!(seed));
        }
        let extra = [
            ("top_k", sampling.top_k.map(|k| json!(k))),
            ("min_p", (sampling.min_p > 0.0).then(|| number(sampling.min_p))),
            (
                "repetition_penalty",
                (sampling.repetition_penalty.to_bits() != 1f32.to_bits()).then(|| number(sampling.repetition_penalty)),
            ),
        ];
        let thinking = request.thinking;
        match self {
            Self::Compatible => {
                set("max_tokens", json!(sampling.max_tokens));
                // A server's template has the one switch or the other; it leaves out what its template does not read.
                let mut arguments = thinking.template_arguments.clone();
                for (switch, value) in ["enable_thinking", "thinking"].into_iter().zip(thinking.enabled.iter().cycle())
                {
                    arguments.insert(switch.to_owned(), json!(value));
                }
                if !arguments.is_empty() {
                    set("chat_template_kwargs", Value::Object(arguments));
                }
                for (key, value) in extra {
                    if let Some(value) = value {
                        set(key, value);
                    }
                }
            }
            Self::Own => {
                set("max_completion_tokens", json!(sampling.max_tokens));
                if thinking.enabled.is_some() {
                    return Err("OpenAI's models have no switch for thinking; set the template argument \
                                `reasoning_effort`"
                        .to_owned());
                }
                for (name, value) in &thinking.template_arguments {
                    if name != "reasoning_effort" {
                        return Err(format!(
                            "OpenAI takes `reasoning_effort` only, not the template argument `{name}`"
                        ));
                    }
                    set(name, value.clone());
                }
                if sampling.top_logprobs > ALTERNATIVES_MAX {
                    let count = sampling.top_logprobs;
                    return Err(format!(
                        "OpenAI reports at most {ALTERNATIVES_MAX} alternatives to a token, not {count}"
                    ));
                }
                if let Some((key, _)) = extra.into_iter().find(|(_, value)| value.is_some()) {
                    return Err(format!("OpenAI does not sample with `{key}`; leave it out"));
                }
                if sampling.stop.len() > STOPS_MAX {
                    return Err(format!("OpenAI takes at most {STOPS_MAX} stop texts, not {}", sampling.stop.len()));
                }
            }
        }
        set("stream", json!(true));
        set("stream_options", json!({"include_usage": true}));
        Ok(body)
    }

    fn event(&self, data: &str, partial: &mut PartialReply) -> Result<(), ProviderError> {
        if data.trim() == "[DONE]" {
            partial.ended = true;
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(|_| {
            ProviderError::new(ProviderErrorKind::Garbled, format!("it sent an invalid chunk: {}", quote(data)))
        })?;
        if let Some(error) = &chunk.error {
            return Err(ProviderError::from_event(error));
        }
        partial.served = chunk.model.filter(|model| !model.is_empty()).or(partial.served.take());
        if let Some(counts) = chunk.usage {
            partial.usage = Some(Usage {
                tokens_in: counts.prompt_tokens,
                tokens_out: counts.completion_tokens,
                tokens_cached: counts.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
            });
        }
        chunk.choices.into_iter().filter(|choice| choice.index == 0).try_for_each(|choice| choice.read(partial))
    }
}

impl Choice {
    fn read(self, partial: &mut PartialReply) -> Result<(), ProviderError> {
        let mut tokens = self.logprobs.and_then(|logprobs| logprobs.content).unwrap_or_default();
        if let Some(delta) = self.delta {
            let refused = delta.refusal.filter(|text| !text.is_empty());
            if let Some(text) = &refused {
                partial.push_untokenized(text);
                partial.finish = Some(Finish::Refusal);
            }
            let content = delta.content.unwrap_or_default();
            let thought = delta.reasoning_content.or(delta.reasoning).unwrap_or_default();
            if !thought.is_empty() {
                let of_thought = tokens_of(&tokens, &thought);
                partial.push_thought(&thought);
                match of_thought {
                    Some(count) => tokens.drain(..count).for_each(|token| token.push_to(partial, true)),
                    None => partial.push_untokenized_thought(&thought),
                }
                // Between the two parts stand markers, which are in neither.
                match (0..tokens.len()).find(|from| {
                    tokens_of(tokens.get(*from..).unwrap_or_default(), &content) == Some(tokens.len() - from)
                }) {
                    Some(from) if of_thought.is_some() => drop(tokens.drain(..from)),
                    _ => tokens.clear(),
                }
            } else if content.is_empty() && partial.is_before_answer() {
                tokens.clear();
            }
            if tokens.is_empty() { partial.push_untokenized(&content) } else { partial.push_text(&content) }
        }
        for token in tokens {
            token.push_to(partial, false);
        }
        let finish = match self.finish_reason.as_deref() {
            None => return Ok(()),
            Some("stop") => Finish::Stop,
            Some("length") => Finish::Length,
            Some("content_filter") => Finish::Refusal,
            Some(other) => {
                let why = format!("it ended the reply with `{}`, which was not requested", quote(other));
                return Err(ProviderError::new(ProviderErrorKind::Garbled, why));
            }
        };
        partial.finish = partial.finish.or(Some(finish));
        Ok(())
    }
}

impl Token {
    /// Adds the token to the answer, or to the thought before it.
    fn push_to(self, partial: &mut PartialReply, to_thought: bool) {
        let top = self.top_logprobs.unwrap_or_default();
        let ids = top.iter().map(|other| other.id.zip(other.logprob.and_then(known))).collect::<Option<Vec<_>>>();
        let top = top.into_iter().filter_map(|other| Some((other.text, other.logprob?))).collect();
        let logprob = self.logprob.unwrap_or(f64::NEG_INFINITY);
        partial.push_token(&self.text, self.bytes.as_deref(), logprob, top);
        if let (Some(last), Some(id)) = (partial.tokens.last_mut(), self.id) {
            last.id = Some(id);
            last.top = ids.unwrap_or_default();
        }
        if to_thought {
            partial.thought_tokens.extend(partial.tokens.pop());
        }
    }
}

/// How many tokens make up `text`; `None` if no number of the first ones does.
fn tokens_of(tokens: &[Token], text: &str) -> Option<usize> {
    let mut bytes = 0;
    let ends = tokens.iter().map(|token| {
        bytes += token.text.len();
        bytes
    });
    let count = ends.take_while(|&end| end <= text.len()).count();
    let joined: String = tokens.iter().take(count).map(|token| token.text.as_str()).collect();
    (joined == text).then_some(count)
}

/// The shortest decimal form of an f32: 0.8, not 0.800000011920929.
pub(super) fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, |value| json!(value))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{chat_request, read};
    use super::*;
    use crate::foundation::chat::{Message, Sampling};

    #[test]
    fn the_request_body_holds_only_settings_that_differ_from_the_defaults() {
        let messages = [Message::system("be Anna"), Message::user("hi")];
        let sampling =
            Sampling { temperature: 0.8, top_p: 1.0, max_tokens: 9, top_logprobs: 20, ..Sampling::default() };
        let body = OpenAi::Own.body(&chat_request(&messages, &sampling)).unwrap();
        let expected = json!({
            "model": "m", "messages": [{"role": "system", "content": "be Anna"}, {"role": "user", "content": "hi"}],
            "logprobs": true, "top_logprobs": 20, "temperature": 0.8, "seed": 7, "max_completion_tokens": 9,
            "stream": true, "stream_options": {"include_usage": true},
        });
        assert_eq!(Value::Object(body), expected);
        let many = Sampling { top_logprobs: 50, ..sampling.clone() };
        assert!(OpenAi::Own.body(&chat_request(&messages, &many)).unwrap_err().contains("at most 20 alternatives"));
        // Compatible servers have limits of their own and report them.
        let body = OpenAi::Compatible.body(&chat_request(&messages, &many)).unwrap();
        assert_eq!(body.get("top_logprobs"), Some(&json!(50)));
        let sampling = Sampling { min_p: 0.1, ..sampling };
        assert!(OpenAi::Own.body(&chat_request(&messages, &sampling)).unwrap_err().contains("`min_p`"));
        assert_eq!(
            OpenAi::Compatible.body(&chat_request(&messages, &sampling)).unwrap().get("min_p"),
            Some(&json!(0.1))
        );
    }

    #[test]
    fn a_streamed_reply_has_its_tokens() {
        let partial = read(&OpenAi::Own, &[
            r#"{"model": "m-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}"#,
            r#"{"choices": [{"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [{"token": "Hi", "logprob": -0.25, "bytes": [72, 105], "top_logprobs": [{"token": "Hi", "logprob": -0.25}, {"token": "Oh", "logprob": -2.0}]}]}}]}"#,
            r#"{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}"#,
            r#"{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}}"#,
            "[DONE]",
        ]).unwrap();
        assert!(partial.ended);
        assert_eq!((partial.finish, partial.served.as_deref()), (Some(Finish::Stop), Some("m-1")));
        assert_eq!(partial.usage, Some(Usage { tokens_in: 9, tokens_out: 1, tokens_cached: 4 }));
        let [token] = &partial.tokens[..] else { panic!("{:?}", partial.tokens) };
        assert_eq!((token.text.as_str(), token.logprob, token.rank), ("Hi", Some(-0.25), Some(0)));
        assert_eq!(token.top_texts, [("Hi".to_owned(), -0.25), ("Oh".to_owned(), -2.0)]);
    }

    #[test]
    fn token_ids_are_read_if_sent_and_invalid_utf8_is_marked() {
        // From llama.cpp's server, which holds back the beginning of a character.
        let chunk = r#"{"choices": [{"index": 0, "delta": {"content": "�\""}, "logprobs": {"content": [{"id": 261,
            "token": "�\"", "bytes": [197, 34], "logprob": -4.75, "top_logprobs": [{"id": 158, "token": "�",
            "bytes": [155], "logprob": -1.5}]}]}, "finish_reason": "length"}]}"#;
        let mut partial = read(&OpenAi::Compatible, &[chunk]).unwrap();
        assert_eq!(partial.settle(), ("\u{fffd}\"".to_owned(), None));
        assert_eq!((partial.tokens[0].id, partial.tokens[0].top.as_slice()), (Some(261), [(158, -1.5)].as_slice()));
    }

    #[test]
    fn refusals_and_errors_are_distinguished() {
        let partial = read(
            &OpenAi::Own,
            &[
                r#"{"choices": [{"delta": {"refusal": "I can't help with that."}}]}"#,
                r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#,
            ],
        )
        .unwrap();
        assert_eq!(
            (partial.finish, partial.tokens[0].text.as_str()),
            (Some(Finish::Refusal), "I can't help with that.")
        );
        let filtered = read(&OpenAi::Own, &[r#"{"choices": [{"finish_reason": "content_filter"}]}"#]).unwrap();
        assert_eq!(filtered.finish, Some(Finish::Refusal));
        for (data, kind) in [
            ("<html>", ProviderErrorKind::Garbled),
            (r#"{"error": {"type": "server_error", "message": "x"}}"#, ProviderErrorKind::Overloaded),
            (r#"{"choices": [{"finish_reason": "tool_calls"}]}"#, ProviderErrorKind::Garbled),
        ] {
            assert_eq!(read(&OpenAi::Own, &[data]).unwrap_err().kind, kind, "{data}");
        }
    }
}
