//! Properties of every sequence of events.

use proptest::prelude::*;

use super::event::{Event, OwnedEvent};
use super::{EventLine, LlmEvent, ModelPrice, Regulator, RegulatorState, Settings, fuzzing};
use crate::foundation::chat::Finish;

fn text() -> impl Strategy<Value = String> {
    let phrases = [
        "",
        "Refactor the parser, do not add logging.",
        "I also added logging to the parser. ",
        "ab",
        "\u{FEFF}\u{200D}",
        "\0",
        "解析器模块已经重构。",
        "👩‍👩‍👧‍👦 ",
        "e\u{301}",
        "\u{FFFD}\u{FFFF}\u{10FFFF}",
        r"\ud800",
        "don’t ",
        "...",
        "\n\n",
        "Ω≈ç√ ",
    ];
    prop_oneof![
        4 => proptest::sample::select(phrases.to_vec()).prop_map(str::to_owned),
        2 => proptest::collection::vec(proptest::sample::select(phrases.to_vec()), 0..12).prop_map(|parts| parts.concat()),
        1 => any::<String>(),
    ]
}

fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -20.0..=0.0f32,
        1 => proptest::sample::select(vec![0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -9999.0, f32::MIN, f32::MAX, 1e-40]),
    ]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![0..100u64, Just(u64::MAX), Just(u64::MAX / 2)]
}

fn event() -> impl Strategy<Value = OwnedEvent> {
    let name = || proptest::sample::select(vec!["read", "write", ""]).prop_map(str::to_owned);
    let id = || proptest::option::of(name());
    let top = proptest::collection::vec(number(), 0..4);
    prop_oneof![
        1 => text().prop_map(|text| Event::Task { text }),
        3 => text().prop_map(|user_message| Event::TurnStart { user_message }),
        8 => (text(), proptest::option::of(number()), proptest::option::of(number()), top)
            .prop_map(|(token, logprob, entropy, top)| Event::Token { token, logprob, index: usize::MAX, entropy, top }),
        2 => text().prop_map(|text| Event::Text { text }),
        3 => (text(), any::<bool>()).prop_map(|(full_response, refused)| Event::TurnComplete {
            full_response,
            finish: refused.then_some(Finish::Refusal),
        }),
        2 => (id(), id(), [count(), count(), count(), count(), count()]).prop_map(
            |(call_id, model, [tokens_in, tokens_out, tokens_cached, money_micros, wallclock_ms])| Event::Cost {
                call_id, model, tokens_in, tokens_out, tokens_cached, money_micros, wallclock_ms, provider: None,
            }
        ),
        1 => (id(), [count(), count(), count(), count()]).prop_map(
            |(call_id, [tokens_in, tokens_out, money_micros, wallclock_ms])| Event::Reserve {
                call_id, tokens_in, tokens_out, money_micros, wallclock_ms,
            }
        ),
        1 => count().prop_map(|wallclock_ms| Event::Elapsed { wallclock_ms }),
        2 => (text(), any::<bool>())
            .prop_map(|(correction_message, corrects_last)| Event::UserCorrection { correction_message, corrects_last }),
        2 => prop_oneof![0.0..=1.0f64, Just(f64::NAN), Just(-1.0), Just(f64::INFINITY)]
            .prop_map(|quality| Event::QualityFeedback { quality }),
        2 => (id(), name(), text()).prop_map(|(call_id, tool_name, args_json)| Event::ToolCall { call_id, tool_name, args_json }),
        2 => (id(), name(), any::<bool>(), proptest::option::of(text())).prop_map(|(call_id, tool_name, success, result)| {
            Event::ToolResult { call_id, tool_name, success, duration_ms: u64::MAX, result }
        }),
    ]
}

fn capped() -> Settings {
    let mut settings = Settings::default();
    settings.cost.hard.tokens = Some(1000);
    settings.cost.soft.money_micros = Some(50);
    settings.cost.prices.insert("re".into(), ModelPrice { input: 1.5, output: 6.0, cached: Some(0.1) });
    settings.confidence.group_tokens = 3;
    settings
}

proptest! {
    #[test]
    fn no_sequence_of_events_panics_and_something_is_always_decided(events in proptest::collection::vec(event(), 0..60)) {
        let mut regulator = Regulator::new(capped());
        for event in &events {
            regulator.on_event(event.borrowed());
            prop_assert!(!regulator.decide().is_empty());
            let ranks: Vec<_> = regulator.decide().iter().map(|ranked| ranked.decision.rank()).collect();
            prop_assert!(ranks.is_sorted());
        }
        let reading = regulator.turn_stats();
        let json = serde_json::to_string(&reading).unwrap();
        prop_assert_eq!(serde_json::from_str::<super::TurnStats>(&json).unwrap(), reading.clone(), "nothing in it is beyond JSON");
        for share in [reading.signals.entropy_trajectory, reading.signals.overrun_prevention, reading.signals.salience] {
            prop_assert!((0.0..=1.0).contains(&share), "{share}");
        }
        let state = regulator.export();
        prop_assert_eq!(&RegulatorState::from_json(&state.to_json().unwrap()).unwrap(), &state);
        prop_assert_eq!(Regulator::import(capped(), state.clone()).export(), state);
    }

    #[test]
    fn decisions_do_not_depend_on_how_the_text_was_cut(
        task in text(),
        reply in text(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let run = |pieces: &[&str]| {
            let mut regulator = Regulator::new(capped());
            regulator.on_event(LlmEvent::TurnStart { user_message: &task });
            for text in pieces {
                regulator.on_event(LlmEvent::Text { text });
            }
            regulator.on_event(LlmEvent::TurnComplete { full_response: "", finish: None });
            (regulator.decide().to_vec(), regulator.turn_stats())
        };
        let mut at: Vec<_> = cuts
            .iter()
            .map(|cut| cut.index(reply.len() + 1))
            .filter(|&at| reply.is_char_boundary(at))
            .chain([0, reply.len()])
            .collect();
        at.sort_unstable();
        let pieces: Vec<_> = at.windows(2).map(|pair| &reply[pair[0]..pair[1]]).collect();
        prop_assert_eq!(run(&pieces), run(&[&reply]));
    }

    #[test]
    fn reading_decisions_changes_nothing(events in proptest::collection::vec(event(), 0..40)) {
        let (mut read_each_time, mut undisturbed) = (Regulator::new(capped()), Regulator::new(capped()));
        for event in &events {
            read_each_time.on_event(event.borrowed());
            let _ = (read_each_time.decide().len(), read_each_time.turn_stats(), read_each_time.signals(), read_each_time.export());
            undisturbed.on_event(event.borrowed());
        }
        prop_assert_eq!(read_each_time.decide(), undisturbed.decide());
        prop_assert_eq!(read_each_time.turn_stats(), undisturbed.turn_stats());
    }
}

/// JSON close to an event or an export: known names in wrong positions, and numbers out of range.
fn nearly_json() -> impl Strategy<Value = String> {
    let names = [
        "type",
        "token",
        "logprob",
        "top",
        "turn_start",
        "user_message",
        "cost",
        "tokens_in",
        "quality_feedback",
        "quality",
        "tool_call",
        "tool_name",
        "resourceSpans",
        "scopeSpans",
        "spans",
        "attributes",
        "key",
        "value",
        "stringValue",
        "intValue",
        "arrayValue",
        "kvlistValue",
        "values",
        "gen_ai.operation.name",
        "chat",
        "execute_tool",
        "events",
        "name",
        "gen_ai.input.messages",
        "gen_ai.choice",
        "role",
        "user",
        "parts",
        "content",
        "endTimeUnixNano",
    ];
    let odd = [
        "null",
        "true",
        "-1",
        "1e999",
        "-1e-999",
        "18446744073709551616",
        "0.1",
        "\"\"",
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""\u0000""#,
        "NaN",
        "-Infinity",
        r#""[{\"role\":\"user\"}]""#,
        "\"9223372036854775808\"",
    ];
    let name = proptest::sample::select(names.to_vec()).prop_map(|name| format!("\"{name}\""));
    let leaf = prop_oneof![name.clone(), proptest::sample::select(odd.to_vec()).prop_map(str::to_owned)];
    leaf.prop_recursive(8, 64, 6, move |inner| {
        prop_oneof![
            2 => proptest::collection::vec((name.clone(), inner.clone()), 0..6).prop_map(|fields| {
                let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("{name}:{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
            1 => proptest::collection::vec(inner, 0..5).prop_map(|items| format!("[{}]", items.join(","))),
        ]
    })
}

/// A valid line with some bytes replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let lines: Vec<&str> = include_str!("../../../tests/data/otlp.jsonl")
        .lines()
        .chain([r#"{"type":"token","token":"x","logprob":-0.5,"index":3,"top":[["x",-0.5],["y",-1.5]]}"#])
        .collect();
    let decision_changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (proptest::sample::select(lines), decision_changes).prop_map(|(line, decision_changes)| {
        let mut bytes = line.as_bytes().to_vec();
        for (at, byte) in decision_changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

fn read_and_heard(line: &str) {
    fuzzing::jsonl_events(line);
    fuzzing::otlp_spans(line);
    let mut regulator = Regulator::new(capped());
    for event in EventLine::parse_line(line).into_iter().flatten() {
        regulator.on_event(event.event());
    }
    assert!(!regulator.decide().is_empty());
    let message = EventLine::parse(line).err().map(|error| error.to_string());
    assert_ne!(message.as_deref(), Some(""));
}

proptest! {
    #[test]
    fn no_line_panics_a_reader(line in any::<String>(), nearly in nearly_json(), bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        read_and_heard(&line);
        read_and_heard(&nearly);
        read_and_heard(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_damaged_line_panics_a_reader(bytes in damaged()) {
        read_and_heard(&String::from_utf8_lossy(&bytes));
    }
}

/// Memory and state are bounded, however long the session.
#[test]
fn memory_stays_bounded_over_ten_million_events() {
    let mut regulator = Regulator::new(capped());
    let long = "Refactor the parser and the lexer of this module. ".repeat(40);
    let mut after_warm_up = 0;
    for round in 0..2_000u32 {
        let message = format!("{long} Part {round} of word{round}.");
        regulator.on_event(LlmEvent::TurnStart { user_message: &message });
        for index in 0..4_500 {
            let logprob = Some(-((index % 9) as f32));
            regulator.on_event(LlmEvent::Token { token: " token", logprob, index, entropy: None, top: &[-0.5, -1.5] });
        }
        regulator.on_event(LlmEvent::TurnComplete { full_response: "", finish: None });
        regulator.on_event(LlmEvent::UserCorrection { correction_message: &message, corrects_last: true });
        regulator.on_event(LlmEvent::ToolCall { call_id: None, tool_name: "read", args_json: &message });
        if round == 500 {
            after_warm_up = regulator.export().to_json().unwrap().len();
        }
    }
    let state = regulator.export().to_json().unwrap().len();
    assert!(state <= after_warm_up + after_warm_up / 4, "{after_warm_up} bytes of state became {state}");
    // One reply without an end.
    for index in 0..1_000_000 {
        regulator.on_event(LlmEvent::Token { token: "ab", logprob: Some(-1.0), index, entropy: None, top: &[] });
    }
    assert!(regulator.turn_stats().truncated);
    assert!(regulator.retained_bytes() < 16 << 20, "{} bytes are retained", regulator.retained_bytes());
}
