//! An endpoint to which requests are passed on as they are: no retry, no redirect, no key of its own.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, StatusCode, Url};

/// An OpenAI-compatible endpoint.
#[derive(Debug, Clone)]
pub struct Upstream {
    client: Client,
    url: Url,
}

/// A response whose body has not been read.
pub struct UpstreamResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; an item is an error if it broke off.
    pub body: BoxStream<'static, Result<Vec<u8>, String>>,
}

impl Upstream {
    /// The endpoint at `url`, such as `https://api.openai.com/v1`. Plain HTTP is accepted for this machine alone, because
    /// requests hold keys.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn new(url: &str, connect: Duration) -> Result<Self, String> {
        let parsed = Url::parse(url).map_err(|error| format!("`{url}` is not a URL: {error}"))?;
        let host = parsed.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        match parsed.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => {
                return Err(format!("`{url}`: http is for this machine only, since requests hold keys; use https"));
            }
            _ => return Err(format!("`{url}` must begin with https://, or with http:// for this machine")),
        }
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return Err("the URL must hold no user, password or query".to_owned());
        }
        let client = Client::builder()
            .connect_timeout(connect)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| format!("the HTTP client cannot be created: {error}"))?;
        Ok(Self { client, url: parsed })
    }

    /// The host, with its port if the URL names one.
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// The URL.
    pub fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// Sends a request to `path` (with its query) below the URL. No answer is an error, whatever its status.
    ///
    /// # Errors
    /// If the endpoint cannot be reached.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<UpstreamResponse, String> {
        let request = self.client.request(method, format!("{}{path}", self.url())).headers(headers).body(body);
        // The error names the URL, which the caller knows, and its cause, which it needs.
        let causes = |error: reqwest::Error| {
            let mut text = error.without_url().to_string();
            text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
            text
        };
        let response = request.send().await.map_err(causes)?;
        Ok(UpstreamResponse {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.bytes_stream().map_ok(|bytes| bytes.to_vec()).map_err(causes).boxed(),
        })
    }
}

/// Longest error text.
const ERROR_BYTES_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine() {
        let new = |url: &str| Upstream::new(url, Duration::from_secs(1)).map(|upstream| upstream.url().to_owned());
        assert_eq!(new("http://127.0.0.1:8000/v1/").unwrap(), "http://127.0.0.1:8000/v1");
        assert!(new("http://localhost:1/v1").is_ok() && new("http://[::1]:1").is_ok());
        assert!(new("https://api.openai.com/v1").is_ok());
        for refused in
            ["http://10.0.0.7/v1", "http://localhost.evil.example/v1", "ftp://x", "nonsense", "https://u:p@x/v1"]
        {
            assert!(new(refused).is_err(), "{refused}");
        }
    }
}
