//! Events as lines of JSON: `{"type": "turn_start", "user_message": "…"}` and so on.

use serde_json::{Map, Value};

use super::event::LlmEvent;
use super::otlp;
use crate::foundation::chat::Finish;

/// An owned event, parsed from a line.
#[derive(Debug, Clone, PartialEq)]
pub struct EventLine {
    kind: Kind,
    /// Unknown fields of the line, which were ignored.
    pub unknown_fields: Vec<String>,
}

/// A line that is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventLineError {
    /// Not JSON.
    #[error("this is not JSON ({0}): each line must be one JSON object")]
    Json(String),
    /// JSON, but no object with a type.
    #[error("an event is an object with a `type`: {{\"type\": \"turn_start\", \"user_message\": \"…\"}}")]
    Shape,
    /// A type that does not exist.
    #[error("`{found}` is not an event type; did you mean `{nearest}`? The types are {}", KINDS.map(|(kind, _)| kind).join(", "))]
    Type {
        /// The type found.
        found: String,
        /// The most similar existing type.
        nearest: &'static str,
    },
    /// A field is missing or has the wrong type.
    #[error("`{kind}` needs `{field}`: {needs}")]
    Field {
        /// The type of event.
        kind: &'static str,
        /// The field.
        field: &'static str,
        /// What it must contain.
        needs: &'static str,
    },
}

/// The contents of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Task(String),
    TurnStart(String),
    Token {
        token: String,
        logprob: Option<f32>,
        index: usize,
        entropy: Option<f32>,
        top: Vec<f32>,
    },
    Text(String),
    TurnComplete {
        full_response: String,
        finish: Option<Finish>,
    },
    Reserve {
        tokens_in: u64,
        tokens_out: u64,
        money_micros: u64,
        wallclock_ms: u64,
    },
    Elapsed(u64),
    Cost {
        tokens_in: u64,
        tokens_out: u64,
        tokens_cached: u64,
        money_micros: u64,
        wallclock_ms: u64,
        provider: Option<String>,
    },
    UserCorrection {
        correction_message: String,
        corrects_last: bool,
    },
    QualityFeedback(f64),
    ToolCall {
        tool_name: String,
        args_json: String,
    },
    ToolResult {
        tool_name: String,
        success: bool,
        duration_ms: u64,
        result: Option<String>,
    },
}

/// Every event type with its fields.
const KINDS: [(&str, &[&str]); 12] = [
    ("task", &["text"]),
    ("turn_start", &["user_message"]),
    ("token", &["token", "logprob", "index", "entropy", "top"]),
    ("text", &["text"]),
    ("turn_complete", &["full_response", "finish"]),
    ("reserve", &["tokens_in", "tokens_out", "money_micros", "wallclock_ms"]),
    ("elapsed", &["wallclock_ms"]),
    ("cost", &["tokens_in", "tokens_out", "tokens_cached", "money_micros", "wallclock_ms", "provider"]),
    ("user_correction", &["correction_message", "corrects_last"]),
    ("quality_feedback", &["quality", "fragment_spans"]),
    ("tool_call", &["tool_name", "args_json"]),
    ("tool_result", &["tool_name", "success", "duration_ms", "result"]),
];

impl EventLine {
    /// Reads one line: an event, or an export of OpenTelemetry's GenAI spans (OTLP/JSON), which may hold any number.
    ///
    /// # Errors
    /// See [`EventLineError`].
    pub fn parse_line(line: &str) -> Result<Vec<Self>, EventLineError> {
        let fields = object(line)?;
        if fields.contains_key(otlp::EXPORT) { Ok(otlp::events(&fields)) } else { Ok(vec![Self::read(&fields)?]) }
    }

    /// Reads one event.
    ///
    /// # Errors
    /// See [`EventLineError`].
    pub fn parse(line: &str) -> Result<Self, EventLineError> {
        Self::read(&object(line)?)
    }

    /// An event built from its contents.
    pub(super) fn of(kind: Kind) -> Self {
        Self { kind, unknown_fields: Vec::new() }
    }

    fn read(fields: &Map<String, Value>) -> Result<Self, EventLineError> {
        let found = fields.get("type").and_then(Value::as_str).ok_or(EventLineError::Shape)?;
        let Some(&(kind, known)) = KINDS.iter().find(|(kind, _)| *kind == found) else {
            let nearest = KINDS
                .iter()
                .map(|&(kind, _)| kind)
                .max_by(|a, b| strsim::jaro_winkler(a, found).total_cmp(&strsim::jaro_winkler(b, found)))
                .unwrap_or("turn_start");
            return Err(EventLineError::Type { found: found.chars().take(40).collect(), nearest });
        };
        let unknown_fields =
            fields.keys().filter(|key| *key != "type" && !known.contains(&key.as_str())).cloned().collect();
        Ok(Self { kind: read(kind, &Fields { kind, fields })?, unknown_fields })
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        match &self.kind {
            Kind::Task(_) => "task",
            Kind::TurnStart(_) => "turn_start",
            Kind::Token { .. } => "token",
            Kind::Text(_) => "text",
            Kind::TurnComplete { .. } => "turn_complete",
            Kind::Reserve { .. } => "reserve",
            Kind::Elapsed(_) => "elapsed",
            Kind::Cost { .. } => "cost",
            Kind::UserCorrection { .. } => "user_correction",
            Kind::QualityFeedback(_) => "quality_feedback",
            Kind::ToolCall { .. } => "tool_call",
            Kind::ToolResult { .. } => "tool_result",
        }
    }

    /// The event, for [`Regulator::on_event`](super::Regulator::on_event).
    pub fn event(&self) -> LlmEvent<'_> {
        match &self.kind {
            Kind::Task(text) => LlmEvent::Task { text },
            Kind::TurnStart(user_message) => LlmEvent::TurnStart { user_message },
            Kind::Token { token, logprob, index, entropy, top } => {
                LlmEvent::Token { token, logprob: *logprob, index: *index, entropy: *entropy, top }
            }
            Kind::Text(text) => LlmEvent::Text { text },
            Kind::TurnComplete { full_response, finish } => LlmEvent::TurnComplete { full_response, finish: *finish },
            &Kind::Reserve { tokens_in, tokens_out, money_micros, wallclock_ms } => {
                LlmEvent::Reserve { tokens_in, tokens_out, money_micros, wallclock_ms }
            }
            &Kind::Elapsed(wallclock_ms) => LlmEvent::Elapsed { wallclock_ms },
            Kind::Cost { tokens_in, tokens_out, tokens_cached, money_micros, wallclock_ms, provider } => {
                LlmEvent::Cost {
                    tokens_in: *tokens_in,
                    tokens_out: *tokens_out,
                    tokens_cached: *tokens_cached,
                    money_micros: *money_micros,
                    wallclock_ms: *wallclock_ms,
                    provider: provider.as_deref(),
                }
            }
            Kind::UserCorrection { correction_message, corrects_last } => {
                LlmEvent::UserCorrection { correction_message, corrects_last: *corrects_last }
            }
            &Kind::QualityFeedback(quality) => LlmEvent::QualityFeedback { quality },
            Kind::ToolCall { tool_name, args_json } => LlmEvent::ToolCall { tool_name, args_json },
            Kind::ToolResult { tool_name, success, duration_ms, result } => LlmEvent::ToolResult {
                tool_name,
                success: *success,
                duration_ms: *duration_ms,
                result: result.as_deref(),
            },
        }
    }
}

fn object(line: &str) -> Result<Map<String, Value>, EventLineError> {
    // There is only one line: report the column, and do not count the line end.
    let place = |error: serde_json::Error| error.to_string().replace(" at line 1 column ", " at column ");
    match serde_json::from_str(line.trim_end()).map_err(|error| EventLineError::Json(place(error)))? {
        Value::Object(fields) => Ok(fields),
        _ => Err(EventLineError::Shape),
    }
}

fn read(kind: &'static str, f: &Fields) -> Result<Kind, EventLineError> {
    Ok(match kind {
        "task" => Kind::Task(f.text("text")?),
        "turn_start" => Kind::TurnStart(f.text("user_message")?),
        "token" => Kind::Token {
            token: f.text("token")?,
            logprob: f.number("logprob")?.map(|logprob| logprob as f32),
            index: f.count("index")?.unwrap_or(0) as usize,
            entropy: f.number("entropy")?.map(|entropy| entropy as f32),
            top: f.top()?,
        },
        "text" => Kind::Text(f.text("text")?),
        "turn_complete" => Kind::TurnComplete { full_response: f.text("full_response")?, finish: f.finish()? },
        "reserve" => Kind::Reserve {
            tokens_in: f.count("tokens_in")?.unwrap_or(0),
            tokens_out: f.count("tokens_out")?.unwrap_or(0),
            money_micros: f.count("money_micros")?.unwrap_or(0),
            wallclock_ms: f.count("wallclock_ms")?.unwrap_or(0),
        },
        "elapsed" => Kind::Elapsed(f.needed_count("wallclock_ms")?),
        "cost" => Kind::Cost {
            tokens_in: f.needed_count("tokens_in")?,
            tokens_out: f.needed_count("tokens_out")?,
            tokens_cached: f.count("tokens_cached")?.unwrap_or(0),
            money_micros: f.count("money_micros")?.unwrap_or(0),
            wallclock_ms: f.count("wallclock_ms")?.unwrap_or(0),
            provider: f.optional_text("provider"),
        },
        "user_correction" => Kind::UserCorrection {
            correction_message: f.text("correction_message")?,
            corrects_last: f.flag("corrects_last")?.unwrap_or(true),
        },
        "quality_feedback" => {
            let quality = f.number("quality")?.filter(|quality| (0.0..=1.0).contains(quality));
            Kind::QualityFeedback(quality.ok_or_else(|| f.error("quality", "a number from 0 to 1"))?)
        }
        "tool_call" => Kind::ToolCall {
            tool_name: f.text("tool_name")?,
            args_json: f.optional_text("args_json").unwrap_or_default(),
        },
        _ => Kind::ToolResult {
            tool_name: f.text("tool_name")?,
            success: f.flag("success")?.ok_or_else(|| f.error("success", "true or false"))?,
            duration_ms: f.count("duration_ms")?.unwrap_or(0),
            result: f.optional_text("result"),
        },
    })
}

/// The fields of one line; `null` counts as absent.
struct Fields<'a> {
    kind: &'static str,
    fields: &'a Map<String, Value>,
}

impl Fields<'_> {
    fn error(&self, field: &'static str, needs: &'static str) -> EventLineError {
        EventLineError::Field { kind: self.kind, field, needs }
    }

    fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn text(&self, field: &'static str) -> Result<String, EventLineError> {
        self.get(field).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| self.error(field, "a text"))
    }

    /// A string, or any other JSON value as JSON text.
    fn optional_text(&self, field: &str) -> Option<String> {
        self.get(field).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    fn number(&self, field: &'static str) -> Result<Option<f64>, EventLineError> {
        let number = |value: &Value| value.as_f64().ok_or_else(|| self.error(field, "a number"));
        self.get(field).map(number).transpose()
    }

    fn count(&self, field: &'static str) -> Result<Option<u64>, EventLineError> {
        let count = |value: &Value| value.as_u64().ok_or_else(|| self.error(field, "a whole number, 0 or more"));
        self.get(field).map(count).transpose()
    }

    fn needed_count(&self, field: &'static str) -> Result<u64, EventLineError> {
        self.count(field)?.ok_or_else(|| self.error(field, "a whole number, 0 or more"))
    }

    fn flag(&self, field: &'static str) -> Result<Option<bool>, EventLineError> {
        let flag = |value: &Value| value.as_bool().ok_or_else(|| self.error(field, "true or false"));
        self.get(field).map(flag).transpose()
    }

    fn finish(&self) -> Result<Option<Finish>, EventLineError> {
        let finish = |value: &Value| {
            serde_json::from_value(value.clone())
                .map_err(|_| self.error("finish", "`stop`, `length`, `asked` or `refusal`"))
        };
        self.get("finish").map(finish).transpose()
    }

    /// Alternatives in the formats of providers: numbers, `[token, logprob]` pairs, `{"token", "logprob"}` objects, or one
    /// object from token to log-probability.
    fn top(&self) -> Result<Vec<f32>, EventLineError> {
        let needs = || {
            self.error(
                "top",
                "log-probabilities: [-0.1, …], [[\"a\", -0.1], …], [{\"logprob\": -0.1}, …] or {\"a\": -0.1}",
            )
        };
        let logprob = |value: &Value| {
            let number = match value {
                Value::Array(pair) => pair.last(),
                Value::Object(fields) => fields.get("logprob"),
                number => Some(number),
            };
            number.and_then(Value::as_f64).map(|logprob| logprob as f32).ok_or_else(needs)
        };
        let mut top = match self.get("top") {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(logprob).collect::<Result<_, _>>()?,
            Some(Value::Object(by_token)) => by_token.values().map(logprob).collect::<Result<Vec<f32>, _>>()?,
            Some(_) => return Err(needs()),
        };
        top.sort_by(|a, b| b.total_cmp(a));
        Ok(top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: LlmEvent<'_>) {
        let read = EventLine::parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(read.event(), expected);
        assert!(line.contains(read.kind()));
        assert_eq!(read.unknown_fields, [] as [String; 0]);
    }

    #[test]
    fn every_type_of_event_is_read() {
        check(r#"{"type":"task","text":"t"}"#, LlmEvent::Task { text: "t" });
        check(r#"{"type":"turn_start","user_message":"u"}"#, LlmEvent::TurnStart { user_message: "u" });
        let token = |top| LlmEvent::Token { token: "x", logprob: Some(-0.5), index: 3, entropy: None, top };
        check(r#"{"type":"token","token":"x","logprob":-0.5,"index":3}"#, token(&[]));
        for top in [
            "[-1.5,-0.5]",
            r#"[["x",-0.5],["y",-1.5]]"#,
            r#"[{"token":"x","logprob":-0.5},{"logprob":-1.5}]"#,
            r#"{"x":-0.5,"y":-1.5}"#,
        ] {
            check(
                &format!(r#"{{"type":"token","token":"x","logprob":-0.5,"index":3,"top":{top}}}"#),
                token(&[-0.5, -1.5]),
            );
        }
        check(
            r#"{"type":"token","token":"x","logprob":null,"entropy":1.5}"#,
            LlmEvent::Token { token: "x", logprob: None, index: 0, entropy: Some(1.5), top: &[] },
        );
        check(r#"{"type":"text","text":"p"}"#, LlmEvent::Text { text: "p" });
        check(
            r#"{"type":"turn_complete","full_response":"r","finish":"refusal"}"#,
            LlmEvent::TurnComplete { full_response: "r", finish: Some(Finish::Refusal) },
        );
        check(
            r#"{"type":"cost","tokens_in":1,"tokens_out":2,"wallclock_ms":3,"provider":"p"}"#,
            LlmEvent::Cost {
                tokens_in: 1,
                tokens_out: 2,
                tokens_cached: 0,
                money_micros: 0,
                wallclock_ms: 3,
                provider: Some("p"),
            },
        );
        check(
            r#"{"type":"reserve","tokens_out":2}"#,
            LlmEvent::Reserve { tokens_in: 0, tokens_out: 2, money_micros: 0, wallclock_ms: 0 },
        );
        check(r#"{"type":"elapsed","wallclock_ms":9}"#, LlmEvent::Elapsed { wallclock_ms: 9 });
        check(
            r#"{"type":"user_correction","correction_message":"c","corrects_last":false}"#,
            LlmEvent::UserCorrection { correction_message: "c", corrects_last: false },
        );
        check(r#"{"type":"quality_feedback","quality":0.5}"#, LlmEvent::QualityFeedback { quality: 0.5 });
        check(
            r#"{"type":"tool_call","tool_name":"t","args_json":{"a":1}}"#,
            LlmEvent::ToolCall { tool_name: "t", args_json: r#"{"a":1}"# },
        );
        check(
            r#"{"type":"tool_result","tool_name":"t","success":true,"duration_ms":4,"result":"ok"}"#,
            LlmEvent::ToolResult { tool_name: "t", success: true, duration_ms: 4, result: Some("ok") },
        );
    }

    #[test]
    fn errors_name_what_is_missing() {
        for (line, expected) in [
            ("", "not JSON"),
            ("{", "not JSON (EOF while parsing an object at column 1)"),
            ("{\"type\":\"task\",\"te\r\n", "not JSON (EOF while parsing a string at column 18)"),
            (r#"{"type":"token","token":"\ud800"}"#, "not JSON"),
            ("[1]", "an object with a `type`"),
            (r#"{"type":7}"#, "an object with a `type`"),
            (r#"{"type":"turn_strat"}"#, "did you mean `turn_start`?"),
            (r#"{"type":"turn_start"}"#, "`turn_start` needs `user_message`: a text"),
            (r#"{"type":"cost","tokens_in":-1,"tokens_out":0}"#, "`cost` needs `tokens_in`: a whole number, 0 or more"),
            (r#"{"type":"quality_feedback"}"#, "`quality_feedback` needs `quality`: a number from 0 to 1"),
            (
                r#"{"type":"quality_feedback","quality":1.5}"#,
                "`quality_feedback` needs `quality`: a number from 0 to 1",
            ),
            (r#"{"type":"token","token":"x","top":"y"}"#, "`token` needs `top`: log-probabilities"),
        ] {
            let error = EventLine::parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn unknown_fields_are_reported() {
        let read = EventLine::parse(r#"{"type":"token","token":"x","log_prob":-1}"#).unwrap();
        assert_eq!(read.unknown_fields, ["log_prob"]);
    }
}
