//! Streams a reply of the bundled model with log-probability, entropy and rank of every token.
//!
//! ```sh
//! cargo run --release --example stream -- "I have two dogs and I love hiking." "Do you have any pets?"
//! ```

use std::io::Write;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{Flow, LanguageModel, Message, Prompt, Request, TokenLogprob};
use loom_agent::inference::engine::{EngineOptions, LocalModel};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let persona = words.next().unwrap_or_else(|| "I have two dogs. I love hiking.".to_owned());
    let question = words.next().unwrap_or_else(|| "Hi! Do you have any pets?".to_owned());

    let model = LocalModel::bundled(&EngineOptions::default())?;
    let sampling = model.info().sampling.clone().unwrap_or_default();
    let messages = vec![Message::system(persona), Message::user(question)];
    let request = Request::new(Prompt::Chat(messages), sampling, RngStream::root(7).child("reply", 0));

    println!("{:>9}  {:>7}  {:>5}  token", "ln p", "entropy", "rank");
    let print = |token: &TokenLogprob| {
        let (logprob, entropy) = (token.logprob.unwrap_or(f32::NAN), token.entropy.unwrap_or(f32::NAN));
        println!("{logprob:>9.4}  {entropy:>7.4}  {:>5}  {:?}", token.rank.unwrap_or_default(), token.text);
        // Return `Flow::Stop` to end the reply.
        if std::io::stdout().flush().is_ok() { Flow::Continue } else { Flow::Stop }
    };
    let reply = model.complete(request, Some(Box::new(print))).await?;
    println!("\n{}", reply.message.content);
    println!("{:?}, {:?}, {:?}", reply.finish, reply.prefix_reuse, reply.usage);
    Ok(())
}
