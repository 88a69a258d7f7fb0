//! See `loom_agent::inference::engine::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|source: &str| loom_agent::inference::engine::fuzzing::model_config(source));
