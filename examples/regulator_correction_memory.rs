//! Correction memory: a user corrects the same mistake in three sessions, with different words. Before the reply of the
//! fourth session, in a new process, the regulator reports the pattern.
//!
//! `cargo run --no-default-features --example regulator_correction_memory`

use std::error::Error;
use std::io::{self, Write};

use loom_agent::governance::regulator::{Decision, LlmEvent, Regulator, RegulatorState, Settings, signal_blocks};

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

/// Writes the demonstration to `out`.
pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let sessions = [
        ("Refactor the loader function.", "Don't add docstrings to refactored output."),
        ("Please refactor this class.", "Stop adding docstrings when you refactor!"),
        ("Refactor the retry helper.", "I told you before: no docstrings."),
    ];
    let mut kept = Regulator::for_user("user_123").export().to_json()?;
    for (task, correction) in sessions {
        let mut regulator = Regulator::import(Settings::default(), RegulatorState::from_json(&kept)?);
        regulator.on_event(LlmEvent::TurnStart { user_message: task });
        regulator.on_event(LlmEvent::TurnComplete { full_response: "Here it is, with docstrings.", finish: None });
        regulator.on_event(LlmEvent::UserCorrection { correction_message: correction, corrects_last: true });
        kept = regulator.export().to_json()?;
        writeln!(out, "{task:32} user: {correction}")?;
    }

    let mut regulator = Regulator::import(Settings::default(), RegulatorState::from_json(&kept)?);
    for task in ["Refactor the parser module.", "Book a table for two."] {
        regulator.on_event(LlmEvent::TurnStart { user_message: task });
        writeln!(out, "\n{task} (before the reply)")?;
        for ruling in regulator.decide() {
            match &ruling.decision {
                Decision::ProceduralWarning { patterns } => {
                    for pattern in patterns {
                        writeln!(
                            out,
                            "  procedural_warning: {} on {}, from {} corrections, confidence {:.2}",
                            pattern.pattern_name, pattern.topic_cluster, pattern.learned_from_turns, pattern.confidence
                        )?;
                    }
                }
                other => writeln!(out, "  {other:?}")?,
            }
        }
    }
    let date = jiff::civil::date(2026, 2, 13);
    write!(out, "\nfor the governed memory:\n\n{}", signal_blocks(&regulator.patterns(), date, 1))?;
    Ok(())
}
