//! The flags of every command that opens models from elsewhere.

use std::path::PathBuf;

use crate::inference::providers::OpenOptions;

/// Of each flag by itself: a heading for what follows would hold for the flags of the command too.
const HEADING: &str = "Models from elsewhere";

/// How hosted models are asked and the hub is used.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Flags {
    /// Keep hosted models' replies here, and ask the same only once; the folder in `LOOM_CACHE` if not given
    #[arg(long, help_heading = HEADING, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Most requests per minute to one hosted model
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_minute: Option<u32>,
    /// Most tokens per minute, prompt and reply together, to one hosted model
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tokens_per_minute: Option<u32>,
    /// Fetch nothing from the hub: what is not in its cache is not there
    #[arg(long, help_heading = HEADING)]
    offline: bool,
}

impl Flags {
    /// Puts them into `options`.
    pub(super) fn set(&self, options: &mut OpenOptions) {
        let variable = || std::env::var_os("LOOM_CACHE").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        options.remote.cache = self.cache.clone().or_else(variable);
        options.remote.requests_per_minute = self.requests_per_minute;
        options.remote.tokens_per_minute = self.tokens_per_minute;
        options.hub.offline |= self.offline;
    }
}
