//! Gains on Δ: the same reply of a Mamba under gains on its discretisation step, on the same random draws, with the
//! statistics of its recurrent state.
//!
//! ```sh
//! cargo run --release --example delta_gains -- 0.8 1.0 1.25
//! ```

use loom_agent::{
    DeltaGains, EngineOptions, LanguageModel, LayerGains, LocalModel, Message, Prompt, Request, RngStream,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut gains = std::env::args().skip(1).map(|gain| gain.parse()).collect::<Result<Vec<f32>, _>>()?;
    if gains.is_empty() {
        gains = vec![0.8, 1.0, 1.25];
    }
    let model = LocalModel::bundled(&EngineOptions::default())?;
    let messages = vec![Message::system("I have two dogs. I love hiking."), Message::user("Hi! What do you do?")];
    let sampling = model.info().sampling.clone().unwrap_or_default();

    for gain in gains {
        // `decay` and `write` can be set separately, and per layer: `DeltaGains::PerLayer`.
        let layer = LayerGains { delta: gain, ..LayerGains::ONE };
        let mut request =
            Request::new(Prompt::Chat(messages.clone()), sampling.clone(), RngStream::root(7).child("reply", 0));
        request.gains = Some(DeltaGains::Uniform(layer));
        request.record_ssm = true;
        let reply = model.complete(request, None).await?;
        println!("g_delta = {gain}: {}", reply.message.content);
        let Some(ssm) = reply.ssm else { continue };
        println!("  layer  mean Δ  half-life (tokens)  state norm");
        for (index, layer) in ssm.layers.iter().enumerate() {
            let median = layer.half_life.median.map_or("infinite".to_owned(), |tokens| format!("{tokens:.1}"));
            println!("  {index:>5}  {:>6.4}  {median:>18}  {:>10.2}", layer.delta_decay, layer.state_norm);
        }
    }
    Ok(())
}
