//! Arguments of the commands that use hosted models or the hub.

use std::path::PathBuf;

use crate::inference::providers::OpenOptions;

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
}

impl RemoteArgs {
    /// Applies the arguments to `options`.
    pub(super) fn apply(&self, options: &mut OpenOptions) {
        let variable = || std::env::var_os("LOOM_CACHE").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        options.remote.cache = self.cache.clone().or_else(variable);
        options.remote.requests_per_minute = self.requests_per_minute;
        options.remote.tokens_per_minute = self.tokens_per_minute;
        options.hub.offline |= self.offline;
    }
}
