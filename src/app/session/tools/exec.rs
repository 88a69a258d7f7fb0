//! Runs commands without the caller's environment, with limits of time and output, and restricted to one folder by the
//! kernel if it supports that (Landlock). The result says whether it does.

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

/// The search path for programs; the only other environment variable is LANG.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Paths that a command may read in addition to its folder.
const READABLE: [&str; 6] = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/dev"];
/// Paths that it may write in addition to its folder.
const WRITABLE: [&str; 2] = ["/dev/null", "/dev/zero"];

/// Runs commands in one folder.
#[derive(Debug, Clone)]
pub struct Exec {
    folder: PathBuf,
    limit: Duration,
}

/// Whether the kernel restricted the command to its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containment {
    /// It did.
    Enforced,
    /// This kernel has no Landlock, or an older version: the command could have written elsewhere.
    NotEnforced,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The exit code; `None` if it was killed.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Whether the output was truncated.
    pub cut: bool,
    /// Whether it was killed at the time limit.
    pub timed_out: bool,
    /// Whether it was restricted to its folder.
    pub containment: Containment,
}

impl Exec {
    /// Commands in `folder`, with a time limit for each.
    pub fn new(folder: impl Into<PathBuf>, limit: Duration) -> Self {
        Self { folder: folder.into(), limit }
    }

    /// The effect of running this command. It may write the workspace.
    pub fn running(&self, command: &[&str]) -> Effect {
        let cost = Budget { wall_ms: self.limit.as_millis() as u64, ..Budget::NOTHING };
        Effect::new(Category::Exec, command.join("\0")).reading(Scope::Workspace).costing(cost)
    }

    /// Runs a command: a program by name or absolute path, and its arguments. No shell is involved.
    ///
    /// # Errors
    /// If the permit is for another effect, or the program cannot be started.
    pub fn run(&self, permit: Permit, command: &[&str], now: Timestamp) -> Result<Ran, ToolError> {
        let _spent = permit.spend(&self.running(command), now)?;
        let [program, arguments @ ..] = command else { return Err(unfit("", "no program is named")) };
        if program.is_empty() || (program.contains('/') && !Path::new(program).is_absolute()) {
            return Err(unfit(program, "name a program that lies in the path, or its absolute path"));
        }
        let found = if program.starts_with('/') { Some(PathBuf::from(program)) } else { lookup(program) };
        let found = found.ok_or_else(|| unfit(program, "no such program"))?;
        // Restrictions apply to the current thread and its children permanently, so a new thread is used.
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

/// Restricts this thread and its children to reading the system and writing the folder.
fn contain(folder: &Path) -> Containment {
    let abi = ABI::V3;
    let restrict = || -> Result<RulesetStatus, landlock::RulesetError> {
        let restricted = Ruleset::default()
            .handle_access(AccessFs::from_all(abi))?
            .create()?
            .add_rules(path_beneath_rules(READABLE, AccessFs::from_read(abi)))?
            .add_rules(path_beneath_rules(WRITABLE, AccessFs::from_all(abi)))?
            .add_rules(path_beneath_rules([folder], AccessFs::from_all(abi)))?
            .restrict_self()?;
        Ok(restricted.ruleset)
    };
    match restrict() {
        Ok(RulesetStatus::FullyEnforced) => Containment::Enforced,
        Ok(_) | Err(_) => Containment::NotEnforced,
    }
}

fn wait(mut child: Child, limit: Duration, containment: Containment) -> Ran {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || out.map_or_else(Default::default, read_limited));
    let err = std::thread::spawn(move || err.map_or_else(Default::default, read_limited));
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
    // Kills the whole process group, which closes its output.
    let group = format!("-{}", child.id());
    let ended = Command::new("/bin/kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    if timed_out {
        if ended.is_err() {
            // Without /bin/kill at least the command itself is killed.
            let _gone_already = child.kill();
        }
        let _reaped = child.wait();
    }
    let (out, out_cut) = out.join().unwrap_or_default();
    let (err, err_cut) = err.join().unwrap_or_default();
    Ran { code, out, err, cut: out_cut || err_cut, timed_out, containment }
}

/// Keeps the beginning of the output; the rest is read and dropped, so that the process does not block on a full pipe.
fn read_limited(mut from: impl Read) -> (String, bool) {
    let (mut kept, mut cut) = (Vec::new(), false);
    let mut buffer = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let remaining = limits::TOOL_OUTPUT_BYTES_MAX.saturating_sub(kept.len());
        cut |= read > remaining;
        kept.extend_from_slice(buffer.get(..read.min(remaining)).unwrap_or_default());
    }
    (String::from_utf8_lossy(&kept).into_owned(), cut)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::TestGate;
    use super::*;

    fn run(folder: &Path, limit_ms: u64, command: &[&str]) -> Result<Ran, ToolError> {
        let exec = Exec::new(folder, Duration::from_millis(limit_ms));
        let mut gate = TestGate::new();
        exec.run(gate.permit(&exec.running(command)), command, gate.now)
    }

    #[test]
    fn the_environment_is_not_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        let ran = run(folder.path(), 10_000, &["env"]).unwrap();
        let mut names: Vec<_> = ran.out.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!((names, ran.code), (vec!["LANG", "PATH"], Some(0)), "{ran:?}");
    }

    #[test]
    fn programs_come_from_the_search_path_and_no_shell_is_involved() {
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
    fn a_command_is_killed_at_the_time_limit_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let ran = run(folder.path(), 3_000, &["sh", "-c", "sleep 600 & echo begun; sleep 600"]).unwrap();
        assert_eq!((ran.timed_out, ran.code, ran.out.as_str()), (true, None, "begun\n"));
        // A command with background children does not wait for them.
        let ran = run(folder.path(), 10_000, &["sh", "-c", "sleep 600 & echo done"]).unwrap();
        assert_eq!((ran.timed_out, ran.code, ran.out.as_str()), (false, Some(0), "done\n"));
    }

    #[test]
    fn output_beyond_the_limit_is_truncated_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = (2 * limits::TOOL_OUTPUT_BYTES_MAX).to_string();
        let ran = run(folder.path(), 20_000, &["head", "-c", &bytes, "/dev/zero"]).unwrap();
        assert_eq!((ran.out.len(), ran.cut, ran.code), (limits::TOOL_OUTPUT_BYTES_MAX, true, Some(0)));
    }

    #[test]
    fn the_result_says_whether_the_kernel_restricts_the_command() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("inside");
        fs::create_dir(&inside).unwrap();
        let ran = run(&inside, 10_000, &["sh", "-c", "echo in > here; echo out > ../there"]).unwrap();
        assert!(inside.join("here").exists(), "{ran:?}");
        let escaped = root.path().join("there").exists();
        assert_eq!(escaped, ran.containment == Containment::NotEnforced, "{ran:?}");
    }

    #[test]
    fn a_permit_is_for_one_command() {
        let folder = tempfile::tempdir().unwrap();
        let exec = Exec::new(folder.path(), Duration::from_secs(1));
        let mut gate = TestGate::new();
        let permit = gate.permit(&exec.running(&["echo", "a"]));
        assert!(matches!(exec.run(permit, &["echo", "b"], gate.now), Err(ToolError::Refused(_))));
        // Arguments that differ in their boundaries are different.
        let permit = gate.permit(&exec.running(&["echo", "a b"]));
        assert!(matches!(exec.run(permit, &["echo", "a", "b"], gate.now), Err(ToolError::Refused(_))));
    }
}
