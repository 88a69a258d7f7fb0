//! `loom mood` from outside.

use std::fs;
use std::process::Output;

use crate::program::{self, told};

fn loom(arguments: &[&str]) -> Output {
    program::loom(&program::root(), &[arguments, &["--color", "never"]].concat())
}

#[test]
fn the_moods_that_come_with_the_program_are_shown_and_good() {
    let mut files: Vec<_> =
        fs::read_dir("configs/moods").unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect();
    files.sort();
    assert_eq!(files.len(), 8);
    let arguments: Vec<_> = ["mood", "check"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let checked = loom(&arguments);
    assert_eq!(checked.status.code(), Some(0), "{}", told(&checked));
    let shown = loom(&["mood", "show", "petty"]);
    assert_eq!(shown.stdout, fs::read("configs/moods/petty.yaml").unwrap());
    let all = told(&loom(&["mood", "show"]));
    assert!(
        all.contains("PARANOID") && all.contains("with a policy token memory_apply, promote, publish, sign"),
        "{all}"
    );
}

#[test]
fn a_profile_that_widens_its_mood_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.yaml");
    let calm = fs::read_to_string("configs/moods/calm.yaml").unwrap();
    fs::write(
        &path,
        calm.replace("network: none", "network: granted").replace("version: 1", "version: 1\nvibes: good"),
    )
    .unwrap();
    let checked = loom(&["mood", "check", path.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(3));
    let told = told(&checked);
    for expected in ["`vibes` is not a known key", "network: granted", "goes beyond the CALM that comes with loom"] {
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_mood_is_explained_by_its_guard() {
    let check = |arguments: &[&str], expected: &str| {
        let told = told(&loom(&[&["mood", "explain"], arguments].concat()));
        assert!(told.contains(expected), "{told}");
    };
    check(&[], "The verifiers pass.");
    check(&["failing"], "SKEPTICAL  failing");
    check(&["unaimed", "crashed"], "CONTRITE  crash");
    check(&["clear"], "CALM  as it begins");
    check(&["--in", "calm", "failing"], "CALM becomes SKEPTICAL: failing");
    check(&["--in", "skeptical", "verified"], "verified.widen         no: needs widening");
    check(&["--in", "calm", "clear"], "CALM stays: no guard holds");
    check(&["failling"], "did you mean `failing`?");
}
