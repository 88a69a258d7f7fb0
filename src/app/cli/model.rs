//! `loom model`: what models there are, what they need, and whether their files are sound.

mod look;

use std::io::Write;

use clap::{Subcommand, ValueEnum};

use super::{Exit, Failure, Terminal};
use crate::app::watch::Watch;
use crate::foundation::base::Stream;
use crate::foundation::chat::{Continuation, LanguageModel, Message, ModelError, ModelSpec, Prompt, Request, Sampling};
use crate::foundation::gate::{Category, Effect};
use crate::governance::mood::Mood;
use crate::inference::engine::size;
use crate::inference::providers::{Facts, OpenOptions, host};
use crate::inference::remote::hub::{self, HubOptions};

/// List, describe, fetch and check models
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom model list
  loom model info hf:state-spaces/mamba-130m-hf   size, licence, memory it takes
  loom model fetch hf:state-spaces/mamba-130m-hf
  loom model check hf:state-spaces/mamba-130m-hf  every file and every weight, and a first reading

HF_HOME is where fetched models are kept, HF_TOKEN opens private and gated ones, HF_ENDPOINT names another hub. \
docs/MODELS.md tells more.")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the catalog and what is in the hub's cache
    List {
        /// How to tell it
        #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Tell what a model is and what it needs, without fetching it
    Info {
        /// The model
        #[arg(value_name = "MODEL")]
        spec: ModelSpec,
        /// How to tell it
        #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Fetch a model from the hub, as it is there now
    Fetch {
        /// The model
        #[arg(value_name = "MODEL")]
        spec: ModelSpec,
    },
    /// Check a model's files: hashes, dims, every weight, tokenizer and template, and a first reading
    Check {
        /// The model
        #[arg(value_name = "MODEL")]
        spec: ModelSpec,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let options = HubOptions::default();
        match &self.command {
            Command::List { format } => look::list(terminal, *format, &options),
            Command::Info { spec, format } => look::info(terminal, *format, &Facts::of(spec, &options)?),
            Command::Fetch { spec } => fetch(terminal, spec, &options),
            Command::Check { spec } => check(terminal, spec),
        }
    }
}

fn fetch(terminal: &mut Terminal, spec: &ModelSpec, options: &HubOptions) -> Result<Exit, Failure> {
    let ModelSpec::Hub { repo, revision } = spec else {
        return Err(Failure::usage(format!("`{spec}` is not on the hub: name `hf:OWNER/REPO`")));
    };
    let from = host(spec).unwrap_or_default();
    let fetching = Effect::new(Category::Network, spec.to_string()).reaching(&from);
    Watch::network("model fetch", &from)?.allow(&fetching)?;
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
    let watch = Watch::models("model check", Mood::Skeptical, &[&chain], None)?;
    let model = match watch.model(&chain, &OpenOptions::default()) {
        Ok(model) => model,
        Err(error) => return Err(Failure::Told { message: error.to_string(), exit: Exit::CheckFailed }),
    };
    let info = model.info();
    let Some(digest) = info.digest else {
        writeln!(terminal.out, "{spec}: it can be asked, and it was not: a hosted model has no files to check")?;
        return Ok(Exit::Ok);
    };
    writeln!(terminal.out, "weights    every tensor has its dims, every weight is finite")?;
    let conversation = [Message::user("Hello."), Message::assistant("Hello!"), Message::user("How are you?")];
    let Some(tokens) = model.count(&conversation) else {
        let message = format!("{spec}: its tokenizer or its chat template fails on a plain conversation");
        return Err(Failure::Told { message, exit: Exit::CheckFailed });
    };
    writeln!(terminal.out, "template   a conversation of {} messages is {tokens} tokens", conversation.len())?;
    let Some(mean) = mean_logprob(&*model, &conversation)? else {
        let message = format!("{spec}: its chat template makes nothing of a plain conversation");
        return Err(Failure::Told { message, exit: Exit::CheckFailed });
    };
    // What the same tokens would cost if all were equally likely: a sound model is well below.
    let chance = (info.vocabulary.unwrap_or(1) as f32).ln();
    writeln!(terminal.out, "output     it costs {:.2} nats a token; {chance:.2} by chance", -mean)?;
    writeln!(terminal.out, "digest     {digest}")?;
    Ok(Exit::Ok)
}

/// The mean log-probability of a conversation's tokens after the first; `None` where there are none.
fn mean_logprob(model: &dyn LanguageModel, conversation: &[Message]) -> Result<Option<f32>, Failure> {
    let ids = model.vocabulary().map(|vocabulary| vocabulary.chat(conversation)).transpose()?.unwrap_or_default();
    let Some((first, rest)) = ids.split_first().filter(|(_, rest)| !rest.is_empty()) else { return Ok(None) };
    let request = Request::new(Prompt::Ids(vec![*first]), Sampling::greedy(), Stream::root(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let scored = runtime.block_on(model.score(request, Continuation::Ids(rest.to_vec())));
    let scored = scored.map_err(|error| Failure::Told { message: error.to_string(), exit: Exit::CheckFailed })?;
    let sum: f32 = scored.tokens.iter().filter_map(|token| token.logprob).sum();
    Ok(Some(sum / rest.len() as f32))
}
