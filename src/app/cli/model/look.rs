//! The output of `loom model list` and `loom model info`.

use std::io::Write;

use serde::Serialize;

use super::super::output::OutputFormat;
use super::super::{Exit, Failure, Terminal};
use crate::foundation::chat::ModelError;
use crate::inference::engine::{Dtype, size};
use crate::inference::providers::{FactsSource, ModelFacts, catalog};
use crate::inference::remote::hub::{self, HubOptions};

#[derive(Serialize)]
struct Row {
    spec: String,
    architecture: Option<String>,
    parameters: Option<u64>,
    /// At bf16.
    weight_bytes: Option<u64>,
    licence: Option<String>,
    /// The commit in the cache.
    cached: Option<String>,
}

pub(super) fn list(terminal: &mut Terminal, format: OutputFormat, options: &HubOptions) -> Result<Exit, Failure> {
    let mut cached = hub::list_cached(options);
    let broken = |error: crate::inference::engine::LoadError| Failure::usage(error.to_string());
    let mut rows = Vec::new();
    for known in catalog().map_err(broken)? {
        let shape = known.shape().map_err(broken)?;
        let here = cached.iter().position(|(repo, _)| known.spec == format!("hf:{repo}"));
        rows.push(Row {
            architecture: Some(shape.architecture.clone()),
            parameters: Some(shape.parameters),
            weight_bytes: Some(shape.weight_bytes(Dtype::Bf16)),
            licence: known.licence,
            cached: here.map(|place| cached.swap_remove(place).1),
            spec: known.spec,
        });
    }
    for (repo, commit) in cached {
        let spec = format!("hf:{repo}");
        let facts = spec.parse().ok().and_then(|spec| ModelFacts::of(&spec, options).ok());
        rows.push(Row {
            spec,
            architecture: facts.as_ref().map(|facts| facts.shape.architecture.clone()),
            parameters: facts.as_ref().map(|facts| facts.shape.parameters),
            weight_bytes: facts.as_ref().map(|facts| facts.shape.weight_bytes(Dtype::Bf16)),
            licence: facts.and_then(|facts| facts.licence),
            cached: Some(commit),
        });
    }
    if format == OutputFormat::Json {
        return json(terminal, &rows);
    }
    let unknown = || "unknown".to_owned();
    let widest = rows.iter().map(|row| row.spec.len()).max().unwrap_or(0);
    writeln!(
        terminal.out,
        "{:widest$}  {:<12}  {:>10}  {:>9}  in the cache",
        "model", "architecture", "parameters", "as bf16"
    )?;
    for row in rows {
        writeln!(
            terminal.out,
            "{:widest$}  {:<12}  {:>10}  {:>9}  {}",
            row.spec,
            row.architecture.unwrap_or_else(unknown),
            row.parameters.map_or_else(unknown, millions),
            row.weight_bytes.map_or_else(unknown, size),
            row.cached.map_or_else(|| "-".to_owned(), |commit| commit.chars().take(12).collect())
        )?;
    }
    Ok(Exit::Ok)
}

pub(super) fn info(terminal: &mut Terminal, format: OutputFormat, facts: &ModelFacts) -> Result<Exit, Failure> {
    if format == OutputFormat::Json {
        return json(terminal, facts);
    }
    let unknown = || "unknown".to_owned();
    let shape = &facts.shape;
    let origin = match (facts.origin, &facts.folder) {
        (FactsSource::Program, _) => "part of the program".to_owned(),
        (FactsSource::Catalog, _) => {
            format!("not downloaded (data from the catalog); `loom model fetch {}`", facts.spec)
        }
        (_, Some(folder)) => folder.display().to_string(),
        (_, None) => unknown(),
    };
    let window = match shape.window_tokens {
        Some(tokens) => format!("{tokens} tokens"),
        None if shape.is_recurrent() => "none (recurrent)".to_owned(),
        None => unknown(),
    };
    let mut lines = vec![
        ("model", facts.spec.clone()),
        ("files", origin),
        ("architecture", shape.architecture.clone()),
        ("parameters", format!("{} ({})", shape.parameters, millions(shape.parameters))),
        ("layers", shape.layers.to_string()),
        ("vocabulary", shape.vocabulary.to_string()),
        ("window", window),
        ("licence", facts.licence.clone().unwrap_or_else(unknown)),
        ("commit", facts.commit.clone().unwrap_or_else(unknown)),
    ];
    if !shape.provider.limits().is_empty() {
        lines.push(("provider", "candle-transformers, in place of Loom's own network:".to_owned()));
        lines.extend(shape.provider.limits().iter().map(|limit| ("", (*limit).to_owned())));
    }
    let sequence = match (shape.state_bytes, shape.cache_bytes_per_token) {
        (0, 0) => "no state".to_owned(),
        (state, 0) => format!("{} each, independent of length", size(state)),
        (_, cache) => {
            format!("{} per token; {} at {} tokens", size(cache), size(facts.sequence_bytes), facts.context_tokens)
        }
    };
    lines.push(("a sequence", sequence));
    lines.push(("memory free", facts.available_bytes.map_or_else(unknown, size)));
    for (name, value) in lines {
        writeln!(terminal.out, "{name:<14}{value}")?;
    }
    for memory in &facts.memory {
        let fits = match memory.fits {
            Some(true) => "fits here",
            Some(false) => "does not fit here",
            None => "unknown whether it fits",
        };
        writeln!(
            terminal.out,
            "{:<14}{:>10}, {fits}",
            format!("as {}", memory.dtype.name()),
            size(memory.weight_bytes)
        )?;
    }
    Ok(Exit::Ok)
}

fn json(terminal: &mut Terminal, value: &impl Serialize) -> Result<Exit, Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| ModelError::Failed { model: "loom".to_owned(), why: error.to_string() })?;
    writeln!(terminal.out, "{text}")?;
    Ok(Exit::Ok)
}

fn millions(count: u64) -> String {
    if count >= 1_000_000_000 { format!("{:.2} B", count as f64 / 1e9) } else { format!("{:.1} M", count as f64 / 1e6) }
}
