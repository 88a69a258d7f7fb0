//! The program as a process: output and exit codes.

use std::path::Path;
use std::process::Stdio;

use crate::program::{command, loom, root};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn malformed_configs_have_located_errors() {
    let folder = root().join("tests/data/configs");
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    names.sort();
    assert!(names.len() >= 12);
    for name in names {
        let output = loom(&folder, &["validate", "--color", "never", &name]);
        assert_eq!(output.status.code(), Some(3), "{name}");
        insta::assert_snapshot!(name.trim_end_matches(".yaml"), text(&output.stderr));
    }
}

#[test]
fn help_matches_its_snapshots() {
    for name in ["", "validate", "schema", "new", "examples", "completions"] {
        let arguments: Vec<_> = [name, "--help"].into_iter().filter(|argument| !argument.is_empty()).collect();
        let output = loom(&root(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{name}");
        // The root help changes with the list of commands; each command has its own snapshot.
        if !name.is_empty() {
            insta::assert_snapshot!(format!("help_{name}"), text(&output.stdout));
        }
    }
}

#[test]
fn validate_accepts_valid_and_rejects_invalid_configs() {
    let good = loom(&root(), &["validate", "configs/personas/mania_patient.yaml", "configs/personas/open_ended.yaml"]);
    assert_eq!(good.status.code(), Some(0));
    insta::assert_snapshot!("validate_good", text(&good.stdout));
    let mixed =
        ["validate", "--format", "json", "configs/starter.yaml", "tests/data/configs/out_of_range.yaml", "none.yaml"];
    let mixed = loom(&root(), &mixed);
    assert_eq!(mixed.status.code(), Some(3));
    let entries: serde_json::Value = serde_json::from_slice(&mixed.stdout).unwrap();
    insta::assert_json_snapshot!("validate_json", entries);
}

#[test]
fn new_writes_a_valid_config_and_does_not_overwrite() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(loom(folder.path(), &["new", "anna"]).status.code(), Some(0));
    assert_eq!(loom(folder.path(), &["validate", "anna.yaml"]).status.code(), Some(0));
    std::fs::write(folder.path().join("anna.yaml"), "mine").unwrap();
    let again = loom(folder.path(), &["new", "anna"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("is not overwritten"), "{}", text(&again.stderr));
    assert_eq!(std::fs::read_to_string(folder.path().join("anna.yaml")).unwrap(), "mine");
}

#[test]
fn examples_are_listed_printed_and_copied() {
    let folder = tempfile::tempdir().unwrap();
    let listed = text(&loom(folder.path(), &["examples"]).stdout);
    assert!(
        listed.contains("personas/mania_patient.yaml") && listed.contains("adversaries/helpfulness.yaml"),
        "{listed}"
    );
    let printed = text(&loom(folder.path(), &["examples", "student"]).stdout);
    assert_eq!(printed, std::fs::read_to_string(root().join("configs/personas/student.yaml")).unwrap());
    assert_eq!(loom(folder.path(), &["examples", "--copy", "mine"]).status.code(), Some(0));
    assert_eq!(loom(folder.path(), &["validate", "mine/personas/student.yaml"]).status.code(), Some(0));
    let wrong = loom(folder.path(), &["examples", "studnet"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `student`?"), "{}", text(&wrong.stderr));
}

#[test]
fn an_invalid_command_line_exits_with_2() {
    for arguments in [&["frobnicate"][..], &["validate"], &["completions", "cmd"], &[]] {
        assert_eq!(loom(&root(), arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_not_an_error() {
    for arguments in [&["schema"][..], &["completions", "bash"], &["examples", "mania_patient"], &["--help"]] {
        let mut child = command(&root(), arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The reader closes the pipe before any output.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments:?}");
    }
}
