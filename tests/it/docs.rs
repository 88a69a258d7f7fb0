//! What the pages show of a terminal is what the programs print: every command that they show with its output is run as it
//! stands there, or is named here with why it is not. `LOOM_UPDATE_PAGES=1 cargo test --test it docs::` rewrites the outputs.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program;

#[path = "../../examples/regulator_correction_memory.rs"]
#[expect(dead_code, reason = "the demonstration is told here, not printed")]
mod correction_memory;
#[path = "../../examples/regulator_cost_break.rs"]
#[expect(dead_code, reason = "the demonstration is told here, not printed")]
mod cost_break;
#[path = "../../examples/regulator_scope_drift.rs"]
#[expect(dead_code, reason = "the demonstration is told here, not printed")]
mod scope_drift;

/// Commands that are not run here, by how they begin.
const NOT_RUN: [(&str, &str); 10] = [
    ("cargo run --release ", "a data set that is not in the repository"),
    ("loom confidence ", "minutes"),
    ("loom delta calibrate ", "minutes"),
    ("cat delta.yaml", "what those minutes wrote"),
    ("loom judge check", "a minute"),
    ("loom memory ", "`memory::a_persons_day` holds the page, on a day of its own"),
    ("loom serve", "it serves until it is stopped"),
    ("loom proxy", "it serves until it is stopped"),
    ("curl ", "from that server"),
    ("scripts/", "another process is killed on the way, whenever it happens"),
];

/// A command as a page shows it.
struct Shown {
    /// `docs/REGULATOR.md:17`.
    place: String,
    /// All of it, what it reads from the page included.
    command: String,
    output: String,
}

/// The commands of a page that have an output there, in order.
fn shown(name: &str, page: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut fenced, mut open, mut until) = (false, false, None);
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            (fenced, open, until) = (!fenced, false, None);
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| fenced) {
            until = command.split_once("<<'").and_then(|(_, rest)| rest.split('\'').next()).map(str::to_owned);
            let place = format!("{name}:{}", number + 1);
            all.push(Shown { place, command: command.to_owned(), output: String::new() });
            open = true;
        } else if let Some(shown) = all.last_mut().filter(|_| open) {
            let (to, ends) = match &until {
                Some(end) => (&mut shown.command, line == end),
                None => (&mut shown.output, false),
            };
            // A command ends with its line, an output with each of its lines.
            *to = if until.is_some() { format!("{to}\n{line}") } else { format!("{to}{line}\n") };
            if ends {
                until = None;
            }
        }
    }
    all.retain(|shown| !shown.output.trim().is_empty());
    all
}

/// What `command` prints in `folder`.
fn printed(folder: &Path, command: &str) -> String {
    let mut told = Vec::new();
    match command.strip_prefix("cargo run --no-default-features --example regulator_") {
        Some("correction_memory") => correction_memory::run(&mut told).unwrap(),
        Some("cost_break") => cost_break::run(&mut told).unwrap(),
        Some("scope_drift") => scope_drift::run(&mut told).unwrap(),
        _ => {
            let loom = program::command(folder, &[]);
            let bin = Path::new(loom.get_program()).parent().unwrap().to_owned();
            let path = std::env::join_paths([bin, "/usr/bin".into(), "/bin".into()]).unwrap();
            let mut shell = Command::new("sh");
            shell.env_clear().env("PATH", path).env("HOME", folder).current_dir(folder);
            let output = shell.args(["-c", &format!("exec 2>&1\n{command}")]).output().unwrap();
            told = output.stdout;
        }
    }
    String::from_utf8(told).unwrap()
}

#[test]
fn the_pages_show_what_the_programs_print() {
    let root = program::root();
    let mut pages: Vec<_> = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages.sort();
    let update = std::env::var_os("LOOM_UPDATE_PAGES").is_some();
    let (mut held, mut skipped) = (0, [false; NOT_RUN.len()]);
    for path in pages {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let folder = tempfile::tempdir().unwrap();
        let mut page = fs::read_to_string(&path).unwrap();
        for Shown { place, command, output } in shown(&name, &page.clone()) {
            if let Some(at) = NOT_RUN.iter().position(|(begins, _)| command.starts_with(begins)) {
                skipped[at] = true;
                continue;
            }
            // A file that a page shows first is the reader's own: it is what the page says.
            if let Some(file) =
                command.strip_prefix("cat ").map(|file| folder.path().join(file)).filter(|file| !file.exists())
            {
                fs::write(file, output).unwrap();
                continue;
            }
            let printed = printed(folder.path(), &command);
            let shown = format!("$ {command}\n{}", output.trim_end());
            if update {
                page = page.replace(&shown, &format!("$ {command}\n{}", printed.trim_end()));
                fs::write(&path, &page).unwrap();
            } else {
                assert_eq!(printed.trim_end(), output.trim_end(), "{place}: $ {command}");
            }
            held += 1;
        }
    }
    assert!(held > 3, "{held}");
    assert_eq!(skipped, [true; NOT_RUN.len()], "what is shown nowhere needs no excuse");
}
