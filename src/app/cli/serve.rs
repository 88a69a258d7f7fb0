//! `loom serve`: serves a model over HTTP with OpenAI's API.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use secrecy::SecretString;
use tokio::net::TcpListener;

use super::input::read_file;
use super::model_args::ModelArgs;
use super::{Exit, Failure, Terminal};
use crate::app::serve::http::{self, HttpService, ServerLimits};
use crate::foundation::base::limits::{
    ACTIVE_SEQUENCES_MAX, API_KEY_BYTES_MAX, PREFIX_BYTES_MAX, REQUEST_BYTES_MAX, REQUESTS_WAITING_MAX, STATE_BYTES_MAX,
};
use crate::foundation::chat::ModelSpec;
use crate::governance::mood::Mood;
use crate::inference::engine::Budget;
use crate::simulation::authorizer::Authorizer;

/// The environment variable that holds the API key.
const KEY: &str = "LOOM_API_KEY";

/// Serve a model over HTTP with an OpenAI-compatible API
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom serve                                         the bundled model, for this machine only
  loom serve -m local:mamba-130m --port 8080
  LOOM_API_KEY=$(cat key) loom serve --host 0.0.0.0  for other machines

  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\
       -d '{\"model\": \"bundled\", \"prompt\": \"Once\", \"logprobs\": 3, \"echo\": true}'

Endpoints: /v1/models /v1/chat/completions /v1/completions /v1/embeddings /tokenize /detokenize \
/tokenizer_info /health /metrics

A request may set gains on a Mamba's Δ, and request entropy, rank and alternatives of each token:
  \"loom\": {\"delta\": {\"g_delta\": 0.8, \"layers\": [0, 1]}, \"readings\": true}
Ctrl-C or SIGTERM stops the server after the running requests, within 10 seconds; a second Ctrl-C stops it immediately. See \
docs/SERVE.md.")]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The model name in requests; by default the spec string
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The address to listen on; one reachable by other machines needs an API key
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// The port; 0 selects a free one
    #[arg(long, value_name = "N", default_value_t = 8000)]
    port: u16,
    /// A file with the API key; by default the environment variable `LOOM_API_KEY`, if set
    #[arg(long, value_name = "FILE")]
    api_key: Option<PathBuf>,
    /// Serve without an API key to anyone who can reach the address
    #[arg(long, conflicts_with = "api_key")]
    without_key: bool,
    /// Maximum size of a request
    #[arg(long, value_name = "N", default_value_t = REQUEST_BYTES_MAX)]
    body_bytes: usize,
    /// The sentence embedder for /v1/embeddings, for example `local:DIR` with all-MiniLM-L6-v2
    #[arg(long, value_name = "SPEC")]
    embedder: Option<ModelSpec>,
    /// Maximum number of concurrent requests
    #[arg(long, value_name = "N", default_value_t = ACTIVE_SEQUENCES_MAX)]
    at_work: usize,
    /// Maximum number of waiting requests; further ones are rejected
    #[arg(long, value_name = "N", default_value_t = REQUESTS_WAITING_MAX)]
    waiting: usize,
    /// Memory for the states and tokens of running requests
    #[arg(long, value_name = "MIB", default_value_t = STATE_BYTES_MAX >> 20)]
    state_mib: u64,
    /// Memory for the states of prompt prefixes shared by later prompts; 0 disables sharing
    #[arg(long, value_name = "MIB", default_value_t = PREFIX_BYTES_MAX >> 20)]
    prefix_mib: u64,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let key = self.key()?;
        if key.is_none() && !self.host.is_loopback() && !self.without_key {
            return Err(Failure::usage(format!(
                "{} is reachable by other machines: set an API key (--api-key FILE or {KEY}), or use --without-key to serve anyone",
                self.host
            )));
        }
        let mut options = self.model.options(terminal)?;
        options.budget = Budget {
            state_bytes: self.state_mib.saturating_mul(1 << 20),
            prefix_bytes: self.prefix_mib.saturating_mul(1 << 20),
        };
        let gate = Authorizer::for_models("serve", Mood::Calm, &[&self.model.model], None)?;
        let model = gate.open_model(&self.model.model, &options)?;
        let embedder = match &self.embedder {
            Some(spec) => Some((spec.to_string(), gate.open_embedder(spec, &options)?)),
            None => None,
        };
        let service = HttpService {
            name: self.name.clone().unwrap_or_else(|| model.info().name.clone()),
            model,
            embedder,
            key,
            limits: ServerLimits {
                body_bytes: self.body_bytes,
                active_max: self.at_work,
                waiting: self.waiting,
                ..ServerLimits::default()
            },
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let exit = runtime.block_on(async {
            let address = SocketAddr::new(self.host, self.port);
            let listener = TcpListener::bind(address).await.map_err(|error| {
                Failure::usage(format!("cannot listen on {address}: {error}; --port 0 selects a free port"))
            })?;
            let at = listener.local_addr()?;
            let guarded = if service.key.is_some() { ", API key required" } else { "" };
            writeln!(terminal.out, "`{}` at http://{at}/v1{guarded}", service.name)?;
            terminal.out.flush()?;
            http::serve(listener, service, stop_signal()?).await?;
            writeln!(terminal.err, "The server has stopped.")?;
            Ok(Exit::Ok)
        });
        // Work on blocking threads does not end with its client.
        runtime.shutdown_background();
        exit
    }

    fn key(&self) -> Result<Option<SecretString>, Failure> {
        if self.without_key {
            return Ok(None);
        }
        let (key, from) = match &self.api_key {
            Some(path) => {
                let key_error = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", path.display()));
                if std::fs::metadata(path).is_ok_and(|file| file.len() > API_KEY_BYTES_MAX) {
                    return Err(key_error(&format!(
                        "is longer than the maximum of {API_KEY_BYTES_MAX} bytes for a key"
                    )));
                }
                (read_file(path)?, path.display().to_string())
            }
            None => match std::env::var(KEY) {
                Ok(key) => (key, KEY.to_owned()),
                Err(std::env::VarError::NotPresent) => return Ok(None),
                Err(error) => return Err(Failure::usage(format!("{KEY}: {error}"))),
            },
        };
        let key = key.trim();
        if key.is_empty() {
            return Err(Failure::usage(format!("{from}: the API key is empty; --without-key serves without one")));
        }
        Ok(Some(SecretString::from(key)))
    }
}

/// Resolves at the first Ctrl-C or SIGTERM; the second ends the program.
pub(super) fn stop_signal() -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    #[cfg(unix)]
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut signal = async move || {
        #[cfg(unix)]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(async move {
        signal().await;
        eprintln!("Finishing the running requests; press Ctrl-C again to stop immediately.");
        tokio::spawn(async move {
            signal().await;
            std::process::exit(Exit::Interrupted as i32);
        });
    })
}
