//! Requests to the hub. The token is sent to the hub's own address only: each redirect is followed here, and another
//! host, to which the hub redirects for large files, gets the request without it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use indicatif::ProgressBar;
use reqwest::header::{AUTHORIZATION, CONTENT_RANGE, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;

use super::HubError;
use crate::foundation::base::limits::{HUB_LIST_BYTES_MAX, HUB_REDIRECTS_MAX};
use crate::foundation::store::{FileLock, append_inside, create_inside};
use crate::inference::remote::{is_loopback, server_url};

/// Bytes per request for a part of a file: so much is downloaded again after an interruption.
const PART_BYTES: u64 = 10_000_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest pause within a response.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Why a request to the hub failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{}", super::causes(.0))]
    Http(#[from] reqwest::Error),
    #[error("status {0}")]
    Status(StatusCode),
    #[error(transparent)]
    Disk(#[from] io::Error),
    #[error("another process is fetching the same file (lock {0})")]
    Locked(String),
    #[error("the response is invalid: {0}")]
    Invalid(String),
}

impl FetchError {
    /// Whether the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Http(_) => true,
            Self::Status(status) => status.is_server_error(),
            _ => false,
        }
    }
}

/// The commit of a revision and the names of its files.
#[derive(Deserialize)]
pub(super) struct RepoInfo {
    pub(super) sha: String,
    pub(super) siblings: Vec<RepoFile>,
}

#[derive(Deserialize)]
pub(super) struct RepoFile {
    #[serde(rename = "rfilename")]
    pub(super) name: String,
}

/// What the hub states about a file.
pub(super) struct Metadata {
    pub(super) commit: String,
    /// The digest, or for small files Git's.
    pub(super) etag: String,
    pub(super) bytes: u64,
}

/// A connection to the hub, for one repository.
pub(super) struct Connection {
    repo: String,
    client: Client,
    endpoint: Url,
    token: Option<HeaderValue>,
}

/// A response, and the headers of the last response that came from the hub itself.
struct Answer {
    response: Response,
    stated: HeaderMap,
}

impl Connection {
    pub(super) fn new(endpoint: &str, repo: &str, token: Option<&str>) -> Result<Self, HubError> {
        let endpoint = server_url(endpoint).map_err(|_| HubError::Endpoint)?;
        let header = |token: &str| {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let mut value = value.map_err(|_| HubError::Token)?;
            value.set_sensitive(true);
            Ok::<_, HubError>(value)
        };
        let token = token.map(header).transpose()?;
        if token.is_some() && endpoint.scheme() == "http" && !is_loopback(&endpoint) {
            return Err(HubError::PlainToken);
        }
        let client = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(Policy::none())
            .user_agent(concat!("loom/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| HubError::Disk(format!("the HTTP client cannot be created: {error}")))?;
        Ok(Self { repo: repo.to_owned(), client, endpoint, token })
    }

    /// The list of files of a revision.
    pub(super) async fn info(&self, revision: &str) -> Result<RepoInfo, FetchError> {
        let Answer { response, .. } =
            self.get(&format!("api/models/{}/revision/{}", self.repo, escaped(revision)), None).await?;
        let mut bytes = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            bytes.extend_from_slice(&chunk?);
            if bytes.len() > HUB_LIST_BYTES_MAX {
                return Err(FetchError::Invalid(format!(
                    "its list of files is larger than {HUB_LIST_BYTES_MAX} bytes"
                )));
            }
        }
        serde_json::from_slice(&bytes).map_err(|error| FetchError::Invalid(error.to_string()))
    }

    pub(super) async fn metadata(&self, commit: &str, name: &str) -> Result<Metadata, FetchError> {
        let answer = self.get(&self.file_path(commit, name), Some("bytes=0-0".to_owned())).await?;
        let text = |headers: &HeaderMap, name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let missing = |name: &str| FetchError::Invalid(format!("the header {name} is missing"));
        let stated = &answer.stated;
        let etag = text(stated, "x-linked-etag").or_else(|| text(stated, "etag")).ok_or_else(|| missing("etag"))?;
        let range = text(answer.response.headers(), CONTENT_RANGE.as_str());
        let bytes = range.and_then(|range| range.rsplit('/').next()?.parse().ok());
        Ok(Metadata {
            commit: text(stated, "x-repo-commit").ok_or_else(|| missing("x-repo-commit"))?,
            etag: etag.trim_start_matches("W/").replace('"', ""),
            bytes: bytes.ok_or_else(|| missing("content-range"))?,
        })
    }

    /// Downloads a file into the cache, continuing where an interrupted download ended.
    pub(super) async fn download(
        &self,
        (cache, name): (&Path, &str),
        metadata: &Metadata,
        bar: &ProgressBar,
    ) -> Result<(), FetchError> {
        let blob = cache.join("blobs").join(&metadata.etag);
        if let Some(folder) = blob.parent() {
            fs::create_dir_all(folder)?;
        }
        let lock = blob.with_extension("loom.lock");
        let locked = FileLock::exclusive(create_inside(&lock)?)?;
        let Some(_held) = locked else { return Err(FetchError::Locked(lock.display().to_string())) };
        let part = blob.with_extension("loom.part");
        let mut file = append_inside(&part)?;
        let mut done = file.metadata()?.len();
        if done > metadata.bytes {
            file.set_len(0)?;
            done = 0;
        }
        bar.set_length(metadata.bytes);
        bar.set_position(done);
        while done < metadata.bytes {
            let end = metadata.bytes.min(done + PART_BYTES);
            let got = self.part(&self.file_path(&metadata.commit, name), (done, end), &mut file, bar).await;
            if let Err(error) = got {
                file.set_len(done)?;
                return Err(error);
            }
            done = end;
        }
        file.sync_all()?;
        drop(file);
        fs::rename(&part, &blob)?;
        let pointer = cache.join("snapshots").join(&metadata.commit).join(name);
        if let Some(folder) = pointer.parent() {
            fs::create_dir_all(folder)?;
        }
        point(&blob, &pointer)?;
        bar.finish_and_clear();
        Ok(())
    }

    /// Appends the bytes from `from` to before `to`.
    async fn part(
        &self,
        path: &str,
        (from, to): (u64, u64),
        file: &mut File,
        bar: &ProgressBar,
    ) -> Result<(), FetchError> {
        let Answer { response, .. } = self.get(path, Some(format!("bytes={from}-{}", to - 1))).await?;
        if response.status() != StatusCode::PARTIAL_CONTENT {
            return Err(FetchError::Invalid(format!("a part was requested, status {}", response.status())));
        }
        let mut left = to - from;
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            left = left
                .checked_sub(chunk.len() as u64)
                .ok_or_else(|| FetchError::Invalid("it is longer than the requested part".to_owned()))?;
            file.write_all(&chunk)?;
            bar.inc(chunk.len() as u64);
        }
        if left == 0 { Ok(()) } else { Err(FetchError::Invalid("it is shorter than the requested part".to_owned())) }
    }

    fn file_path(&self, commit: &str, name: &str) -> String {
        format!("{}/resolve/{}/{name}", self.repo, escaped(commit))
    }

    async fn get(&self, path: &str, range: Option<String>) -> Result<Answer, FetchError> {
        let invalid = |error: String| FetchError::Invalid(error);
        let base = self.endpoint.as_str().trim_end_matches('/');
        let mut url = Url::parse(&format!("{base}/{path}")).map_err(|error| invalid(error.to_string()))?;
        let mut stated = HeaderMap::new();
        for _ in 0..=HUB_REDIRECTS_MAX {
            let own = url.origin() == self.endpoint.origin();
            let mut request = self.client.get(url.clone());
            if let (true, Some(token)) = (own, &self.token) {
                request = request.header(AUTHORIZATION, token.clone());
            }
            if let Some(range) = &range {
                request = request.header(RANGE, range);
            }
            let response = request.send().await?;
            if own {
                stated.clone_from(response.headers());
            }
            let status = response.status();
            if !status.is_redirection() {
                return if status.is_success() {
                    Ok(Answer { response, stated })
                } else {
                    Err(FetchError::Status(status))
                };
            }
            let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let target = target.ok_or_else(|| invalid("a redirect without an address".to_owned()))?;
            let next = url.join(target).map_err(|_| invalid("a redirect to something that is not a URL".to_owned()))?;
            let weaker = url.scheme() == "https" && next.scheme() != "https";
            if weaker || server_url(next.as_str()).is_err() {
                return Err(invalid("a redirect from https to another scheme, or with a user name".to_owned()));
            }
            url = next;
        }
        Err(invalid(format!("more than {HUB_REDIRECTS_MAX} redirects")))
    }
}

/// A revision as one segment of a path.
fn escaped(revision: &str) -> String {
    revision.replace('/', "%2F")
}

/// Makes `pointer` a link to `blob`, as the hub's own tools do.
fn point(blob: &Path, pointer: &Path) -> io::Result<()> {
    match fs::remove_file(pointer) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    #[cfg(unix)]
    return std::os::unix::fs::symlink(relative(blob, pointer), pointer);
    #[cfg(not(unix))]
    return crate::foundation::store::copy_inside(blob, pointer);
}

/// The path from the folder of `pointer` to `blob`; both are in the folder of one repository.
#[cfg(unix)]
fn relative(blob: &Path, pointer: &Path) -> std::path::PathBuf {
    let common = blob.components().zip(pointer.components()).take_while(|(one, other)| one == other).count();
    let up = pointer.components().count().saturating_sub(common + 1);
    let mut path: std::path::PathBuf = std::iter::repeat_n("..", up).collect();
    path.extend(blob.components().skip(common));
    path
}
