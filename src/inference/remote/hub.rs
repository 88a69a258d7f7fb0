//! Models from the Hugging Face hub, through `hf-hub` and its cache, which other tools share.
//!
//! Only the files that the engine reads are fetched, all from one commit. What a file held when it was first fetched is
//! recorded (`record.rs`), and compared each time it is used. A model that is in the cache is used without asking the
//! hub; [`fetch`] asks whether there is a newer one. The hub is not trusted: names and digests that it sends are checked
//! before they become paths.

mod record;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::api::tokio::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use indicatif::ProgressBar;
use reqwest::StatusCode;

use self::record::Records;
use super::causes;
use super::pace::backoff;
use crate::foundation::base::Stream;
use crate::foundation::base::limits::{FETCH_RESUMES_MAX, MODEL_JSON_BYTES_MAX};
use crate::inference::engine::{LoadError, shard_names};

/// The hub's own address.
const ENDPOINT: &str = "https://huggingface.co";
/// The branch that is meant where none is named.
const BRANCH: &str = "main";
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Fetched where they are there. The card is for its licence.
const OPTIONAL: [&str; 4] = ["tokenizer_config.json", "generation_config.json", "chat_template.jinja", "README.md"];

/// How the hub is used. What is `None` comes from the environment, under the names that the hub's own tools use.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// Ask nobody: what is not in the cache is not there (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// The address (`HF_ENDPOINT`).
    pub endpoint: Option<String>,
    /// The cache (`HF_HUB_CACHE`, or `hub` in `HF_HOME`).
    pub cache: Option<PathBuf>,
    /// Where digests are recorded (`loom/hub` in `XDG_DATA_HOME`).
    pub records: Option<PathBuf>,
    /// The wait before a cut download is taken up again; it doubles.
    pub first_wait: Duration,
}

impl Default for HubOptions {
    fn default() -> Self {
        let offline = variable("HF_HUB_OFFLINE").is_some_and(|set| !matches!(set.as_str(), "0" | "false" | "no"));
        Self { offline, endpoint: None, cache: None, records: None, first_wait: Duration::from_millis(500) }
    }
}

/// A model whose files lie in one folder, as they were recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The folder.
    pub folder: PathBuf,
    /// The commit that the files are of.
    pub commit: String,
    /// The files, with what is recorded of each.
    pub files: Vec<(String, FileRecord)>,
}

pub use record::FileRecord;

/// Why a model of the hub is not there. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The name or the revision is none.
    #[error("`{0}` is no name on the hub: letters, digits, `.`, `_` and `-` make one")]
    Name(String),
    /// The hub's address is none, or holds a secret.
    #[error(
        "the hub's address must begin with http:// or https:// and hold no user or password: set HF_ENDPOINT anew, and a token in HF_TOKEN"
    )]
    Endpoint,
    /// There is no place for the cache or the records.
    #[error("there is no home folder to keep models in: set HF_HOME and XDG_DATA_HOME")]
    Homeless,
    /// It is not in the cache, and the hub must not be asked.
    #[error("{0} is not in the cache {1}, and offline nothing is fetched: run `loom model fetch` while online")]
    Offline(String, String),
    /// The hub wants to know who asks, or says no.
    #[error(
        "the hub does not give out {repo} ({status}): it may be private or gated, or not exist; check the name, accept its \
         terms at {endpoint}/{repo}, and set HF_TOKEN to a token that may read it"
    )]
    Denied {
        /// The repository.
        repo: String,
        /// What the hub said.
        status: String,
        /// The hub's address.
        endpoint: String,
    },
    /// There is no such repository, revision or file.
    #[error("the hub has no {0} (404): check owner, name and revision")]
    Missing(String),
    /// The hub cannot be asked.
    #[error("the hub at {endpoint} cannot be used: {why}; check the network, or name another hub in HF_ENDPOINT")]
    Unreachable {
        /// The hub's address.
        endpoint: String,
        /// What went wrong.
        why: String,
    },
    /// The hub sends what no honest hub sends.
    #[error("the hub's answer is refused: {0}")]
    Hostile(String),
    /// The repository lacks what the engine reads.
    #[error("{repo} has no `{file}`; give a repository in the layout of transformers, with safetensors")]
    Lacking {
        /// The repository.
        repo: String,
        /// What is not there.
        file: String,
    },
    /// A table of shards that cannot be used.
    #[error(transparent)]
    Index(#[from] LoadError),
    /// A file is not what the hub says it sent.
    #[error("`{file}` arrived damaged: the hub says sha256 {stated}, it has {found}; it was removed, fetch it again")]
    Damaged {
        /// The file.
        file: String,
        /// The hub's digest.
        stated: String,
        /// The file's.
        found: String,
    },
    /// A file is not what it was when it was first fetched.
    #[error(
        "`{file}` has changed since it was first fetched: recorded sha256 {recorded}, it has {found}. If the file is damaged, \
         delete it and run `loom model fetch`; if the change is wanted, delete the record {record}"
    )]
    Changed {
        /// The file.
        file: String,
        /// The digest of the first fetch.
        recorded: String,
        /// The digest now.
        found: String,
        /// The record.
        record: String,
    },
    /// The disk says no.
    #[error("{0}")]
    Disk(String),
}

/// Where the hub's tools keep models, by their own rules; `None` where there is no home.
pub fn cache_folder() -> Option<PathBuf> {
    let path = |name| variable(name).map(PathBuf::from);
    path("HF_HUB_CACHE").or_else(|| {
        let home = path("HF_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache").join("huggingface")))?;
        Some(home.join("hub"))
    })
}

/// The model `repo` at `revision`, from the cache if it is there, else from the hub.
///
/// # Errors
/// See [`HubError`].
pub fn ready(repo: &str, revision: Option<&str>, options: &HubOptions) -> Result<Fetched, HubError> {
    let place = Place::new(repo, revision, options)?;
    match place.cached() {
        Some(commit) => place.check(commit),
        None if options.offline => Err(HubError::Offline(repo.to_owned(), place.cache.path().display().to_string())),
        None => place.fetch(options),
    }
}

/// The model `repo` as `revision` is on the hub now; what the cache has already is not fetched again.
///
/// # Errors
/// See [`HubError`].
pub fn fetch(repo: &str, revision: Option<&str>, options: &HubOptions) -> Result<Fetched, HubError> {
    if options.offline { ready(repo, revision, options) } else { Place::new(repo, revision, options)?.fetch(options) }
}

/// The folder and the commit of a model that is in the cache; its files are not compared with their records.
///
/// # Errors
/// [`HubError::Name`] and [`HubError::Homeless`].
pub fn peek(repo: &str, revision: Option<&str>, options: &HubOptions) -> Result<Option<(PathBuf, String)>, HubError> {
    let place = Place::new(repo, revision, options)?;
    Ok(place.cached().map(|commit| (place.folder(&commit), commit)))
}

/// The repositories in the cache that hold a model, each with its default branch's commit.
pub fn cached(options: &HubOptions) -> Vec<(String, String)> {
    let Some(folder) = options.cache.clone().or_else(cache_folder) else { return Vec::new() };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let repos = names.filter_map(|name| Some(name.strip_prefix("models--")?.replacen("--", "/", 1)));
    let here = |repo: String| {
        let commit = Place::new(&repo, None, options).ok()?.cached()?;
        Some((repo, commit))
    };
    let mut found: Vec<_> = repos.filter_map(here).collect();
    found.sort_unstable();
    found
}

/// Where one repository's revision lies, and whom to ask for it.
struct Place {
    repo: String,
    revision: String,
    cache: Cache,
    records: Records,
    endpoint: String,
}

impl Place {
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
        let cache = options.cache.clone().or_else(cache_folder).ok_or(HubError::Homeless)?;
        let records = options.records.clone().or_else(Records::folder).ok_or(HubError::Homeless)?;
        let endpoint =
            options.endpoint.clone().or_else(|| variable("HF_ENDPOINT")).unwrap_or_else(|| ENDPOINT.to_owned());
        // It stands in messages.
        let open = |url: reqwest::Url| url.username().is_empty() && url.password().is_none();
        if !reqwest::Url::parse(&endpoint).is_ok_and(open) {
            return Err(HubError::Endpoint);
        }
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

    /// The commit of the revision, if all its files are in the cache.
    fn cached(&self) -> Option<String> {
        let refs = self.cache.path().join(self.at(&self.revision).folder_name()).join("refs").join(&self.revision);
        let commit =
            std::fs::read_to_string(refs).map_or_else(|_| self.revision.clone(), |text| text.trim().to_owned());
        is_commit(&commit).then_some(())?;
        let folder = self.folder(&commit);
        let there = |name: &str| folder.join(name).is_file();
        let whole = there(CONFIG) && there(TOKENIZER) && self.weights(&folder).ok()?.iter().all(|name| there(name));
        whole.then_some(commit)
    }

    /// The names of the weights' files, by what is in `folder`.
    fn weights(&self, folder: &Path) -> Result<Vec<String>, HubError> {
        if folder.join(WEIGHTS).is_file() {
            return Ok(vec![WEIGHTS.to_owned()]);
        }
        if !folder.join(INDEX).is_file() {
            return Err(HubError::Lacking { repo: self.repo.clone(), file: WEIGHTS.to_owned() });
        }
        let mut names = vec![INDEX.to_owned()];
        names.extend(shards(&folder.join(INDEX))?);
        Ok(names)
    }

    /// Compares the files of `commit` with what was recorded; what has no record yet gets one.
    fn check(&self, commit: String) -> Result<Fetched, HubError> {
        let folder = self.folder(&commit);
        let mut names = vec![CONFIG.to_owned(), TOKENIZER.to_owned()];
        names.extend(self.weights(&folder)?);
        names.extend(OPTIONAL.iter().filter(|name| folder.join(name).is_file()).map(ToString::to_string));
        let files = self.records.check(&commit, &folder, names)?;
        Ok(Fetched { folder, commit, files })
    }

    /// On a thread and a runtime of its own: models are opened by callers with and without one.
    fn fetch(&self, options: &HubOptions) -> Result<Fetched, HubError> {
        let work = || -> Result<Fetched, HubError> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| HubError::Disk(format!("no runtime: {error}")))?;
            runtime.block_on(self.fetch_all(options))
        };
        let done = std::thread::scope(|scope| scope.spawn(work).join());
        done.unwrap_or_else(|_| Err(HubError::Hostile("it made the download fail in an unforeseen way".to_owned())))
    }

    async fn fetch_all(&self, options: &HubOptions) -> Result<Fetched, HubError> {
        let token = variable("HF_TOKEN").or_else(|| self.cache.token());
        let api = ApiBuilder::from_cache(self.cache.clone())
            .with_endpoint(self.endpoint.clone())
            .with_token(token)
            .with_progress(false)
            .with_user_agent("loom", env!("CARGO_PKG_VERSION"))
            .build()
            .map_err(|error| self.told(&error, &self.repo))?;
        let named = format!("{} at {}", self.repo, self.revision);
        let info = api.repo(self.at(&self.revision)).info().await.map_err(|error| self.told(&error, &named))?;
        if !is_commit(&info.sha) {
            return Err(HubError::Hostile(format!("`{}` is no commit", info.sha.escape_debug())));
        }
        let has = |name: &str| info.siblings.iter().any(|file| file.rfilename == name);
        let download =
            Download { place: self, api: &api, repo: api.repo(self.at(&info.sha)), commit: &info.sha, options };
        for name in [CONFIG, TOKENIZER] {
            if !has(name) {
                return Err(HubError::Lacking { repo: self.repo.clone(), file: name.to_owned() });
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
                    return Err(HubError::Lacking { repo: self.repo.clone(), file: shard });
                }
                download.file(&shard).await?;
            }
        } else {
            return Err(HubError::Lacking { repo: self.repo.clone(), file: WEIGHTS.to_owned() });
        }
        let fetched = self.check(info.sha.clone())?;
        let disk = |error: std::io::Error| HubError::Disk(format!("the cache cannot be written: {error}"));
        self.cache.repo(self.at(&self.revision)).create_ref(&info.sha).map_err(disk)?;
        Ok(fetched)
    }

    fn told(&self, error: &ApiError, what: &str) -> HubError {
        let why = match error {
            ApiError::RequestError(error) => match error.status() {
                Some(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
                    let (repo, endpoint) = (self.repo.clone(), self.endpoint.clone());
                    return HubError::Denied { repo, status: status.to_string(), endpoint };
                }
                Some(StatusCode::NOT_FOUND) => return HubError::Missing(what.to_owned()),
                _ => causes(error),
            },
            ApiError::IoError(error) => return HubError::Disk(format!("the cache cannot be written: {error}")),
            ApiError::LockAcquisition(path) => {
                return HubError::Disk(format!("another process is fetching the same file (lock {})", path.display()));
            }
            error => format!("{what}: {error}"),
        };
        HubError::Unreachable { endpoint: self.endpoint.clone(), why }
    }
}

struct Download<'a> {
    place: &'a Place,
    api: &'a hf_hub::api::tokio::Api,
    repo: ApiRepo,
    commit: &'a str,
    options: &'a HubOptions,
}

impl Download<'_> {
    /// Fetches one file unless it is there; what was cut goes on where it broke off.
    async fn file(&self, name: &str) -> Result<(), HubError> {
        let path = self.place.folder(self.commit).join(name);
        if path.is_file() {
            return Ok(());
        }
        let told = |error: &ApiError| self.place.told(error, &format!("`{name}` in {}", self.place.repo));
        let told_of = self.api.metadata(&self.repo.url(name)).await.map_err(|error| told(&error))?;
        let etag = told_of.etag().trim_start_matches("W/");
        if told_of.commit_hash() != self.commit
            || etag.is_empty()
            || !etag.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        {
            return Err(HubError::Hostile(format!("`{name}` is of another commit, or its digest is none")));
        }
        if !name.ends_with(".safetensors") && told_of.size() as u64 > MODEL_JSON_BYTES_MAX {
            let size = told_of.size();
            let why = format!("`{name}` has {size} bytes, and at most {MODEL_JSON_BYTES_MAX} are read");
            return Err(HubError::Hostile(why));
        }
        for resumed in 0.. {
            let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
            match self.repo.download_with_progress(name, bar).await {
                Ok(_) => break,
                Err(error) if resumed < FETCH_RESUMES_MAX && passes(&error) => {
                    let wait = backoff(self.options.first_wait, resumed as u32 + 1, None, Stream::root(0));
                    tokio::time::sleep(wait.unwrap_or_default()).await;
                }
                Err(error) => return Err(told(&error)),
            }
        }
        // Of large files the hub tells the SHA-256 in place of a tag.
        if etag.len() == 64 {
            let found = record::read(&path)?.sha256;
            if found != etag {
                let blob = path.canonicalize();
                let removed = blob.and_then(std::fs::remove_file).and_then(|()| std::fs::remove_file(&path));
                removed.map_err(|error| {
                    HubError::Disk(format!("`{name}` arrived damaged and cannot be removed: {error}"))
                })?;
                return Err(HubError::Damaged { file: name.to_owned(), stated: etag.to_owned(), found });
            }
        }
        Ok(())
    }
}

/// The shards that the table at `index` names. Progress is shown by name, so they are plain ASCII.
fn shards(index: &Path) -> Result<Vec<String>, HubError> {
    let size = std::fs::metadata(index).map_or(0, |file| file.len());
    if size > MODEL_JSON_BYTES_MAX {
        return Err(HubError::Hostile(format!("`{INDEX}` is larger than {MODEL_JSON_BYTES_MAX} bytes")));
    }
    let text =
        std::fs::read_to_string(index).map_err(|error| HubError::Disk(format!("{}: {error}", index.display())))?;
    let names = shard_names(&text)?;
    match names.iter().find(|name| !name.chars().all(|c| c.is_ascii_graphic())) {
        Some(name) => Err(HubError::Hostile(format!("`{}` is no name for a shard", name.escape_debug()))),
        None => Ok(names),
    }
}

fn passes(error: &ApiError) -> bool {
    match error {
        ApiError::RequestError(error) => error.status().is_none_or(|status| status.is_server_error()),
        ApiError::TooManyRetries(error) => passes(error),
        _ => false,
    }
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
