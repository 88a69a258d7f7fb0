//! Scope drift: an agent was asked to make a function async and reports additional changes.
//!
//! `cargo run --no-default-features --example regulator_scope_drift`

use std::io::{self, Write};

use loom_agent::governance::regulator::{Decision, LlmEvent, Regulator};

const TASK: &str = "Refactor fetch_user to be async. Do not add logging.";
const REPLY: &str = "I refactored fetch_user to be async; callers now await it. The function also logs every request through the \
    logging facade. I also added a retry policy with exponential backoff. I also added telemetry counters for failures.";

fn main() -> io::Result<()> {
    run(&mut io::stdout())
}

/// Writes the demonstration to `out`.
pub(crate) fn run(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "task:  {TASK}\nreply: {REPLY}\n")?;
    writeln!(out, "without the regulator, all of it goes to the user.\n")?;
    let mut regulator = Regulator::for_user("user_123");
    regulator.on_event(LlmEvent::TurnStart { user_message: TASK });
    regulator.on_event(LlmEvent::TurnComplete { full_response: REPLY, finish: None });
    for ruling in regulator.decide() {
        let Decision::ScopeDriftWarn { drift_score, drift_tokens, task_tokens, spans, .. } = &ruling.decision else {
            writeln!(out, "{:?}", ruling.decision)?;
            continue;
        };
        writeln!(
            out,
            "scope_drift_warn {drift_score:.2}: the task is about {task_tokens:?}, the reply brings {drift_tokens:?}"
        )?;
        for part in spans {
            let text = REPLY.get(part.span.start_byte..part.span.end_byte).unwrap_or_default();
            let why = part.forbidden.as_ref().map_or("not asked for".to_owned(), |word| format!("forbidden: {word}"));
            writeln!(out, "  characters {}..{} ({why}): {text}", part.span.start_char, part.span.end_char)?;
        }
    }
    Ok(())
}
