//! Turns a request into input for the engine: renders and tokenises it, and checks it against the model's limits. Knows
//! nothing of the engine thread.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::reply::{Reply, ThoughtWatch};
use super::sequence::{PreparedRequest, PromptInput, Task};
use super::shared::Shared;
use super::template::ChatSettings;
use super::{detokenize, history};
use crate::foundation::base::limits::{PROMPT_TOKENS_MAX, TEXT_AT_ONCE_BYTES_MAX};
use crate::foundation::chat::{Continuation, DeltaGains, LayerGains, Message, ModelError, Prompt, Request, TokenId};
use crate::inference::thought::{Divider, Start, ThoughtFormat};

/// Runs `work`, which processes `bytes` bytes of text: a long text on a blocking thread, so that it does not stall the
/// caller's async runtime.
pub(super) async fn run_blocking<T: Send + 'static>(
    shared: &Arc<Shared>,
    prompt_bytes: usize,
    work: impl FnOnce(&Shared) -> Result<T, String> + Send + 'static,
) -> Result<T, ModelError> {
    let runtime = Handle::try_current().ok().filter(|_| prompt_bytes > TEXT_AT_ONCE_BYTES_MAX);
    let done = match runtime {
        // There is no runtime to stall.
        None => work(shared),
        Some(runtime) => {
            let moved = Arc::clone(shared);
            match runtime.spawn_blocking(move || work(&moved)).await {
                Ok(done) => done,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return Err(shared.failed("the program is ending".to_owned())),
            }
        }
    };
    done.map_err(|why| shared.unsupported(why))
}

/// Bytes of text in `prompt`.
pub(super) fn prompt_bytes(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Chat(messages) => {
            let thought = |message: &Message| message.thought.as_ref().map_or(0, |thought| thought.text.len());
            messages.iter().map(|message| message.content.len() + thought(message)).sum()
        }
        Prompt::Text(text) => text.len(),
        Prompt::Ids(_) => 0,
    }
}

/// Bytes of text to score.
pub(super) fn continuation_bytes(continuation: &Continuation) -> usize {
    match continuation {
        Continuation::Text(text) => text.len(),
        Continuation::Ids(ids) => size_of_val(ids.as_slice()),
    }
}

/// How a reply to a prompt is divided into thought and answer.
#[derive(Clone)]
pub(super) struct ReplyParts {
    pub(super) format: Arc<ThoughtFormat>,
    pub(super) start: Start,
}

/// The tokens that a text continues: none in a chat, where a turn begins a text of its own.
fn before(is_chat: bool, input: &PromptInput) -> &[TokenId] {
    if is_chat { &[] } else { &input.ids }
}

impl Shared {
    /// A request to generate a reply, and how it is divided.
    pub(super) fn prepare_completion(&self, request: Request) -> Result<(PreparedRequest, Option<ReplyParts>), String> {
        let mut sampling = request.sampling.clone();
        let (is_chat, stream) = (matches!(request.prompt, Prompt::Chat(_)), request.stream);
        if is_chat {
            sampling.stop.extend(self.stops.iter().cloned());
        }
        let settings = self.template.settings(&request.thinking)?;
        let (input, parts) = self.input(request, &settings)?;
        let before = before(is_chat, &input);
        let (tokenizer, end_tokens) = (Arc::clone(&self.tokenizer), Arc::clone(&self.end_tokens));
        let mut reply = Reply::new(tokenizer, before, end_tokens, sampling, stream)?;
        if let Some(ReplyParts { format, start }) = &parts {
            let closing =
                settings.tokens_max.map(|most| Ok::<_, String>((most, self.tokenizer.encode(format.closing())?)));
            reply.watch_thought(ThoughtWatch::new(Divider::new(format, *start), closing.transpose()?));
        }
        let mut task = Task::Write(Box::new(reply));
        self.check_window(input.ids.len(), &mut task)?;
        Ok((PreparedRequest { input, task }, parts))
    }

    /// A request to score `continuation` after the prompt.
    pub(super) fn prepare_score(
        &self,
        request: Request,
        continuation: Continuation,
    ) -> Result<PreparedRequest, String> {
        let (input, mut tasks) = self.prepare_scores_as_is(request, vec![continuation])?;
        let task = tasks.pop_front().ok_or("there is nothing to score")?;
        Ok(PreparedRequest { input, task })
    }

    /// A request to score each of `continuations` after the same prompt.
    pub(super) fn prepare_scores(
        &self,
        request: Request,
        continuations: Vec<Continuation>,
    ) -> Result<(PromptInput, VecDeque<Task>), String> {
        let (input, tasks) = self.prepare_scores_as_is(request, continuations)?;
        Ok((PromptInput { history: usize::MAX, ..input }, tasks))
    }

    fn prepare_scores_as_is(
        &self,
        request: Request,
        continuations: Vec<Continuation>,
    ) -> Result<(PromptInput, VecDeque<Task>), String> {
        let is_chat = matches!(request.prompt, Prompt::Chat(_));
        let (top, keep_state) = (request.sampling.top_logprobs, request.keep_state);
        let input = self.input_to_answer(request)?;
        let task = |continuation| {
            let tokens = self.continuation(continuation, before(is_chat, &input))?;
            let mut task = Task::Score { tokens, top, keep_state };
            self.check_window(input.ids.len(), &mut task).map(|()| task)
        };
        let tasks = continuations.into_iter().map(task).collect::<Result<_, _>>()?;
        Ok((input, tasks))
    }

    /// The ids of a prompt up to where an answer begins.
    pub(super) fn ids_to_answer(&self, request: Request) -> Result<Vec<TokenId>, String> {
        self.input_to_answer(request).map(|input| input.ids)
    }

    /// The input of a request for an answer: a thought that the template opens is closed.
    fn input_to_answer(&self, request: Request) -> Result<PromptInput, String> {
        let settings = self.template.settings(&request.thinking)?;
        let (mut input, parts) = self.input(request, &settings)?;
        if let Some(ReplyParts { format, start: Start::Thought }) = parts {
            input.ids.extend(self.tokenizer.encode(format.closing())?);
        }
        Ok(input)
    }

    fn continuation(&self, continuation: Continuation, before: &[TokenId]) -> Result<Vec<(TokenId, String)>, String> {
        let ids = match continuation {
            Continuation::Text(text) => self.tokenizer.encode_at_most(&text, self.prompt_tokens_max())?,
            Continuation::Ids(ids) => ids,
        };
        if ids.is_empty() {
            return Err("there is nothing to score: give a continuation of at least one token".to_owned());
        }
        self.check_ids(&ids)?;
        Ok(detokenize::pieces(&self.tokenizer, before, ids))
    }

    fn input(&self, request: Request, settings: &ChatSettings) -> Result<(PromptInput, Option<ReplyParts>), String> {
        let mut parts = None;
        let (ids, history) = match &request.prompt {
            Prompt::Chat(messages) => {
                let reading = history::read(&self.template, &self.tokenizer, &self.history_cache, messages, settings)?;
                let start = settings.start(&reading.opening);
                parts = start.map(|(format, start)| ReplyParts { format: Arc::clone(format), start });
                (reading.ids, reading.history)
            }
            Prompt::Text(text) => (self.tokenizer.encode_text(text, self.prompt_tokens_max())?, usize::MAX),
            Prompt::Ids(ids) => (ids.clone(), usize::MAX),
        };
        if ids.is_empty() {
            return Err("the prompt is empty: give it at least one token to continue from".to_owned());
        }
        self.check_ids(&ids)?;
        if let Some(gains) = &request.gains {
            self.check_gains(gains)?;
        }
        let Request { after, gains, record_ssm, .. } = request;
        let drops_thoughts = parts.is_some();
        Ok((PromptInput { ids, history, after, gains, record_ssm, drops_thoughts }, parts))
    }

    /// The most tokens that a text is read for.
    fn prompt_tokens_max(&self) -> usize {
        self.window.map_or(PROMPT_TOKENS_MAX, |window| window.min(PROMPT_TOKENS_MAX))
    }

    pub(super) fn check_ids(&self, ids: &[TokenId]) -> Result<(), String> {
        let vocabulary = self.info.vocabulary.unwrap_or_default();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(format!(
                "token {id} is outside its vocabulary of {vocabulary}; were the ids produced by another model's tokenizer?"
            ));
        }
        if ids.len() > PROMPT_TOKENS_MAX {
            return Err(format!("{} tokens exceed the limit of {PROMPT_TOKENS_MAX} per request", ids.len()));
        }
        Ok(())
    }

    /// Checks that prompt and task fit into the window, and limits a reply to it.
    fn check_window(&self, prompt: usize, task: &mut Task) -> Result<(), String> {
        let Some(window) = self.window else { return Ok(()) };
        let needed = match task {
            Task::Write(_) => 1,
            Task::Score { tokens, .. } => tokens.len(),
        };
        let available = window.saturating_sub(prompt);
        if available < needed {
            return Err(format!(
                "a prompt of {prompt} tokens and {needed} more exceed the window of {window} tokens: shorten the prompt"
            ));
        }
        if let Task::Write(reply) = task {
            reply.limit(available);
        }
        Ok(())
    }

    fn check_gains(&self, gains: &DeltaGains) -> Result<(), String> {
        if !self.info.delta {
            return Err("it has no Δ that gains could scale; use a Mamba model, or omit the gains".to_owned());
        }
        let layers = self.info.layers.unwrap_or_default();
        let all = match gains {
            DeltaGains::Uniform(gains) => std::slice::from_ref(gains),
            DeltaGains::PerLayer(each) if each.len() == layers => each,
            DeltaGains::PerLayer(each) => {
                return Err(format!(
                    "gains on Δ are given for {} layers, but the model has {layers}: give one entry per layer",
                    each.len()
                ));
            }
        };
        let sane =
            |gains: &LayerGains| [gains.delta, gains.decay, gains.write].iter().all(|g| g.is_finite() && *g >= 0.0);
        if all.iter().all(sane) { Ok(()) } else { Err("a gain on Δ must be a finite number, 0 or more".to_owned()) }
    }
}
