//! The key that signs heads: created on first use, readable only by its owner.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

/// A signing key.
pub struct ReceiptKey(SigningKey);

/// The public half of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PublicKey([u8; 32]);

/// Errors of the signing key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// An I/O error.
    #[error("the signing key {} cannot be {action}: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Other users can read or replace it.
    #[error("the signing key {} is accessible to other users: `chmod 600` it, and `chmod 700` its folder", .0.display())]
    Open(PathBuf),
    /// Not a plain file.
    #[error("the signing key {} is not a regular file: remove it", .0.display())]
    NotAFile(PathBuf),
    /// Not a key.
    #[error("{} is not a signing key (64 hex digits and a line break): move it away to create a new one", .0.display())]
    NotAKey(PathBuf),
    /// The system provides no random bytes.
    #[error("the system provides no random bytes for a signing key: {0}")]
    Random(getrandom::Error),
    /// Neither variable is set.
    #[error("no folder for the signing key: set XDG_DATA_HOME or HOME")]
    NoHome,
}

impl std::fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReceiptKey({})", self.public())
    }
}

impl ReceiptKey {
    /// The path of the key: `$XDG_DATA_HOME/loom/key`, else `~/.local/share/loom/key`.
    ///
    /// # Errors
    /// If there is no home folder.
    pub fn path() -> Result<PathBuf, KeyError> {
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let data = data.or_else(|| Some(std::env::home_dir()?.join(".local").join("share")));
        data.map(|data| data.join("loom").join("key")).ok_or(KeyError::NoHome)
    }

    /// A key from its 32 secret bytes.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Reads the key at `path`, or creates it. Concurrent processes get the same key.
    ///
    /// # Errors
    /// If it cannot be read or created, is invalid, or is readable by other users.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        let fault = |action, source| KeyError::Io { action, path: path.to_owned(), source };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(path)?,
            Err(error) => return Err(fault("read", error)),
            Ok(_) => {}
        }
        let found = fs::symlink_metadata(path).map_err(|error| fault("read", error))?;
        if !found.is_file() {
            return Err(KeyError::NotAFile(path.to_owned()));
        }
        let file = File::open(path).map_err(|error| fault("read", error))?;
        // Checks the opened file, which may differ from the one checked above.
        if !is_private(&file.metadata().map_err(|error| fault("read", error))?) {
            return Err(KeyError::Open(path.to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !keeps_names(&fs::metadata(folder).map_err(|error| fault("read", error))?) {
            return Err(KeyError::Open(path.to_owned()));
        }
        let mut text = String::new();
        file.take(128).read_to_string(&mut text).map_err(|error| fault("read", error))?;
        let seed = text.strip_suffix('\n').and_then(unhex).ok_or_else(|| KeyError::NotAKey(path.to_owned()))?;
        Ok(Self::from_seed(seed))
    }

    fn create(path: &Path) -> Result<(), KeyError> {
        let fault = |action, source| KeyError::Io { action, path: path.to_owned(), source };
        let folder = path.parent().unwrap_or(Path::new("."));
        make_private_folder(folder).map_err(|error| fault("made", error))?;
        let mut seed = [0; 32];
        let mut name = [0; 8];
        getrandom::fill(&mut seed).and_then(|()| getrandom::fill(&mut name)).map_err(KeyError::Random)?;
        let temporary = folder.join(format!("key.{}", hex(&name)));
        let made = write_private(&temporary, &format!("{}\n", hex(&seed)))
            // A hard link never replaces a file: a second process uses the key of the first.
            .and_then(|()| match fs::hard_link(&temporary, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            });
        let removed = fs::remove_file(&temporary);
        made.and(removed).map_err(|error| fault("made", error))?;
        if cfg!(unix) {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| fault("made", error))?;
        }
        Ok(())
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// A signature of `message`, hex.
    pub fn sign(&self, message: &[u8]) -> String {
        hex(&self.sign_bytes(message))
    }

    /// A signature of `message`.
    pub fn sign_bytes(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl PublicKey {
    /// Whether `signature` (hex) is a valid signature of `message`. Weak keys and malleable signatures are rejected.
    pub fn has_signed(&self, message: &[u8], signature: &str) -> bool {
        let key = VerifyingKey::from_bytes(&self.0).ok();
        let signature = unhex::<64>(signature).map(|bytes| Signature::from_bytes(&bytes));
        key.zip(signature).is_some_and(|(key, signature)| key.verify_strict(message, &signature).is_ok())
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl std::str::FromStr for PublicKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        unhex(text).map(Self).ok_or_else(|| format!("`{text}` is not a public key: 64 hex digits are needed"))
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for PublicKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(unix)]
fn is_private(found: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = found.permissions().mode();
    // Group and others.
    [0o070, 0o007].into_iter().all(|others| mode & others == 0)
}

#[cfg(not(unix))]
fn is_private(_: &fs::Metadata) -> bool {
    true
}

/// Whether nobody but the owner can replace a file in this folder.
#[cfg(unix)]
fn keeps_names(folder: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    folder.permissions().mode() & 0o022 == 0
}

#[cfg(not(unix))]
fn keeps_names(_: &fs::Metadata) -> bool {
    true
}

fn make_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Accepts lower-case hex only, so that the encoding is unique.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let bytes: Option<Vec<u8>> =
        text.as_bytes().chunks(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect();
    bytes?.try_into().ok()
}
