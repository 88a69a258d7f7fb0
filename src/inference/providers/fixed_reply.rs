//! Shared by models with fixed replies: their tokens are words, without ids and log-probabilities.

use crate::foundation::chat::{
    Completion, Continuation, Finish, Flow, Message, ModelError, Prompt, Request, TokenLogprob, TokenSink, Usage,
};

/// Delivers `content` word by word; the sink may stop it early.
pub(super) fn deliver(
    model: &str,
    request: &Request,
    content: &str,
    finish: Finish,
    sink: Option<Box<dyn TokenSink + '_>>,
) -> Completion {
    let mut sink = sink;
    let mut completion = Completion::text(model, "");
    completion.finish = finish;
    for word in content.split_inclusive(char::is_whitespace) {
        let token = TokenLogprob::unknown(None, word);
        let flow = sink.as_mut().map_or(Flow::Continue, |sink| sink.token(&token));
        completion.message.content.push_str(word);
        completion.tokens.push(token);
        if flow == Flow::Stop {
            completion.finish = Finish::Cancelled;
            break;
        }
    }
    completion.usage =
        Usage { tokens_in: word_count(&request.prompt), tokens_out: completion.tokens.len() as u64, tokens_cached: 0 };
    completion
}

/// The number of words in the prompt.
fn word_count(prompt: &Prompt) -> u64 {
    let words = |text: &str| text.split_whitespace().count() as u64;
    match prompt {
        Prompt::Chat(messages) => messages.iter().map(|message| words(&message.content)).sum(),
        Prompt::Text(text) => words(text),
        Prompt::Ids(ids) => ids.len() as u64,
    }
}

/// The conversation of a prompt; plain text becomes one user message.
pub(super) fn conversation(model: &str, prompt: &Prompt) -> Result<Vec<Message>, ModelError> {
    match prompt {
        Prompt::Chat(messages) => Ok(messages.clone()),
        Prompt::Text(text) => Ok(vec![Message::user(text.clone())]),
        Prompt::Ids(_) => Err(ModelError::Unsupported {
            model: model.to_owned(),
            why: "it has no vocabulary and cannot read token ids; give it text".to_owned(),
        }),
    }
}

/// The error of scoring: such a model has no distribution.
pub(super) fn no_score(model: &str, _: &Continuation) -> ModelError {
    ModelError::Unsupported {
        model: model.to_owned(),
        why: "it gives no log-probabilities; score with `bundled` or `local:DIR`".to_owned(),
    }
}
