//! See `loom_agent::inference::remote::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| loom_agent::inference::remote::fuzzing::chunks(text));
