//! Two copies of the bundled model talk to each other, each with its own persona. Every reply continues from the snapshot
//! of the previous one, so that no text is read twice.
//!
//! ```sh
//! cargo run --release --example persona -- 8
//! ```

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{LanguageModel, Message, ModelError, Prompt, Request, Snapshot, TokenLogprob};
use loom_agent::inference::engine::{EngineOptions, LocalModel};

/// One participant: its conversation and the state of its model.
struct Side {
    name: &'static str,
    messages: Vec<Message>,
    read: Option<Snapshot>,
}

impl Side {
    fn new(name: &'static str, persona: &str) -> Self {
        Self { name, messages: vec![Message::system(persona)], read: None }
    }

    async fn speak(&mut self, model: &LocalModel, stream: RngStream) -> Result<String, ModelError> {
        let sampling = model.info().sampling.clone().unwrap_or_default();
        let mut request = Request::new(Prompt::Chat(self.messages.clone()), sampling, stream);
        request.after = self.read.take();
        let reply = model.complete(request, None).await?;
        let mean = |of: fn(&TokenLogprob) -> Option<f32>| {
            reply.tokens.iter().filter_map(of).sum::<f32>() / reply.tokens.len().max(1) as f32
        };
        let (logprob, entropy) = (mean(|token| token.logprob), mean(|token| token.entropy));
        println!("{:>6}  {}", self.name, reply.message.content);
        println!(
            "        mean ln p {logprob:.2}, mean entropy {entropy:.2}, {:?}, {:?}, {} of {} tokens read before",
            reply.finish, reply.prefix_reuse, reply.usage.tokens_cached, reply.usage.tokens_in
        );
        let text = reply.message.content.clone();
        self.messages.push(reply.message);
        self.read = reply.snapshot;
        Ok(text)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let turns: u64 = std::env::args().nth(1).map_or(Ok(6), |turns| turns.parse())?;
    let model = LocalModel::bundled(&EngineOptions::default())?;
    let mut anna = Side::new("Anna", "I have two dogs. I love hiking. I work as a nurse.");
    let mut ben = Side::new("Ben", "I play the guitar in a band. I am vegetarian.");
    anna.messages.push(Message::user("Hi! How are you today?"));
    println!("{:>6}  Hi! How are you today?", ben.name);
    ben.messages.push(Message::assistant("Hi! How are you today?"));
    for turn in 0..turns {
        let stream = RngStream::root(42).child("turn", turn);
        let said = anna.speak(&model, stream.child("anna", 0)).await?;
        ben.messages.push(Message::user(said));
        let said = ben.speak(&model, stream.child("ben", 0)).await?;
        anna.messages.push(Message::user(said));
    }
    Ok(())
}
