//! See `loom_agent::governance::regulator::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| loom_agent::governance::regulator::fuzzing::otlp_spans(text));
