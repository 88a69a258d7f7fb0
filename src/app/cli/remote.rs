//! Arguments of the commands that use hosted models or the hub.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::terminal::{printable, quoted};
use crate::foundation::chat::ModelChain;
use crate::inference::providers::{self, AllowedHosts, OpenOptions};

/// Set on each argument: a heading on the struct would also apply to the command's own arguments.
const HEADING: &str = "Hosted models and the hub";

/// Caching and limits of hosted models, and use of the hub.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RemoteArgs {
    /// Cache hosted models' replies in this folder [default: `LOOM_CACHE`]
    #[arg(long, help_heading = HEADING, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Maximum requests per minute to one hosted model
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_minute: Option<u32>,
    /// Maximum tokens per minute, prompt and reply, to one hosted model
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tokens_per_minute: Option<u32>,
    /// Do not download from the hub; use only its cache
    #[arg(long, help_heading = HEADING)]
    offline: bool,
    /// Permit requests, with the key, to a server that only a file names: HOST, HOST:PORT or a URL; may be repeated
    /// [default: `LOOM_ALLOW_HOSTS`]
    #[arg(long, help_heading = HEADING, value_name = "HOST", value_parser = server)]
    allow_host: Vec<String>,
}

impl RemoteArgs {
    /// Applies the arguments to `options`.
    pub(super) fn apply(&self, options: &mut OpenOptions) {
        let variable = || std::env::var_os("LOOM_CACHE").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        options.remote.cache = self.cache.clone().or_else(variable);
        options.remote.requests_per_minute = self.requests_per_minute;
        options.remote.tokens_per_minute = self.tokens_per_minute;
        options.hub.offline |= self.offline;
        for server in &self.allow_host {
            // Checked by the parser of the argument.
            let _checked = options.hosts.allow(server);
        }
        if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
            let answers = Mutex::new(BTreeMap::new());
            options.hosts.ask_with(Arc::new(move |model: &str, server: &str| {
                let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                *answers.entry(server.to_owned()).or_insert_with(|| ask(model, server))
            }));
        }
    }

    /// `--allow-host` for the commands that continue this one's work: the servers that it was given, and those of the
    /// models that the user named, which a file names from then on.
    pub(super) fn allow_host_flags<'a>(&self, named: impl Iterator<Item = &'a ModelChain>) -> String {
        let servers: BTreeSet<String> = named.flat_map(ModelChain::specs).filter_map(providers::server).collect();
        let all = servers.iter().chain(&self.allow_host);
        all.flat_map(|server| [" --allow-host ".to_owned(), quoted(Path::new(server))]).collect()
    }
}

fn server(text: &str) -> Result<String, String> {
    AllowedHosts::default().allow(text).map(|()| text.to_owned())
}

/// Asks on the terminal whether requests may be sent to a server that a file names. No answer means no.
fn ask(model: &str, server: &str) -> bool {
    let mut err = std::io::stderr();
    let (model, server) = (printable(model), printable(server));
    let asked = writeln!(err, "A file names the model {model}.")
        .and_then(|()| write!(err, "Send this conversation and the key to {server}? [y/N] "))
        .and_then(|()| err.flush());
    let mut answer = String::new();
    asked.is_ok()
        && std::io::stdin().read_line(&mut answer).is_ok()
        && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
