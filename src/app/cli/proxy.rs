//! `loom proxy`: regulates what passes between clients and an OpenAI-compatible endpoint.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpListener;

use super::regulator_args::RegulatorArgs;
use super::serve::stop_signal;
use super::{Exit, Failure, Terminal};
use crate::app::proxy::{self, ProxySettings};
use crate::foundation::gate::{Category, Effect};
use crate::governance::regulator::ResourceLimits;
use crate::inference::remote::upstream::Upstream;
use crate::simulation::authorizer::{Authorizer, AuthorizerError};

/// Longest time to connect to the endpoint.
const CONNECT: Duration = Duration::from_secs(20);

/// Regulate what passes between clients and an OpenAI-compatible endpoint
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  loom proxy https://api.openai.com/v1 --cost-cap-tokens 200000
  loom proxy http://127.0.0.1:8000/v1 --port 8090 --key-cap-tokens 1000000

  client: OPENAI_BASE_URL=http://127.0.0.1:8080/v1, and the header `x-loom-session: NAME` to tell sessions apart
  people: http://127.0.0.1:8080/

Requests, responses and errors pass unchanged, with headers (x-loom-decision, x-loom-stop, …) and, at the end of a stream, an
event `loom` added. At a cap a stream is cut, and further requests are refused with status 403. See docs/PROXY.md.")]
pub(super) struct Args {
    /// The endpoint, as clients name it: with `/v1`; http for this machine only
    #[arg(value_name = "URL")]
    upstream: String,
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// The port; 0 selects a free one
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    #[command(flatten)]
    regulator: RegulatorArgs,
    /// Hard cap on the tokens of all sessions of one API key, input and output together
    #[arg(long, value_name = "N")]
    key_cap_tokens: Option<u64>,
    /// Hard cap on the money of all sessions of one API key, in millionths of the currency
    #[arg(long, value_name = "N")]
    key_cap_money_micros: Option<u64>,
    /// Only report: refuse and stop nothing
    #[arg(long)]
    observe: bool,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        let upstream = Upstream::new(&self.upstream, CONNECT).map_err(Failure::usage)?;
        let regulator = self.regulator.settings()?;
        let priced = !regulator.cost.prices.is_empty();
        if !priced && (self.key_cap_money_micros.is_some() || regulator.cost.hard.money_micros.is_some()) {
            return Err(Failure::usage("a cap on money needs prices: --prices FILE".to_owned()));
        }
        let key_caps = ResourceLimits {
            tokens: self.key_cap_tokens,
            money_micros: self.key_cap_money_micros,
            ..ResourceLimits::default()
        };
        let reaching = Effect::new(Category::Network, "proxy").reaching(upstream.host());
        Authorizer::for_network("proxy", &upstream.host())?.allow(&reaching).map_err(AuthorizerError::from)?;
        let settings = ProxySettings { regulator, key_caps, observe: self.observe };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let address = SocketAddr::new(self.host, self.port);
            let listener = TcpListener::bind(address).await.map_err(|error| {
                Failure::usage(format!("cannot listen on {address}: {error}; --port 0 selects a free port"))
            })?;
            let at = listener.local_addr()?;
            writeln!(terminal.out, "{} at http://{at}/v1, its sessions at http://{at}/", upstream.url())?;
            terminal.out.flush()?;
            proxy::serve(listener, upstream, settings, stop_signal()?).await?;
            writeln!(terminal.err, "All requests are answered.")?;
            Ok(Exit::Ok)
        })
    }
}
