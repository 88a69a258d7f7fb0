//! Hosted models, against servers on loopback that fail in every way that real ones do.

mod faults;
mod keys;
mod real;
mod server;
mod thoughts;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{
    Completion, Flow, LanguageModel, Message, ModelError, Prompt, Request, Sampling, TokenLogprob, TokenSink,
};
use loom_agent::inference::providers::{OpenOptions, open};
use loom_agent::inference::remote::RemoteOptions;
use std::sync::Arc;
use std::time::Duration;

/// Options that lose no time between retries. A test that waits for silence says for how long.
fn impatient() -> RemoteOptions {
    RemoteOptions {
        first_wait: Duration::from_millis(1),
        first_byte: Duration::from_mins(1),
        idle: Duration::from_mins(1),
        ..RemoteOptions::default()
    }
}

fn options(remote: RemoteOptions) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.remote = remote;
    options
}

/// The models of a chain that the user named.
fn named(chain: &str, remote: RemoteOptions) -> Arc<dyn LanguageModel> {
    let chain = chain.parse().unwrap();
    open(&chain, &options(remote).naming(&chain)).unwrap()
}

/// The model `m` of the server at `url`.
fn compatible(url: &str, remote: RemoteOptions) -> Arc<dyn LanguageModel> {
    named(&format!("openai-compatible:{url}#m"), remote)
}

fn request(seed: u64) -> Request {
    let messages = vec![Message::system("You are Anna."), Message::user("Hello?")];
    Request::new(Prompt::Chat(messages), Sampling { max_tokens: 16, ..Sampling::default() }, RngStream::root(seed))
}

async fn say(model: &Arc<dyn LanguageModel>, seed: u64) -> Result<Completion, ModelError> {
    model.complete(request(seed), None).await
}

/// Hears `limit` tokens and then wants no more.
fn hears<'a>(limit: usize, heard: &'a mut Vec<String>) -> Box<dyn TokenSink + 'a> {
    Box::new(move |token: &TokenLogprob| -> Flow {
        heard.push(token.text.clone());
        if heard.len() >= limit { Flow::Stop } else { Flow::Continue }
    })
}
