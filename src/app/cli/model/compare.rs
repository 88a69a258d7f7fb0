//! `loom model check --against`: the same text, followed by tokens from the whole vocabulary, with two implementations of
//! one network.

use std::io::Write;

use super::super::{Exit, Failure, Terminal};
use crate::foundation::base::RngStream;
use crate::foundation::chat::{Continuation, ModelError, ModelSpec, Prompt, Request, Sampling, Scored, TokenId};
use crate::governance::mood::Mood;
use crate::inference::engine::Dtype;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;

/// The largest difference that passes if none is given, nats.
pub(super) const BOUND: f32 = 1e-3;
/// Most likely tokens that are compared after each token of the text.
const TOP: usize = 50;
/// Tokens of the text that are read at most, and tokens from the whole vocabulary that follow it.
const TEXT_TOKENS_MAX: usize = 128;
const SPREAD: usize = 32;

/// Prose, speech, digits, punctuation and letters beyond ASCII.
const TEXT: &str = "The keeper of the lighthouse wrote every evening at nine. \u{201c}Forty years,\u{201d} she said, \
    \u{201c}and not one ship lost; 12 came close in 1987.\u{201d} Nobody asked her why she stayed. A café in the harbour \
    sold bread, oil and yesterday's news: prices rose, the ferry was late, and it would rain again on Thursday.";

/// Another implementation.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum Other {
    /// candle-transformers
    Candle,
}

/// Reads the text with both and compares.
pub(super) fn run(terminal: &mut Terminal, spec: &ModelSpec, other: Other, bound: f32) -> Result<Exit, Failure> {
    let other = match (other, spec) {
        (Other::Candle, ModelSpec::Bundled | ModelSpec::Local(_) | ModelSpec::Hub { .. }) => {
            ModelSpec::Candle(Box::new(spec.clone()))
        }
        (Other::Candle, _) => {
            let why = "compare a model with Loom's own network: `bundled`, `local:DIR` or `hf:OWNER/REPO`";
            return Err(Failure::usage(format!("`{spec}` cannot be compared with candle: {why}")));
        }
    };
    let [own, theirs] = [spec, &other].map(read);
    let (own, theirs) = (own?, theirs?);
    let mut worst = (0.0f32, 0);
    let mut compared = 0;
    for (at, (own, theirs)) in own.tokens.iter().zip(&theirs.tokens).enumerate() {
        let known = |id: TokenId| theirs.top.iter().find(|(other, _)| *other == id).map(|(_, logprob)| *logprob);
        let alternatives = own.top.iter().filter_map(|&(id, logprob)| Some((logprob, known(id)?)));
        for (ours, other) in alternatives.chain(own.logprob.zip(theirs.logprob)) {
            compared += 1;
            let difference = (ours - other).abs();
            if difference > worst.0 {
                worst = (difference, at + 1);
            }
        }
    }
    let (difference, at) = worst;
    writeln!(
        terminal.out,
        "{:<11}{compared} log-probabilities after {} tokens as f32; largest difference {difference:.1e} nats{}",
        "candle",
        own.tokens.len().min(theirs.tokens.len()),
        if at > 0 { format!(", at token {at}") } else { String::new() }
    )?;
    if difference <= bound {
        return Ok(Exit::Ok);
    }
    let message = format!("{spec}: differs from {other} by {difference:.1e} nats; the bound is {bound:.1e}");
    Err(Failure::Message { message, exit: Exit::CheckFailed })
}

/// The text's log-probabilities.
fn read(spec: &ModelSpec) -> Result<Scored, Failure> {
    let failed = |error: ModelError| Failure::Message { message: error.to_string(), exit: Exit::CheckFailed };
    let chain = spec.clone().into();
    let gate = Authorizer::for_models("model check", Mood::Skeptical, &[&chain], None)?;
    let options = OpenOptions::default().with_dtype(Some(Dtype::F32)).naming(&chain);
    let model = gate.open_model(&chain, &options).map_err(|error| {
        let message = error.to_string();
        Failure::Message { message, exit: Exit::CheckFailed }
    })?;
    let mut ids = match model.vocabulary() {
        Some(vocabulary) => vocabulary.encode_text(TEXT).map_err(failed)?,
        None => Vec::new(),
    };
    ids.truncate(TEXT_TOKENS_MAX);
    let vocabulary = model.info().vocabulary.unwrap_or(0);
    ids.extend((0..SPREAD).map(|at| (at * vocabulary / SPREAD) as TokenId));
    ids.truncate(model.info().window_tokens.unwrap_or(usize::MAX));
    let (first, rest) = ids.split_at_checked(1).filter(|(_, rest)| !rest.is_empty()).ok_or_else(|| {
        Failure::Message { message: format!("{spec}: the text has fewer than 2 tokens"), exit: Exit::CheckFailed }
    })?;
    let sampling = Sampling { top_logprobs: TOP.min(vocabulary), ..Sampling::greedy() };
    let request = Request::new(Prompt::Ids(first.to_vec()), sampling, RngStream::root(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(model.score(request, Continuation::Ids(rest.to_vec()))).map_err(failed)
}
