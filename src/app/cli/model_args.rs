//! Arguments shared by the commands that use one model: the model, sampling, gains on Δ.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::device::DeviceArg;
use super::input::read_file;
use super::{Failure, Terminal, remote};
use crate::app::serve::Gains;
use crate::foundation::chat::{DeltaGains, LanguageModel, ModelChain, ModelInfo, Sampling, Thinking};
use crate::governance::mood::Mood;
use crate::inference::engine::Dtype;
use crate::inference::providers::OpenOptions;
use crate::simulation::authorizer::Authorizer;

/// The model and how it is opened.
#[derive(Debug, clap::Args)]
pub(super) struct ModelArgs {
    /// The model
    #[arg(long, short, value_name = "MODEL", default_value = "bundled")]
    pub(super) model: ModelChain,
    /// Number type of a local model's weights: f32, bf16, `q8_0` or `q4_k` [default: as in its files]
    #[arg(long, value_name = "DTYPE")]
    dtype: Option<Dtype>,
    /// Compute threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    threads: Option<usize>,
    /// Chat template (Jinja) that replaces the model's own
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    #[command(flatten)]
    thinking: ThinkingArgs,
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    remote: remote::RemoteArgs,
}

impl ModelArgs {
    pub(super) fn options(&self, terminal: &mut Terminal) -> Result<OpenOptions, Failure> {
        let template = self.chat_template.as_deref().map(read_file);
        let mut options = OpenOptions::new(self.threads, template.transpose()?);
        options.dtype = self.dtype;
        options.device = self.device.decide(terminal)?;
        options.thinking = self.thinking.settings();
        self.remote.apply(&mut options);
        Ok(options.naming(&self.model))
    }

    /// Opens the model for `command`, in the mood CALM.
    pub(super) fn open(
        &self,
        command: &'static str,
        terminal: &mut Terminal,
    ) -> Result<Arc<dyn LanguageModel>, Failure> {
        let options = self.options(terminal)?;
        Ok(Authorizer::for_models(command, Mood::Calm, &[&self.model], None)?.open_model(&self.model, &options)?)
    }
}

/// How a model thinks before it answers; the default is what its chat template says.
#[derive(Debug, clap::Args)]
pub(super) struct ThinkingArgs {
    /// Switch a reasoning model's thinking on or off, by its chat template's own switch
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    thinking: Option<bool>,
    /// Most tokens of a thought; then it is closed, and the answer follows
    #[arg(long, value_name = "N")]
    thought_tokens: Option<usize>,
    /// Argument of the chat template, such as `reasoning_effort=low`; VALUE is JSON or text; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = template_argument)]
    template_argument: Vec<(String, Value)>,
}

impl ThinkingArgs {
    fn settings(&self) -> Thinking {
        Thinking {
            enabled: self.thinking,
            tokens_max: self.thought_tokens,
            markers: None,
            template_arguments: self.template_argument.iter().cloned().collect(),
        }
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write `on` or `off`".to_owned()),
    }
}

fn template_argument(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.trim().to_owned(), serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
}

/// Sampling parameters; defaults are from the model's files.
#[derive(Debug, clap::Args)]
pub(super) struct SamplingArgs {
    /// Sampling temperature; 0 is greedy
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Sample from the most likely tokens with this total probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Sample from this many most likely tokens
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Drop tokens less likely than this fraction of the most likely one
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Penalty on recently seen tokens; 1 is off
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Maximum length of the reply, tokens
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Text that ends the reply; may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Number of alternatives to report per token
    #[arg(long, value_name = "N", default_value_t = 0)]
    top_logprobs: usize,
}

impl SamplingArgs {
    pub(super) fn over(&self, model: &ModelInfo) -> Sampling {
        let own = model.sampling.clone().unwrap_or_default();
        Sampling {
            temperature: self.temperature.unwrap_or(own.temperature),
            top_p: self.top_p.unwrap_or(own.top_p),
            top_k: self.top_k.or(own.top_k),
            min_p: self.min_p.unwrap_or(own.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(own.repetition_penalty),
            max_tokens: self.max_tokens.unwrap_or(own.max_tokens),
            stop: self.stop.clone(),
            top_logprobs: self.top_logprobs,
            ..own
        }
    }
}

/// Gains on Δ.
#[derive(Debug, clap::Args)]
pub(super) struct DeltaArgs {
    /// Gains on a Mamba's Δ, for prompt and reply: `g_delta` for both of its effects, `g_decay` for the decay,
    /// `g_write` for the input; omitted gains are 1
    #[arg(long, value_name = "g_delta=X,…", value_parser = parse_gains)]
    delta: Option<Gains>,
    /// Layers to which --delta applies, from 0 [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "delta")]
    delta_layers: Option<Vec<usize>>,
}

impl DeltaArgs {
    pub(super) fn on(&self, model: &ModelInfo) -> Result<Option<DeltaGains>, Failure> {
        let Some(gains) = &self.delta else { return Ok(None) };
        let gains = Gains { layers: self.delta_layers.clone(), ..gains.clone() };
        gains.on(model).map(Some).map_err(Failure::usage)
    }
}

fn parse_gains(text: &str) -> Result<Gains, String> {
    let mut gains = Gains { g_delta: 1.0, g_decay: 1.0, g_write: 1.0, layers: None };
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or("write it like `g_delta=0.8,g_write=1.2`")?;
        let gain = match name.trim() {
            "g_delta" => &mut gains.g_delta,
            "g_decay" => &mut gains.g_decay,
            "g_write" => &mut gains.g_write,
            name => return Err(format!("there is no gain `{name}`: use `g_delta`, `g_decay` and `g_write`")),
        };
        *gain = value.trim().parse().map_err(|_| format!("`{value}` is not a number"))?;
    }
    Ok(gains)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_parsed_from_one_argument() {
        let gains = parse_gains("g_delta=0.5, g_write=2").unwrap();
        assert_eq!(gains, Gains { g_delta: 0.5, g_decay: 1.0, g_write: 2.0, layers: None });
        assert!(parse_gains("delta=1").unwrap_err().contains("no gain `delta`"));
        assert!(parse_gains("g_delta").unwrap_err().contains("g_delta=0.8"));
        assert!(parse_gains("g_delta=x").unwrap_err().contains("`x` is not a number"));
    }
}
