//! The regulator with an agent that is not Loom's: the agent streams its replies, the regulator receives the chunks, and
//! its decisions end a reply early, ask for another one, or stop the work.
//!
//! `cargo run --no-default-features --example regulator_agent`
//!
//! [`Agent`] stands for any client. It needs to give only text; log-probabilities, usage and corrections improve the
//! decisions where the client has them.

use std::io::{self, Write};

use loom_agent::Regulator;
use loom_agent::governance::regulator::{Decision, LlmEvent, Settings};

/// A chunk of a streamed reply, with the log-probability of its token if the client gives one.
struct Chunk {
    text: &'static str,
    logprob: Option<f32>,
}

/// Somebody else's agent: a canned stream in the place of a client of a hosted model.
struct Agent {
    replies: std::vec::IntoIter<&'static str>,
}

impl Agent {
    /// Streams the next reply.
    fn stream(&mut self, _messages: &[String]) -> impl Iterator<Item = Chunk> + use<> {
        let reply = self.replies.next().unwrap_or_default();
        reply.split_inclusive(' ').map(|text| Chunk { text, logprob: Some(-0.3) })
    }
}

fn main() -> io::Result<()> {
    let replies = vec![
        "I refactored fetch_user to be async; callers now await it. The function also logs every request through the \
         logging facade. I also added a retry policy with exponential backoff. I also added telemetry counters.",
        "fetch_user is async now, and its callers await it.",
    ];
    drive(Agent { replies: replies.into_iter() }, &mut io::stdout())
}

/// Runs one task of `agent` under a regulator, with at most two attempts.
fn drive(mut agent: Agent, out: &mut impl Write) -> io::Result<()> {
    let task = "Refactor fetch_user to be async. Do not add logging.";
    let mut settings = Settings::default();
    settings.cost.hard.tokens = Some(2_000);
    let mut regulator = Regulator::with_user(settings, "user_123");
    let mut messages = vec![task.to_owned()];

    for attempt in 1..=2 {
        regulator.on_event(LlmEvent::TurnStart { user_message: task });
        let mut reply = String::new();
        for (index, Chunk { text, logprob }) in agent.stream(&messages).enumerate() {
            regulator.on_event(LlmEvent::Token { token: text, logprob, index, entropy: None, top: &[] });
            reply.push_str(text);
            // For example: the budget is spent, or the model lost its confidence.
            if regulator.should_stop() {
                break;
            }
        }
        regulator.on_event(LlmEvent::TurnComplete { full_response: &reply, finish: None });
        let tokens_out = reply.split(' ').count() as u64;
        regulator.on_event(LlmEvent::Cost {
            call_id: None,
            model: None,
            tokens_in: 400,
            tokens_out,
            tokens_cached: 0,
            money_micros: 0,
            wallclock_ms: 900,
            provider: Some("someone-else"),
        });
        writeln!(out, "attempt {attempt}: {reply}")?;

        // The most urgent decision comes first.
        match regulator.decide().first().map(|ranked| &ranked.decision) {
            None | Some(Decision::Continue) => {
                writeln!(out, "accepted")?;
                break;
            }
            Some(Decision::CircuitBreak { suggestion, .. }) => {
                writeln!(out, "stopped: {suggestion}")?;
                break;
            }
            Some(Decision::ScopeDriftWarn { drift_score, .. }) => {
                writeln!(out, "rejected: the reply leaves the task (drift {drift_score:.2})\n")?;
                messages.extend([reply, format!("Do only what was asked: {task}")]);
            }
            Some(other) => writeln!(out, "noted: {}\n", other.kind())?,
        }
    }
    Ok(())
}
