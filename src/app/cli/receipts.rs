//! `loom receipts`: checks, shows, exports and redacts a receipt log.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};

use super::{Exit, Failure, Terminal};
use crate::foundation::base::{Clock as _, Digest, SystemClock, limits};
use crate::foundation::store::RealDisk;
use crate::foundation::store::read_limited;
use crate::foundation::store::receipts::{
    ContentState, ContentStore, HEAD, Head, LOG, PublicKey, Receipt, ReceiptKey, ReceiptLog, chain, to_otlp, verify,
};

/// The least number of digits that identify a digest.
const DIGITS_MIN: usize = 8;

/// Check, show or export the receipts of a run, or erase a text that they refer to
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Verify that a log is unchanged, and locate changes
    #[command(after_help = "\
Changed bits, receipts that were removed, inserted, moved or replaced, and a truncated end are detected and located. \
The head must be signed with this user's key, or with the key given by --key.

Exit codes: 0 the log is intact, 1 it is not.")]
    Verify {
        /// The folder of the log
        folder: PathBuf,
        /// Public key with which the head must be signed
        #[arg(long, value_name = "HEX")]
        key: Option<PublicKey>,
    },
    /// Print the receipts, one per line
    Show {
        /// The folder of the log
        folder: PathBuf,
        /// Only kinds with this prefix: `gate.`, `mood.step`
        #[arg(long, value_name = "PREFIX", default_value = "")]
        kind: String,
    },
    /// Print the receipts for other programs
    #[command(after_help = "\
Examples:
  loom receipts export results/anna --format otlp > spans.json")]
    Export {
        /// The folder of the log
        folder: PathBuf,
        /// Export format
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Erase a text; the chain stays valid, and a receipt records it
    #[command(after_help = "\
The text is identified by its digest or a prefix of it: `loom receipts export DIR` lists digests under `contents`. A session
that needs the text, such as its task description, cannot be resumed.")]
    Erase {
        /// The folder of the log
        folder: PathBuf,
        /// The digest of the text, or a prefix of at least eight digits
        digest: String,
    },
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// JSON lines, as in the log
    #[default]
    Jsonl,
    /// OpenTelemetry spans with the GenAI conventions: OTLP/JSON
    Otlp,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.command {
            Command::Verify { folder, key } => {
                let mut exit = Exit::Ok;
                for log in logs(folder)? {
                    if check(&log, *key, terminal)? != Exit::Ok {
                        exit = Exit::CheckFailed;
                    }
                }
                Ok(exit)
            }
            Command::Show { folder, kind } => {
                for receipt in receipts(folder)?.iter().filter(|receipt| receipt.entry.kind.starts_with(kind)) {
                    let Receipt { seq, at, entry, digest, .. } = receipt;
                    writeln!(terminal.out, "{seq:>6}  {at:.3}  {}  {:<20} {}", digest.short(), entry.kind, entry.body)?;
                }
                Ok(Exit::Ok)
            }
            Command::Export { folder, format } => {
                match format {
                    Format::Jsonl => terminal.out.write_all(&read(folder, LOG)?)?,
                    Format::Otlp => {
                        serde_json::to_writer_pretty(&mut terminal.out, &to_otlp(&receipts(folder)?))
                            .map_err(std::io::Error::from)?;
                        writeln!(terminal.out)?;
                    }
                }
                Ok(Exit::Ok)
            }
            Command::Erase { folder, digest } => erase(folder, digest, terminal),
        }
    }
}

/// The folders of the logs in `folder`: itself, or those of a sweep's shards.
fn logs(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let shards = folder.join("receipts");
    if folder.join(LOG).exists() || !shards.is_dir() {
        return Ok(vec![folder.to_owned()]);
    }
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(&shards)? {
        let path = entry?.path();
        if path.join(LOG).exists() {
            logs.push(path);
        }
    }
    logs.sort();
    Ok(logs)
}

fn erase(folder: &Path, named: &str, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let all = receipts(folder)?;
    let texts: BTreeSet<Digest> = all.iter().flat_map(|receipt| receipt.entry.contents.values().copied()).collect();
    let meant = |digest: &&Digest| named.len() >= DIGITS_MIN && digest.to_string().starts_with(named);
    let mut meant = texts.iter().filter(meant);
    let (Some(digest), None) = (meant.next(), meant.next()) else {
        let help = "identify one text by at least eight digits of its digest";
        return Err(Failure::usage(format!("`{named}` is not a prefix of exactly one digest: {help}")));
    };
    let failure =
        |error: &dyn std::fmt::Display| Failure::Message { message: error.to_string(), exit: Exit::CheckFailed };
    let key = ReceiptKey::path().and_then(|path| ReceiptKey::open(&path)).map_err(|error| failure(&error))?;
    let (now, disk) = (SystemClock.now(), Arc::new(RealDisk::new(folder)));
    let (mut log, _) = ReceiptLog::open(disk, Arc::new(key), now).map_err(|error| failure(&error))?;
    log.erase(*digest, now).and_then(|()| log.seal()).map_err(|error| failure(&error))?;
    writeln!(terminal.out, "erased {digest}")?;
    Ok(Exit::Ok)
}

fn check(folder: &Path, key: Option<PublicKey>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let log = read(folder, LOG)?;
    let head = if folder.join(HEAD).try_exists()? { Head::read(&read(folder, HEAD)?) } else { None };
    // The key is not created if it does not exist.
    let own = ReceiptKey::path().ok().filter(|path| path.exists()).and_then(|path| ReceiptKey::open(&path).ok());
    let trusted = key.or_else(|| own.map(|own| own.public()));
    if trusted.is_none() {
        writeln!(terminal.err, "this user has no key: any signature is accepted; use --key to require a signer")?;
    }
    let verified = match verify(&log, head.as_ref(), trusted) {
        Ok(verified) => verified,
        Err(fault) => {
            writeln!(terminal.out, "{}: {fault}", folder.join(LOG).display())?;
            return Ok(Exit::CheckFailed);
        }
    };
    let contents = ContentStore::new(Arc::new(RealDisk::new(folder)));
    let mut exit = Exit::Ok;
    let mut erased = 0;
    for (seq, name, digest, state) in contents.states(&verified.receipts)? {
        let what = match state {
            ContentState::Intact => continue,
            ContentState::Erased => {
                erased += 1;
                continue;
            }
            ContentState::Missing => "is missing without a receipt of its erasure",
            ContentState::Altered => "does not match the receipt's digest",
        };
        writeln!(terminal.out, "receipt {seq}: the text `{name}` ({}) {what}", digest.short())?;
        exit = Exit::CheckFailed;
    }
    let (count, signed) = (verified.receipts.len() as u64, verified.signed);
    if verified.torn_bytes > 0 {
        writeln!(terminal.out, "the last line is incomplete: {} bytes", verified.torn_bytes)?;
        exit = Exit::CheckFailed;
    }
    let last = verified.receipts.last().map(|last| last.digest.to_string()).unwrap_or_default();
    writeln!(terminal.out, "{count} receipts, {signed} signed, {erased} texts erased; last {last}")?;
    if signed < count {
        writeln!(terminal.out, "the last {} are not signed yet: a truncation there is not detectable", count - signed)?;
    }
    Ok(exit)
}

fn receipts(folder: &Path) -> Result<Vec<Receipt>, Failure> {
    let (receipts, _) = chain(&read(folder, LOG)?).map_err(|fault| Failure::Message {
        message: format!("{}: {fault}", folder.join(LOG).display()),
        exit: Exit::CheckFailed,
    })?;
    Ok(receipts)
}

fn read(folder: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let path = folder.join(name);
    let fault = |error: std::io::Error| Failure::usage(format!("{} cannot be read: {error}", path.display()));
    read_limited(&path, limits::RECEIPTS_BYTES_MAX).map_err(fault)
}
