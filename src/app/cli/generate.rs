//! `loom generate`: generates a continuation of a prompt, with the log-probability of every token.

use std::io::Write;
use std::path::{Path, PathBuf};

use ratatui::style::{Color, Modifier, Style};
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;

use super::input::read_text;
use super::model_args::{DeltaArgs, ModelArgs, SamplingArgs};
use super::output::OutputFormat;
use super::view::{PROBABILITY_STYLES, probability_style};
use super::{Exit, Failure, Terminal};
use crate::app::serve::token_json;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{
    Completion, Flow, LanguageModel, Message, ModelError, Prompt, Request, ThoughtTokens, TokenLogprob,
};

/// Generate a continuation of a prompt
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom generate \"Once upon a time\"        plain text
  loom generate --chat talk.json          the next turn of a conversation
  echo \"The sea\" | loom generate --temperature 0 --max-tokens 20
  loom generate \"Hi\" --delta g_delta=0.8  a Mamba with weaker Δ

A conversation is a list of {\"role\": \"system\"|\"user\"|\"assistant\", \"content\": \"…\"}, or an object with \
it under `messages`. On a terminal, a token's colour shows its probability. The same seed gives the same text.")]
pub(super) struct Args {
    /// The prompt [default: standard input]
    #[arg(value_name = "PROMPT", conflicts_with = "chat")]
    prompt: Option<String>,
    /// A conversation as JSON; `-` for standard input
    #[arg(long, value_name = "FILE")]
    chat: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    delta: DeltaArgs,
    /// Seed of the random draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let prompt = self.prompt()?;
        let model = self.model.open("generate", terminal)?;
        let mut request = Request::new(
            prompt.clone(),
            self.sampling.over(model.info()),
            RngStream::root(self.seed).child("reply", 0),
        );
        request.gains = self.delta.on(model.info())?;
        let described = json!({ "sampling": request.sampling, "gains": request.gains });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shown = (self.format == OutputFormat::Text).then_some(&mut *terminal);
        let reply = runtime.block_on(complete_streaming(&*model, request, shown))?;
        match self.format {
            OutputFormat::Text => finish_text(terminal, &reply)?,
            OutputFormat::Json => {
                let json = self.json(&*model, &prompt, &reply, &described)?;
                writeln!(terminal.out, "{json:#}")?;
            }
        }
        Ok(Exit::Ok)
    }

    fn prompt(&self) -> Result<Prompt, Failure> {
        match (&self.chat, &self.prompt) {
            (Some(path), _) => conversation(path).map(Prompt::Chat),
            (None, Some(text)) => Ok(Prompt::Text(text.clone())),
            (None, None) => Ok(Prompt::Text(read_text(Path::new("-"))?)),
        }
    }

    fn json(
        &self,
        model: &dyn LanguageModel,
        prompt: &Prompt,
        reply: &Completion,
        described: &Value,
    ) -> Result<Value, Failure> {
        let vocabulary = model.vocabulary();
        let (text, ids) = match prompt {
            Prompt::Chat(messages) => (json!(messages), vocabulary.map(|known| known.chat(messages)).transpose()?),
            Prompt::Text(text) => (json!(text), vocabulary.map(|known| known.encode_text(text)).transpose()?),
            _ => (Value::Null, None),
        };
        let tokens: Vec<_> = reply.tokens.iter().map(|token| token_json(token, vocabulary)).collect();
        let fallbacks: Vec<_> =
            reply.fallbacks.iter().map(|(model, why)| json!({ "model": model, "why": why })).collect();
        Ok(json!({
            "model": reply.model,
            "digest": model.info().digest,
            "seed": self.seed,
            "sampling": described.get("sampling"),
            "gains": described.get("gains"),
            "prompt": { "text": text, "ids": ids },
            "thought": reply.thought.as_ref().map(|thought| {
                let tokens = thought.tokens.iter().map(|token| token_json(token, vocabulary));
                json!({ "text": text_of(thought), "end": thought.end, "tokens": tokens.collect::<Vec<_>>() })
            }),
            "text": reply.message.content,
            "finish": reply.finish,
            "tokens": tokens,
            "end": reply.end.as_ref().map(|token| token_json(token, vocabulary)),
            "usage": reply.usage,
            "fallbacks": fallbacks,
        }))
    }
}

/// Completes the request and prints tokens to `shown` as they arrive.
async fn complete_streaming(
    model: &dyn LanguageModel,
    request: Request,
    mut shown: Option<&mut Terminal>,
) -> Result<Completion, Failure> {
    let (sender, mut tokens) = unbounded_channel();
    let sink = move |token: &TokenLogprob| match sender.send((token.text.clone(), token.logprob)) {
        Ok(()) => Flow::Continue,
        Err(_) => Flow::Stop,
    };
    let reply = model.complete(request, Some(Box::new(sink)));
    tokio::pin!(reply);
    let mut show = |(text, logprob): (String, Option<f32>)| match &mut shown {
        Some(terminal) => show(terminal, &text, logprob),
        None => Ok(()),
    };
    let reply: Result<Completion, ModelError> = loop {
        tokio::select! {
            biased;
            Some(token) = tokens.recv() => show(token)?,
            reply = &mut reply => break reply,
        }
    };
    while let Ok(token) = tokens.try_recv() {
        show(token)?;
    }
    Ok(reply?)
}

fn show(terminal: &mut Terminal, text: &str, logprob: Option<f32>) -> Result<(), Failure> {
    if terminal.color {
        let text = super::terminal::printable(text);
        write!(terminal.out, "{}", painted(&text, logprob.map_or(Style::new(), probability_style)))?;
    } else {
        write!(terminal.out, "{text}")?;
    }
    terminal.out.flush()?;
    Ok(())
}

fn text_of(thought: &ThoughtTokens) -> String {
    thought.tokens.iter().map(|token| token.text.as_str()).collect()
}

/// Ends the text with a line break, the thought before it, fallbacks and a legend of the colours.
fn finish_text(terminal: &mut Terminal, reply: &Completion) -> Result<(), Failure> {
    if !reply.message.content.ends_with('\n') {
        writeln!(terminal.out)?;
    }
    if let Some(thought) = &reply.thought {
        let (tokens, text) = (thought.tokens.len(), super::terminal::printable(text_of(thought).trim()));
        writeln!(terminal.err, "Thought before it ({tokens} tokens): {text}")?;
    }
    for (model, why) in &reply.fallbacks {
        writeln!(terminal.err, "{model} did not answer: {why}")?;
    }
    if terminal.color && reply.tokens.iter().any(|token| token.logprob.is_some()) {
        let legend: Vec<_> = PROBABILITY_STYLES.iter().map(|(_, label, style)| painted(label, *style)).collect();
        writeln!(terminal.out, "\n{}", legend.join("  "))?;
    }
    Ok(())
}

/// `text` with the ANSI escape codes of `style`.
fn painted(text: &str, style: Style) -> String {
    let color = match style.fg {
        Some(Color::Yellow) => "33",
        Some(Color::LightRed) => "91",
        Some(Color::Red) => "31",
        _ => return text.to_owned(),
    };
    let bold = if style.add_modifier.contains(Modifier::BOLD) { "1;" } else { "" };
    format!("\x1b[{bold}{color}m{text}\x1b[0m")
}

/// The messages of a JSON file.
fn conversation(path: &Path) -> Result<Vec<Message>, Failure> {
    let read = |text: &str| match serde_json::from_str(text)? {
        Value::Object(mut under) => serde_json::from_value(under.remove("messages").unwrap_or_default()),
        messages => serde_json::from_value(messages),
    };
    read(&read_text(path)?).map_err(|error: serde_json::Error| {
        let (path, form) = (path.display(), r#"a list of {"role": "user", "content": "…"}"#);
        Failure::usage(format!("{path}: not a conversation ({error}); write {form}"))
    })
}
