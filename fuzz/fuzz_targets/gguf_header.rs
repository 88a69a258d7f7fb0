//! See `loom_agent::inference::engine::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| loom_agent::inference::engine::fuzzing::gguf_header(bytes));
