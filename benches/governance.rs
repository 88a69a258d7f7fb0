//! Costs of gate, receipts and moods: `cargo bench --bench governance` (builds in seconds with `--no-default-features`).
//!
//! Goals: a check of the gate under 10 ns; a receipt under 5 µs without its sync; one sync per batch.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use jiff::{SignedDuration, Timestamp};
use loom_agent::foundation::base::Digest;
use loom_agent::foundation::gate::{
    Budget, Category, Effect, EffectRequest, Gate, LeaseTerms, Ledger, LedgerEntry, LedgerError, Principal, Rights,
    Scope,
};
use loom_agent::foundation::store::receipts::{HEAD, Head, LOG, ReceiptKey, ReceiptLog, verify};
use loom_agent::foundation::store::{Disk as _, RealDisk};
use loom_agent::governance::mood::{Mood, MoodEvent, MoodProfiles, MoodState, step};
use serde_json::json;

struct Paper;

impl Ledger for Paper {
    fn record(&mut self, _: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
        Ok(vec![Digest::of(""); entries.len()])
    }
}

fn gate(c: &mut Criterion) {
    let mut group = c.benchmark_group("gate");
    let rights = Rights {
        uses: Category::Read.into(),
        delegates: Category::Read.into(),
        reads: Scope::Workspace.into(),
        budget: Budget { calls: u64::MAX, ..Budget::NOTHING },
        ..Rights::NONE
    };
    let now = Timestamp::UNIX_EPOCH;
    let terms = LeaseTerms { rights, expires: Timestamp::MAX, idle: SignedDuration::from_hours(1) };
    let who = Principal::new("run", "ann", "calm");
    let (mut gate, root) = Gate::open(Paper, who.clone(), terms.clone(), now).expect("a gate");
    let child = gate.lease(root, who, terms, now).expect("a lease");
    let read = Effect::new(Category::Read, "README.md").reading(Scope::Workspace);
    let write = Effect::new(Category::Write, "README.md").writing(Scope::Workspace);
    for (name, lease, effect) in [("yes", root, &read), ("yes, under a parent", child, &read), ("no", root, &write)] {
        group.bench_function(format!("look: {name}"), |b| {
            b.iter(|| gate.check(black_box(lease), black_box(effect), now));
        });
    }
    let request = EffectRequest { lease: root, effect: read.clone() };
    group.bench_function("ask and spend, without a log", |b| {
        b.iter(|| gate.ask(black_box(&request), now).expect("a permit").spend(&read, now));
    });
    group.finish();
}

/// A folder in memory where the system has one, so that syncing costs nothing.
fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

fn receipts(c: &mut Criterion) {
    let mut group = c.benchmark_group("receipts");
    let key = Arc::new(ReceiptKey::from_seed([7; 32]));
    let at = Timestamp::UNIX_EPOCH;
    let entry =
        LedgerEntry::new("gate.granted", json!({"lease": 3, "category": "read", "arguments": Digest::of("README.md")}));
    let batch = vec![entry; 64];
    group.bench_function("signature", |b| b.iter(|| key.sign(black_box(&[0; 62]))));
    group.throughput(Throughput::Elements(64));
    group.bench_function("64 receipts in memory", |b| {
        let open = || {
            let folder = memory_folder();
            let disk = Arc::new(RealDisk::new(folder.path()));
            (ReceiptLog::open(disk, Arc::clone(&key), at).expect("a log").0, folder)
        };
        b.iter_batched_ref(open, |(log, _)| log.commit(at, &batch).expect("durable"), BatchSize::SmallInput);
    });
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Arc::new(RealDisk::new(folder.path()));
    let (mut log, _) = ReceiptLog::open(disk, Arc::clone(&key), at).expect("a log");
    group.throughput(Throughput::Elements(1));
    group.bench_function("one receipt, synced", |b| {
        b.iter(|| log.commit(at, batch.first_chunk::<1>().expect("one")).expect("durable"));
    });
    group.throughput(Throughput::Elements(64));
    group.bench_function("64 receipts, synced together", |b| b.iter(|| log.commit(at, &batch).expect("durable")));
    drop(log);

    let folder = memory_folder();
    let disk = Arc::new(RealDisk::new(folder.path()));
    let (mut log, _) = ReceiptLog::open(Arc::clone(&disk) as Arc<_>, Arc::clone(&key), at).expect("a log");
    log.commit(at, &batch.iter().cycle().take(1_000).cloned().collect::<Vec<_>>()).expect("durable");
    log.seal().expect("sealed");
    let bytes = |name| disk.read(name).expect("readable").expect("a file");
    let head = Head::read(&bytes(HEAD)).expect("a head");
    let text = bytes(LOG);
    group.throughput(Throughput::Elements(1_001));
    group.bench_function("verify 1001 receipts", |b| b.iter(|| verify(&text, Some(&head), Some(key.public()))));
    group.finish();
}

fn moods(c: &mut Criterion) {
    let profiles = MoodProfiles::shipped().expect("profiles");
    let calm = MoodState::begin(Mood::Calm);
    c.bench_function("mood: one step", |b| b.iter(|| step(black_box(&calm), &MoodEvent::VerifiersFailed)));
    c.bench_function("mood: rights", |b| b.iter(|| black_box(&calm).rights(&profiles)));
}

criterion_group!(benches, gate, receipts, moods);
criterion_main!(benches);
