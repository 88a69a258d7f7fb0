//! What the regulator takes in. Events borrow their text: the regulator copies what it keeps, and nothing else.

use crate::foundation::chat::Finish;

/// One thing that happened around a model call (spec §3.2, with tool calls, money, cached tokens and alternatives).
///
/// Numbers that make no sense (a log-probability above zero, a quality outside [0, 1], NaN) are left out of every
/// statistic and counted in [`TurnReading::unusable`](super::TurnReading::unusable).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum LlmEvent<'a> {
    /// The standing task, against which replies are held until the next one; an empty text removes it. Without one the
    /// user's message is the task.
    Task {
        /// What is to be done, and what is not.
        text: &'a str,
    },
    /// A turn begins.
    TurnStart {
        /// The user's message.
        user_message: &'a str,
    },
    /// One token of the reply.
    Token {
        /// The text that this token completes; the tokens' texts, joined, are the reply.
        token: &'a str,
        /// ln p(token | everything before it), nats; `None` where the provider gives none.
        logprob: Option<f32>,
        /// Position in the reply, from 0.
        index: usize,
        /// Shannon entropy of the whole next-token distribution, nats.
        entropy: Option<f32>,
        /// Log-probabilities of the likeliest tokens, best first; empty when there are none.
        top: &'a [f32],
    },
    /// A piece of the reply whose tokens are unknown, however the provider happened to cut it.
    Text {
        /// The piece.
        text: &'a str,
    },
    /// The reply is complete.
    TurnComplete {
        /// All of it; an empty text means "what the tokens spelled".
        full_response: &'a str,
        /// Why it ended, where that is known.
        finish: Option<Finish>,
    },
    /// Sets an amount aside for the call to come, in place of what was set aside before; the bill releases it. If the cap
    /// does not hold that much, the decision says so before the call is made.
    Reserve {
        /// Tokens to read.
        tokens_in: u64,
        /// Tokens to write at most.
        tokens_out: u64,
        /// Millionths of the account's currency.
        money_micros: u64,
        /// Wall-clock time, ms.
        wallclock_ms: u64,
    },
    /// How long the call in flight has taken so far.
    Elapsed {
        /// Since the call began, ms.
        wallclock_ms: u64,
    },
    /// What the call cost. Replaces what was counted from its tokens.
    Cost {
        /// Tokens read, cached ones included.
        tokens_in: u64,
        /// Tokens written.
        tokens_out: u64,
        /// Those of `tokens_in` that came from a cache.
        tokens_cached: u64,
        /// Millionths of the account's currency.
        money_micros: u64,
        /// Wall-clock time, ms.
        wallclock_ms: u64,
        /// Who was paid.
        provider: Option<&'a str>,
    },
    /// The user corrected the model.
    UserCorrection {
        /// What they said.
        correction_message: &'a str,
        /// It corrects the last reply; otherwise it is a rule for what is to come.
        corrects_last: bool,
    },
    /// How good the last reply was.
    QualityFeedback {
        /// In [0, 1].
        quality: f64,
    },
    /// The model calls a tool.
    ToolCall {
        /// Its name.
        tool_name: &'a str,
        /// Its arguments, JSON; the order of keys does not matter.
        args_json: &'a str,
    },
    /// A tool answered.
    ToolResult {
        /// Its name.
        tool_name: &'a str,
        /// It did what was asked.
        success: bool,
        /// How long it took, ms.
        duration_ms: u64,
        /// What it answered, where that is known.
        result: Option<&'a str>,
    },
}
