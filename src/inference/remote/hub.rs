//! Models from the Hugging Face hub, in the cache that its own tools share (`hf-hub` gives its layout).
//!
//! Only the files that the engine reads are downloaded, all from one commit. Their digests are recorded at the first
//! download (`record.rs`) and compared at each use. A cached model is used without a request to the hub; [`fetch`] asks
//! the hub for a newer one. The hub is not trusted: its names and digests are checked before they become paths.

mod download;
mod record;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::{Cache, Repo, RepoType};
use indicatif::ProgressBar;
use reqwest::StatusCode;

use self::download::{Connection, FetchError};
use self::record::Records;
use super::causes;
use super::rate_limit::backoff;
use crate::foundation::base::RngStream;
use crate::foundation::base::limits::{FETCH_RESUMES_MAX, MODEL_JSON_BYTES_MAX};
use crate::foundation::store::read_text;
use crate::inference::engine::{LoadError, shard_names};

/// The default address.
const ENDPOINT: &str = "https://huggingface.co";
/// The default branch.
const BRANCH: &str = "main";
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";
/// Largest file with the commit of a branch, bytes.
const REF_BYTES_MAX: u64 = 1 << 10;
const INDEX: &str = "model.safetensors.index.json";
/// Downloaded where they exist. The model card is needed for its licence.
const OPTIONAL: [&str; 4] = ["tokenizer_config.json", "generation_config.json", "chat_template.jinja", "README.md"];

/// Address, cache and records of the hub. `None` takes the value from the environment, under the names that the hub's
/// own tools use.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Send no requests; use only the cache (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// The hub's address (`HF_ENDPOINT`).
    pub endpoint: Option<String>,
    /// The cache folder (`HF_HUB_CACHE`, or `hub` in `HF_HOME`).
    pub cache: Option<PathBuf>,
    /// The folder of the digest records (`loom/hub` in `XDG_DATA_HOME`).
    pub records: Option<PathBuf>,
    /// The wait before an interrupted download is resumed; it doubles.
    pub first_wait: Duration,
}

impl Default for HubOptions {
    fn default() -> Self {
        let offline = variable("HF_HUB_OFFLINE").is_some_and(|set| !matches!(set.as_str(), "0" | "false" | "no"));
        Self { offline, endpoint: None, cache: None, records: None, first_wait: Duration::from_millis(500) }
    }
}

/// A downloaded model whose files match their records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedModel {
    /// The folder.
    pub folder: PathBuf,
    /// The commit of the files.
    pub commit: String,
    /// The files with their digests.
    pub files: Vec<(String, FileRecord)>,
}

pub use record::FileRecord;

/// Why a model of the hub is not available. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name or the revision is invalid.
    #[error("`{0}` is not a valid name on the hub: use letters, digits, `.`, `_` and `-`")]
    Name(String),
    /// The hub's address is invalid, or holds a secret.
    #[error(
        "the hub's address must begin with http:// or https:// and hold no user or password: correct HF_ENDPOINT, and set a token in HF_TOKEN"
    )]
    Endpoint,
    /// The token holds characters that no token has.
    #[error("the hub's token holds characters that a token cannot have: correct HF_TOKEN or the file `token`")]
    Token,
    /// The token would be sent unencrypted.
    #[error(
        "the hub's token is sent over https only: correct HF_ENDPOINT, or unset HF_TOKEN and remove the file `token`"
    )]
    PlainToken,
    /// The folders of the cache and the records are unknown.
    #[error("there is no home folder to store models in: set HF_HOME and XDG_DATA_HOME")]
    NoHome,
    /// Not cached, and requests are disabled.
    #[error("{0} is not in the cache {1}, and cannot be downloaded offline: run `loom model fetch` while online")]
    Offline(String, String),
    /// The hub requires a token, or denies access.
    #[error(
        "the hub denied access to {repo} ({status}): it may be private or gated, or not exist; check the name, accept its \
         terms at {endpoint}/{repo}, and set HF_TOKEN to a token that may read it"
    )]
    Denied {
        /// The repository.
        repo: String,
        /// The HTTP status.
        status: String,
        /// The hub's address.
        endpoint: String,
    },
    /// There is no such repository, revision or file.
    #[error("the hub has no {0} (404): check owner, name and revision")]
    Missing(String),
    /// The hub cannot be reached.
    #[error("the hub at {endpoint} cannot be used: {why}; check the network, or name another hub in HF_ENDPOINT")]
    Unreachable {
        /// The hub's address.
        endpoint: String,
        /// The reason.
        why: String,
    },
    /// The hub's response is invalid or unsafe.
    #[error("the hub's response is rejected: {0}")]
    Untrusted(String),
    /// The repository has no file that the engine can read.
    #[error("{repo} has no `{file}`; use a repository in the transformers layout, with safetensors")]
    MissingFile {
        /// The repository.
        repo: String,
        /// The missing file.
        file: String,
    },
    /// The index of the shards is invalid.
    #[error(transparent)]
    Index(#[from] LoadError),
    /// A downloaded file does not have the hub's digest.
    #[error("`{file}` is damaged: the hub states sha256 {stated}, it has {found}; it was removed, download it again")]
    Damaged {
        /// The file.
        file: String,
        /// The hub's digest.
        stated: String,
        /// The file's.
        found: String,
    },
    /// A file has changed since its first download.
    #[error(
        "`{file}` has changed since it was first downloaded: recorded sha256 {recorded}, it has {found}. If the file is damaged, \
         delete it and run `loom model fetch`; if the change is intended, delete the record {record}"
    )]
    Changed {
        /// The file.
        file: String,
        /// The digest of the first download.
        recorded: String,
        /// The digest now.
        found: String,
        /// The record.
        record: String,
    },
    /// A file system error.
    #[error("{0}")]
    Disk(String),
}

/// The cache folder of the hub's tools, by their own rules; `None` without a home folder.
pub fn cache_folder() -> Option<PathBuf> {
    let path = |name| variable(name).map(PathBuf::from);
    path("HF_HUB_CACHE").or_else(|| {
        let home = path("HF_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache").join("huggingface")))?;
        Some(home.join("hub"))
    })
}

/// The model `repo` at `revision`, from the cache if it is there, else downloaded.
///
/// # Errors
/// See [`HubError`].
pub fn cached_or_fetch(repo: &str, revision: Option<&str>, options: &HubOptions) -> Result<FetchedModel, HubError> {
    let revision_files = HubRevision::new(repo, revision, options)?;
    match revision_files.cached() {
        Some(commit) => revision_files.check(commit),
        None if options.offline => {
            Err(HubError::Offline(repo.to_owned(), revision_files.cache.path().display().to_string()))
        }
        None => revision_files.fetch(options),
    }
}

/// The model `repo` at the hub's current `revision`; files already in the cache are not downloaded again.
///
/// # Errors
/// See [`HubError`].
pub fn fetch(repo: &str, revision: Option<&str>, options: &HubOptions) -> Result<FetchedModel, HubError> {
    if options.offline {
        cached_or_fetch(repo, revision, options)
    } else {
        HubRevision::new(repo, revision, options)?.fetch(options)
    }
}

/// The folder and the commit of a cached model; its files are not compared with their records.
///
/// # Errors
/// [`HubError::Name`] and [`HubError::NoHome`].
pub fn find_cached(
    repo: &str,
    revision: Option<&str>,
    options: &HubOptions,
) -> Result<Option<(PathBuf, String)>, HubError> {
    let revision_files = HubRevision::new(repo, revision, options)?;
    Ok(revision_files.cached().map(|commit| (revision_files.folder(&commit), commit)))
}

/// The cached models, each with the commit of its default branch.
pub fn list_cached(options: &HubOptions) -> Vec<(String, String)> {
    let Some(folder) = options.cache.clone().or_else(cache_folder) else { return Vec::new() };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let repos = names.filter_map(|name| Some(name.strip_prefix("models--")?.replacen("--", "/", 1)));
    let here = |repo: String| {
        let commit = HubRevision::new(&repo, None, options).ok()?.cached()?;
        Some((repo, commit))
    };
    let mut found: Vec<_> = repos.filter_map(here).collect();
    found.sort_unstable();
    found
}

/// One revision of a repository: cache, records and hub address.
struct HubRevision {
    repo: String,
    revision: String,
    cache: Cache,
    records: Records,
    endpoint: String,
}

impl HubRevision {
    fn new(repo: &str, revision: Option<&str>, options: &HubOptions) -> Result<Self, HubError> {
        let revision = revision.unwrap_or(BRANCH);
        let plain = |name: &str| {
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(good) && !name.contains("..")
        };
        if repo.split('/').count() != 2 || !repo.split('/').all(plain) {
            return Err(HubError::Name(repo.to_owned()));
        }
        if !revision.split('/').all(plain) {
            return Err(HubError::Name(revision.to_owned()));
        }
        let cache = options.cache.clone().or_else(cache_folder).ok_or(HubError::NoHome)?;
        let records = options.records.clone().or_else(Records::folder).ok_or(HubError::NoHome)?;
        let endpoint =
            options.endpoint.clone().or_else(|| variable("HF_ENDPOINT")).unwrap_or_else(|| ENDPOINT.to_owned());
        // It appears in messages.
        super::server_url(&endpoint).map_err(|_| HubError::Endpoint)?;
        Ok(Self {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
            cache: Cache::new(cache),
            records: Records::new(records, repo),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
        })
    }

    fn at(&self, revision: &str) -> Repo {
        Repo::with_revision(self.repo.clone(), RepoType::Model, revision.to_owned())
    }

    fn folder(&self, commit: &str) -> PathBuf {
        self.cache.repo(self.at(commit)).pointer_path(commit)
    }

    /// The commit of the revision, if all its files are cached.
    fn cached(&self) -> Option<String> {
        let refs = self.cache.path().join(self.at(&self.revision).folder_name()).join("refs").join(&self.revision);
        let commit =
            read_text(&refs, REF_BYTES_MAX).map_or_else(|_| self.revision.clone(), |text| text.trim().to_owned());
        is_commit(&commit).then_some(())?;
        let folder = self.folder(&commit);
        let there = |name: &str| folder.join(name).is_file();
        let whole = there(CONFIG) && there(TOKENIZER) && self.weights(&folder).ok()?.iter().all(|name| there(name));
        whole.then_some(commit)
    }

    /// The names of the weight files in `folder`.
    fn weights(&self, folder: &Path) -> Result<Vec<String>, HubError> {
        if folder.join(WEIGHTS).is_file() {
            return Ok(vec![WEIGHTS.to_owned()]);
        }
        if !folder.join(INDEX).is_file() {
            return Err(HubError::MissingFile { repo: self.repo.clone(), file: WEIGHTS.to_owned() });
        }
        let mut names = vec![INDEX.to_owned()];
        names.extend(shards(&folder.join(INDEX))?);
        Ok(names)
    }

    /// Compares the files of `commit` with their records; missing records are added.
    fn check(&self, commit: String) -> Result<FetchedModel, HubError> {
        let folder = self.folder(&commit);
        let mut names = vec![CONFIG.to_owned(), TOKENIZER.to_owned()];
        names.extend(self.weights(&folder)?);
        names.extend(OPTIONAL.iter().filter(|name| folder.join(name).is_file()).map(ToString::to_string));
        let files = self.records.check(&commit, &folder, names)?;
        Ok(FetchedModel { folder, commit, files })
    }

    /// Runs on its own thread and runtime, because callers may or may not have a runtime.
    fn fetch(&self, options: &HubOptions) -> Result<FetchedModel, HubError> {
        let work = || -> Result<FetchedModel, HubError> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| HubError::Disk(format!("no runtime: {error}")))?;
            runtime.block_on(self.fetch_all(options))
        };
        let done = std::thread::scope(|scope| scope.spawn(work).join());
        done.unwrap_or_else(|_| Err(HubError::Untrusted("the download failed unexpectedly".to_owned())))
    }

    async fn fetch_all(&self, options: &HubOptions) -> Result<FetchedModel, HubError> {
        let token = variable("HF_TOKEN").or_else(|| self.cache.token());
        let connection = Connection::new(&self.endpoint, &self.repo, token.as_deref())?;
        let named = format!("{} at {}", self.repo, self.revision);
        let info = connection.info(&self.revision).await.map_err(|error| self.hub_error(&error, &named))?;
        if !is_commit(&info.sha) {
            return Err(HubError::Untrusted(format!("`{}` is not a commit", info.sha.escape_debug())));
        }
        let has = |name: &str| info.siblings.iter().any(|file| file.name == name);
        let download = Download { revision_files: self, connection: &connection, commit: &info.sha, options };
        for name in [CONFIG, TOKENIZER] {
            if !has(name) {
                return Err(HubError::MissingFile { repo: self.repo.clone(), file: name.to_owned() });
            }
            download.file(name).await?;
        }
        for name in OPTIONAL.into_iter().filter(|name| has(name)) {
            download.file(name).await?;
        }
        if has(WEIGHTS) {
            download.file(WEIGHTS).await?;
        } else if has(INDEX) {
            download.file(INDEX).await?;
            for shard in shards(&self.folder(&info.sha).join(INDEX))? {
                if !has(&shard) {
                    return Err(HubError::MissingFile { repo: self.repo.clone(), file: shard });
                }
                download.file(&shard).await?;
            }
        } else {
            return Err(HubError::MissingFile { repo: self.repo.clone(), file: WEIGHTS.to_owned() });
        }
        let fetched = self.check(info.sha.clone())?;
        let disk = |error: std::io::Error| HubError::Disk(format!("the cache cannot be written: {error}"));
        self.cache.repo(self.at(&self.revision)).create_ref(&info.sha).map_err(disk)?;
        Ok(fetched)
    }

    fn hub_error(&self, error: &FetchError, what: &str) -> HubError {
        let why = match error {
            FetchError::Status(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
                let (repo, endpoint) = (self.repo.clone(), self.endpoint.clone());
                return HubError::Denied { repo, status: status.to_string(), endpoint };
            }
            FetchError::Status(StatusCode::NOT_FOUND) => return HubError::Missing(what.to_owned()),
            FetchError::Disk(error) => return HubError::Disk(format!("the cache cannot be written: {error}")),
            error @ FetchError::Locked(_) => return HubError::Disk(error.to_string()),
            FetchError::Http(error) => causes(error),
            error => format!("{what}: {error}"),
        };
        HubError::Unreachable { endpoint: self.endpoint.clone(), why }
    }
}

struct Download<'a> {
    revision_files: &'a HubRevision,
    connection: &'a Connection,
    commit: &'a str,
    options: &'a HubOptions,
}

impl Download<'_> {
    /// Downloads one file unless it is cached; resumes interrupted downloads.
    async fn file(&self, name: &str) -> Result<(), HubError> {
        let path = self.revision_files.folder(self.commit).join(name);
        if path.is_file() {
            return Ok(());
        }
        let failed = |error: &FetchError| {
            self.revision_files.hub_error(error, &format!("`{name}` in {}", self.revision_files.repo))
        };
        let metadata = self.connection.metadata(self.commit, name).await.map_err(|error| failed(&error))?;
        let etag = metadata.etag.as_str();
        if metadata.commit != self.commit
            || etag.is_empty()
            || !etag.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        {
            return Err(HubError::Untrusted(format!("`{name}` belongs to another commit, or its digest is invalid")));
        }
        if !name.ends_with(".safetensors") && metadata.bytes > MODEL_JSON_BYTES_MAX {
            let size = metadata.bytes;
            let why = format!("`{name}` has {size} bytes; the maximum is {MODEL_JSON_BYTES_MAX}");
            return Err(HubError::Untrusted(why));
        }
        let cache = self.revision_files.cache.path();
        let cache = cache.join(self.revision_files.at(self.commit).folder_name());
        for resumed in 0.. {
            let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
            match self.connection.download((&cache, name), &metadata, &bar).await {
                Ok(()) => break,
                Err(error) if resumed < FETCH_RESUMES_MAX && error.is_temporary() => {
                    let wait = backoff(self.options.first_wait, resumed as u32 + 1, None, RngStream::root(0));
                    tokio::time::sleep(wait.unwrap_or_default()).await;
                }
                Err(error) => return Err(failed(&error)),
            }
        }
        // For large files the hub's tag is the SHA-256.
        if etag.len() == 64 {
            let found = record::read(&path)?.sha256;
            if found != etag {
                let blob = path.canonicalize();
                let removed = blob.and_then(std::fs::remove_file).and_then(|()| std::fs::remove_file(&path));
                removed
                    .map_err(|error| HubError::Disk(format!("`{name}` is damaged and cannot be removed: {error}")))?;
                return Err(HubError::Damaged { file: name.to_owned(), stated: etag.to_owned(), found });
            }
        }
        Ok(())
    }
}

/// The shards named by the index. Names are shown in progress bars, so they must be plain ASCII.
fn shards(index: &Path) -> Result<Vec<String>, HubError> {
    let text = read_text(index, MODEL_JSON_BYTES_MAX)
        .map_err(|error| HubError::Disk(format!("{}: {error}", index.display())))?;
    let names = shard_names(&text)?;
    match names.iter().find(|name| !name.chars().all(|c| c.is_ascii_graphic())) {
        Some(name) => Err(HubError::Untrusted(format!("`{}` is not a valid shard name", name.escape_debug()))),
        None => Ok(names),
    }
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
