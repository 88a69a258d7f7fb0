//! `echo`: repeats the last message. For tests and demonstrations.

use std::sync::Arc;

use super::fixed_reply;
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, Finish, LanguageModel, ModelError, ModelInfo, Request, Scored, Thinking,
    TokenSink,
};

pub(super) struct Echo {
    info: ModelInfo,
}

impl Echo {
    pub(super) fn new() -> Self {
        Self { info: ModelInfo { name: "echo".to_owned(), ..ModelInfo::default() } }
    }
}

impl LanguageModel for Echo {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Its replies are fixed, so the settings change nothing but what it says of itself.
    fn with_thinking(&self, thinking: &Thinking) -> Result<Arc<dyn LanguageModel>, ModelError> {
        let info = ModelInfo { thinking_settings: thinking.clone(), ..self.info.clone() };
        Ok(Arc::new(Self { info }))
    }

    fn complete<'a>(
        &'a self,
        request: Request,
        sink: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let last = fixed_reply::conversation(&self.info.name, &request.prompt)?.pop();
            let content = last.map(|message| message.content).unwrap_or_default();
            Ok(fixed_reply::deliver(&self.info.name, &request, (None, &content), Finish::Stop, sink))
        })
    }

    fn score(&self, _: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        Box::pin(async move { Err(fixed_reply::no_score(&self.info.name, &continuation)) })
    }
}
