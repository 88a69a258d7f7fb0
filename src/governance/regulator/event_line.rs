//! Events as lines of JSON: `{"type": "turn_start", "user_message": "…"}` and so on.

use serde_json::{Map, Value};

use super::event::{Event, LlmEvent, OwnedEvent};
use super::{openai, otlp};
use crate::foundation::chat::Finish;

/// The type of the line that begins a labelled log; see [`SessionLog`](super::SessionLog).
pub(super) const LABELS: &str = "labels";

/// An event parsed from a line.
#[derive(Debug, Clone, PartialEq)]
pub struct EventLine {
    event: OwnedEvent,
    /// The session that it belongs to; empty if the line names none.
    pub session: String,
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

/// Fields that every type has.
const COMMON: [&str; 2] = ["type", "session"];

/// Every event type with its fields.
const KINDS: [(&str, &[&str]); 12] = [
    ("task", &["text"]),
    ("turn_start", &["user_message"]),
    ("token", &["token", "logprob", "index", "entropy", "top", "top_logprobs"]),
    ("text", &["text"]),
    ("turn_complete", &["full_response", "finish"]),
    ("reserve", &["call_id", "tokens_in", "tokens_out", "money_micros", "wallclock_ms"]),
    ("elapsed", &["wallclock_ms"]),
    (
        "cost",
        &["call_id", "model", "tokens_in", "tokens_out", "tokens_cached", "money_micros", "wallclock_ms", "provider"],
    ),
    ("user_correction", &["correction_message", "corrects_last"]),
    ("quality_feedback", &["quality", "fragment_spans"]),
    ("tool_call", &["call_id", "tool_name", "args_json"]),
    ("tool_result", &["call_id", "tool_name", "success", "duration_ms", "result"]),
];

impl EventLine {
    /// Parses one line: an event, an `OpenAI` request, response or streaming chunk (with or without `data:` before it), or an
    /// export of OpenTelemetry's GenAI spans (OTLP/JSON). The last ones may give any number of events, a line of labels
    /// (see [`SessionLog`](super::SessionLog)) none.
    ///
    /// # Errors
    /// See [`EventLineError`].
    pub fn parse_line(line: &str) -> Result<Vec<Self>, EventLineError> {
        let Some(line) = openai::without_framing(line) else { return Ok(Vec::new()) };
        let fields = object(line)?;
        let events = if fields.contains_key(otlp::EXPORT) {
            otlp::events(&fields)
        } else if fields.get("type").and_then(Value::as_str) == Some(LABELS) {
            Vec::new()
        } else if let Some(events) = openai::events(&fields) {
            events
        } else {
            return Ok(vec![Self::read(&fields)?]);
        };
        let session = Fields { kind: "", fields: &fields }.optional_text("session").unwrap_or_default();
        Ok(events.into_iter().map(|event| Self { session: session.clone(), ..Self::of(event) }).collect())
    }

    /// Parses one event.
    ///
    /// # Errors
    /// See [`EventLineError`].
    pub fn parse(line: &str) -> Result<Self, EventLineError> {
        Self::read(&object(line)?)
    }

    /// An event of the session without a name.
    pub(super) fn of(event: OwnedEvent) -> Self {
        Self { event, session: String::new(), unknown_fields: Vec::new() }
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
        let is_unknown = |key: &&String| !COMMON.contains(&key.as_str()) && !known.contains(&key.as_str());
        let unknown_fields = fields.keys().filter(is_unknown).cloned().collect();
        let fields = Fields { kind, fields };
        let session = fields.optional_text("session").unwrap_or_default();
        Ok(Self { event: read(kind, &fields)?, session, unknown_fields })
    }

    /// Its type.
    pub fn kind(&self) -> &'static str {
        self.event.kind()
    }

    /// The event, for [`Regulator::on_event`](super::Regulator::on_event).
    pub fn event(&self) -> LlmEvent<'_> {
        self.event.borrowed()
    }
}

fn object(line: &str) -> Result<Map<String, Value>, EventLineError> {
    // There is only one line: report the column, and do not count the line end.
    let place = |error: serde_json::Error| error.to_string().replace(" at line 1 column ", " at column ");
    let line = line.trim_end();
    let value = serde_json::from_str(line).or_else(|error| {
        let Some(mended) = without_non_finite(line) else { return Err(error) };
        serde_json::from_str(&mended).map_err(|_| error)
    });
    match value.map_err(|error| EventLineError::Json(place(error)))? {
        Value::Object(fields) => Ok(fields),
        _ => Err(EventLineError::Shape),
    }
}

/// The line with `null` for `NaN`, `Infinity` and `-Infinity`, which Python's `json` writes although JSON has no such numbers;
/// `None` if there are none.
fn without_non_finite(line: &str) -> Option<String> {
    let mut mended = String::with_capacity(line.len());
    let (mut rest, mut found) = (line, false);
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|&(_, c)| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let (text, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at + 1));
            mended.push_str(text);
            rest = after;
        } else if let Some(after) = ["-Infinity", "Infinity", "NaN"].iter().find_map(|name| rest.strip_prefix(name)) {
            mended.push_str("null");
            (rest, found) = (after, true);
        } else {
            mended.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    found.then_some(mended)
}

fn read(kind: &'static str, f: &Fields) -> Result<OwnedEvent, EventLineError> {
    Ok(match kind {
        "task" => Event::Task { text: f.text("text")? },
        "turn_start" => Event::TurnStart { user_message: f.text("user_message")? },
        "token" => Event::Token {
            token: f.text("token")?,
            logprob: f.number("logprob")?.map(|logprob| logprob as f32),
            index: f.count("index")?.unwrap_or(0) as usize,
            entropy: f.number("entropy")?.map(|entropy| entropy as f32),
            top: f.top()?,
        },
        "text" => Event::Text { text: f.text("text")? },
        "turn_complete" => Event::TurnComplete { full_response: f.text("full_response")?, finish: f.finish()? },
        "reserve" => Event::Reserve {
            call_id: f.optional_text("call_id"),
            tokens_in: f.count("tokens_in")?.unwrap_or(0),
            tokens_out: f.count("tokens_out")?.unwrap_or(0),
            money_micros: f.count("money_micros")?.unwrap_or(0),
            wallclock_ms: f.count("wallclock_ms")?.unwrap_or(0),
        },
        "elapsed" => Event::Elapsed { wallclock_ms: f.needed_count("wallclock_ms")? },
        "cost" => Event::Cost {
            call_id: f.optional_text("call_id"),
            model: f.optional_text("model"),
            tokens_in: f.needed_count("tokens_in")?,
            tokens_out: f.needed_count("tokens_out")?,
            tokens_cached: f.count("tokens_cached")?.unwrap_or(0),
            money_micros: f.count("money_micros")?.unwrap_or(0),
            wallclock_ms: f.count("wallclock_ms")?.unwrap_or(0),
            provider: f.optional_text("provider"),
        },
        "user_correction" => Event::UserCorrection {
            correction_message: f.text("correction_message")?,
            corrects_last: f.flag("corrects_last")?.unwrap_or(true),
        },
        "quality_feedback" => {
            let quality = f.number("quality")?.filter(|quality| (0.0..=1.0).contains(quality));
            Event::QualityFeedback { quality: quality.ok_or_else(|| f.error("quality", "a number from 0 to 1"))? }
        }
        "tool_call" => Event::ToolCall {
            call_id: f.optional_text("call_id"),
            tool_name: f.text("tool_name")?,
            args_json: f.optional_text("args_json").unwrap_or_default(),
        },
        _ => Event::ToolResult {
            call_id: f.optional_text("call_id"),
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
            match number {
                // An infinite log-probability of Python's JSON.
                Some(Value::Null) => Ok(None),
                number => number.and_then(Value::as_f64).map(|logprob| Some(logprob as f32)).ok_or_else(needs),
            }
        };
        let top: Vec<Option<f32>> = match self.get("top").or_else(|| self.get("top_logprobs")) {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(logprob).collect::<Result<_, _>>()?,
            Some(Value::Object(by_token)) => by_token.values().map(logprob).collect::<Result<_, _>>()?,
            Some(_) => return Err(needs()),
        };
        let mut top: Vec<f32> = top.into_iter().flatten().collect();
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
                call_id: None,
                model: None,
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
            LlmEvent::Reserve { call_id: None, tokens_in: 0, tokens_out: 2, money_micros: 0, wallclock_ms: 0 },
        );
        check(r#"{"type":"elapsed","wallclock_ms":9}"#, LlmEvent::Elapsed { wallclock_ms: 9 });
        check(
            r#"{"type":"user_correction","correction_message":"c","corrects_last":false}"#,
            LlmEvent::UserCorrection { correction_message: "c", corrects_last: false },
        );
        check(r#"{"type":"quality_feedback","quality":0.5}"#, LlmEvent::QualityFeedback { quality: 0.5 });
        check(
            r#"{"type":"tool_call","tool_name":"t","args_json":{"a":1}}"#,
            LlmEvent::ToolCall { call_id: None, tool_name: "t", args_json: r#"{"a":1}"# },
        );
        check(
            r#"{"type":"tool_result","call_id":"c7","tool_name":"t","success":true,"duration_ms":4,"result":"ok"}"#,
            LlmEvent::ToolResult {
                call_id: Some("c7"),
                tool_name: "t",
                success: true,
                duration_ms: 4,
                result: Some("ok"),
            },
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

    #[test]
    fn non_finite_numbers_of_python_are_absent() {
        check(
            r#"{"type":"token","token":"NaN \"-Infinity\"","logprob":-Infinity,"entropy":NaN,"top":[-0.5,NaN,["x",-Infinity]]}"#,
            LlmEvent::Token { token: "NaN \"-Infinity\"", logprob: None, index: 0, entropy: None, top: &[-0.5] },
        );
        assert!(EventLine::parse(r#"{"type":"token","token":NaNa}"#).is_err());
    }

    #[test]
    fn a_session_may_be_named_on_every_line() {
        let read = EventLine::parse(r#"{"type":"text","text":"x","session":"s-1"}"#).unwrap();
        assert_eq!((read.session.as_str(), read.unknown_fields.len()), ("s-1", 0));
        let lines = EventLine::parse_line(
            r#"{"session":4,"object":"chat.completion.chunk","choices":[{"delta":{"content":"x"}}]}"#,
        );
        assert_eq!(lines.unwrap()[0].session, "4");
    }
}
