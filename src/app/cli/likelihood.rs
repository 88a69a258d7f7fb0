//! A local model that tells how much more likely a reply is with its task than without.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Runtime;

use crate::foundation::base::RngStream;
use crate::foundation::chat::{Continuation, LanguageModel, Message, Prompt, Request, Sampling};
use crate::governance::regulator::AnswerLikelihood;

/// The prompt without a task.
const BARE: &str = "Please write something.";

/// A model with a runtime to call it on.
pub(super) struct ModelLikelihood {
    model: Arc<dyn LanguageModel>,
    runtime: Mutex<Runtime>,
}

impl ModelLikelihood {
    pub(super) fn new(model: Arc<dyn LanguageModel>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { model, runtime: Mutex::new(runtime) })
    }

    /// The mean log-probability of the reply's tokens after a user's message; `None` if the model does not tell.
    async fn mean_logprob(&self, message: &str, reply: &str) -> Option<f64> {
        let mut request =
            Request::new(Prompt::Chat(vec![Message::user(message)]), Sampling::greedy(), RngStream::root(0));
        request.keep_state = false;
        let scored = self.model.score(request, Continuation::Text(reply.to_owned())).await.ok()?;
        let logprobs: Option<Vec<f64>> = scored.tokens.iter().map(|token| token.logprob.map(f64::from)).collect();
        let logprobs = logprobs.filter(|logprobs| !logprobs.is_empty())?;
        Some(logprobs.iter().sum::<f64>() / logprobs.len() as f64)
    }
}

impl AnswerLikelihood for ModelLikelihood {
    fn gain(&self, task: &str, reply: &str) -> Option<f64> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(async {
            let with = self.mean_logprob(task, reply).await?;
            Some(with - self.mean_logprob(BARE, reply).await?)
        })
    }
}
