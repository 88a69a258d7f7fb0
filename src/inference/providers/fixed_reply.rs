//! Shared by models with fixed replies: their tokens are words, without ids and log-probabilities.

use crate::foundation::chat::{
    Completion, Continuation, Finish, Flow, Message, ModelError, Prompt, Request, Thought, ThoughtEnd, ThoughtTokens,
    TokenLogprob, TokenSink, Usage,
};

/// Delivers `thought` and `content` word by word; the sink may stop it early.
pub(super) fn deliver(
    model: &str,
    request: &Request,
    (thought, content): (Option<&str>, &str),
    finish: Finish,
    sink: Option<Box<dyn TokenSink + '_>>,
) -> Completion {
    let mut sink = sink;
    let mut completion = Completion::text(model, "");
    completion.finish = finish;
    if let Some(text) = thought {
        let words = text.split_inclusive(char::is_whitespace).map(|word| TokenLogprob::unknown(None, word));
        let tokens: Vec<_> = words.collect();
        let mut tell = |token: &TokenLogprob| sink.as_mut().map_or(Flow::Continue, |sink| sink.thought(token));
        let stopped = tokens.iter().position(|token| tell(token) == Flow::Stop);
        let heard = stopped.map_or(tokens.len(), |at| at + 1);
        let (heard, _) = tokens.split_at(heard);
        let text = heard.iter().map(|token| token.text.as_str()).collect();
        let end = if stopped.is_some() { ThoughtEnd::Unfinished } else { ThoughtEnd::Closed };
        completion.message.thought = Some(Thought { text, ids: None });
        completion.thought = Some(ThoughtTokens { tokens: heard.to_vec(), end });
    }
    let cut = completion.thought.as_ref().is_some_and(|thought| thought.end == ThoughtEnd::Unfinished);
    if cut {
        completion.finish = Finish::Cancelled;
    }
    let content = if cut { "" } else { content };
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
    let thought = completion.thought.as_ref().map_or(0, |thought| thought.tokens.len());
    let tokens_out = (thought + completion.tokens.len()) as u64;
    completion.usage = Usage { tokens_in: word_count(&request.prompt), tokens_out, tokens_cached: 0 };
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
