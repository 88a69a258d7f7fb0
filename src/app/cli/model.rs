//! `loom model`: lists, describes, downloads and checks models.

mod compare;
mod look;

use std::io::Write;

use clap::Subcommand;

use super::output::OutputFormat;
use super::{Exit, Failure, Terminal};
use crate::foundation::base::RngStream;
use crate::foundation::chat::{Continuation, LanguageModel, Message, ModelError, ModelSpec, Prompt, Request, Sampling};
use crate::foundation::gate::{Category, Effect};
use crate::governance::mood::Mood;
use crate::inference::engine::size;
use crate::inference::providers::{ModelFacts, OpenOptions, host};
use crate::inference::remote::hub::{self, HubOptions};
use crate::simulation::authorizer::{Authorizer, AuthorizerError};

/// List, describe, download and check models
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom model list
  loom model info hf:state-spaces/mamba-130m-hf   size, licence, memory
  loom model fetch hf:state-spaces/mamba-130m-hf
  loom model check hf:state-spaces/mamba-130m-hf  every file and weight, and a test prompt
  loom model check local:DIR --against candle     the same text with two implementations

HF_HOME is the folder of downloaded models, HF_TOKEN gives access to private and gated ones, HF_ENDPOINT names another hub. \
See docs/MODELS.md.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the catalog and the models in the hub's cache
    List {
        /// How to tell it
        #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
        format: OutputFormat,
    },
    /// Show a model's size and memory needs, without downloading it
    Info {
        /// The model
        #[arg(value_name = "MODEL")]
        spec: ModelSpec,
        /// How to tell it
        #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
        format: OutputFormat,
    },
    /// Download a model from the hub
    Fetch {
        /// The model
        #[arg(value_name = "MODEL")]
        spec: ModelSpec,
    },
    /// Check a model's files: hashes, dims, weights, tokenizer, template, and a test prompt
    Check {
        /// The model
        #[arg(value_name = "MODEL")]
        spec: ModelSpec,
        /// Also read a text with another implementation of the same network, and compare log-probabilities
        #[arg(long, value_name = "PROVIDER", value_enum)]
        against: Option<compare::Other>,
        /// The largest difference of a log-probability that passes, nats
        #[arg(long, value_name = "NATS", default_value_t = compare::BOUND, requires = "against")]
        bound: f32,
    },
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let options = HubOptions::default();
        match &self.command {
            Command::List { format } => look::list(terminal, *format, &options),
            Command::Info { spec, format } => look::info(terminal, *format, &ModelFacts::of(spec, &options)?),
            Command::Fetch { spec } => fetch(terminal, spec, &options),
            Command::Check { spec, against: None, .. } => check(terminal, spec),
            Command::Check { spec, against: Some(other), bound } => match check(terminal, spec)? {
                Exit::Ok => compare::run(terminal, spec, *other, *bound),
                exit => Ok(exit),
            },
        }
    }
}

fn fetch(terminal: &mut Terminal, spec: &ModelSpec, options: &HubOptions) -> Result<Exit, Failure> {
    let ModelSpec::Hub { repo, revision } = spec else {
        return Err(Failure::usage(format!("`{spec}` is not a hub model: use `hf:OWNER/REPO`")));
    };
    let from = host(spec).unwrap_or_default();
    let fetching = Effect::new(Category::Network, spec.to_string()).reaching(&from);
    Authorizer::for_network("model fetch", &from)?.allow(&fetching).map_err(AuthorizerError::from)?;
    let fetched = hub::fetch(repo, revision.as_deref(), options)
        .map_err(|error| ModelError::Unavailable { model: spec.to_string(), why: error.to_string() })?;
    for (name, file) in &fetched.files {
        writeln!(terminal.out, "{}  {:>10}  {name}", file.sha256, size(file.bytes))?;
    }
    writeln!(terminal.out, "commit {} in {}", fetched.commit, fetched.folder.display())?;
    Ok(Exit::Ok)
}

fn check(terminal: &mut Terminal, spec: &ModelSpec) -> Result<Exit, Failure> {
    let chain = spec.clone().into();
    let gate = Authorizer::for_models("model check", Mood::Skeptical, &[&chain], None)?;
    let model = match gate.open_model(&chain, &OpenOptions::default().naming(&chain)) {
        Ok(model) => model,
        Err(error) => return Err(Failure::Message { message: error.to_string(), exit: Exit::CheckFailed }),
    };
    let info = model.info();
    let Some(digest) = info.digest else {
        writeln!(terminal.out, "{spec}: a hosted model has no files to check; no request was sent")?;
        return Ok(Exit::Ok);
    };
    writeln!(terminal.out, "weights    all tensors have the expected dims, all weights are finite")?;
    let conversation = [Message::user("Hello."), Message::assistant("Hello!"), Message::user("How are you?")];
    let Some(tokens) = model.count(&conversation) else {
        let message = format!("{spec}: the tokenizer or the chat template fails on a simple conversation");
        return Err(Failure::Message { message, exit: Exit::CheckFailed });
    };
    writeln!(terminal.out, "template   a conversation of {} messages has {tokens} tokens", conversation.len())?;
    let Some(mean) = mean_logprob(&*model, &conversation)? else {
        let message = format!("{spec}: the chat template renders a simple conversation as an empty text");
        return Err(Failure::Message { message, exit: Exit::CheckFailed });
    };
    // The negative log-likelihood under a uniform distribution: a working model is far below.
    let chance = (info.vocabulary.unwrap_or(1) as f32).ln();
    writeln!(terminal.out, "output     {:.2} nats per token; a uniform distribution has {chance:.2}", -mean)?;
    writeln!(terminal.out, "digest     {digest}")?;
    Ok(Exit::Ok)
}

/// The mean log-probability of a conversation's tokens after the first; `None` if there are none.
fn mean_logprob(model: &dyn LanguageModel, conversation: &[Message]) -> Result<Option<f32>, Failure> {
    let ids = model.vocabulary().map(|vocabulary| vocabulary.chat(conversation)).transpose()?.unwrap_or_default();
    let Some((first, rest)) = ids.split_first().filter(|(_, rest)| !rest.is_empty()) else { return Ok(None) };
    let request = Request::new(Prompt::Ids(vec![*first]), Sampling::greedy(), RngStream::root(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let scored = runtime.block_on(model.score(request, Continuation::Ids(rest.to_vec())));
    let scored = scored.map_err(|error| Failure::Message { message: error.to_string(), exit: Exit::CheckFailed })?;
    let sum: f32 = scored.tokens.iter().filter_map(|token| token.logprob).sum();
    Ok(Some(sum / rest.len() as f32))
}
