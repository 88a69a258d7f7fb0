//! The regulator's input events, borrowed or owned.

use crate::foundation::chat::Finish;

/// An event that borrows its text: the regulator copies only what it stores.
pub type LlmEvent<'a> = Event<&'a str, &'a [f32]>;

/// An event that owns its text, as parsed from a line.
pub type OwnedEvent = Event<String, Vec<f32>>;

/// One event around a model call (spec §3.2, extended by tool calls, money, cached tokens and alternatives). `T` is the type
/// of its texts, `N` that of its lists of numbers.
///
/// Invalid numbers (a log-probability above zero, a quality outside [0, 1], NaN) are excluded from every statistic and
/// counted in [`TurnStats::unusable`](super::TurnStats::unusable).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Event<T, N> {
    /// The standing task: replies are compared with it until the next `Task` event; an empty text removes it. Without one,
    /// the user's message is the task.
    Task {
        /// The instructions, prohibitions included.
        text: T,
    },
    /// A turn begins.
    TurnStart {
        /// The user's message.
        user_message: T,
    },
    /// One token of the reply.
    Token {
        /// The token's text; the texts of all tokens, concatenated, are the reply.
        token: T,
        /// ln p(token | all tokens before it), nats; `None` if the provider gives none.
        logprob: Option<f32>,
        /// Position in the reply, from 0.
        index: usize,
        /// Shannon entropy of the whole next-token distribution, nats.
        entropy: Option<f32>,
        /// Log-probabilities of the most likely tokens, highest first; empty if unknown.
        top: N,
    },
    /// A chunk of the reply whose tokens are unknown.
    Text {
        /// The chunk.
        text: T,
    },
    /// The reply is complete.
    TurnComplete {
        /// The whole reply; if empty, the concatenated tokens are taken.
        full_response: T,
        /// Why it ended, if known.
        finish: Option<Finish>,
    },
    /// Reserves an amount for a call that is about to be made. Reservations add up; the call's `Cost` event releases its own,
    /// and the next turn releases all. If a cap would be exceeded, the decision says so before the call is made.
    Reserve {
        /// The call that it is for; a `Cost` event with the same id releases it.
        call_id: Option<T>,
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
    /// A call's actual cost. It replaces what was counted from the call's tokens, also if it arrives a turn later.
    Cost {
        /// The call.
        call_id: Option<T>,
        /// The model, for the price table.
        model: Option<T>,
        /// Tokens read, cached ones included.
        tokens_in: u64,
        /// Tokens written.
        tokens_out: u64,
        /// How many of `tokens_in` came from a cache.
        tokens_cached: u64,
        /// Millionths of the account's currency; 0 is computed from the price table.
        money_micros: u64,
        /// Wall-clock time, ms.
        wallclock_ms: u64,
        /// The provider's name.
        provider: Option<T>,
    },
    /// The user corrected the model.
    UserCorrection {
        /// The user's words.
        correction_message: T,
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
        /// The call's id, which its result repeats.
        call_id: Option<T>,
        /// Its name.
        tool_name: T,
        /// Its arguments, JSON; the order of keys does not matter.
        args_json: T,
    },
    /// A tool returned.
    ToolResult {
        /// The call's id.
        call_id: Option<T>,
        /// Its name.
        tool_name: T,
        /// The call succeeded.
        success: bool,
        /// How long it took, ms.
        duration_ms: u64,
        /// Its result, if known.
        result: Option<T>,
    },
}

impl<T, N> Event<T, N> {
    /// Its type, as in JSON.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Task { .. } => "task",
            Self::TurnStart { .. } => "turn_start",
            Self::Token { .. } => "token",
            Self::Text { .. } => "text",
            Self::TurnComplete { .. } => "turn_complete",
            Self::Reserve { .. } => "reserve",
            Self::Elapsed { .. } => "elapsed",
            Self::Cost { .. } => "cost",
            Self::UserCorrection { .. } => "user_correction",
            Self::QualityFeedback { .. } => "quality_feedback",
            Self::ToolCall { .. } => "tool_call",
            Self::ToolResult { .. } => "tool_result",
        }
    }
}

impl<T: AsRef<str>, N: AsRef<[f32]>> Event<T, N> {
    /// The same event, borrowed.
    pub fn borrowed(&self) -> LlmEvent<'_> {
        #[expect(clippy::ref_option, reason = "the match below binds references")]
        fn id<T: AsRef<str>>(id: &Option<T>) -> Option<&str> {
            id.as_ref().map(AsRef::as_ref)
        }
        match self {
            Self::Task { text } => Event::Task { text: text.as_ref() },
            Self::TurnStart { user_message } => Event::TurnStart { user_message: user_message.as_ref() },
            &Self::Token { ref token, logprob, index, entropy, ref top } => {
                Event::Token { token: token.as_ref(), logprob, index, entropy, top: top.as_ref() }
            }
            Self::Text { text } => Event::Text { text: text.as_ref() },
            Self::TurnComplete { full_response, finish } => {
                Event::TurnComplete { full_response: full_response.as_ref(), finish: *finish }
            }
            &Self::Reserve { ref call_id, tokens_in, tokens_out, money_micros, wallclock_ms } => {
                Event::Reserve { call_id: id(call_id), tokens_in, tokens_out, money_micros, wallclock_ms }
            }
            &Self::Elapsed { wallclock_ms } => Event::Elapsed { wallclock_ms },
            &Self::Cost {
                ref call_id,
                ref model,
                tokens_in,
                tokens_out,
                tokens_cached,
                money_micros,
                wallclock_ms,
                ref provider,
            } => Event::Cost {
                call_id: id(call_id),
                model: id(model),
                tokens_in,
                tokens_out,
                tokens_cached,
                money_micros,
                wallclock_ms,
                provider: id(provider),
            },
            Self::UserCorrection { correction_message, corrects_last } => {
                Event::UserCorrection { correction_message: correction_message.as_ref(), corrects_last: *corrects_last }
            }
            &Self::QualityFeedback { quality } => Event::QualityFeedback { quality },
            Self::ToolCall { call_id, tool_name, args_json } => {
                Event::ToolCall { call_id: id(call_id), tool_name: tool_name.as_ref(), args_json: args_json.as_ref() }
            }
            &Self::ToolResult { ref call_id, ref tool_name, success, duration_ms, ref result } => Event::ToolResult {
                call_id: id(call_id),
                tool_name: tool_name.as_ref(),
                success,
                duration_ms,
                result: id(result),
            },
        }
    }
}
