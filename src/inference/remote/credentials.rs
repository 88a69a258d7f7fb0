//! API keys and addresses, from the environment only. A key stays inside [`SecretString`] until it becomes a sensitive
//! header: no log, message, transcript or cache file contains it.

use std::net::IpAddr;

use reqwest::Url;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

/// A provider's address and API key.
pub(super) struct Credentials {
    /// The base URL, without a trailing slash.
    pub(super) url: String,
    /// The environment variable that holds the key.
    pub(super) variable: &'static str,
    key: Option<SecretString>,
}

impl Credentials {
    /// Reads the key from `variable`, and the address from `url_variable` if it is set.
    ///
    /// # Errors
    /// What is missing or invalid; the text holds no secret.
    pub(super) fn read(
        variable: &'static str,
        url_variable: Option<&'static str>,
        url: &str,
        needs_key: bool,
    ) -> Result<Self, String> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let url = url_variable.and_then(set).unwrap_or_else(|| url.to_owned());
        Self::new(variable, &url, set(variable), needs_key)
    }

    pub(super) fn new(variable: &'static str, url: &str, key: Option<String>, needs_key: bool) -> Result<Self, String> {
        if needs_key && key.is_none() {
            return Err(format!("its key is missing: set the environment variable {variable}"));
        }
        let parsed = server_url(url).map_err(|why| format!("its base URL {why}"))?;
        if key.is_some() && parsed.scheme() == "http" && !is_loopback(&parsed) {
            return Err(format!(
                "its base URL begins with http://, over which a key is sent only to this machine: use https://, or unset \
                 {variable}"
            ));
        }
        let key = key.map(|key| SecretString::from(key.trim().to_owned()));
        let credentials = Self { url: url.trim_end_matches('/').to_owned(), variable, key };
        credentials.header("")?;
        Ok(credentials)
    }

    /// The key after `prefix`, as a header value.
    pub(super) fn header(&self, prefix: &str) -> Result<Option<HeaderValue>, String> {
        let Some(key) = &self.key else { return Ok(None) };
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", key.expose_secret()))
            .map_err(|_| format!("{} holds characters that a key cannot have", self.variable))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// `text` without the key, in case a provider sends it back.
    pub(super) fn redact(&self, text: &str) -> String {
        match &self.key {
            Some(key) => text.replace(key.expose_secret(), "…"),
            None => text.to_owned(),
        }
    }
}

/// The URL of a server, with its scheme and host checked.
///
/// # Errors
/// What is wrong with it, as the end of a sentence.
pub(in crate::inference) fn server_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL ({error})"))?;
    if !matches!(url.scheme(), "http" | "https") || url.password().is_some() || !url.username().is_empty() {
        return Err("must begin with http:// or https:// and hold no user or password".to_owned());
    }
    Ok(url)
}

/// Whether the server is this machine.
pub(in crate::inference) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, key: Option<&str>, why: &str) {
        let error = Credentials::new("A_KEY", url, key.map(str::to_owned), true).err().unwrap();
        assert!(error.contains(why) && key.is_none_or(|key| !error.contains(key)), "{url}: {error}");
    }

    #[test]
    fn errors_name_what_is_missing_and_do_not_show_the_key() {
        check("https://x/v1", None, "set the environment variable A_KEY");
        check("https://x/v1", Some("sk\n-1"), "A_KEY holds characters that a key cannot have");
        check("ftp://x", Some("sk-1"), "must begin with http");
        check("https://me:sk-1@x", Some("sk-1"), "hold no user or password");
        check("nowhere", Some("sk-1"), "is not a URL");
        for far in ["http://x/v1", "http://10.0.0.7:8000", "http://localhost.evil.example", "http://[2001:db8::1]/v1"] {
            check(far, Some("sk-1"), "a key is sent only to this machine: use https://, or unset A_KEY");
        }
    }

    #[test]
    fn http_is_used_on_this_machine_and_elsewhere_only_without_a_key() {
        let opens =
            |url: &str, key: Option<&str>| Credentials::new("A_KEY", url, key.map(str::to_owned), false).is_ok();
        for near in ["http://127.0.0.1:8000/v1", "http://localhost:1", "http://[::1]:8000"] {
            assert!(opens(near, Some("sk-1")), "{near}");
        }
        assert!(opens("http://10.0.0.7:8000/v1", None));
    }

    #[test]
    fn the_key_appears_only_in_the_header() {
        let credentials = Credentials::new("A_KEY", "https://x/v1/", Some(" sk-1 ".to_owned()), true).unwrap();
        assert_eq!(credentials.url, "https://x/v1");
        let header = credentials.header("Bearer ").unwrap().unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer sk-1");
        assert_eq!(format!("{header:?}"), "Sensitive");
        assert_eq!(credentials.redact("wrong key sk-1!"), "wrong key …!");
    }
}
