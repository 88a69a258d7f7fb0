//! The key that signs heads: made on first use, readable by its owner alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

/// A signing key.
pub struct Key(SigningKey);

/// The public half of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PublicKey([u8; 32]);

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system said no.
    #[error("the signing key {} cannot be {action}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others could read or replace it.
    #[error("the signing key {} is open to others: `chmod 600` it, and `chmod 700` its folder", .0.display())]
    Open(PathBuf),
    /// Not a plain file.
    #[error("the signing key {} is not a plain file: remove what is there", .0.display())]
    NotAFile(PathBuf),
    /// Not a key.
    #[error("{} is no signing key (64 hex digits and a line break): move it away and a new one is made", .0.display())]
    NotAKey(PathBuf),
    /// The system has no randomness.
    #[error("the system gives no random bytes for a signing key: {0}")]
    Random(getrandom::Error),
    /// Neither variable is set.
    #[error("there is no place for the signing key: set XDG_DATA_HOME or HOME")]
    Homeless,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.public())
    }
}

impl Key {
    /// Where the key lies: `$XDG_DATA_HOME/loom/key`, else `~/.local/share/loom/key`.
    ///
    /// # Errors
    /// When there is no home.
    pub fn path() -> Result<PathBuf, KeyError> {
        let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let data = data.or_else(|| Some(std::env::home_dir()?.join(".local").join("share")));
        data.map(|data| data.join("loom").join("key")).ok_or(KeyError::Homeless)
    }

    /// A key from its 32 secret bytes.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Reads the key at `path`, or makes one there. Of several processes that come at once, all get the same.
    ///
    /// # Errors
    /// When it cannot be read or made, is no key, or others than its owner could read it.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        let fault = |action, source| KeyError::Io { action, path: path.to_owned(), source };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(path)?,
            Err(error) => return Err(fault("read", error)),
            Ok(_) => {}
        }
        let found = fs::symlink_metadata(path).map_err(|error| fault("read", error))?;
        if !found.is_file() {
            return Err(KeyError::NotAFile(path.to_owned()));
        }
        let file = File::open(path).map_err(|error| fault("read", error))?;
        // The permissions of what was opened, not of what was looked at.
        if !is_private(&file.metadata().map_err(|error| fault("read", error))?) {
            return Err(KeyError::Open(path.to_owned()));
        }
        let mut text = String::new();
        file.take(128).read_to_string(&mut text).map_err(|error| fault("read", error))?;
        let seed = unhex(text.trim_end()).ok_or_else(|| KeyError::NotAKey(path.to_owned()))?;
        Ok(Self::from_seed(seed))
    }

    fn make(path: &Path) -> Result<(), KeyError> {
        let fault = |action, source| KeyError::Io { action, path: path.to_owned(), source };
        let folder = path.parent().unwrap_or(Path::new("."));
        make_private_folder(folder).map_err(|error| fault("made", error))?;
        let mut seed = [0; 32];
        let mut name = [0; 8];
        getrandom::fill(&mut seed).and_then(|()| getrandom::fill(&mut name)).map_err(KeyError::Random)?;
        let temporary = folder.join(format!("key.{}", hex(&name)));
        let made = write_private(&temporary, &format!("{}\n", hex(&seed)))
            // A link is made only where nothing is: whoever comes second uses the first one's key.
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

    /// Its public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// A signature of `message`, hex.
    pub fn sign(&self, message: &[u8]) -> String {
        hex(&self.0.sign(message).to_bytes())
    }
}

impl PublicKey {
    /// Whether `signature` (hex) is this key's, of `message`. Weak keys and malleable signatures are refused.
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
        unhex(text).map(Self).ok_or_else(|| format!("`{text}` is no public key: 64 hex digits are needed"))
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
    // Its group, and everybody.
    [0o070, 0o007].into_iter().all(|others| mode & others == 0)
}

#[cfg(not(unix))]
fn is_private(_: &fs::Metadata) -> bool {
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

/// Lower-case hex alone: there is one way to write a key.
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
