//! Cost control: an ambiguous task, long replies, and a user who corrects each of them. The regulator stops when the quality
//! no longer justifies the cost, long before the hard limit.
//!
//! `cargo run --no-default-features --example regulator_cost_break`

use std::io::{self, Write};

use loom_agent::governance::regulator::{Decision, LlmEvent, Regulator, Settings};

fn main() -> io::Result<()> {
    run(&mut io::stdout())
}

/// Writes the demonstration to `out`.
pub(crate) fn run(out: &mut impl Write) -> io::Result<()> {
    let mut settings = Settings::default();
    settings.cost.compound_tokens = Some(5_000);
    settings.cost.hard.tokens = Some(50_000);
    let mut regulator = Regulator::with_user(settings, "user_123");
    let turns = [
        ("Clean up the billing code.", "Not the formatting! The logic."),
        ("Clean up the logic of the billing code.", "You changed the tax rules. Put them back."),
        ("Keep the tax rules, clean up the rest of the billing code.", "Now the invoices are empty."),
        ("Fix the invoices, then clean up the billing code.", "They are still empty."),
    ];
    let mut spent = 0;
    for (turn, (task, correction)) in turns.into_iter().enumerate() {
        regulator.on_event(LlmEvent::TurnStart { user_message: task });
        regulator.on_event(LlmEvent::TurnComplete { full_response: "Here is the billing code.", finish: None });
        regulator.on_event(LlmEvent::Cost {
            call_id: None,
            model: None,
            tokens_in: 900 + 400 * turn as u64,
            tokens_out: 1_100,
            tokens_cached: 0,
            money_micros: 0,
            wallclock_ms: 9_000,
            provider: None,
        });
        regulator.on_event(LlmEvent::UserCorrection { correction_message: correction, corrects_last: true });
        spent = regulator.turn_stats().cost_session.tokens();
        writeln!(out, "turn {}: {spent} tokens spent; the user says: {correction}", turn + 1)?;
        for ruling in regulator.decide() {
            if let Decision::CircuitBreak { action, suggestion, .. } = &ruling.decision {
                writeln!(out, "circuit_break, {action:?}: {suggestion}")?;
                for found in &ruling.evidence {
                    writeln!(out, "  {} = {} (limit {:?})", found.name, found.value, found.limit)?;
                }
                writeln!(out, "stopped {} tokens before the hard cap.", 50_000 - spent)?;
                return Ok(());
            }
        }
    }
    writeln!(out, "no break; {spent} tokens spent.")
}
