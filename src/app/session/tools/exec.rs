//! Commands: without the caller's environment, within limits of time and output, and kept to one folder by the kernel where it
//! can do that (Landlock). Where it cannot, the result says so.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, path_beneath_rules,
};

use super::ToolError;
use crate::foundation::base::limits;
use crate::foundation::gate::{Budget, Category, Effect, Permit, Scope};

/// Where programs are looked for; nothing else of an environment is handed on.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What a command may read beside its folder.
const READABLE: [&str; 6] = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/dev"];
/// What it may write beside its folder.
const SINKS: [&str; 2] = ["/dev/null", "/dev/zero"];

/// Runs commands in one folder.
#[derive(Debug, Clone)]
pub struct Exec {
    folder: PathBuf,
    limit: Duration,
}

/// Whether the kernel kept the command to its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containment {
    /// It did.
    Kept,
    /// This kernel has no Landlock, or an older one: the command could have written elsewhere.
    NotKept,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code; `None` when it was ended.
    pub code: Option<i32>,
    /// What it printed.
    pub out: String,
    /// What it complained about.
    pub err: String,
    /// More was printed than is kept.
    pub cut: bool,
    /// The time ran out.
    pub timed_out: bool,
    /// Whether it was kept to its folder.
    pub containment: Containment,
}

impl Exec {
    /// Commands in `folder`, each for `limit` at most.
    pub fn new(folder: impl Into<PathBuf>, limit: Duration) -> Self {
        Self { folder: folder.into(), limit }
    }

    /// That this command is run. It can write the workspace.
    pub fn running(&self, command: &[&str]) -> Effect {
        let cost = Budget { wall_ms: self.limit.as_millis() as u64, ..Budget::NOTHING };
        Effect::new(Category::Exec, command.join("\0")).reading(Scope::Workspace).costing(cost)
    }

    /// Runs a command: a program by its bare name or its absolute path, and its arguments. No shell reads them.
    ///
    /// # Errors
    /// When the permit is not for it, or it cannot be begun.
    pub fn run(&self, permit: Permit, command: &[&str], now: Timestamp) -> Result<Ran, ToolError> {
        let _spent = permit.spend(&self.running(command), now)?;
        let [program, arguments @ ..] = command else { return Err(unfit("", "no program is named")) };
        if program.is_empty() || (program.contains('/') && !Path::new(program).is_absolute()) {
            return Err(unfit(program, "name a program that lies in the path, or its absolute path"));
        }
        let found = if program.starts_with('/') { Some(PathBuf::from(program)) } else { lookup(program) };
        let found = found.ok_or_else(|| unfit(program, "no such program"))?;
        // Restrictions hold for the thread that asks for them and what it begins, for good: so it is a thread of its own.
        let (folder, limit, program) = (self.folder.clone(), self.limit, (*program).to_owned());
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let worked = std::thread::spawn(move || {
            let containment = contain(&folder);
            let begun = Command::new(found)
                .args(arguments)
                .current_dir(&folder)
                .env_clear()
                .env("PATH", PATH)
                .env("LANG", "C.UTF-8")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0)
                .spawn();
            let child = begun.map_err(|source| ToolError::Io { action: "run", path: program, source })?;
            Ok(wait(child, limit, containment))
        });
        worked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn unfit(program: &str, why: &str) -> ToolError {
    let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, why.to_owned());
    ToolError::Io { action: "run", path: program.to_owned(), source }
}

fn lookup(program: &str) -> Option<PathBuf> {
    PATH.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// Keeps this thread, and what it begins, to reading the system and writing the folder.
fn contain(folder: &Path) -> Containment {
    let abi = ABI::V3;
    let restrict = || -> Result<RulesetStatus, landlock::RulesetError> {
        let restricted = Ruleset::default()
            .handle_access(AccessFs::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(READABLE, AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules(SINKS, AccessFs::from_all(abi)))?
            .add_rules(path_beneath_rules([folder], AccessFs::from_all(abi)))?
            .restrict_self()?;
        Ok(restricted.ruleset)
    };
    match restrict() {
        Ok(RulesetStatus::FullyEnforced) => Containment::Kept,
        Ok(_) | Err(_) => Containment::NotKept,
    }
}

fn wait(mut child: Child, limit: Duration, containment: Containment) -> Ran {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || out.map_or_else(Default::default, keep));
    let err = std::thread::spawn(move || err.map_or_else(Default::default, keep));
    let begun = Instant::now();
    let mut timed_out = false;
    let code = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.code(),
            Ok(None) if begun.elapsed() < limit => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                timed_out = true;
                break None;
            }
        }
    };
    // Whatever it began goes with it, and lets go of its output.
    let group = format!("-{}", child.id());
    let ended = Command::new("/bin/kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    if timed_out {
        if ended.is_err() {
            // Without that program at least the command itself is ended.
            let _gone_already = child.kill();
        }
        let _reaped = child.wait();
    }
    let (out, out_cut) = out.join().unwrap_or_default();
    let (err, err_cut) = err.join().unwrap_or_default();
    Ran { code, out, err, cut: out_cut || err_cut, timed_out, containment }
}

/// The beginning of what is printed; the rest is read and dropped, so that nobody waits for a full pipe.
fn keep(mut from: impl Read) -> (String, bool) {
    let (mut kept, mut cut) = (Vec::new(), false);
    let mut buffer = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let room = limits::TOOL_OUTPUT_BYTES_MAX.saturating_sub(kept.len());
        cut |= read > room;
        kept.extend_from_slice(buffer.get(..read.min(room)).unwrap_or_default());
    }
    (String::from_utf8_lossy(&kept).into_owned(), cut)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::Keeper;
    use super::*;

    fn run(folder: &Path, limit_ms: u64, command: &[&str]) -> Result<Ran, ToolError> {
        let exec = Exec::new(folder, Duration::from_millis(limit_ms));
        let mut keeper = Keeper::new();
        exec.run(keeper.permit(&exec.running(command)), command, keeper.now)
    }

    #[test]
    fn nothing_of_the_environment_is_handed_on() {
        let folder = tempfile::tempdir().unwrap();
        let ran = run(folder.path(), 10_000, &["env"]).unwrap();
        let mut names: Vec<_> = ran.out.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!((names, ran.code), (vec!["LANG", "PATH"], Some(0)), "{ran:?}");
    }

    #[test]
    fn a_program_is_found_in_the_path_alone_and_no_shell_reads_its_arguments() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("env"), "#!/bin/sh\necho mine").unwrap();
        for program in ["./env", "../env", "sub/env", "", "no-such-program"] {
            assert!(matches!(run(folder.path(), 1_000, &[program]), Err(ToolError::Io { .. })), "{program}");
        }
        let ran = run(folder.path(), 10_000, &["echo", "$HOME; touch x", "`id`"]).unwrap();
        assert_eq!(ran.out, "$HOME; touch x `id`\n");
        assert!(!folder.path().join("x").exists());
    }

    #[test]
    fn a_command_that_does_not_end_is_ended_with_all_that_it_began() {
        let folder = tempfile::tempdir().unwrap();
        let ran = run(folder.path(), 3_000, &["sh", "-c", "sleep 600 & echo begun; sleep 600"]).unwrap();
        assert_eq!((ran.timed_out, ran.code, ran.out.as_str()), (true, None, "begun\n"));
        // One that leaves something behind does not wait for it either.
        let ran = run(folder.path(), 10_000, &["sh", "-c", "sleep 600 & echo done"]).unwrap();
        assert_eq!((ran.timed_out, ran.code, ran.out.as_str()), (false, Some(0), "done\n"));
    }

    #[test]
    fn output_beyond_the_limit_is_dropped_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = (2 * limits::TOOL_OUTPUT_BYTES_MAX).to_string();
        let ran = run(folder.path(), 20_000, &["head", "-c", &bytes, "/dev/zero"]).unwrap();
        assert_eq!((ran.out.len(), ran.cut, ran.code), (limits::TOOL_OUTPUT_BYTES_MAX, true, Some(0)));
    }

    #[test]
    fn the_kernel_keeps_a_command_to_its_folder_or_the_result_says_that_it_does_not() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let ran = run(&inside, 10_000, &["sh", "-c", "echo in > here; echo out > ../there"]).unwrap();
        assert!(inside.join("here").exists(), "{ran:?}");
        let escaped = root.path().join("there").exists();
        assert_eq!(escaped, ran.containment == Containment::NotKept, "{ran:?}");
    }

    #[test]
    fn a_permit_is_for_one_command() {
        let folder = tempfile::tempdir().unwrap();
        let exec = Exec::new(folder.path(), Duration::from_secs(1));
        let mut keeper = Keeper::new();
        let permit = keeper.permit(&exec.running(&["echo", "a"]));
        assert!(matches!(exec.run(permit, &["echo", "b"], keeper.now), Err(ToolError::Refused(_))));
        // Arguments cannot be put together otherwise and mean the same.
        let permit = keeper.permit(&exec.running(&["echo", "a b"]));
        assert!(matches!(exec.run(permit, &["echo", "a", "b"], keeper.now), Err(ToolError::Refused(_))));
    }
}
