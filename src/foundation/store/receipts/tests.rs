//! Written receipts are read back, manipulations are detected and located, and no crash loses durable receipts.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::foundation::base::{Digest, canonical_json, limits};
use crate::foundation::gate::LedgerEntry;
use crate::foundation::store::{CrashOutcome, Disk, RealDisk, SimDisk};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn key() -> Arc<ReceiptKey> {
    Arc::new(ReceiptKey::from_seed([7; 32]))
}

fn entry(number: usize) -> LedgerEntry {
    LedgerEntry::new(
        "test.done",
        json!({"number": number, "word": "naïve \"quoted\" \u{2028}", "z": null, "a": [1, 2.5]}),
    )
}

fn open(disk: &SimDisk) -> Result<(ReceiptLog, OpenedLog), LogError> {
    ReceiptLog::open(Arc::new(disk.clone()), key(), at(0))
}

/// A sealed log of the opening and `count` receipts.
fn sealed(count: usize) -> (Vec<u8>, Head) {
    let disk = SimDisk::default();
    let (mut log, _) = open(&disk).unwrap();
    let entries: Vec<_> = (0..count).map(entry).collect();
    log.commit(at(1), &entries).unwrap();
    let head = log.seal().unwrap();
    (disk.files()[LOG].clone(), head)
}

#[test]
fn a_line_is_canonical_json_and_reads_back() {
    let (log, head) = sealed(3);
    for line in std::str::from_utf8(&log).unwrap().lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(canonical_json(&value).unwrap(), line);
    }
    let verified = verify(&log, Some(&head), Some(key().public())).unwrap();
    assert_eq!((verified.receipts.len(), verified.signed, verified.torn_bytes), (4, 4, 0));
    assert_eq!(verified.receipts[2].entry, entry(1));
    assert_eq!(Head::read(&head.to_bytes().unwrap()), Some(head));
}

#[test]
fn truncation_another_key_and_a_missing_head_are_distinguished() {
    let (log, head) = sealed(3);
    let lines: Vec<_> = log.split_inclusive(|byte| *byte == b'\n').collect();
    let kind = |log: &[u8], head: Option<&Head>| {
        verify(log, head, Some(key().public())).map(|_| ()).map_err(|fault| (fault.line, fault.kind))
    };
    let cut = lines[..3].concat();
    assert_eq!(kind(&cut, Some(&head)), Err((4, LogFaultKind::Truncated { signed: 4, found: 3 })));
    assert_eq!(kind(&[], Some(&head)), Err((1, LogFaultKind::Truncated { signed: 4, found: 0 })));
    assert_eq!(kind(&log, None), Err((4, LogFaultKind::Unsigned)));
    let stranger = Head::sign(&ReceiptKey::from_seed([8; 32]), 4, head.digest);
    assert_eq!(kind(&log, Some(&stranger)), Err((4, LogFaultKind::OtherKey)));
    let forged = Head { receipts: 3, ..head.clone() };
    assert_eq!(kind(&cut, Some(&forged)), Err((3, LogFaultKind::BadSignature)));
    let other = Head::sign(&key(), 4, Digest::of("another"));
    assert_eq!(kind(&log, Some(&other)), Err((4, LogFaultKind::OtherLog)));
    let moved = [lines[0], lines[2], lines[1], lines[3]].concat();
    assert_eq!(kind(&moved, Some(&head)), Err((2, LogFaultKind::OutOfOrder { expected: 1, found: 2 })));
    let (others, _) = sealed(2);
    let mixed = [lines[0], others.split_inclusive(|byte| *byte == b'\n').nth(2).unwrap()].concat();
    assert_eq!(kind(&mixed, Some(&head)), Err((2, LogFaultKind::OutOfOrder { expected: 1, found: 2 })));
    let spaced = String::from_utf8(log).unwrap().replacen(":[1,", ": [1,", 1);
    assert_eq!(kind(spaced.as_bytes(), Some(&head)), Err((2, LogFaultKind::NotCanonical)));
}

/// The number of the first line in which two logs differ, from 1.
fn first_difference(a: &[u8], b: &[u8]) -> u64 {
    let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
    a[..at].split(|byte| *byte == b'\n').count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every manipulation of a sealed log is detected and located in the first line that differs.
    #[test]
    fn any_manipulation_is_detected_and_located(
        count in 1..6_usize, deed in 0..5_u8, where_ in any::<prop::sample::Index>(),
        where_to in any::<prop::sample::Index>(), bit in 0..8_u32,
    ) {
        let (log, head) = sealed(count);
        let mut lines: Vec<Vec<u8>> = log.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let (one, other) = (where_.index(lines.len()), where_to.index(lines.len()));
        let changed = match deed {
            0 => {
                let mut flipped = log.clone();
                let at = where_.index(flipped.len());
                flipped[at] ^= 1 << bit;
                flipped
            }
            1 => { lines.remove(one); lines.concat() }
            2 => { lines.swap(one, other); lines.concat() }
            3 => { let copy = lines[other].clone(); lines.insert(one, copy); lines.concat() }
            _ => log[..where_.index(log.len())].to_vec(),
        };
        prop_assume!(changed != log);
        let fault = verify(&changed, Some(&head), Some(key().public()));
        prop_assert!(fault.is_err(), "not found");
        let line = fault.unwrap_err().line;
        prop_assert_eq!(line, first_difference(&log, &changed), "at another place");
    }
}

#[test]
fn no_crash_at_any_operation_loses_or_alters_what_was_reported_durable() {
    let script = |disk: &SimDisk| {
        let mut durable: Vec<Digest> = Vec::new();
        let mut work = || -> Result<(), LogError> {
            let (mut log, _) = open(disk)?;
            durable.extend(log.commit(at(1), &[entry(0), entry(1)])?.digests());
            let text = log.contents().put(b"a long text").map_err(|source| LogError::Io { action: "keep", source })?;
            durable.extend(log.commit(at(2), &[entry(2).with_content("text", text)])?.digests());
            log.seal()?;
            durable.extend(log.commit(at(3), &[entry(3), entry(4), entry(5)])?.digests());
            log.erase(text, at(4))?;
            log.seal().map(|_| ())
        };
        let _stopped = work();
        durable
    };
    let whole = SimDisk::default();
    assert_eq!(script(&whole).len(), 6);
    let mut crashes = 0;
    for stop in 0..whole.operations() {
        let ways = [CrashOutcome::Nothing, CrashOutcome::Everything, CrashOutcome::Torn];
        for surviving in ways.into_iter().chain((0..8).map(CrashOutcome::Random)) {
            let disk = SimDisk::default();
            disk.stop_at(stop);
            let durable = script(&disk);
            let found = disk.after_crash(surviving);
            let (mut log, opened) = open(&found).unwrap_or_else(|error| panic!("{stop} {surviving:?}: {error}"));
            let kept: Vec<_> = opened.receipts.iter().map(|receipt| receipt.digest).collect();
            let missing = durable.iter().filter(|digest| !kept.contains(digest)).count();
            assert_eq!(missing, 0, "{stop} {surviving:?}");
            log.commit(at(9), &[entry(9)]).unwrap();
            let head = log.seal().unwrap();
            let files = found.files();
            let verified = verify(&files[LOG], Some(&head), Some(key().public())).unwrap();
            assert_eq!(verified.receipts.last().unwrap().entry, entry(9));
            let lost = log.contents().states(&verified.receipts).unwrap();
            assert!(lost.iter().all(|(.., state)| !matches!(state, ContentState::Missing | ContentState::Altered)));
            crashes += 1;
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 200);
}

#[test]
fn a_chained_line_that_nobody_signed_is_never_signed_later() {
    let disk = SimDisk::default();
    let (mut log, _) = open(&disk).unwrap();
    log.commit(at(1), &[entry(0), entry(1)]).unwrap();
    drop(log);
    let (whole, head) = (disk.files()[LOG].clone(), disk.files()[HEAD].clone());
    let verified = |disk: &SimDisk| {
        let files = disk.files();
        verify(&files[LOG], Head::read(&files[HEAD]).as_ref(), Some(key().public()))
    };
    // The two were written after the seal, and are signed themselves.
    let control = verified(&disk).unwrap();
    assert_eq!((control.receipts.len(), control.sealed, control.signed), (3, 1, 3));
    let append = |key: Option<&ReceiptKey>, count: usize| {
        let disk = SimDisk::default();
        disk.write(LOG, &whole).unwrap();
        disk.write(HEAD, &head).unwrap();
        let mut last = control.receipts[2].digest;
        for number in 3..3 + count as u64 {
            let (receipt, line) = Receipt::write(number, last, at(2), entry(9), key).unwrap();
            disk.append(LOG, format!("{line}\n").as_bytes()).unwrap();
            last = receipt.digest;
        }
        disk
    };
    for count in [1, 3] {
        let disk = append(None, count);
        let found = verified(&disk).unwrap();
        assert_eq!((found.receipts.len(), found.signed), (3 + count, 3));
        // The next writer removes them, says so, and signs what the first one wrote.
        let (mut log, opened) = open(&disk).unwrap();
        assert!(opened.cut_bytes > 100 && opened.receipts.len() == 3, "{opened:?}");
        log.commit(at(3), &[entry(5)]).unwrap();
        log.seal().unwrap();
        let after = verified(&disk).unwrap();
        assert!(after.receipts.iter().all(|receipt| receipt.entry != entry(9)));
        assert_eq!((after.receipts.len(), after.signed), (5, 5));
    }
    let stranger = ReceiptKey::from_seed([8; 32]);
    let disk = append(Some(&stranger), 1);
    assert_eq!(verified(&disk).unwrap_err().kind, LogFaultKind::BadReceiptSignature);
    assert!(matches!(open(&disk), Err(LogError::Damaged(_))));
    // A signature of another receipt does not fit.
    let disk = append(Some(&key()), 1);
    let text = String::from_utf8(disk.files()[LOG].clone()).unwrap();
    assert!(verified(&disk).is_ok());
    let (first, second) = (signature_in(text.lines().nth(2).unwrap()), signature_in(text.lines().nth(3).unwrap()));
    disk.write(LOG, text.replace(second, first).as_bytes()).unwrap();
    assert_eq!(verified(&disk).unwrap_err().kind, LogFaultKind::Altered);
}

fn signature_in(line: &str) -> &str {
    line.split("\"signature\":\"").nth(1).unwrap().split('"').next().unwrap()
}

#[test]
fn after_a_failed_write_the_log_accepts_nothing() {
    let disk = SimDisk::default();
    let (mut log, _) = open(&disk).unwrap();
    disk.stop_at(disk.operations());
    assert!(matches!(log.commit(at(1), &[entry(0)]), Err(LogError::Io { .. })));
    assert!(matches!(log.commit(at(1), &[entry(0)]), Err(LogError::Poisoned)));
    let too_large = LedgerEntry::new("test.long", json!("x".repeat(limits::RECEIPT_BYTES_MAX)));
    let (mut log, _) = open(&SimDisk::default()).unwrap();
    assert!(matches!(log.commit(at(1), &[too_large]), Err(LogError::Invalid { .. })));
    assert!(log.commit(at(1), &[entry(1)]).is_ok());
}

#[test]
fn erasing_a_text_keeps_the_chain_valid() {
    let disk = SimDisk::default();
    let (mut log, _) = open(&disk).unwrap();
    let contents = log.contents();
    let [kept, erased, lost] = ["kept", "erased", "lost"].map(|text| contents.put(text.as_bytes()).unwrap());
    let entry = entry(0).with_content("a", kept).with_content("b", erased).with_content("c", lost);
    log.commit(at(1), &[entry]).unwrap();
    log.erase(erased, at(2)).unwrap();
    disk.remove(&format!("contents/{lost}")).unwrap();
    disk.write(&format!("contents/{kept}"), b"other").unwrap();
    let head = log.seal().unwrap();
    let verified = verify(&disk.files()[LOG], Some(&head), None).unwrap();
    let states: Vec<_> = contents.states(&verified.receipts).unwrap().into_iter().map(|(.., state)| state).collect();
    assert_eq!(states, [ContentState::Altered, ContentState::Erased, ContentState::Missing]);
    assert_eq!(contents.get(kept).unwrap(), None);
}

#[test]
fn threads_share_a_log_and_each_gets_its_own_receipts() {
    let disk = SimDisk::default();
    let (log, _) = open(&disk).unwrap();
    let shared = SharedLog::new(log);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                (0..25)
                    .map(|turn| (thread * 100 + turn, shared.record(at(1), &[entry(thread * 100 + turn)]).unwrap()[0]))
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let given: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let head = shared.log().seal().unwrap();
    let verified = verify(&disk.files()[LOG], Some(&head), None).unwrap();
    assert_eq!(verified.receipts.len(), 101);
    for (number, digest) in given {
        let receipt = verified.receipts.iter().find(|receipt| receipt.digest == digest).unwrap();
        assert_eq!(receipt.entry, entry(number));
    }
}

#[test]
fn spans_follow_the_otlp_conventions() {
    let disk = SimDisk::default();
    let (mut log, _) = open(&disk).unwrap();
    let grant = log.commit(at(1), &[LedgerEntry::new("gate.granted", json!({}))]).unwrap().digests()[0];
    let called = json!({"model": "bundled", "provider": "loom", "tokens_in": 12, "tokens_out": 5, "wall_ms": 250,
        "finish": "stop", "grant": grant});
    log.commit(at(2), &[LedgerEntry::new("model.called", called), LedgerEntry::new("gate.refused", json!({}))])
        .unwrap();
    let (receipts, _) = super::verify::chain(&disk.files()[LOG]).unwrap();
    let otlp = to_otlp(&receipts);
    let spans = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 4);
    let call = &spans[2];
    assert_eq!(call["name"], "chat bundled");
    assert_eq!(call["kind"], 3);
    assert_eq!(call["parentSpanId"], spans[1]["spanId"]);
    assert_eq!(call["startTimeUnixNano"], "1700000001750000000");
    assert_eq!(call["endTimeUnixNano"], "1700000002000000000");
    assert_eq!((call["traceId"].as_str().unwrap().len(), call["spanId"].as_str().unwrap().len()), (32, 16));
    let attributes = call["attributes"].as_array().unwrap();
    let value = |key: &str| &attributes.iter().find(|attribute| attribute["key"] == key).unwrap()["value"];
    assert_eq!(value("gen_ai.usage.output_tokens"), &json!({"intValue": "5"}));
    assert_eq!(value("gen_ai.operation.name"), &json!({"stringValue": "chat"}));
    assert_eq!(spans[3]["status"]["code"], 2);
}

#[test]
fn signatures_match_rfc_8032() {
    // RFC 8032, section 7.1, test 1: the empty message.
    let seed = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let seed: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&seed[2 * at..2 * at + 2], 16).unwrap()).collect();
    let key = ReceiptKey::from_seed(seed.try_into().unwrap());
    assert_eq!(key.public().to_string(), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    let signature = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";
    assert_eq!(key.sign(b""), signature);
    assert!(key.public().has_signed(b"", signature) && !key.public().has_signed(b"x", signature));
}

#[cfg(unix)]
#[test]
fn the_key_is_made_once_for_its_owner_alone_and_refused_when_open_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/loom/key");
    let keys: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| ReceiptKey::open(&path).unwrap().public())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let parent = path.parent().unwrap();
    // A user who can write to the folder can replace the key.
    for (of, loose, kept) in [(path.as_path(), 0o640, 0o600), (parent, 0o770, 0o755), (parent, 0o702, 0o700)] {
        set(of, loose);
        assert!(matches!(ReceiptKey::open(&path), Err(KeyError::Open(_))), "{loose:o}");
        set(of, kept);
        assert!(ReceiptKey::open(&path).is_ok());
    }
    set(&path, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    for other in [text.trim_end().to_owned(), format!("{text}\n"), text.to_uppercase(), text.replace('\n', " ")] {
        if other != text {
            std::fs::write(&path, &other).unwrap();
            assert!(matches!(ReceiptKey::open(&path), Err(KeyError::NotAKey(_))), "{other:?}");
        }
    }
    std::fs::write(&path, text).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(ReceiptKey::open(&link), Err(KeyError::NotAFile(_))));
    // On the real disk a log works as on the simulated one.
    let disk = Arc::new(RealDisk::new(folder.path()));
    let (log, opened) = ReceiptLog::open(disk.clone(), key(), at(0)).unwrap();
    assert_eq!((opened.receipts.len(), log.last().0), (0, 1));
    drop(log);
    disk.append(LOG, b"{\"at\":").unwrap();
    let (_, opened) = ReceiptLog::open(disk, key(), at(1)).unwrap();
    assert_eq!((opened.receipts.len(), opened.cut_bytes), (1, 6));
}
