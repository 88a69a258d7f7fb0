//! Models that know their reply beforehand. Their tokens are words, without ids and without log-probabilities.

use crate::foundation::chat::{
    Completion, Continuation, Finish, Flow, Message, ModelError, Prompt, Request, TokenLogprob, TokenSink, Usage,
};

/// Says `content` word by word; the listener may end it early.
pub(super) fn say(
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
            completion.finish = Finish::Asked;
            break;
        }
    }
    completion.usage =
        Usage { tokens_in: read(&request.prompt), tokens_out: completion.tokens.len() as u64, tokens_cached: 0 };
    completion
}

/// How many words the prompt has.
fn read(prompt: &Prompt) -> u64 {
    let words = |text: &str| text.split_whitespace().count() as u64;
    match prompt {
        Prompt::Chat(messages) => messages.iter().map(|message| words(&message.content)).sum(),
        Prompt::Text(text) => words(text),
        Prompt::Ids(ids) => ids.len() as u64,
    }
}

/// The conversation of a prompt; bare text counts as the other side's message.
pub(super) fn conversation(model: &str, prompt: &Prompt) -> Result<Vec<Message>, ModelError> {
    match prompt {
        Prompt::Chat(messages) => Ok(messages.clone()),
        Prompt::Text(text) => Ok(vec![Message::user(text.clone())]),
        Prompt::Ids(_) => Err(ModelError::Unsupported {
            model: model.to_owned(),
            why: "it has no vocabulary, so token ids mean nothing to it; give it text".to_owned(),
        }),
    }
}

/// There is no distribution behind such a model.
pub(super) fn no_score(model: &str, _: &Continuation) -> ModelError {
    ModelError::Unsupported {
        model: model.to_owned(),
        why: "it gives no log-probabilities; score with `bundled` or `local:DIR`".to_owned(),
    }
}
