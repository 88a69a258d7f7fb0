//! `loom logprobs`: the log-probability of a text, token by token.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use super::input::read_text;
use super::model_args::{DeltaArgs, ModelArgs};
use super::output::OutputFormat;
use super::{Exit, Failure, Terminal};
use crate::app::serve::{text_of_first, token_json};
use crate::foundation::base::RngStream;
use crate::foundation::base::limits::PROMPT_TOKENS_MAX;
use crate::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, Prompt, Request, Sampling, Snapshot, TokenId, TokenLogprob,
};

/// Print the log-probability of a text, token by token
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom logprobs book.txt
  echo \"Dogs bark.\" | loom logprobs --bos
  loom logprobs answer.txt --context \"Question: why? Answer:\"
  loom generate \"Hi\" --format json | loom logprobs --ids  score what was generated

The first token is scored if something is before it: --context, or the beginning-of-text token, \
which --bos adds where the model's tokenizer does not. Logarithms are natural; bits per byte count \
the bytes of the scored tokens. --format json prints one object, with `totals` last.")]
pub(super) struct Args {
    /// The text; `-` for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    delta: DeltaArgs,
    /// Context before the text, which is not scored
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,
    /// Begin with the model's beginning-of-text token even if its tokenizer does not add it
    #[arg(long)]
    bos: bool,
    /// The file contains token ids: a JSON array, or the output of `loom generate --format json`
    #[arg(long, conflicts_with_all = ["context", "bos"])]
    ids: bool,
    /// Number of alternatives to report per token
    #[arg(long, value_name = "N", default_value_t = 0)]
    top_logprobs: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Tokens that are scored and printed at a time.
const CHUNK: usize = 2_048;

/// The context and the text to score.
struct ScoreInput {
    context: Vec<TokenId>,
    ids: Vec<TokenId>,
}

#[derive(Default)]
struct Totals {
    scored: usize,
    greedy: usize,
    bytes: usize,
    logprob: f64,
    entropy: f64,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let model = self.model.open("logprobs", terminal)?;
        let text = self.text(&*model)?;
        let gains = self.delta.on(model.info())?;
        if let Some(window) = model.info().window_tokens.filter(|window| text.context.len() + text.ids.len() > *window)
        {
            writeln!(terminal.err, "The text is longer than the model's window of {window} tokens.")?;
        }
        let json = self.format == OutputFormat::Json;
        if json {
            let (model, digest) = (json!(model.info().name), json!(model.info().digest));
            write!(
                terminal.out,
                "{{\"model\": {model}, \"digest\": {digest}, \"gains\": {}, \"tokens\": [",
                json!(gains)
            )?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut totals = Totals::default();
        let mut first = true;
        runtime.block_on(self.score(&*model, &text, gains.as_ref(), &mut |token| {
            totals.add(token);
            if json {
                write!(terminal.out, "{}\n{}", if first { "" } else { "," }, token_json(token, model.vocabulary()))?;
                first = false;
            }
            Ok(())
        }))?;
        let tokens = text.ids.len();
        if json {
            writeln!(terminal.out, "\n], \"totals\": {}}}", totals.json(tokens))?;
        } else {
            totals.print(tokens, terminal)?;
        }
        Ok(Exit::Ok)
    }

    fn text(&self, model: &dyn LanguageModel) -> Result<ScoreInput, Failure> {
        let Some(vocabulary) = model.vocabulary() else {
            let name = &model.info().name;
            return Err(Failure::usage(format!(
                "model `{name}` does not expose its tokenizer; use `bundled` or `local:DIR`"
            )));
        };
        let given = read_text(&self.file)?;
        let text = if self.ids {
            ids(&given, &self.file)?
        } else {
            let mut context = vocabulary.encode_text(self.context.as_deref().unwrap_or_default())?;
            if self.bos {
                let bos = vocabulary.special().bos.ok_or_else(|| {
                    Failure::usage("the model has no beginning-of-text token; give --context instead")
                })?;
                let bos = vocabulary.encode(&bos)?;
                if !context.starts_with(&bos) {
                    context.splice(0..0, bos);
                }
            }
            let ids = vocabulary.encode(&given)?;
            // A text that writes the beginning-of-text token itself does not get a second one.
            if self.context.is_none() && ids.starts_with(&context) {
                context.clear();
            }
            ScoreInput { context, ids }
        };
        if text.ids.is_empty() {
            return Err(Failure::usage(format!("{}: there is nothing to score", self.file.display())));
        }
        let tokens = text.context.len() + text.ids.len();
        if tokens > PROMPT_TOKENS_MAX {
            // Checked before anything is scored and printed.
            let why = format!("has {tokens} tokens, and a model takes at most {PROMPT_TOKENS_MAX}: cut it into parts");
            return Err(Failure::usage(format!("{} {why}", self.file.display())));
        }
        // A recurrent model (with Δ) degrades beyond its window; other models cannot read beyond it.
        if let Some(window) = model.info().window_tokens.filter(|window| !model.info().delta && tokens > *window) {
            let why = format!("has {tokens} tokens, and the model reads at most {window}: cut it into parts");
            return Err(Failure::usage(format!("{} {why}", self.file.display())));
        }
        Ok(text)
    }

    /// Scores the text in one pass and passes each token to `emit`.
    async fn score(
        &self,
        model: &dyn LanguageModel,
        text: &ScoreInput,
        gains: Option<&DeltaGains>,
        emit: &mut dyn FnMut(&TokenLogprob) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut read = text.context.clone();
        let mut rest = text.ids.as_slice();
        if read.is_empty() {
            let Some(first) = rest.split_off_first() else { return Ok(()) };
            let text = model.vocabulary().map(|vocabulary| text_of_first(*first, vocabulary));
            emit(&TokenLogprob::unknown(Some(*first), text.unwrap_or_default()))?;
            read.push(*first);
        }
        let mut after: Option<Snapshot> = None;
        for chunk in rest.chunks(CHUNK) {
            let sampling = Sampling { top_logprobs: self.top_logprobs, ..Sampling::greedy() };
            let mut request = Request::new(Prompt::Ids(read.clone()), sampling, RngStream::root(0));
            request.gains = gains.cloned();
            request.after = after;
            let scored = model.score(request, Continuation::Ids(chunk.to_vec())).await?;
            for token in &scored.tokens {
                emit(token)?;
            }
            read.extend(chunk);
            after = scored.snapshot;
        }
        Ok(())
    }
}

/// The ids in a JSON file.
fn ids(content: &str, file: &Path) -> Result<ScoreInput, Failure> {
    #[derive(Deserialize)]
    struct Id {
        id: TokenId,
    }
    #[derive(Deserialize)]
    struct Before {
        ids: Vec<TokenId>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ids {
        Bare(Vec<TokenId>),
        Generated { prompt: Before, tokens: Vec<Id>, end: Option<Id> },
    }
    match serde_json::from_str(content) {
        Ok(Ids::Bare(ids)) => Ok(ScoreInput { context: Vec::new(), ids }),
        Ok(Ids::Generated { prompt, tokens, end }) => {
            Ok(ScoreInput { context: prompt.ids, ids: tokens.into_iter().chain(end).map(|token| token.id).collect() })
        }
        Err(_) => Err(Failure::usage(format!(
            "{}: not token ids; expected a JSON array, or the output of `loom generate --format json`",
            file.display()
        ))),
    }
}

impl Totals {
    fn add(&mut self, token: &TokenLogprob) {
        let Some(logprob) = token.logprob else { return };
        self.scored += 1;
        self.greedy += usize::from(token.rank == Some(0));
        self.bytes += token.text.len();
        self.logprob += f64::from(logprob);
        self.entropy += token.entropy.map_or(0.0, f64::from);
    }

    /// A total divided by `by`; `None` if nothing was scored.
    fn per(total: f64, by: usize) -> Option<f64> {
        (by > 0).then(|| total / by as f64)
    }

    fn perplexity(&self) -> Option<f64> {
        Self::per(-self.logprob, self.scored).map(f64::exp)
    }

    fn bits_per_byte(&self) -> Option<f64> {
        Self::per(-self.logprob / std::f64::consts::LN_2, self.bytes)
    }

    fn json(&self, tokens: usize) -> serde_json::Value {
        json!({
            "tokens": tokens,
            "scored": self.scored,
            "greedy": self.greedy,
            "bytes": self.bytes,
            "logprob": self.logprob,
            "logprob_mean": Self::per(self.logprob, self.scored),
            "entropy_mean": Self::per(self.entropy, self.scored),
            "perplexity": self.perplexity(),
            "bits_per_byte": self.bits_per_byte(),
        })
    }

    fn print(&self, tokens: usize, terminal: &mut Terminal) -> Result<(), Failure> {
        let shown =
            |value: Option<f64>, unit: &str| value.map_or("unknown".to_owned(), |value| format!("{value:.4}{unit}"));
        let lines = [
            ("tokens", format!("{tokens}, {} scored, {} of them the most likely", self.scored, self.greedy)),
            ("log-likelihood", format!("{:.4} nats", self.logprob)),
            ("per token", shown(Self::per(self.logprob, self.scored), " nats")),
            ("entropy", shown(Self::per(self.entropy, self.scored), " nats")),
            ("perplexity", shown(self.perplexity(), "")),
            ("bits per byte", shown(self.bits_per_byte(), "")),
        ];
        for (name, value) in lines {
            writeln!(terminal.out, "{name:<16}{value}")?;
        }
        Ok(())
    }
}
