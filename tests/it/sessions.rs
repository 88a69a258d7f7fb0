//! Sessions from a need to a footer: in the process, where they are stopped before every receipt, and from outside.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom_agent::app::session::{
    Conclusion, Session, SessionEnv, SessionError, SessionSettings, SessionStatus, SessionTexts,
};
use loom_agent::foundation::base::SystemClock;
use loom_agent::foundation::store::receipts::{HEAD, Head, LOG, ReceiptKey, verify};
use loom_agent::foundation::store::{Disk, DiskLock, FileStamp, RealDisk};
use loom_agent::governance::mood::{Mood, replay};
use loom_agent::governance::statechart::hope::Engagement;
use loom_agent::inference::providers::OpenOptions;
use tempfile::TempDir;
use wiremock::MockServer;

use crate::program::{self, told};
use crate::run::{answers, killed_at_request};

mod answers;
mod arms;
mod memory;
mod reading;
mod scored;

/// A disk on which only so many additions to the log succeed; then the process might as well be gone. Nothing is synced:
/// the process ends, not the machine.
struct Stopping {
    disk: RealDisk,
    appends: AtomicUsize,
    most: usize,
}

impl Disk for Stopping {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        self.disk.read(path)
    }
    fn stamp(&self, path: &str) -> io::Result<Option<FileStamp>> {
        self.disk.stamp(path)
    }
    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(path, bytes)
    }
    fn append(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        if self.appends.fetch_add(1, Ordering::Relaxed) >= self.most {
            return Err(io::Error::other("stopped here"));
        }
        self.disk.append(path, bytes)
    }
    fn sync(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.disk.make_dir(path)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn list(&self, path: &str) -> io::Result<(Vec<String>, Vec<String>)> {
        self.disk.list(path)
    }
    fn is_dir(&self, path: &str) -> bool {
        self.disk.is_dir(path)
    }
    fn lock(&self, path: &str, exclusive: bool) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path, exclusive)
    }
}

const NEED: &str = "Look at how a student talks";

fn scripts(folder: &Path) {
    fs::write(folder.join("model"), "B").unwrap();
    fs::write(folder.join("persona"), "I do not get this at all.\n---\nSo I write the units down first?\n---\nOkay.")
        .unwrap();
    fs::write(folder.join("target"), "What have you tried so far?\n---\nYes, the units first.").unwrap();
}

fn settings(scripts: &Path, engagement: Option<Engagement>) -> SessionSettings {
    let model = |name: &str| format!("scripted:{}", scripts.join(name).display()).parse().unwrap();
    SessionSettings {
        engagement,
        model: model("model"),
        judge: None,
        strong: None,
        blocked: Vec::new(),
        memory: None,
        persona_model: model("persona"),
        target: model("target"),
        question: None,
        other_target: None,
        other_config: None,
        measure: None,
        threshold: None,
        persona: None,
        config: None,
        moods: Vec::new(),
        turns: Some(3),
        rollouts: Some(1),
        other: None,
        seed: 7,
        parallel: 1,
        reply_tokens_max: 256,
    }
}

fn place(folder: &Path, most: usize) -> (SessionEnv, Arc<Stopping>) {
    fs::create_dir_all(folder).unwrap();
    let disk = Arc::new(Stopping { disk: RealDisk::new(folder), appends: AtomicUsize::new(0), most });
    let place = SessionEnv {
        folder: folder.to_owned(),
        disk: Arc::clone(&disk) as Arc<dyn Disk>,
        key: Arc::new(ReceiptKey::from_seed([5; 32])),
        clock: Arc::new(SystemClock),
        options: OpenOptions::default(),
    };
    (place, disk)
}

fn go(session: &mut Session) -> Result<SessionStatus, SessionError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(session.go())
}

/// The log verified against its head and the key, and its moods replayed.
fn sound(folder: &Path) {
    let log = fs::read(folder.join(LOG)).unwrap();
    let head = Head::read(&fs::read(folder.join(HEAD)).unwrap());
    let verified = verify(&log, head.as_ref(), Some(ReceiptKey::from_seed([5; 32]).public())).unwrap();
    assert_eq!(verified.signed, verified.receipts.len() as u64);
    replay(verified.receipts.iter().map(|receipt| (receipt.seq, &receipt.entry))).unwrap();
}

#[test]
fn a_session_has_the_same_result_wherever_it_was_interrupted() {
    let root = TempDir::new().unwrap();
    scripts(root.path());
    let autonomous = Some(Engagement::Autonomous);
    let whole = root.path().join("whole");
    let (at, disk) = place(&whole, usize::MAX);
    let mut session = Session::start(at, NEED, settings(root.path(), autonomous), &SessionTexts::default()).unwrap();
    let unbroken = go(&mut session).unwrap();
    drop(session);
    assert_eq!(unbroken.conclusion, Some(Conclusion::Unreviewed), "{unbroken:#?}");
    assert_eq!(unbroken.stage, "completed");
    // The scripted experts object.
    assert!(unbroken.footer.as_ref().unwrap().contains("Verified: review"), "{}", unbroken.report);
    assert!(!unbroken.report.contains("FAILED") && unbroken.report.contains("[ASSUMPTION]"), "{}", unbroken.report);
    assert_eq!(fs::read_to_string(whole.join("report.md")).unwrap(), unbroken.report);
    sound(&whole);

    let appends = disk.appends.load(Ordering::Relaxed);
    assert!(appends > 100, "{appends}");
    let stop_at = |most: usize| {
        let folder = root.path().join(format!("stopped-{most}"));
        let stopped =
            Session::start(place(&folder, most).0, NEED, settings(root.path(), autonomous), &SessionTexts::default());
        let stopped = stopped.and_then(|mut session| go(&mut session));
        assert!(stopped.is_err(), "{most}");
        let mut session = match Session::resume(place(&folder, usize::MAX).0) {
            Ok(session) => session,
            // Stopped before it was begun: then it begins.
            Err(error) if most < 4 => {
                assert!(error.to_string().contains("start it"), "{error}");
                Session::start(
                    place(&folder, usize::MAX).0,
                    NEED,
                    settings(root.path(), autonomous),
                    &SessionTexts::default(),
                )
                .unwrap()
            }
            Err(error) => panic!("{most}: {error}"),
        };
        let resumed = go(&mut session).unwrap_or_else(|error| panic!("{most}: {error}"));
        drop(session);
        assert_eq!(resumed, unbroken, "stopped after {most} of {appends}");
        sound(&folder);
        fs::remove_dir_all(&folder).unwrap();
    };
    let shards = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for shard in 0..shards {
            let stop_at = &stop_at;
            scope.spawn(move || (1 + shard..appends).step_by(shards).for_each(stop_at));
        }
    });
}

#[test]
fn the_users_answers_are_applied() {
    let root = TempDir::new().unwrap();
    scripts(root.path());
    let folder = root.path().join("session");
    let mut session =
        Session::start(place(&folder, usize::MAX).0, NEED, settings(root.path(), None), &SessionTexts::default())
            .unwrap();
    let mut stands = go(&mut session).unwrap();
    // Each answer comes to a new process.
    for (stage, answer) in [
        ("user_need", "collaborative"),
        ("clarify", "1B"),
        ("echo_check", "blueprint"),
        ("show_blueprint", "edits: no jargon"),
        ("echo_check", "risk"),
        ("show_risks", "yes"),
        ("shape_approval", "pause"),
        ("paused", "resume"),
        ("shape_approval", "yes"),
        ("review_feedback", "new: once more"),
        ("shape_approval", "yes"),
        ("review_feedback", "satisfied"),
    ] {
        assert_eq!((stands.waiting, stands.mood), (true, Mood::Deferential), "{stage}");
        drop(session);
        session = Session::resume(place(&folder, usize::MAX).0).unwrap();
        let error = session.answer("what do you mean").unwrap_err().to_string();
        assert!(error.contains("is not a valid answer at this stage"), "{error}");
        assert!(stage == "user_need" || stands.stage == stage, "{stage}: {stands:#?}");
        session.answer(answer).unwrap_or_else(|error| panic!("{stage}: {error}"));
        stands = go(&mut session).unwrap();
    }
    assert_eq!(stands.conclusion, Some(Conclusion::Done), "{stands:#?}");
    let brief = fs::read_to_string(folder.join("brief.md")).unwrap();
    assert!(brief.contains("no jargon"), "{brief}");
    // The second round has runs of its own.
    assert!(folder.join("runs/02-rollouts/rollout_000.json").is_file());
    sound(&folder);
}

#[test]
fn an_altered_log_is_not_resumed() {
    let root = TempDir::new().unwrap();
    scripts(root.path());
    let folder = root.path().join("session");
    let mut session =
        Session::start(place(&folder, usize::MAX).0, NEED, settings(root.path(), None), &SessionTexts::default())
            .unwrap();
    go(&mut session).unwrap();
    drop(session);
    let log = fs::read_to_string(folder.join(LOG)).unwrap();
    fs::write(folder.join(LOG), log.replacen("\"acknowledge\"", "\"close\"", 1).replacen("user_need", "completed", 1))
        .unwrap();
    let error = Session::resume(place(&folder, usize::MAX).0).map(drop).unwrap_err().to_string();
    assert!(error.contains("altered"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_killed_five_times_writes_the_same_report() {
    let root = TempDir::new().unwrap();
    scripts(root.path());
    let server = MockServer::start().await;
    let target = format!("openai-compatible:{}#m", server.uri());
    let start = |output: &str| {
        let mut arguments =
            vec!["session", "start", NEED, "--engagement", "autonomous", "--turns", "4", "--rollouts", "1"];
        arguments.extend(["--model", "scripted:model", "--persona-model", "scripted:persona"]);
        program::command(root.path(), &[&arguments[..], &["--target", &target, "--output", output]].concat())
    };
    answers(&server, u64::MAX).await;
    let whole = start("whole").output().unwrap();
    assert_eq!(whole.status.code(), Some(0), "{}", told(&whole));
    let receipts = fs::read_to_string(root.path().join("whole/receipts.jsonl")).unwrap().lines().count();
    assert!(receipts > 50, "{receipts}");
    // Each time while it waits for the target, which says five things in all.
    assert_eq!(server.received_requests().await.unwrap().len(), 5);
    let mut next = start("broken");
    for replies in [0, 1, 1, 1, 1] {
        answers(&server, replies).await;
        killed_at_request(&server, &mut next, replies + 1).await;
        next = program::command(root.path(), &["session", "resume", "broken", "--allow-host", &server.uri()]);
    }
    answers(&server, u64::MAX).await;
    let last = next.output().unwrap();
    assert!(last.status.success(), "{}", told(&last));
    let report = |name: &str| fs::read_to_string(root.path().join(name).join("report.md")).unwrap();
    assert_eq!(report("broken"), report("whole"));
    // What the target was told cannot be taken back.
    assert!(told(&whole).contains("STAKES   text sent to 127.0.0.1"), "{}", told(&whole));
    assert!(report("whole").contains("| Reversible 1 "), "{}", report("whole"));
    for arguments in [["receipts", "verify", "broken"], ["mood", "replay", "broken"], ["session", "status", "broken"]] {
        program::ends(root.path(), 0, &arguments);
    }
    let log = program::ends(root.path(), 0, &["session", "log", "broken"]);
    assert!(log.contains("CONTRITE") && log.contains("action   verify"), "{log}");
}
