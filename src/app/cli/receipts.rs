//! `loom receipts`: checks, shows, exports and redacts a receipt log.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};

use super::{Exit, Failure, Terminal};
use crate::app::session::session_faults;
use crate::foundation::base::{Clock as _, Digest, SystemClock, limits};
use crate::foundation::store::RealDisk;
use crate::foundation::store::read_limited;
use crate::foundation::store::receipts::{
    ContentState, ContentStore, HEAD, Head, LOG, PublicKey, Receipt, ReceiptKey, ReceiptLog, Verified, chain, to_otlp,
    verify,
};
use crate::simulation::rollout::statement::{Envelope, Statement};
use crate::simulation::rollout::{Manifest, check_run};

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
Changed bits, receipts that were removed, inserted, moved or replaced, a truncated end, and receipts that nobody signed are \
detected and located. The log must be signed with this user's key, or with the key given by --key. The files of a run are \
compared with its receipts and its sealed run.json: configuration, transcripts, models and log belong together. In the \
folder of a session or a sweep, its runs are verified as well.

Exit codes: 0 all of it is intact, 1 it is not, or there is no key to verify it with.")]
    Verify {
        /// The folder of the log
        folder: PathBuf,
        /// Public key with which the log must be signed; by default this user's
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
  loom receipts export results/anna --format otlp > spans.json
  loom receipts export results/anna --format in-toto > anna.intoto.json

`in-toto` is for a finished run: a statement with the SHA-256 of its files, in a DSSE envelope that is signed with this \
user's key. The run is verified first.")]
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
    /// An in-toto statement on a finished run, in a DSSE envelope
    InToto,
}

impl Args {
    pub(super) fn run(&self, terminal: &mut Terminal) -> Result<Exit, Failure> {
        match &self.command {
            Command::Verify { folder, key } => {
                let trusted = match key {
                    Some(key) => *key,
                    None => own_key()?.public(),
                };
                let mut exit = Exit::Ok;
                let logs = logs(folder)?;
                for log in &logs {
                    if logs.len() > 1 {
                        writeln!(terminal.out, "{}:", log.display())?;
                    }
                    if verified(log, trusted, &mut terminal.out)?.is_none() {
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
                    Format::InToto => return export_statement(folder, terminal),
                }
                Ok(Exit::Ok)
            }
            Command::Erase { folder, digest } => erase(folder, digest, terminal),
        }
    }
}

/// The folders of the logs in `folder`: its own, those of a sweep's shards, and those of the runs in it.
fn logs(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut logs = Vec::new();
    for (inside, prefix) in [("receipts", ""), ("runs", ""), ("", "cell_")] {
        let inside = folder.join(inside);
        if !inside.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(&inside)? {
            let path = entry?.path();
            let named = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
            if named && (path.join(LOG).exists() || path.join("run.json").exists()) {
                logs.push(path);
            }
        }
    }
    logs.sort();
    if folder.join(LOG).exists() || logs.is_empty() {
        logs.insert(0, folder.to_owned());
    }
    Ok(logs)
}

/// This user's key. It is not created if it does not exist.
fn own_key() -> Result<ReceiptKey, Failure> {
    let failure = |message: String| Failure::Message { message, exit: Exit::CheckFailed };
    let path = ReceiptKey::path().map_err(|error| failure(error.to_string()))?;
    if !path.exists() {
        return Err(failure(format!(
            "there is no key to verify the receipts with: {} does not exist; give the signer's public key with --key",
            path.display()
        )));
    }
    ReceiptKey::open(&path).map_err(|error| failure(error.to_string()))
}

/// Writes the statement on a sealed run.
fn export_statement(folder: &Path, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let key = own_key()?;
    let mut silent = Vec::new();
    let checked = verified(folder, key.public(), &mut silent)?;
    let Some(Verification { run: Some(manifest), .. }) = checked else {
        terminal.err.write_all(&silent)?;
        let message = format!("{} is not an intact, finished run: only such a run can be exported", folder.display());
        return Err(Failure::Message { message, exit: Exit::CheckFailed });
    };
    let statement = Statement::of(folder, *manifest).map_err(|error| Failure::usage(error.to_string()))?;
    let envelope = Envelope::sign(&statement, &key).map_err(|error| Failure::usage(error.to_string()))?;
    serde_json::to_writer_pretty(&mut terminal.out, &envelope).map_err(std::io::Error::from)?;
    writeln!(terminal.out)?;
    Ok(Exit::Ok)
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

/// An intact log.
struct Verification {
    /// The manifest of the run, if the folder has a finished one.
    run: Option<Box<Manifest>>,
}

/// Verifies the log in `folder`, its texts, and the run's files. Writes what was found; `None` if something is wrong.
fn verified(folder: &Path, trusted: PublicKey, out: &mut impl Write) -> Result<Option<Verification>, Failure> {
    if !folder.join(LOG).exists() && folder.join("run.json").exists() {
        writeln!(out, "{}: the receipts of the run were removed", folder.display())?;
        return Ok(None);
    }
    let log = read(folder, LOG)?;
    let head = if folder.join(HEAD).try_exists()? { Head::read(&read(folder, HEAD)?) } else { None };
    let Verified { receipts, sealed, signed, torn_bytes } = match verify(&log, head.as_ref(), Some(trusted)) {
        Ok(verified) => verified,
        Err(fault) => {
            writeln!(out, "{}: {fault}", folder.join(LOG).display())?;
            return Ok(None);
        }
    };
    let contents = ContentStore::new(Arc::new(RealDisk::new(folder)));
    let mut intact = true;
    let mut erased = 0;
    for (seq, name, digest, state) in contents.states(&receipts)? {
        let what = match state {
            ContentState::Intact => continue,
            ContentState::Erased => {
                erased += 1;
                continue;
            }
            ContentState::Missing => "is missing without a receipt of its erasure",
            ContentState::Altered => "does not match the receipt's digest",
        };
        writeln!(out, "receipt {seq}: the text `{name}` ({}) {what}", digest.short())?;
        intact = false;
    }
    let count = receipts.len() as u64;
    if torn_bytes > 0 {
        writeln!(out, "the last line is incomplete: {torn_bytes} bytes")?;
        intact = false;
    }
    if signed < count {
        writeln!(
            out,
            "line {}: the last {} are not signed: an interrupted write left them, or somebody appended them; the next \
             command that writes here removes them",
            signed + 1,
            count - signed
        )?;
        intact = false;
    }
    let run = check_run(folder, &receipts, trusted);
    for fault in &run.faults {
        writeln!(out, "{}/{fault}", folder.display())?;
        intact = false;
    }
    for fault in session_faults(folder, &receipts) {
        writeln!(out, "{}/{fault}", folder.display())?;
        intact = false;
    }
    let last = receipts.last().map(|last| last.digest.to_string()).unwrap_or_default();
    writeln!(out, "{count} receipts, {signed} signed, {erased} texts erased; last {last}")?;
    if sealed < signed {
        writeln!(out, "the last {} are after the last seal: a truncation there is not detectable", signed - sealed)?;
    }
    if run.faults.is_empty() && run.sealed.is_none() && folder.join("run.json").exists() {
        writeln!(out, "the run was interrupted: what it wrote since its last receipt is not bound")?;
    }
    Ok(intact.then_some(Verification { run: run.sealed }))
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
