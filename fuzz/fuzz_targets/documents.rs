//! Readers of Loom's own files that have no target of their own: the first byte chooses one (`scripts/fuzz.sh`).
#![no_main]

use loom_agent::governance::mood::MoodProfile;
use loom_agent::governance::regulator::{Calibration, RegulatorState, SessionLog};
use loom_agent::simulation::judge::judged::Rubric;
use loom_agent::simulation::persona::AdversaryScript;
use loom_agent::simulation::rollout::{Manifest, Transcript};
use loom_agent::studies::confidence::Task;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((reader, bytes)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(bytes);
    match reader % 8 {
        0 => drop(AdversaryScript::parse("fuzz", &text)),
        1 => drop(Rubric::parse(&text)),
        2 => drop(MoodProfile::parse("fuzz", &text, None)),
        3 => drop(Task::parse("fuzz", &text)),
        4 => drop(SessionLog::parse(&text)),
        5 => drop((RegulatorState::from_json(&text), Calibration::from_json(&text))),
        6 => drop(serde_json::from_slice::<Transcript>(bytes)),
        _ => drop(serde_json::from_slice::<Manifest>(bytes)),
    }
});
