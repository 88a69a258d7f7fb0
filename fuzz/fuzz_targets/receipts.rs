//! A reader that must return a result or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(loom_agent::foundation::store::receipts::chain(bytes)));
