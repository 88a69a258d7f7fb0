//! `loom chart` from the command line.

use std::fs;
use std::process::Output;

use crate::program;

fn loom(arguments: &[&str]) -> Output {
    program::loom(&program::root(), &[arguments, &["--color", "never"]].concat())
}

#[test]
fn the_built_in_chart_is_valid_and_its_diagrams_are_in_the_docs() {
    let checked = loom(&["chart", "check", "configs/charts/hope.chart"]);
    assert_eq!(checked.status.code(), Some(0));
    assert!(String::from_utf8(checked.stdout).unwrap().starts_with("configs/charts/hope.chart: ok, "));
    for (format, file) in
        [("dot", "docs/charts/hope.dot"), ("mermaid", "docs/charts/hope.mmd"), ("svg", "docs/charts/hope.svg")]
    {
        let shown = loom(&["chart", "show", "hope", "--format", format]);
        assert!(fs::read(file).unwrap() == shown.stdout, "`loom chart show hope --format {format} > {file}`");
    }
}

#[test]
fn a_bad_chart_is_shown_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.chart");
    fs::write(
        &path,
        "chart bad\n\nstate a\n  on yess -> b\n  on yes [spec_ready] / assume -> b\nstate b\n  on edits -> a\n",
    )
    .unwrap();
    let unknown = loom(&["chart", "check", path.to_str().unwrap()]);
    assert_eq!(unknown.status.code(), Some(3));
    fs::write(&path, "chart bad\n\nstate a\n  on yes [spec_ready] / assume -> b\nstate b\n  on edits -> a\nstate c\n")
        .unwrap();
    let partial = loom(&["chart", "check", path.to_str().unwrap()]);
    let report = [unknown.stderr, partial.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let report = report.join("\n").replace(path.to_str().unwrap(), "bad.chart");
    insta::assert_snapshot!(report);
}

#[test]
fn help_of_both_commands() {
    let help = [["chart", "show", "--help"], ["chart", "check", "--help"]].map(|arguments| loom(&arguments).stdout);
    insta::assert_snapshot!(help.map(|bytes| String::from_utf8(bytes).unwrap()).join("\n"));
}
