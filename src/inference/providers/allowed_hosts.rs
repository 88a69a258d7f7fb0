//! The servers to which requests for `openai-compatible` models may be sent. A key is set for the servers that the user
//! named; a spec that is read from a file (a config, a run, a sweep, a session) may name another one.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::foundation::chat::{ModelChain, ModelSpec};
use crate::inference::remote::{is_loopback, server_url};

/// The environment variable with a comma-separated list of further servers.
const VARIABLE: &str = "LOOM_ALLOW_HOSTS";

/// Asks the user whether requests for the model (first) may be sent to the server (second).
pub type AskForHost = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// The servers that the user named; see [`OpenOptions::hosts`](super::OpenOptions::hosts). `openai/NAME`,
/// `anthropic/NAME` and the hub have addresses that only the environment can change, and need no entry.
#[derive(Clone, Default)]
pub struct AllowedHosts {
    /// Scheme, host and port of each.
    origins: BTreeSet<String>,
    ask: Option<AskForHost>,
}

impl AllowedHosts {
    /// Adds a server: `HOST` or `HOST:PORT` for https (on this machine also http), or a URL with its scheme.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn allow(&mut self, server: &str) -> Result<(), String> {
        self.origins.extend(origins(server)?);
        Ok(())
    }

    /// Adds the servers of a chain that the user named.
    pub fn allow_chain(&mut self, chain: &ModelChain) {
        self.origins.extend(chain.specs().filter_map(server));
    }

    /// Asks the user about servers that are not listed, instead of refusing them.
    pub fn ask_with(&mut self, ask: AskForHost) {
        self.ask = Some(ask);
    }

    /// Checks that requests for `spec` may be sent.
    ///
    /// # Errors
    /// Why not, and the option that permits it.
    pub(super) fn check(&self, spec: &ModelSpec) -> Result<(), String> {
        let Some(origin) = server(spec) else { return Ok(()) };
        if self.origins.contains(&origin) || listed(&std::env::var(VARIABLE).unwrap_or_default(), &origin)? {
            return Ok(());
        }
        if self.ask.as_ref().is_some_and(|ask| ask(&spec.to_string(), &origin)) {
            return Ok(());
        }
        Err(format!(
            "a file names its server {origin}, and you did not; nothing was sent. If you trust the server with this \
             conversation and your key, give --allow-host {origin} or add it to {VARIABLE}"
        ))
    }
}

/// Whether `origin` is in a comma-separated list of servers.
fn listed(list: &str, origin: &str) -> Result<bool, String> {
    let mut found = false;
    for server in list.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        found |= origins(server).map_err(|why| format!("{VARIABLE}: {why}"))?.iter().any(|one| one == origin);
    }
    Ok(found)
}

/// The scheme, host and port of the server that a spec names. An invalid URL has none: such a model cannot be opened.
pub fn server(spec: &ModelSpec) -> Option<String> {
    match spec {
        ModelSpec::OpenAiCompatible { url, .. } => Some(server_url(url).ok()?.origin().ascii_serialization()),
        _ => None,
    }
}

fn origins(server: &str) -> Result<Vec<String>, String> {
    let invalid = |why: String| format!("`{}` is not a server: {why}", server.escape_debug());
    if server.contains("://") {
        return Ok(vec![server_url(server).map_err(invalid)?.origin().ascii_serialization()]);
    }
    if server.is_empty() || server.contains(['/', '?', '#', '\\', '@']) {
        return Err(invalid("write HOST, HOST:PORT or https://HOST".to_owned()));
    }
    let mut origins = Vec::new();
    for scheme in ["https", "http"] {
        let url = server_url(&format!("{scheme}://{server}")).map_err(invalid)?;
        if scheme == "https" || is_loopback(&url) {
            origins.push(url.origin().ascii_serialization());
        }
    }
    Ok(origins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(url: &str) -> ModelSpec {
        format!("openai-compatible:{url}#m").parse().unwrap()
    }

    fn allowed(server: &str, url: &str) -> bool {
        let mut hosts = AllowedHosts::default();
        hosts.allow(server).unwrap();
        hosts.check(&spec(url)).is_ok()
    }

    #[test]
    fn scheme_host_and_port_must_be_the_named_ones() {
        assert!(allowed("api.example", "https://api.example/v1"));
        assert!(allowed("API.example:443", "https://api.example/v2"));
        assert!(allowed("127.0.0.1:8000", "http://127.0.0.1:8000/v1"));
        assert!(allowed("[::1]:8000", "http://[::1]:8000/v1"));
        assert!(allowed("http://gpu.lan:8000/v1", "http://gpu.lan:8000/other"));
        for (server, url) in [
            ("api.example", "http://api.example/v1"),
            ("api.example", "https://api.example:444/v1"),
            ("api.example", "https://api.example.evil.example/v1"),
            ("api.example", "https://evil.example\\@api.example/v1"),
            ("127.0.0.1:8000", "http://127.0.0.1:8001/v1"),
            ("localhost:8000", "http://127.0.0.1:8000/v1"),
        ] {
            // A URL with a backslash is refused when the spec is read.
            let Ok(spec) = format!("openai-compatible:{url}#m").parse::<ModelSpec>() else { continue };
            let mut hosts = AllowedHosts::default();
            hosts.allow(server).unwrap();
            let why = hosts.check(&spec).unwrap_err();
            assert!(why.contains("--allow-host http"), "{url}: {why}");
        }
    }

    #[test]
    fn only_openai_compatible_servers_need_an_entry_and_the_user_may_be_asked() {
        let none = AllowedHosts::default();
        for text in ["bundled", "openai/x", "anthropic/x", "hf:a/b", "local:x"] {
            assert!(none.check(&text.parse().unwrap()).is_ok(), "{text}");
        }
        let mut asking = AllowedHosts::default();
        asking.ask_with(Arc::new(|spec, origin| spec.ends_with("#m") && origin == "https://yes.example"));
        assert!(asking.check(&spec("https://yes.example/v1")).is_ok());
        assert!(asking.check(&spec("https://no.example/v1")).is_err());
        let mut named = AllowedHosts::default();
        named.allow_chain(&"echo,openai-compatible:https://a.example/v1#m".parse().unwrap());
        assert!(named.check(&spec("https://a.example/x")).is_ok());
    }

    #[test]
    fn a_list_of_servers_is_read_and_its_errors_name_the_variable() {
        assert!(listed("a.example, b.example:8443", "https://b.example:8443").unwrap());
        assert!(!listed("", "https://b.example").unwrap());
        assert!(listed("https://x y", "https://b.example").unwrap_err().contains(VARIABLE));
        for wrong in ["", "a/b", "me@a", "ftp://a", "https://me:pw@a"] {
            assert!(origins(wrong).is_err(), "{wrong}");
        }
    }
}
