//! A reader that must return a result or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| assert!(loom_agent::governance::memory::parse::Document::parse(text).text() == text));
