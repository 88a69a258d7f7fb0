//! A simulated disk in memory that fails at a chosen operation and loses unsynced data: the worst behaviour that the
//! contract of [`Disk`] allows, so that recovery can be tested at every point.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, DiskLock, FileStamp, parent};
use crate::foundation::base::{Digest, RngStream};

/// Which unsynced changes survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashOutcome {
    /// Nothing: the machine lost power.
    Nothing,
    /// Everything: only the process was killed.
    Everything,
    /// All names, and the first half of each content.
    Torn,
    /// A random choice for every name and every content: all, a part, or nothing.
    Random(u64),
}

impl CrashOutcome {
    /// The three fixed outcomes and `random` random ones.
    pub(crate) fn samples(random: u64) -> impl Iterator<Item = Self> {
        [Self::Nothing, Self::Everything, Self::Torn].into_iter().chain((1..=random).map(Self::Random))
    }
}

/// A simulated disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Clone, Default)]
struct Inner {
    /// Current names, and their indices in `contents`.
    names: BTreeMap<String, usize>,
    /// Durable names.
    durable: BTreeMap<String, usize>,
    contents: Vec<Content>,
    dirs: BTreeSet<String>,
    /// Changes of names that are not durable yet, in order.
    pending: Vec<Rename>,
    operations: usize,
    stop_at: Option<usize>,
}

#[derive(Debug, Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Option<Vec<u8>>,
    /// Length of the durable prefix that was not overwritten since.
    durable_len: usize,
}

impl Content {
    fn durable(bytes: Vec<u8>) -> Self {
        Self { durable: Some(bytes.clone()), durable_len: bytes.len(), bytes }
    }

    /// The durable prefix and the first half of the rest.
    fn torn(&self) -> Vec<u8> {
        self.bytes.get(..usize::midpoint(self.durable_len, self.bytes.len())).unwrap_or_default().to_vec()
    }
}

/// One atomic change of names: `from` is removed, `to` gets the content.
#[derive(Debug, Clone)]
struct Rename {
    from: Option<String>,
    to: Option<(String, usize)>,
}

impl Rename {
    fn touches(&self, dir: &str) -> bool {
        let inside = |path: &str| parent(path) == dir;
        self.from.as_deref().is_some_and(inside) || self.to.as_ref().is_some_and(|(path, _)| inside(path))
    }

    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        if let Some(from) = &self.from {
            names.remove(from);
        }
        if let Some((to, content)) = &self.to {
            names.insert(to.clone(), *content);
        }
    }
}

impl Inner {
    fn create(&mut self, path: &str, bytes: &[u8]) {
        let number = self.contents.len();
        self.contents.push(Content { bytes: bytes.to_vec(), ..Content::default() });
        self.names.insert(path.to_owned(), number);
        self.pending.push(Rename { from: None, to: Some((path.to_owned(), number)) });
    }
}

impl SimDisk {
    /// A disk with durable `files`.
    pub(crate) fn with<'f>(files: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Self {
        let mut inner = Inner::default();
        for (path, bytes) in files {
            inner.names.insert(path.to_owned(), inner.contents.len());
            inner.contents.push(Content::durable(bytes.to_vec()));
            let mut dir = parent(path);
            while !dir.is_empty() {
                inner.dirs.insert(dir.to_owned());
                dir = parent(dir);
            }
        }
        inner.durable = inner.names.clone();
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// An independent copy whose operation count starts at 0.
    #[must_use]
    pub(crate) fn fork(&self) -> Self {
        let mut inner = self.inner().clone();
        inner.operations = 0;
        inner.stop_at = None;
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Makes operation number `operation`, from 0, and all later ones fail.
    pub(crate) fn stop_at(&self, operation: usize) {
        self.inner().stop_at = Some(operation);
    }

    /// Number of modifying operations so far.
    pub(crate) fn operations(&self) -> usize {
        self.inner().operations
    }

    /// The disk as found after a crash at this point.
    #[must_use]
    pub(crate) fn after_crash(&self, surviving: CrashOutcome) -> Self {
        let old = self.inner();
        let mut draws = Draws {
            stream: RngStream::root(if let CrashOutcome::Random(seed) = surviving { seed } else { 0 }),
            drawn: 0,
        };
        let mut names = old.durable.clone();
        for rename in &old.pending {
            let survives = match surviving {
                CrashOutcome::Nothing => false,
                CrashOutcome::Everything | CrashOutcome::Torn => true,
                CrashOutcome::Random(_) => draws.draw(2) == 1,
            };
            if survives {
                rename.apply(&mut names);
            }
        }
        let mut found = Inner { dirs: old.dirs.clone(), ..Inner::default() };
        for (path, number) in names {
            let Some(content) = old.contents.get(number) else { continue };
            let lasting = content.durable.clone().unwrap_or_default();
            let half = content.torn();
            let bytes = match surviving {
                _ if content.durable.as_ref() == Some(&content.bytes) => lasting,
                CrashOutcome::Nothing => lasting,
                CrashOutcome::Everything => content.bytes.clone(),
                CrashOutcome::Torn => half,
                CrashOutcome::Random(_) => {
                    [lasting, half, content.bytes.clone()].into_iter().nth(draws.draw(3)).unwrap_or_default()
                }
            };
            let mut dir = parent(&path);
            while !dir.is_empty() && found.dirs.insert(dir.to_owned()) {
                dir = parent(dir);
            }
            found.names.insert(path, found.contents.len());
            found.contents.push(Content::durable(bytes));
        }
        found.durable = found.names.clone();
        Self { inner: Arc::new(Mutex::new(found)) }
    }

    /// All files with their contents.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let inner = self.inner();
        let content =
            |number: &usize| inner.contents.get(*number).map(|content| content.bytes.clone()).unwrap_or_default();
        inner.names.iter().map(|(path, number)| (path.clone(), content(number))).collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation; an error if the disk has stopped.
    fn step(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.inner();
        let number = inner.operations;
        inner.operations += 1;
        match inner.stop_at {
            Some(stop) if number >= stop => Err(io::Error::other("the simulated disk has stopped")),
            _ => Ok(inner),
        }
    }
}

struct Draws {
    stream: RngStream,
    drawn: u64,
}

impl Draws {
    fn draw(&mut self, sides: usize) -> usize {
        self.drawn += 1;
        self.stream.index(self.drawn, sides)
    }
}

struct NoLock;
impl DiskLock for NoLock {}

impl Disk for SimDisk {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let inner = self.inner();
        Ok(inner.names.get(path).and_then(|number| inner.contents.get(*number)).map(|content| content.bytes.clone()))
    }

    fn stamp(&self, path: &str) -> io::Result<Option<FileStamp>> {
        let stamp = |bytes: Vec<u8>| {
            let file = Digest::of(&bytes).as_bytes().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            FileStamp { bytes: bytes.len() as u64, modified: None, file, settled: true }
        };
        Ok(self.read(path)?.map(stamp))
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.step()?;
        if !parent(path).is_empty() && !inner.dirs.contains(parent(path)) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("no folder for `{path}`")));
        }
        let known = inner.names.get(path).copied();
        if let Some(content) = known.and_then(|number| inner.contents.get_mut(number)) {
            (content.bytes, content.durable_len) = (bytes.to_vec(), 0);
            return Ok(());
        }
        inner.create(path, bytes);
        Ok(())
    }

    fn append(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.step()?;
        let known = inner.names.get(path).copied();
        if let Some(content) = known.and_then(|number| inner.contents.get_mut(number)) {
            content.bytes.extend_from_slice(bytes);
            return Ok(());
        }
        if !parent(path).is_empty() && !inner.dirs.contains(parent(path)) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("no folder for `{path}`")));
        }
        inner.create(path, bytes);
        Ok(())
    }

    fn sync(&self, path: &str) -> io::Result<()> {
        let mut inner = self.step()?;
        let number = inner.names.get(path).copied();
        let content = number.and_then(|number| inner.contents.get_mut(number)).ok_or(io::ErrorKind::NotFound)?;
        (content.durable, content.durable_len) = (Some(content.bytes.clone()), content.bytes.len());
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut inner = self.step()?;
        let pending = std::mem::take(&mut inner.pending);
        let (now, later): (Vec<_>, Vec<_>) = pending.into_iter().partition(|rename| rename.touches(path));
        for rename in &now {
            rename.apply(&mut inner.durable);
        }
        // A file whose rename is durable cannot reappear under its old name.
        let moved = |rename: &Rename| {
            now.iter()
                .any(|other| other.from.is_some() && other.from.as_ref() == rename.to.as_ref().map(|(path, _)| path))
        };
        inner.pending = later.into_iter().filter(|rename| !moved(rename)).collect();
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.step()?;
        let number = inner.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inner.names.insert(to.to_owned(), number);
        inner.pending.push(Rename { from: Some(from.to_owned()), to: Some((to.to_owned(), number)) });
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut inner = self.step()?;
        if inner.names.remove(path).is_some() {
            inner.pending.push(Rename { from: Some(path.to_owned()), to: None });
        }
        Ok(())
    }

    // Folders are durable at once: this hides no failure, since the names of files in them are still pending.
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.step()?.dirs.insert(path.to_owned());
        Ok(())
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        let mut inner = self.step()?;
        if inner.names.keys().chain(&inner.dirs).any(|name| parent(name) == path) {
            return Err(io::Error::other("the folder is not empty"));
        }
        inner.dirs.remove(path);
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<(Vec<String>, Vec<String>)> {
        let inner = self.inner();
        let inside = |name: &&String| parent(name) == path && !name.is_empty();
        let last = |name: &String| name.rsplit('/').next().unwrap_or_default().to_owned();
        Ok((
            inner.names.keys().filter(inside).map(last).collect(),
            inner.dirs.iter().filter(inside).map(last).collect(),
        ))
    }

    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.inner().dirs.contains(path)
    }

    fn lock(&self, _path: &str, _exclusive: bool) -> io::Result<Box<dyn DiskLock>> {
        self.step().map(|_| Box::new(NoLock) as Box<dyn DiskLock>)
    }
}
