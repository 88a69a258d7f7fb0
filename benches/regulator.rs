//! Costs of the regulator: `cargo bench --bench regulator` (builds in seconds with `--no-default-features`).
//!
//! Goals: a token at most 15 ns from borrowed text and 100 ns with twenty alternatives, a decision under 100 ns, the
//! start of a turn with a message of 75 characters under 5 µs, a turn of 100 tokens under 10 µs.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use loom_agent::governance::regulator::{LlmEvent, Regulator};

/// 75 characters.
const MESSAGE: &str = "Refactor the parser module to be async, and keep its public interface as is";

/// A hundred tokens of an answer to it, with log-probabilities like a model's.
fn reply() -> Vec<(String, f32)> {
    let words = "The parser module is async now . Each public function keeps its name and its arguments , and returns a \
        future . The reader awaits the next line where it blocked before , so callers only add an await . The error type \
        did not change . Tests that called the parser run on a small runtime . The interface of the module is as it was .";
    let tokens: Vec<_> = words
        .split_whitespace()
        .zip(0u32..)
        .map(|(word, at)| (format!(" {word}"), -((at * 7919 % 100) as f32) / 60.0))
        .cycle()
        .take(100)
        .collect();
    assert_eq!(tokens.len(), 100);
    tokens
}

fn token<'a>((text, logprob): &'a (String, f32), top: &'a [f32]) -> LlmEvent<'a> {
    LlmEvent::Token { token: text, logprob: Some(*logprob), index: 0, entropy: None, top }
}

/// A regulator with learned corrections and judged turns.
fn warmed_up() -> Regulator {
    let mut regulator = Regulator::for_user("ann");
    let lessons = [
        ("Refactor the loader.", "Don't add docstrings to refactored output."),
        ("Refactor the cache.", "No docstrings when you refactor!"),
        ("Translate the menu.", "Use metric units."),
    ];
    for (message, correction) in lessons {
        regulator.on_event(LlmEvent::TurnStart { user_message: message });
        for token_ in &reply() {
            regulator.on_event(token(token_, &[]));
        }
        regulator.on_event(LlmEvent::TurnComplete { full_response: "", finish: None });
        regulator.on_event(LlmEvent::UserCorrection { correction_message: correction, corrects_last: true });
        regulator.on_event(LlmEvent::QualityFeedback { quality: 0.8 });
    }
    regulator
}

fn events(c: &mut Criterion) {
    let tokens = reply();
    let full: String = tokens.iter().map(|(text, _)| text.as_str()).collect();
    let top: Vec<f32> = (0..20).map(|rank| -0.2 - f64::from(rank) as f32 * 0.6).collect();
    let mut regulator = warmed_up();

    // 100 tokens per iteration, because one is too short to measure; divide by 100.
    for (name, top) in [("100 tokens", &[][..]), ("100 tokens with 20 alternatives", &top)] {
        c.bench_function(name, |b| {
            b.iter_batched_ref(
                || {
                    let mut regulator = warmed_up();
                    regulator.on_event(LlmEvent::TurnStart { user_message: MESSAGE });
                    regulator
                },
                |regulator| tokens.iter().for_each(|token_| regulator.on_event(token(black_box(token_), top))),
                BatchSize::SmallInput,
            );
        });
    }

    c.bench_function("turn start, 75 characters", |b| {
        b.iter(|| regulator.on_event(LlmEvent::TurnStart { user_message: black_box(MESSAGE) }));
    });

    c.bench_function("decide", |b| b.iter(|| black_box(regulator.decide()).len()));

    let turn = |regulator: &mut Regulator| {
        regulator.on_event(LlmEvent::TurnStart { user_message: black_box(MESSAGE) });
        for token_ in &tokens {
            regulator.on_event(token(token_, &[]));
        }
        regulator.on_event(LlmEvent::TurnComplete { full_response: &full, finish: None });
        regulator.on_event(LlmEvent::Cost {
            call_id: None,
            model: None,
            tokens_in: 40,
            tokens_out: 100,
            tokens_cached: 0,
            money_micros: 0,
            wallclock_ms: 900,
            provider: None,
        });
        regulator.decide().len()
    };
    c.bench_function("turn of 100 tokens", |b| b.iter(|| turn(&mut regulator)));

    c.bench_function("turn reading", |b| b.iter(|| black_box(regulator.turn_stats())));
}

criterion_group!(benches, events);
criterion_main!(benches);
