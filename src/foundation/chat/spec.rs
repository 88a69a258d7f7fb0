//! Model spec strings: the names of models on the command line, in configs and in transcripts.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The parsed name of one model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[non_exhaustive]
pub enum ModelSpec {
    /// `bundled`: the small model that is built into the program.
    Bundled,
    /// `echo`: returns the last message.
    Echo,
    /// `scripted:FILE`: returns the replies in a file, in order.
    Scripted(PathBuf),
    /// `local:DIR_OR_GGUF`: weights on this machine.
    Local(PathBuf),
    /// `hf:OWNER/REPO[@REV]`: weights from the Hugging Face hub.
    Hub {
        /// `OWNER/REPO`.
        repo: String,
        /// A branch, tag or commit; the default branch if absent.
        revision: Option<String>,
    },
    /// `candle:MODEL`: a model on this machine (`bundled`, `local:` or `hf:`) whose network is that of
    /// candle-transformers.
    Candle(Box<ModelSpec>),
    /// `openai/NAME`.
    OpenAi(String),
    /// `anthropic/NAME`.
    Anthropic(String),
    /// `openai-compatible:URL#NAME`.
    OpenAiCompatible {
        /// The server's base URL, `…/v1` included.
        url: String,
        /// The model's name on that server.
        name: String,
    },
}

/// The error for an invalid model spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a model spec: {why}; use `bundled`, `echo`, `scripted:FILE`, `local:DIR_OR_GGUF`, \
     `hf:OWNER/REPO[@REV]`, `candle:MODEL`, `openai/NAME`, `anthropic/NAME` or `openai-compatible:URL#NAME`"
)]
pub struct ModelSpecError {
    text: String,
    why: &'static str,
}

impl FromStr for ModelSpec {
    type Err = ModelSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |why| ModelSpecError { text: text.to_owned(), why };
        let some = |rest: &str, why| if rest.is_empty() { Err(invalid(why)) } else { Ok(rest.to_owned()) };
        if let Some(file) = text.strip_prefix("scripted:") {
            return some(file, "the file is missing").map(|file| Self::Scripted(file.into()));
        }
        if let Some(path) = text.strip_prefix("local:") {
            return some(path, "the path is missing").map(|path| Self::Local(path.into()));
        }
        if let Some(rest) = text.strip_prefix("openai-compatible:") {
            // Specs are written to transcripts and messages; a password in a spec would leak there.
            let authority = rest.split_once("://").map_or(rest, |(_, rest)| rest);
            if authority.split(['/', '#', '?']).next().is_some_and(|host| host.contains('@')) {
                let text = "openai-compatible:…".to_owned();
                let why = "a URL must not contain a user or password; the key is read from OPENAI_COMPATIBLE_API_KEY";
                return Err(ModelSpecError { text, why });
            }
            return match rest.split_once('#') {
                Some((url, name)) if !url.is_empty() && !name.is_empty() => {
                    Ok(Self::OpenAiCompatible { url: url.to_owned(), name: name.to_owned() })
                }
                _ => Err(invalid("it needs a URL and a name, separated by `#`")),
            };
        }
        if let Some(rest) = text.strip_prefix("hf:") {
            let (repo, revision) = match rest.split_once('@') {
                Some((repo, revision)) => (repo, Some(some(revision, "the revision after `@` is missing")?)),
                None => (rest, None),
            };
            return match repo.split_once('/') {
                Some((owner, name)) if !owner.is_empty() && !name.is_empty() && !name.contains('/') => {
                    Ok(Self::Hub { repo: repo.to_owned(), revision })
                }
                _ => Err(invalid("`hf:` needs OWNER/REPO")),
            };
        }
        if let Some(inner) = text.strip_prefix("candle:") {
            return match inner.parse() {
                Ok(inner @ (Self::Bundled | Self::Local(_) | Self::Hub { .. })) => Ok(Self::Candle(Box::new(inner))),
                _ => Err(invalid("`candle:` needs `bundled`, `local:DIR` or `hf:OWNER/REPO`")),
            };
        }
        if let Some(name) = text.strip_prefix("openai/") {
            return some(name, "the name is missing").map(Self::OpenAi);
        }
        if let Some(name) = text.strip_prefix("anthropic/") {
            return some(name, "the name is missing").map(Self::Anthropic);
        }
        match text {
            "bundled" => Ok(Self::Bundled),
            "echo" => Ok(Self::Echo),
            "" => Err(invalid("it is empty")),
            _ => Err(invalid("its prefix is unknown")),
        }
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled => f.write_str("bundled"),
            Self::Echo => f.write_str("echo"),
            Self::Scripted(file) => write!(f, "scripted:{}", file.display()),
            Self::Local(path) => write!(f, "local:{}", path.display()),
            Self::Hub { repo, revision: None } => write!(f, "hf:{repo}"),
            Self::Hub { repo, revision: Some(revision) } => write!(f, "hf:{repo}@{revision}"),
            Self::Candle(inner) => write!(f, "candle:{inner}"),
            Self::OpenAi(name) => write!(f, "openai/{name}"),
            Self::Anthropic(name) => write!(f, "anthropic/{name}"),
            Self::OpenAiCompatible { url, name } => write!(f, "openai-compatible:{url}#{name}"),
        }
    }
}

impl From<ModelSpec> for String {
    fn from(spec: ModelSpec) -> Self {
        spec.to_string()
    }
}

impl TryFrom<String> for ModelSpec {
    type Error = ModelSpecError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// A fallback chain: models are tried in order until one succeeds, and every fallback is recorded. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ModelChain {
    first: ModelSpec,
    rest: Vec<ModelSpec>,
}

impl ModelChain {
    /// The models in order of preference.
    pub fn specs(&self) -> impl Iterator<Item = &ModelSpec> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl From<ModelSpec> for ModelChain {
    fn from(first: ModelSpec) -> Self {
        Self { first, rest: Vec::new() }
    }
}

impl FromStr for ModelChain {
    type Err = ModelSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut specs = text.split(',').map(|part| part.trim().parse());
        let first = specs.next().unwrap_or_else(|| "".parse())?;
        Ok(Self { first, rest: specs.collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for ModelChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.rest.iter().try_for_each(|spec| write!(f, ",{spec}"))
    }
}

impl From<ModelChain> for String {
    fn from(chain: ModelChain) -> Self {
        chain.to_string()
    }
}

impl TryFrom<String> for ModelChain {
    type Error = ModelSpecError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_round_trips() {
        for text in [
            "bundled",
            "echo",
            "scripted:replies.txt",
            "local:/models/mamba-130m-hf",
            "local:qwen.gguf",
            "hf:state-spaces/mamba-130m-hf",
            "hf:state-spaces/mamba-130m-hf@main",
            "openai/gpt-4.1",
            "anthropic/claude-opus-4",
            "openai-compatible:http://127.0.0.1:8000/v1#qwen",
        ] {
            assert_eq!(text.parse::<ModelSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_chain_keeps_its_order() {
        let chain: ModelChain = "local:m, openai/x,echo".parse().unwrap();
        assert_eq!(chain.to_string(), "local:m,openai/x,echo");
        assert_eq!(chain.specs().count(), 3);
    }

    #[test]
    fn invalid_specs_explain_why() {
        for (text, why) in [
            ("", "it is empty"),
            ("gpt-4", "its prefix is unknown"),
            ("hf:mamba", "`hf:` needs OWNER/REPO"),
            ("hf:a/b@", "the revision after `@` is missing"),
            ("openai/", "the name is missing"),
            ("openai-compatible:http://x", "it needs a URL and a name"),
            (
                "openai-compatible:https://me:hunter2@x/v1#m",
                "`openai-compatible:…` is not a model spec: a URL must not contain",
            ),
            ("echo,", "it is empty"),
        ] {
            let error = text.parse::<ModelChain>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
