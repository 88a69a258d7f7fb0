//! Keys and addresses, from the environment alone. A key stays inside [`SecretString`] until it becomes a header that is
//! marked sensitive: no log, message, transcript or cache ever sees it.

use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};

/// Where a provider is and how to show that we may use it.
pub(super) struct Account {
    /// Without a slash at its end.
    pub(super) url: String,
    /// The environment variable of the key.
    pub(super) variable: &'static str,
    key: Option<SecretString>,
}

impl Account {
    /// Reads the key from `variable`, and the address from `url_variable` if it is set.
    ///
    /// # Errors
    /// What is missing or unusable, in words that hold no secret.
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

    fn new(variable: &'static str, url: &str, key: Option<String>, needs_key: bool) -> Result<Self, String> {
        if needs_key && key.is_none() {
            return Err(format!("its key is missing: set the environment variable {variable}"));
        }
        let parsed = reqwest::Url::parse(url).map_err(|error| format!("its base URL is no URL ({error})"))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.password().is_some() || !parsed.username().is_empty()
        {
            return Err("its base URL must begin with http:// or https:// and hold no user or password".to_owned());
        }
        let key = key.map(|key| SecretString::from(key.trim().to_owned()));
        let account = Self { url: url.trim_end_matches('/').to_owned(), variable, key };
        account.header("")?;
        Ok(account)
    }

    /// The key behind `prefix`, as the value of a header.
    pub(super) fn header(&self, prefix: &str) -> Result<Option<HeaderValue>, String> {
        let Some(key) = &self.key else { return Ok(None) };
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", key.expose_secret()))
            .map_err(|_| format!("{} holds characters that no key has", self.variable))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// `text` without the key, should a provider send it back.
    pub(super) fn redact(&self, text: &str) -> String {
        match &self.key {
            Some(key) => text.replace(key.expose_secret(), "…"),
            None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, key: Option<&str>, why: &str) {
        let error = Account::new("A_KEY", url, key.map(str::to_owned), true).err().unwrap();
        assert!(error.contains(why) && key.is_none_or(|key| !error.contains(key)), "{url}: {error}");
    }

    #[test]
    fn what_is_missing_is_named_and_the_key_is_not_shown() {
        check("https://x/v1", None, "set the environment variable A_KEY");
        check("https://x/v1", Some("sk\n-1"), "A_KEY holds characters that no key has");
        check("ftp://x", Some("sk-1"), "must begin with http");
        check("https://me:sk-1@x", Some("sk-1"), "hold no user or password");
        check("nowhere", Some("sk-1"), "is no URL");
    }

    #[test]
    fn a_key_is_sent_and_nothing_else_shows_it() {
        let account = Account::new("A_KEY", "https://x/v1/", Some(" sk-1 ".to_owned()), true).unwrap();
        assert_eq!(account.url, "https://x/v1");
        let header = account.header("Bearer ").unwrap().unwrap();
        assert_eq!(header.to_str().unwrap(), "Bearer sk-1");
        assert_eq!(format!("{header:?}"), "Sensitive");
        assert_eq!(account.redact("wrong key sk-1!"), "wrong key …!");
    }
}
