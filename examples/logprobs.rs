//! Log-probabilities of a local model: how likely each token of a text is, with and without a context.
//!
//! ```sh
//! cargo run --release --example logprobs -- "I have two dogs." "We often go hiking with them."
//! cargo run --release --example logprobs -- "I have two dogs." "We often go hiking with them." local:path/to/model
//! ```

use loom_agent::{
    Continuation, LanguageModel, ModelChain, ModelError, OpenOptions, Prompt, Request, RngStream, Sampling, Scored,
    open,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let context = arguments.next().unwrap_or_else(|| "I have two dogs.".to_owned());
    let text = arguments.next().unwrap_or_else(|| " We often go hiking with them.".to_owned());
    let model: ModelChain = arguments.next().as_deref().unwrap_or("bundled").parse()?;
    let model = open(&model, &OpenOptions::default())?;

    let with = score(&*model, &context, &text).await?;
    let without = score(&*model, "\n", &text).await?;
    println!("{:>9}  {:>9}  {:>7}  {:>5}  token", "with", "without", "entropy", "rank");
    for (with, without) in with.tokens.iter().zip(&without.tokens) {
        // A model that does not give a number gives `None`, never a placeholder.
        let number = |value: Option<f32>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
        let rank = with.rank.map_or("-".to_owned(), |rank| rank.to_string());
        let (a, b, entropy) = (number(with.logprob), number(without.logprob), number(with.entropy));
        println!("{a:>9}  {b:>9}  {entropy:>7}  {rank:>5}  {:?}", with.text);
    }
    if let (Some(with), Some(without)) = (with.logprob(), without.logprob()) {
        println!("\nThe context changes the log-likelihood by {:+.2} nats: {without:.2} -> {with:.2}.", with - without);
    }
    Ok(())
}

/// The log-probabilities of `text` after `context`: log-softmax in f32 of the unmodified logits.
async fn score(model: &dyn LanguageModel, context: &str, text: &str) -> Result<Scored, ModelError> {
    let prompt = Prompt::Text(context.to_owned());
    let request = Request::new(prompt, Sampling::greedy(), RngStream::root(0));
    model.score(request, Continuation::Text(text.to_owned())).await
}
