//! Runs the program for tests: its home is the test's folder, and environment variables that it reads are removed. So
//! keys, caches and colours of the caller do not affect tests, and tests do not change the caller's home.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Environment variables that the program and its libraries read. `LOOM_KERNELS` is not included: it does not change
/// results, and the tests pass on every path.
const VARIABLES: [&str; 17] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "LOOM_ALLOW_HOSTS",
    "LOOM_API_KEY",
    "LOOM_CACHE",
    "LOOM_PRICES",
    "NO_COLOR",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_COMPATIBLE_API_KEY",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
];

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The command `loom` with `arguments` in `folder`.
pub(crate) fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loom"));
    for name in VARIABLES {
        command.env_remove(name);
    }
    // The repository is not used as home.
    let home = if folder.starts_with(root()) { Path::new(env!("CARGO_TARGET_TMPDIR")) } else { folder };
    command.env("HOME", home).current_dir(folder).args(arguments);
    command
}

/// Runs `loom` with `arguments` in `folder`.
pub(crate) fn loom(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

/// Runs `command` with `input` on standard input.
pub(crate) fn fed(mut command: Command, input: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let fed = child.stdin.take().unwrap().write_all(input.as_bytes());
    // A process that rejects its arguments may end before it reads anything.
    assert!(fed.is_ok() || fed.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
    child.wait_with_output().unwrap()
}

/// Standard output and standard error.
pub(crate) fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `loom` with `arguments` in `folder`, asserts the exit code, and returns its output.
#[track_caller]
pub(crate) fn ends(folder: &Path, code: i32, arguments: &[&str]) -> String {
    let output = loom(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", told(&output));
    told(&output)
}
