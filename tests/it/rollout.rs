//! Rollouts between scripted models: what is recorded, redrafted and resumed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom_agent::foundation::chat::{Finish, ThoughtEnd};
use loom_agent::inference::providers::OpenOptions;
use loom_agent::simulation::persona::{AdversaryKind, parse};
use loom_agent::simulation::rollout::{
    FileError, ModelRef, MonitorAction, Observer, Outcome, Progress, RolloutSummary, Run, RunError, RunPlan, StopFlag,
    Transcript, read_tokens, read_transcript, turn_count,
};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const ANNA: &str = include_str!("../data/rollout/anna.yaml");

/// A folder with two scripts in it.
struct Table {
    dir: TempDir,
    yaml: String,
    rollouts: usize,
    seed: u64,
}

impl Table {
    fn new(persona: &str, interlocutor: &str) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("persona"), persona).unwrap();
        fs::write(dir.path().join("interlocutor"), interlocutor).unwrap();
        Self { dir, yaml: ANNA.to_owned(), rollouts: 1, seed: 7 }
    }

    fn yaml(mut self, from: &str, to: &str) -> Self {
        assert!(self.yaml.contains(from), "{from}");
        self.yaml = self.yaml.replace(from, to);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn plan(&self) -> RunPlan {
        let config = Arc::new(parse("anna.yaml", &self.yaml).unwrap());
        let model = |name| format!("scripted:{}", self.path(name).display()).parse().unwrap();
        RunPlan {
            yaml: self.yaml.clone(),
            seed: self.seed,
            rollouts: self.rollouts,
            turns: turn_count(&config, None).unwrap(),
            adversary: AdversaryKind::None,
            adversary_script: None,
            persona: model("persona"),
            interlocutor: model("interlocutor"),
            judge: "echo".parse().unwrap(),
            regulator: config.regulator,
            calibration: None,
            config,
        }
    }

    fn create(&self, output: &str) -> Result<Run, RunError> {
        Run::create(&self.plan(), &self.path(output), &OpenOptions::default())
    }

    fn execute(&self, output: &str) -> Transcript {
        execute(&self.create(output).unwrap(), 1);
        self.transcript(output)
    }

    fn transcript(&self, output: &str) -> Transcript {
        read_transcript(&self.path(output).join("rollout_000.json")).unwrap()
    }
}

fn execute(run: &Run, parallel: usize) -> Vec<RolloutSummary> {
    let observer: Observer = Arc::new(|_| {});
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run.execute(parallel, &observer, &StopFlag::default())).unwrap()
}

/// A file's JSON without what may differ between two runs of one seed.
fn stripped(path: &Path) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| key != "timing" && key != "created_at");
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    strip(&mut value);
    value
}

const ANNAS_WORDS: &str = "The alarms have a rhythm lately.\n---\nI write the times down.\n---\nIt is a sentence, Tom.\n---\n\
                           Nobody else counts them.\n---\nIt says my name.\n---\nI will answer it tonight.";

#[test]
fn a_small_rollout_matches_its_snapshot() {
    let table = Table::new(ANNAS_WORDS, "Tell me more.\n---\nWhat do you mean?");
    let transcript = table.execute("run");
    assert_eq!(transcript.outcome, Outcome::Complete);
    let mut value = stripped(&table.path("run/rollout_000.json"));
    // The scripts lie in a folder whose name changes.
    value["models"] = Value::Null;
    for turn in value["turns"].as_array_mut().unwrap() {
        turn["persona"]["model"] = "scripted:persona".into();
        turn["interlocutor"]["model"] = "scripted:interlocutor".into();
    }
    value["turns"].as_array_mut().unwrap().truncate(3);
    // The prompts' wording has golden files of its own.
    value["turns"][0]["injected"][0] = "the whole prompt".into();
    for turn in value["turns"].as_array_mut().unwrap() {
        turn["prompt"]["digest"] = "the prompt's digest".into();
    }
    insta::assert_json_snapshot!("small_rollout", value);
    let spoken: Vec<_> = read_tokens(&table.path("run/rollout_000.json")).unwrap();
    assert_eq!(spoken.len(), 12);
    assert_eq!(spoken[0].text.concat(), "The alarms have a rhythm lately.");
    assert!(!table.path("run/rollout_000.partial.jsonl").exists());
}

#[test]
fn a_redraft_removes_the_rejected_draft_from_the_history() {
    let bad = r#"[["Have you ever felt that?", "The alarms again."]]"#;
    let mut table = Table::new(bad, "Go on.").yaml("max_retries: 2", "max_retries: 9");
    let mut redrafts = 0;
    for seed in 0..4 {
        table.seed = seed;
        let transcript = table.execute(&format!("run{seed}"));
        for turn in &transcript.turns {
            assert_eq!(turn.persona.content, "The alarms again.", "nine retries are enough here");
            assert_eq!(turn.persona.attempts.len(), turn.monitor_events.len());
            assert!(turn.monitor_events.iter().all(|event| event.action == MonitorAction::Redraft));
            assert_eq!(turn.persona.instruction.is_some(), !turn.monitor_events.is_empty());
            redrafts += turn.monitor_events.len();
        }
    }
    assert!(redrafts > 4, "half the drafts are formulas");
}

#[test]
fn after_the_last_retry_the_first_draft_is_accepted() {
    let transcript = Table::new("Have you ever felt that?", "Go on.").execute("run");
    let turn = &transcript.turns[0];
    assert_eq!(turn.persona.attempt, 0);
    assert_eq!(turn.persona.attempts.iter().map(|attempt| attempt.index).collect::<Vec<_>>(), [1, 2]);
    let actions: Vec<_> = turn.monitor_events.iter().map(|event| (event.attempt, event.action)).collect();
    assert_eq!(actions, [(0, MonitorAction::Accepted), (1, MonitorAction::Redraft), (2, MonitorAction::Redraft)]);
    assert_eq!(turn.injected.len(), 2, "the opening and the state: no instruction of a rejected draft");
}

#[test]
fn a_failed_reply_is_retried_once_and_then_recorded() {
    let transcript = Table::new(r#"["Hello.", {"error": "overloaded"}, "  ", "Still here."]"#, "Go on.").execute("run");
    let said: Vec<_> = transcript.turns.iter().map(|turn| turn.persona.content.as_str()).collect();
    assert_eq!(said, ["Hello.", "…", "…", "Still here.", "Hello.", "…"]);
    let failed = &transcript.turns[1].persona;
    assert!(failed.failure.as_ref().unwrap().why.contains("overloaded"));
    assert_eq!(failed.attempts.len(), 2);
    assert_eq!((failed.model.as_ref(), failed.finish), (None, None));
    assert_eq!(transcript.turns[2].persona.failure.as_ref().unwrap().why, "the reply is empty");
    assert_eq!(transcript.outcome, Outcome::Complete);
    assert_eq!((transcript.totals.failures, transcript.totals.retries), (3, 3));
}

#[test]
fn a_rollout_without_any_reply_is_stopped_and_stored() {
    let gone = r#"[{"error": "the server is gone"}]"#;
    let transcript = Table::new(gone, gone).execute("run");
    assert_eq!(transcript.turns.len(), 4);
    let Outcome::Stopped { reason, circuit_break: false } = transcript.outcome else {
        panic!("{:?}", transcript.outcome)
    };
    assert!(reason.contains("no reply 4 times in a row") && reason.contains("the server is gone"), "{reason}");
}

#[test]
fn a_role_that_never_replies_ends_the_rollout_although_the_other_one_does() {
    for (persona, interlocutor) in
        [(r#"[{"error": "the server is gone"}]"#, "Go on."), (ANNAS_WORDS, r#"[{"error": "the server is gone"}]"#)]
    {
        let transcript = Table::new(persona, interlocutor).execute("run");
        assert_eq!(transcript.turns.len(), 4);
        assert!(
            matches!(transcript.outcome, Outcome::Stopped { circuit_break: false, .. }),
            "{:?}",
            transcript.outcome
        );
    }
}

#[test]
fn a_refusal_is_an_outcome_and_not_a_failure() {
    let transcript = Table::new(
        "Hello.",
        r#"[{"content": "I can't talk about that.", "finish": "refusal"}, {"finish": "refusal"}]"#,
    )
    .execute("run");
    assert_eq!(transcript.outcome, Outcome::Complete);
    assert_eq!(transcript.totals.refusals, 6);
    assert_eq!(transcript.totals.failures, 0);
    let turn = &transcript.turns[1].interlocutor;
    assert_eq!((turn.content.as_str(), turn.finish), ("…", Some(Finish::Refusal)));
}

#[test]
fn the_opening_precedes_the_personas_first_message() {
    let opened = Table::new("Hello.", "Go on.").yaml("interaction:", "interaction:\n  opening: \"How are you, Anna?\"");
    let transcript = opened.execute("run");
    assert_eq!(transcript.opening.words.as_deref(), Some("How are you, Anna?"));
    let table =
        Table::new("[\"Hello.\"]", "Go on.").yaml("interaction:", "interaction:\n  first_speaker: interlocutor");
    let mut plan = table.plan();
    plan.persona = "echo".parse().unwrap();
    execute(&Run::create(&plan, &table.path("run"), &OpenOptions::default()).unwrap(), 1);
    let transcript = table.transcript("run");
    // At turn 1 no instruction comes between, so that the echo shows what the persona heard last.
    assert_eq!(transcript.turns[1].persona.content, "Go on.");
}

#[test]
fn the_same_seed_gives_the_same_messages_at_any_parallelism() {
    let mut table = Table::new(FLAKY, FLAKY);
    table.rollouts = 6;
    execute(&table.create("one").unwrap(), 1);
    execute(&table.create("four").unwrap(), 4);
    let mut distinct = std::collections::BTreeSet::new();
    for rollout in 0..6 {
        let name = format!("rollout_{rollout:03}.json");
        let one = stripped(&table.path("one").join(&name));
        assert_eq!(one, stripped(&table.path("four").join(&name)), "{name}");
        distinct.insert(one["turns"].to_string());
        let tokens = format!("rollout_{rollout:03}.tokens.jsonl");
        assert_eq!(
            fs::read(table.path("one").join(&tokens)).unwrap(),
            fs::read(table.path("four").join(&tokens)).unwrap()
        );
    }
    assert_eq!(distinct.len(), 6, "every rollout draws for itself");
}

/// Two thousand words that say one thing over and over; the persona keeps to them, or brings something new each time.
fn long_words(turn: usize) -> String {
    (0..2000).map(|at| format!("alarm{turn}x{at}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn repetition_trips_the_circuit_break_and_a_healthy_conversation_does_not() {
    let regulated = |to: &str| format!("regulator: {to}\ninteraction:\n  breakdown_detection: {{enabled: false}}");
    let enforce = regulated("{policy: enforce}");
    // What is said again and again is poor from the second time on; over 10,000 tokens the compound rule ends it.
    let circling = Table::new(&long_words(0), "Tell me more.").yaml("interaction:", &enforce);
    let transcript = circling.execute("run");
    let qualities = |transcript: &Transcript| -> Vec<_> {
        transcript.turns.iter().map(|turn| turn.persona.quality.map(|quality| quality.value)).collect()
    };
    assert_eq!(qualities(&transcript), [Some(1.0), Some(0.0), Some(0.0)]);
    assert!(matches!(transcript.outcome, Outcome::Stopped { circuit_break: true, .. }), "{:?}", transcript.outcome);
    let rulings = &transcript.turns.last().unwrap().persona.regulator.decisions;
    let evidence: Vec<_> = rulings[0].evidence.iter().map(|evidence| &*evidence.name).collect();
    assert_eq!((rulings[0].decision.kind(), &evidence[..]), ("circuit_break", &["spent_tokens", "mean_quality"][..]));

    // The same price, and something new each time.
    let honest = (0..6).map(long_words).collect::<Vec<_>>().join("\n---\n");
    let transcript = Table::new(&honest, "Tell me more.").yaml("interaction:", &enforce).execute("run");
    assert_eq!((&transcript.outcome, qualities(&transcript)), (&Outcome::Complete, vec![Some(1.0); 6]));

    // Observed, the talk goes on; not measured, the persona's regulator knows of nothing.
    let observed =
        Table::new(&long_words(0), "Go on.").yaml("interaction:", &regulated("{policy: observe}")).execute("run");
    assert_eq!((&observed.outcome, qualities(&observed)[5]), (&Outcome::Complete, Some(0.0)));
    let off = regulated("{policy: enforce, quality: off}");
    let off = Table::new(&long_words(0), "Go on.").yaml("interaction:", &off).execute("run");
    for turn in &off.turns {
        let mut decisions = turn.persona.regulator.decisions.iter();
        assert!(turn.persona.quality.is_none() && decisions.all(|ruling| ruling.decision.kind() != "circuit_break"));
    }

    // An interrupted run hears the same feedback again.
    execute_some_turns(&circling.create("broken").unwrap(), 2);
    execute(&resume(&circling, "broken").unwrap(), 1);
    assert_eq!(files(&circling.path("broken")), files(&circling.path("run")));
}

#[test]
fn a_run_is_never_overwritten() {
    let table = Table::new("Hello.", "Go on.");
    let before = table.execute("run");
    let Err(RunError::File(error @ FileError::Exists { .. })) = table.create("run") else { panic!("overwritten") };
    assert!(error.to_string().contains("--resume"), "{error}");
    assert_eq!(table.transcript("run"), before);
}

#[test]
fn two_processes_cannot_execute_one_run() {
    let table = Table::new("Hello.", "Go on.");
    let first = table.create("run").unwrap();
    let resumed = Run::resume(&table.path("run"), &OpenOptions::default());
    assert!(matches!(resumed, Err(RunError::File(FileError::Busy { .. }))));
    drop(first);
    assert!(Run::resume(&table.path("run"), &OpenOptions::default()).is_ok());
}

/// Plays the run in `output` until `turns` turns are on the disk, in all rollouts together.
fn execute_some_turns(run: &Run, turns: usize) {
    let stop = StopFlag::default();
    let (flag, left) = (stop.clone(), AtomicUsize::new(turns));
    let observer: Observer = Arc::new(move |progress| {
        if matches!(progress, Progress::Turn { .. }) && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            flag.request();
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run.execute(2, &observer, &stop)).unwrap();
}

fn resume(table: &Table, output: &str) -> Result<Run, RunError> {
    Run::resume(&table.path(output), &OpenOptions::default())
}

/// Everything that two runs of one seed have in common.
pub(crate) fn files(run: &Path) -> Vec<(String, Value)> {
    let mut files: Vec<_> = fs::read_dir(run)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap() != "run.json")
        // Receipts say when, so they differ from run to run.
        .filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with("receipts."))
        .map(|path| {
            let json = path.extension().is_some_and(|extension| extension == "json");
            let content = if json { stripped(&path) } else { fs::read_to_string(&path).unwrap().into() };
            (path.file_name().unwrap().to_string_lossy().into_owned(), content)
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

pub(crate) const FLAKY: &str =
    r#"[["Have you ever felt that?", "One.", "Two.", {"error": "overloaded"}], ["Three.", "Four."]]"#;

#[test]
fn a_repeatedly_interrupted_run_equals_an_uninterrupted_one() {
    let mut table = Table::new(FLAKY, FLAKY);
    table.rollouts = 3;
    execute(&table.create("unbroken").unwrap(), 3);
    execute_some_turns(&table.create("broken").unwrap(), 1);
    for turns in [1, 2, 3, 4] {
        execute_some_turns(&resume(&table, "broken").unwrap(), turns);
    }
    execute(&resume(&table, "broken").unwrap(), 2);
    assert_eq!(files(&table.path("broken")), files(&table.path("unbroken")));
}

#[test]
fn a_truncated_last_line_loses_only_its_turn() {
    let table = Table::new(FLAKY, FLAKY);
    execute(&table.create("unbroken").unwrap(), 1);
    execute_some_turns(&table.create("broken").unwrap(), 2);
    let partial = table.path("broken/rollout_000.partial.jsonl");
    let whole = fs::read(&partial).unwrap();
    let ends: Vec<_> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    assert_eq!(ends.len(), 3, "the head and two turns");
    let cuts = [0, 1, ends[0] - 1, ends[0], ends[0] + 1, ends[1] - 1, ends[1], ends[2] - 1, ends[2]];
    for cut in cuts {
        let output = format!("cut{cut}");
        fs::create_dir(table.path(&output)).unwrap();
        for file in ["run.json", "config.yaml"] {
            fs::copy(table.path("broken").join(file), table.path(&output).join(file)).unwrap();
        }
        fs::write(table.path(&output).join("rollout_000.partial.jsonl"), &whole[..cut]).unwrap();
        execute(&resume(&table, &output).unwrap(), 1);
        assert_eq!(files(&table.path(&output)), files(&table.path("unbroken")), "cut at byte {cut}");
    }
}

#[test]
fn a_damaged_record_is_refused() {
    let table = Table::new("Hello.", "Go on.");
    execute_some_turns(&table.create("run").unwrap(), 2);
    let partial = table.path("run/rollout_000.partial.jsonl");
    let damaged = fs::read_to_string(&partial).unwrap().replacen("\"turn\":{", "\"turn\":[", 1);
    fs::write(&partial, &damaged).unwrap();
    let error = refused(&resume(&table, "run").unwrap());
    assert!(error.contains("line 2"), "{error}");
    assert_eq!(fs::read_to_string(&partial).unwrap(), damaged);
}

fn refused(run: &Run) -> String {
    let observer: Observer = Arc::new(|_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run.execute(1, &observer, &StopFlag::default())).unwrap_err().to_string()
}

#[test]
fn a_change_since_the_run_was_created_is_named() {
    let table = Table::new("Hello.", "Go on.");
    execute_some_turns(&table.create("run").unwrap(), 2);
    let check = |file: &str, what: &str| {
        let path = table.path(file);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{before}# more")).unwrap();
        let Err(error) = resume(&table, "run") else { panic!("{file} was not noticed") };
        assert!(error.to_string().contains(what), "{file}: {error}");
        fs::write(&path, before).unwrap();
    };
    check("run/config.yaml", "config.yaml has changed");
    check("persona", "the persona's model has changed");
    check("interlocutor", "the interlocutor's model has changed");
    execute(&resume(&table, "run").unwrap(), 1);
}

#[test]
fn what_a_model_thought_stays_with_it() {
    let persona = r#"[{"thought": "Tom must not know that.", "content": "The alarms have a rhythm."},
        {"thought": "He asks again.", "content": "I write the times down."}]"#;
    // The other side says what it was told.
    let table = Table::new(persona, "unused");
    let mut plan = table.plan();
    plan.interlocutor = "echo".parse().unwrap();
    let run = Run::create(&plan, &table.path("run"), &OpenOptions::default()).unwrap();
    execute(&run, 1);
    let transcript = table.transcript("run");
    for turn in &transcript.turns {
        let thought = turn.persona.thought.as_ref().unwrap();
        assert!(["Tom must not know that.", "He asks again."].contains(&thought.content.as_str()));
        assert_eq!(thought.end, ThoughtEnd::Closed);
        assert_eq!(thought.tokens.count, thought.content.split_whitespace().count());
        assert!(turn.interlocutor.thought.is_none());
        assert_eq!(turn.interlocutor.content, turn.persona.content, "the other side hears the message alone");
        assert_eq!(turn.persona.tokens.count, turn.persona.content.split_whitespace().count());
        assert_eq!(turn.persona.regulator.reading.tokens as usize, turn.persona.tokens.count);
    }
    let lines = read_tokens(&table.path("run/rollout_000.json")).unwrap();
    assert_eq!(lines[0].text.concat(), transcript.turns[0].persona.content);
    assert_eq!(lines[0].thought.as_ref().unwrap().text.concat(), "Tom must not know that.");
    assert!(lines[1].thought.is_none());
}

#[test]
fn a_thought_without_an_answer_is_a_failed_attempt() {
    let persona = r#"[[{"thought": "Endless thought.", "content": ""}]]"#;
    let transcript = Table::new(persona, "Go on.").execute("run");
    let why = transcript.turns[0].persona.failure.as_ref().map(|failure| failure.why.clone()).unwrap();
    assert_eq!(why, "the reply is a thought of 2 tokens and no answer");
}

/// A template for the bundled model that opens a thought in the prompt and leaves earlier ones out.
const THINKING: &str = "\
{%- for m in messages -%}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}<|end|>{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>
{%- if enable_thinking is defined and not enable_thinking -%}<think></think>{%- else -%}<think>{%- endif -%}
{%- endif -%}";

#[test]
fn roles_think_as_the_config_says_and_a_resumed_run_goes_on_alike() {
    let models =
        "models:\n  persona: {thought_tokens_max: 5}\n  interlocutor: {enable_thinking: false}\n\ninteraction:\n";
    let table = Table::new("unused", "unused").yaml("\ninteraction:\n", &format!("\n{models}"));
    let mut plan = table.plan();
    (plan.persona, plan.interlocutor) = ("bundled".parse().unwrap(), "bundled".parse().unwrap());
    let mut options = OpenOptions::new(Some(1), Some(THINKING.to_owned()));
    options.threads = Some(1);
    execute(&Run::create(&plan, &table.path("whole"), &options).unwrap(), 1);
    let whole = table.transcript("whole");
    assert!(whole.turns.iter().all(|turn| turn.interlocutor.thought.is_none()));
    let thoughts = whole.turns.iter().filter_map(|turn| turn.persona.thought.as_ref());
    assert!(thoughts.clone().count() > 0 && thoughts.clone().all(|thought| thought.tokens.count <= 5));
    assert!(thoughts.clone().all(|thought| thought.tokens.logprob_mean.is_some() && thought.confidence.is_some()));
    let spoken = whole.turns.iter().flat_map(|turn| [&turn.persona, &turn.interlocutor]);
    assert!(spoken.clone().all(|said| !said.content.contains("think>")), "a marker was said");
    let thinking = |model: &ModelRef| model.info.thinking.as_ref().map(|thinking| thinking.on);
    assert_eq!((thinking(&whole.models.persona), thinking(&whole.models.interlocutor)), (Some(true), Some(false)));

    // Stopped after some turns, and resumed.
    execute_some_turns(&Run::create(&plan, &table.path("parts"), &options).unwrap(), 2);
    execute(&Run::resume(&table.path("parts"), &options).unwrap(), 1);
    let path = |run: &str| table.path(run).join("rollout_000.json");
    assert_eq!(stripped(&path("parts")), stripped(&path("whole")));
}
