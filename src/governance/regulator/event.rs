//! The regulator's input events. Events borrow their text; the regulator copies only what it stores.

use crate::foundation::chat::Finish;

/// One event around a model call (spec §3.2, extended by tool calls, money, cached tokens and alternatives).
///
/// Invalid numbers (a log-probability above zero, a quality outside [0, 1], NaN) are excluded from every statistic
/// and counted in [`TurnStats::unusable`](super::TurnReading::unusable).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum LlmEvent<'a> {
    /// The standing task: replies are compared with it until the next `Task` event; an empty text removes it. Without
    /// one, the user's message is the task.
    Task {
        /// The instructions, prohibitions included.
        text: &'a str,
    },
    /// A turn begins.
    TurnStart {
        /// The user's message.
        user_message: &'a str,
    },
    /// One token of the reply.
    Token {
        /// The token's text; the texts of all tokens, concatenated, are the reply.
        token: &'a str,
        /// ln p(token | all tokens before it), nats; `None` if the provider gives none.
        logprob: Option<f32>,
        /// Position in the reply, from 0.
        index: usize,
        /// Shannon entropy of the whole next-token distribution, nats.
        entropy: Option<f32>,
        /// Log-probabilities of the most likely tokens, highest first; empty if unknown.
        top: &'a [f32],
    },
    /// A chunk of the reply whose tokens are unknown.
    Text {
        /// The chunk.
        text: &'a str,
    },
    /// The reply is complete.
    TurnComplete {
        /// The whole reply; if empty, the concatenated tokens are taken.
        full_response: &'a str,
        /// Why it ended, if known.
        finish: Option<Finish>,
    },
    /// Reserves an amount for the next call; it replaces an earlier reservation, and a `Cost` event releases it. If a cap
    /// would be exceeded, the decision says so before the call is made.
    Reserve {
        /// Prompt tokens.
        tokens_in: u64,
        /// Most output tokens.
        tokens_out: u64,
        /// Millionths of the account's currency.
        money_micros: u64,
        /// Wall-clock time, ms.
        wallclock_ms: u64,
    },
    /// How long the running call has taken so far.
    Elapsed {
        /// Time since the call began, ms.
        wallclock_ms: u64,
    },
    /// The call's actual cost. It replaces what was counted from its tokens.
    Cost {
        /// Tokens read, cached ones included.
        tokens_in: u64,
        /// Tokens written.
        tokens_out: u64,
        /// How many of `tokens_in` came from a cache.
        tokens_cached: u64,
        /// Millionths of the account's currency.
        money_micros: u64,
        /// Wall-clock time, ms.
        wallclock_ms: u64,
        /// The provider's name.
        provider: Option<&'a str>,
    },
    /// The user corrected the model.
    UserCorrection {
        /// The user's words.
        correction_message: &'a str,
        /// It corrects the last reply; otherwise it is a rule for later replies.
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
    /// A tool returned.
    ToolResult {
        /// Its name.
        tool_name: &'a str,
        /// The call succeeded.
        success: bool,
        /// How long it took, ms.
        duration_ms: u64,
        /// Its result, if known.
        result: Option<&'a str>,
    },
}
