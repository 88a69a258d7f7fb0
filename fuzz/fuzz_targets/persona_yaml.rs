//! A reader that must return a result or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| drop(loom_agent::simulation::persona::parse("fuzz", text)));
