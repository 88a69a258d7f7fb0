//! A reader that must return a result or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| drop(loom_agent::governance::statechart::Chart::<loom_agent::governance::statechart::hope::HopeVocabulary>::load("fuzz", text)));
