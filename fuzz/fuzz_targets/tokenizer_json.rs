//! See `loom_agent::inference::engine::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(
    // libFuzzer's own hook ends the process at a panic, also at one of the tokenizer library that Loom catches. One that is not
    // caught ends the process where it leaves the target.
    init: std::panic::set_hook(Box::new(|_| {})),
    |source: &str| loom_agent::inference::engine::fuzzing::tokenizer_json(source)
);
