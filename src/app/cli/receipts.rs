//! `loom receipts`: the log of what was decided and done, checked, shown and exported.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};

use super::{Exit, Failure, Terminal};
use crate::foundation::base::{Clock as _, Digest, SystemClock, limits};
use crate::foundation::store::RealDisk;
use crate::foundation::store::receipts::{
    ContentState, Contents, HEAD, Head, Key, LOG, PublicKey, Receipt, ReceiptLog, chain, to_otlp, verify,
};

/// Fewer digits of a digest name nothing.
const DIGITS_MIN: usize = 8;

/// Check, show or export the receipts of a run, or erase a text that they name
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that a log is as it was written, and say where it is not
    #[command(after_help = "\
A flipped bit, a receipt that was dropped, put in, moved or replaced, and an end that was cut off are \
found and located. The head must be signed with this user's key, or with the one that --key names.

Exit codes: 0 all is well, 1 something is not.")]
    Verify {
        /// The folder of the log
        folder: PathBuf,
        /// The public key that must have signed the head
        #[arg(long, value_name = "HEX")]
        key: Option<PublicKey>,
    },
    /// Print the receipts, one a line
    Show {
        /// The folder of the log
        folder: PathBuf,
        /// Only kinds that begin so: `gate.`, `mood.step`
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
        /// In which format
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Erase a text: the chain stands, and a receipt says so
    #[command(after_help = "\
The text is named by its digest, or by how that begins: `loom receipts export DIR` has it under `contents`. A session that
needs the text, as its need, cannot be gone on with.")]
    Erase {
        /// The folder of the log
        folder: PathBuf,
        /// The digest of the text, or its first eight digits or more
        digest: String,
    },
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Format {
    /// JSON lines, as they stand in the log
    #[default]
    Jsonl,
    /// OpenTelemetry spans with the GenAI conventions: OTLP/JSON
    Otlp,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.command {
            Command::Verify { folder, key } => check(folder, *key, terminal),
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

fn erase(folder: &Path, named: &str, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let all = receipts(folder)?;
    let texts: BTreeSet<Digest> = all.iter().flat_map(|receipt| receipt.entry.contents.values().copied()).collect();
    let meant = |digest: &&Digest| named.len() >= DIGITS_MIN && digest.to_string().starts_with(named);
    let mut meant = texts.iter().filter(meant);
    let (Some(digest), None) = (meant.next(), meant.next()) else {
        let help = "name one text by the first eight digits of its digest, or more";
        return Err(Failure::usage(format!("`{named}` is not the beginning of exactly one digest: {help}")));
    };
    let told = |error: &dyn std::fmt::Display| Failure::Told { message: error.to_string(), exit: Exit::CheckFailed };
    let key = Key::path().and_then(|path| Key::open(&path)).map_err(|error| told(&error))?;
    let (now, disk) = (SystemClock.now(), Arc::new(RealDisk::new(folder)));
    let (mut log, _) = ReceiptLog::open(disk, Arc::new(key), now).map_err(|error| told(&error))?;
    log.erase(*digest, now).and_then(|()| log.seal()).map_err(|error| told(&error))?;
    writeln!(terminal.out, "erased {digest}")?;
    Ok(Exit::Ok)
}

fn check(folder: &Path, key: Option<PublicKey>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let log = read(folder, LOG)?;
    let head = if folder.join(HEAD).try_exists()? { Head::read(&read(folder, HEAD)?) } else { None };
    // A key is looked for, never made: nothing can be signed with one that is not there.
    let own = Key::path().ok().filter(|path| path.exists()).and_then(|path| Key::open(&path).ok());
    let trusted = key.or_else(|| own.map(|own| own.public()));
    if trusted.is_none() {
        writeln!(terminal.err, "this user has no key: any signature counts; name one with --key to know who signed")?;
    }
    let verified = match verify(&log, head.as_ref(), trusted) {
        Ok(verified) => verified,
        Err(fault) => {
            writeln!(terminal.out, "{}: {fault}", folder.join(LOG).display())?;
            return Ok(Exit::CheckFailed);
        }
    };
    let contents = Contents::new(Arc::new(RealDisk::new(folder)));
    let mut exit = Exit::Ok;
    let mut erased = 0;
    for (seq, name, digest, state) in contents.states(&verified.receipts)? {
        let what = match state {
            ContentState::Kept => continue,
            ContentState::Erased => {
                erased += 1;
                continue;
            }
            ContentState::Missing => "is missing, and no receipt says that it was erased",
            ContentState::Altered => "is not what the receipt names",
        };
        writeln!(terminal.out, "receipt {seq}: the text `{name}` ({}) {what}", digest.short())?;
        exit = Exit::CheckFailed;
    }
    let (count, signed) = (verified.receipts.len() as u64, verified.signed);
    if verified.torn_bytes > 0 {
        writeln!(terminal.out, "the last line is not finished: {} bytes are no receipt", verified.torn_bytes)?;
        exit = Exit::CheckFailed;
    }
    let last = verified.receipts.last().map(|last| last.digest.to_string()).unwrap_or_default();
    writeln!(terminal.out, "{count} receipts, {signed} signed for, {erased} texts erased; last {last}")?;
    if signed < count {
        writeln!(terminal.out, "a cut among the last {} would not show: they are not signed for yet", count - signed)?;
    }
    Ok(exit)
}

fn receipts(folder: &Path) -> Result<Vec<Receipt>, Failure> {
    let (receipts, _) = chain(&read(folder, LOG)?).map_err(|fault| Failure::Told {
        message: format!("{}: {fault}", folder.join(LOG).display()),
        exit: Exit::CheckFailed,
    })?;
    Ok(receipts)
}

fn read(folder: &Path, name: &str) -> Result<Vec<u8>, Failure> {
    let path = folder.join(name);
    let fault = |error: std::io::Error| Failure::usage(format!("{} cannot be read: {error}", path.display()));
    let size = std::fs::metadata(&path).map_err(fault)?.len();
    if size > limits::RECEIPTS_BYTES_MAX {
        let most = limits::RECEIPTS_BYTES_MAX;
        return Err(Failure::usage(format!("{} is larger than {most} bytes (RECEIPTS_BYTES_MAX)", path.display())));
    }
    std::fs::read(&path).map_err(fault)
}
