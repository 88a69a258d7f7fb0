use std::collections::BTreeMap;

use super::*;
use crate::foundation::store::{CrashOutcome, RealDisk, SimDisk};

type Files = BTreeMap<String, Vec<u8>>;

fn start() -> SimDisk {
    SimDisk::with([("a/one.md", b"one".as_slice()), ("a/two.md", b"two"), ("b/gone.md", b"gone"), (".loom/lock", b"")])
}

fn changes() -> Vec<FileChange> {
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    let change = |path: &str, before, after| FileChange { path: path.to_owned(), before, after };
    vec![
        change("new/deep/made.md", None, bytes("made")),
        change("a/one.md", bytes("one"), bytes("ONE, and longer")),
        change("b/gone.md", bytes("gone"), None),
        change("a/two.md", bytes("two"), bytes("TWO")),
    ]
}

fn run(disk: &SimDisk) -> Result<Committed, StoreError> {
    recover(disk)?;
    Transaction::new(changes()).commit(disk, |_| Ok(()))
}

/// The user's files: before, and after.
fn ends() -> [Files; 2] {
    let before = start().files();
    let disk = start();
    run(&disk).unwrap();
    assert_ne!(before, disk.files());
    [before, disk.files()]
}

#[test]
fn all_changes_happen_and_nothing_else_is_left() {
    let [before, after] = ends();
    let mut expected = before;
    expected.remove("b/gone.md");
    expected.insert("a/one.md".into(), b"ONE, and longer".to_vec());
    expected.insert("a/two.md".into(), b"TWO".to_vec());
    expected.insert("new/deep/made.md".into(), b"made".to_vec());
    assert_eq!(after, expected);
}

#[test]
fn a_crash_at_every_operation_and_again_in_every_recovery_leaves_all_or_nothing() {
    let [before, after] = ends();
    let full = {
        let disk = start();
        run(&disk).unwrap();
        disk.operations()
    };
    let mut points = 0;
    for stop in 0..full {
        for first in CrashOutcome::samples(8) {
            let disk = start();
            disk.stop_at(stop);
            assert!(run(&disk).is_err());
            let crashed = disk.after_crash(first);
            let rest = {
                let disk = crashed.fork();
                recover(&disk).unwrap();
                disk
            };
            assert!(rest.files() == before || rest.files() == after, "stop {stop} {first:?}: {:?}", rest.files());
            for again in 0..rest.operations() {
                for second in CrashOutcome::samples(8) {
                    let disk = crashed.fork();
                    disk.stop_at(again);
                    assert!(recover(&disk).is_err());
                    let disk = disk.after_crash(second);
                    recover(&disk).unwrap();
                    assert_eq!(disk.files(), rest.files(), "stop {stop} {first:?}, again {again} {second:?}");
                    points += 1;
                }
            }
        }
    }
    assert!(points > 10_000, "{points} points");
}

#[test]
fn what_was_reported_as_done_survives_any_crash() {
    let [_, after] = ends();
    let disk = start();
    run(&disk).unwrap();
    for kind in CrashOutcome::samples(8) {
        let crashed = disk.after_crash(kind);
        recover(&crashed).unwrap();
        assert_eq!(crashed.files(), after, "{kind:?}");
    }
}

#[test]
fn a_single_replacement_is_old_or_new_at_every_crash() {
    let change = FileChange { path: "a/one.md".into(), before: Some(b"one".to_vec()), after: Some(b"other".to_vec()) };
    let full = {
        let disk = start();
        replace(&disk, &change).unwrap();
        disk.operations()
    };
    for stop in 0..=full {
        for kind in CrashOutcome::samples(8) {
            let disk = start();
            disk.stop_at(stop);
            let done = replace(&disk, &change).is_ok();
            let disk = disk.after_crash(kind);
            recover(&disk).unwrap();
            let found = disk.files().remove("a/one.md").unwrap();
            assert!(found == b"other" || (!done && found == b"one"), "stop {stop} {kind:?}");
            assert_eq!(disk.files().len(), start().files().len());
        }
    }
}

#[test]
fn a_refused_check_undoes_everything() {
    let disk = start();
    let refused = Transaction::new(changes()).commit(&disk, |disk| {
        assert_eq!(disk.read("a/one.md").unwrap().unwrap(), b"ONE, and longer");
        Err("no".to_owned())
    });
    assert!(matches!(refused, Err(StoreError::Refused(_))));
    assert_eq!(disk.files(), start().files());
    assert!(!disk.is_dir("new"));
}

#[test]
fn an_edit_before_the_change_stops_it() {
    let disk = start();
    disk.write("a/two.md", b"edited by hand").unwrap();
    assert!(matches!(run(&disk), Err(StoreError::Edited(path)) if path == "a/two.md"));
    assert_eq!(disk.files()["a/two.md"], b"edited by hand");
    assert_eq!(disk.files()["a/one.md"], b"one");
}

#[test]
fn an_edit_after_a_crash_is_never_overwritten() {
    let full = {
        let disk = start();
        run(&disk).unwrap();
        disk.operations()
    };
    let mut conflicts = 0;
    for stop in 0..full {
        let disk = start();
        disk.stop_at(stop);
        run(&disk).unwrap_err();
        let disk = disk.after_crash(CrashOutcome::Everything);
        disk.write("a/one.md", b"by hand").unwrap();
        if let Err(StoreError::Conflict(path)) = recover(&disk) {
            assert_eq!(path, "a/one.md");
            conflicts += 1;
            // The way out that the message names.
            disk.rename("a/one.md", "a/mine.md").unwrap();
            recover(&disk).unwrap();
            assert_eq!(disk.files()["a/one.md"], b"one");
            assert_eq!(disk.files()["a/mine.md"], b"by hand");
        } else {
            assert_eq!(disk.files()["a/one.md"], b"by hand");
        }
    }
    assert!(conflicts > 0);
}

#[test]
fn a_damaged_journal_is_said_and_touches_nothing() {
    let disk = start();
    disk.make_dir(".loom/tx").unwrap();
    disk.write(".loom/tx/prepared", b"0000\n{}").unwrap();
    assert!(matches!(recover(&disk), Err(StoreError::Io { .. })));
    assert_eq!(disk.files()["a/one.md"], b"one");
}

#[test]
fn the_real_disk_does_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(folder.path());
    let [before, after] = ends();
    for dir in ["a", "b", LOOM_DIR] {
        disk.make_dir(dir).unwrap();
    }
    for (path, bytes) in &before {
        disk.write(path, bytes).unwrap();
    }
    let _lock = disk.lock(".loom/lock", true).unwrap();
    Transaction::new(changes()).commit(&disk, |_| Ok(())).unwrap();
    for path in before.keys().chain(after.keys()) {
        assert_eq!(disk.read(path).unwrap().as_ref(), after.get(path), "{path}");
    }
    assert!(!disk.is_dir(".loom/tx"));
    assert!(disk.read("../outside").is_err());
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_permissions_and_a_link_is_not_broken() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(folder.path());
    disk.make_dir(LOOM_DIR).unwrap();
    disk.write("mine.md", b"old").unwrap();
    let mine = folder.path().join("mine.md");
    std::fs::set_permissions(&mine, std::fs::Permissions::from_mode(0o600)).unwrap();
    let change =
        |path: &str| FileChange { path: path.into(), before: Some(b"old".to_vec()), after: Some(b"new".to_vec()) };
    replace(&disk, &change("mine.md")).unwrap();
    assert_eq!(std::fs::metadata(&mine).unwrap().permissions().mode() & 0o777, 0o600);
    disk.write("other.md", b"old").unwrap();
    symlink("other.md", folder.path().join("link.md")).unwrap();
    assert!(replace(&disk, &change("link.md")).is_err());
    assert_eq!(disk.read("other.md").unwrap().unwrap(), b"old");
}
