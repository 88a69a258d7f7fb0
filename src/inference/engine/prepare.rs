//! From a request in texts to what the engine is asked, in ids: rendered, tokenised, and checked against what the model
//! can take. It knows nothing of the engine's thread.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::local::Shared;
use super::reply::Reply;
use super::sequence::{Given, Prepared, Task};
use super::{detokenize, history};
use crate::foundation::base::limits::{PROMPT_TOKENS_MAX, TEXT_AT_ONCE_BYTES_MAX};
use crate::foundation::chat::{Continuation, DeltaGains, LayerGains, ModelError, Prompt, Request, TokenId};

/// Does `work`, which goes through `bytes` of text, where it holds up nobody: a long text beside the caller's runtime,
/// whose few threads serve everybody.
pub(super) async fn aside<T: Send + 'static>(
    shared: &Arc<Shared>,
    bytes: usize,
    work: impl FnOnce(&Shared) -> Result<T, String> + Send + 'static,
) -> Result<T, ModelError> {
    let runtime = Handle::try_current().ok().filter(|_| bytes > TEXT_AT_ONCE_BYTES_MAX);
    let done = match runtime {
        // Without a runtime the caller's thread is its own.
        None => work(shared),
        Some(runtime) => {
            let own = Arc::clone(shared);
            match runtime.spawn_blocking(move || work(&own)).await {
                Ok(done) => done,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return Err(shared.failed("the program is ending".to_owned())),
            }
        }
    };
    done.map_err(|why| shared.unsupported(why))
}

/// How much of `prompt` is text, bytes.
pub(super) fn bytes(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Chat(messages) => messages.iter().map(|message| message.content.len()).sum(),
        Prompt::Text(text) => text.len(),
        Prompt::Ids(_) => 0,
    }
}

/// The same of what is to be scored; ids become texts there.
pub(super) fn bytes_to_score(continuation: &Continuation) -> usize {
    match continuation {
        Continuation::Text(text) => text.len(),
        Continuation::Ids(ids) => size_of_val(ids.as_slice()),
    }
}

/// The tokens that a prompt names: these alone may end inside a character.
fn told(prompt: &Prompt) -> &[TokenId] {
    if let Prompt::Ids(ids) = prompt { ids } else { &[] }
}

impl Shared {
    /// That a reply to `request` be written.
    pub(super) fn to_write(&self, request: Request) -> Result<Prepared, String> {
        let reply = self.reply(&request)?;
        self.prepare(request, Task::Write(Box::new(reply)))
    }

    /// That `continuation` be scored after the prompt.
    pub(super) fn to_score(&self, request: Request, continuation: Continuation) -> Result<Prepared, String> {
        let task = self.scoring(&request, continuation)?;
        self.prepare(request, task)
    }

    /// That each of `continuations` be scored after the prompt, all of which they share.
    pub(super) fn to_score_each(
        &self,
        request: Request,
        continuations: Vec<Continuation>,
    ) -> Result<(Given, VecDeque<Task>), String> {
        let tasks = continuations.into_iter().map(|continuation| self.scoring(&request, continuation));
        let mut tasks: VecDeque<Task> = tasks.collect::<Result<_, _>>()?;
        let given = Given { history: usize::MAX, ..self.given(request)? };
        tasks.iter_mut().try_for_each(|task| self.fit(given.ids.len(), task))?;
        Ok((given, tasks))
    }

    fn scoring(&self, request: &Request, continuation: Continuation) -> Result<Task, String> {
        let tokens = self.continuation(continuation, told(&request.prompt))?;
        Ok(Task::Score { tokens, top: request.sampling.top_logprobs, goes_on: request.goes_on })
    }

    fn reply(&self, request: &Request) -> Result<Reply, String> {
        let mut sampling = request.sampling.clone();
        if matches!(request.prompt, Prompt::Chat(_)) {
            sampling.stop.extend(self.stops.iter().cloned());
        }
        let before = told(&request.prompt);
        Reply::new(Arc::clone(&self.tokenizer), before, Arc::clone(&self.ends), sampling, request.stream)
    }

    fn continuation(&self, continuation: Continuation, before: &[TokenId]) -> Result<Vec<(TokenId, String)>, String> {
        let ids = match continuation {
            Continuation::Text(text) => self.tokenizer.encode(&text)?,
            Continuation::Ids(ids) => ids,
        };
        if ids.is_empty() {
            return Err("there is nothing to score: give a continuation of at least one token".to_owned());
        }
        self.check_ids(&ids)?;
        Ok(detokenize::pieces(&self.tokenizer, before, ids))
    }

    fn prepare(&self, request: Request, mut task: Task) -> Result<Prepared, String> {
        let given = self.given(request)?;
        self.fit(given.ids.len(), &mut task)?;
        Ok(Prepared { given, task })
    }

    fn given(&self, request: Request) -> Result<Given, String> {
        let (ids, history) = match request.prompt {
            Prompt::Chat(messages) => {
                let reading = history::read(&self.template, &self.tokenizer, &self.memory, &messages)?;
                (reading.ids, reading.history)
            }
            Prompt::Text(text) => (self.tokenizer.encode(&text)?, usize::MAX),
            Prompt::Ids(ids) => (ids, usize::MAX),
        };
        if ids.is_empty() {
            return Err("the prompt is empty: give it at least one token to continue from".to_owned());
        }
        self.check_ids(&ids)?;
        if let Some(gains) = &request.gains {
            self.check_gains(gains)?;
        }
        Ok(Given { ids, history, after: request.after, gains: request.gains, readings: request.readings })
    }

    pub(super) fn check_ids(&self, ids: &[TokenId]) -> Result<(), String> {
        let vocabulary = self.info.vocabulary.unwrap_or_default();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(format!(
                "token {id} is outside its vocabulary of {vocabulary}; were the ids made by another model?"
            ));
        }
        if ids.len() > PROMPT_TOKENS_MAX {
            return Err(format!("{} tokens are more than the {PROMPT_TOKENS_MAX} it takes in one request", ids.len()));
        }
        Ok(())
    }

    /// Sees to it that prompt and task lie within the window: a reply ends where the window does.
    fn fit(&self, prompt: usize, task: &mut Task) -> Result<(), String> {
        let Some(window) = self.window else { return Ok(()) };
        let least = match task {
            Task::Write(_) => 1,
            Task::Score { tokens, .. } => tokens.len(),
        };
        let room = window.saturating_sub(prompt);
        if room < least {
            return Err(format!(
                "a prompt of {prompt} tokens and {least} more are over its window of {window}: shorten the prompt"
            ));
        }
        if let Task::Write(reply) = task {
            reply.limit(room);
        }
        Ok(())
    }

    fn check_gains(&self, gains: &DeltaGains) -> Result<(), String> {
        if !self.info.delta {
            return Err("it has no Δ that gains could scale; use a Mamba, or leave the gains out".to_owned());
        }
        let layers = self.info.layers.unwrap_or_default();
        let all = match gains {
            DeltaGains::Uniform(gains) => std::slice::from_ref(gains),
            DeltaGains::PerLayer(each) if each.len() == layers => each,
            DeltaGains::PerLayer(each) => {
                return Err(format!(
                    "the gains on Δ name {} layers, it has {layers}: give one entry per layer",
                    each.len()
                ));
            }
        };
        let sane =
            |gains: &LayerGains| [gains.delta, gains.decay, gains.write].iter().all(|g| g.is_finite() && *g >= 0.0);
        if all.iter().all(sane) { Ok(()) } else { Err("a gain on Δ must be a finite number, 0 or more".to_owned()) }
    }
}
