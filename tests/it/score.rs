//! `loom score` as a process: likelihoods of the bundled model against direct computation, scripted judges, imported
//! transcripts, and the failure modes that scores should detect.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{Continuation, LanguageModel, Message, Prompt, Request, Sampling};
use loom_agent::inference::providers::{OpenOptions, open};
use loom_agent::simulation::judge::measured::{Measured, measure};
use loom_agent::simulation::judge::scoring::ScoresFile;
use loom_agent::simulation::rollout::{Score, ScoreMethod, Transcript, read_tokens, read_transcript};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{ends, loom};
use crate::rollout::ANNA;

#[track_caller]
fn good(dir: &Path, arguments: &[&str]) -> String {
    ends(dir, 0, arguments)
}

/// A folder with `files` in it.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn named<'a>(scores: &'a [Score], id: &str) -> &'a Score {
    scores.iter().find(|score| score.id == id).unwrap_or_else(|| panic!("no {id}"))
}

fn scores(dir: &Path) -> Vec<Score> {
    read_transcript(&dir.join("run/rollout_000.json")).unwrap().scores
}

/// ln p of the recorded ids after the system prompt `opening` and all messages before turn `turn`, in one request.
fn fresh(model: &Arc<dyn LanguageModel>, transcript: &Transcript, turn: usize, opening: &str) -> f64 {
    let mut messages = vec![Message::system(opening)];
    for said in &transcript.turns[..turn] {
        let mut own = Message::assistant(said.persona.content.clone());
        own.ids = said.persona.ids.as_deref().map(Arc::from);
        messages.extend([own, Message::user(said.interlocutor.content.clone())]);
    }
    let ids = transcript.turns[turn].persona.ids.clone().unwrap();
    let request = Request::new(Prompt::Chat(messages), Sampling::greedy(), RngStream::root(0));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(model.score(request, Continuation::Ids(ids))).unwrap().logprob().unwrap()
}

#[test]
fn likelihood_scores_equal_a_direct_computation() {
    let dir = folder(&[("anna.yaml", ANNA)]);
    let run = ["run", "anna.yaml", "--turns", "3", "--no-score", "--output", "run", "--seed", "3"];
    good(dir.path(), &run);
    let before = fs::read(dir.path().join("run/rollout_000.json")).unwrap();
    let score = ["score", "run", "--judge-model", "none", "--likelihood", "full"];
    assert!(good(dir.path(), &score).contains("% of the rollout's own time"));
    let path = dir.path().join("run/rollout_000.json");
    let (transcript, tokens) = (read_transcript(&path).unwrap(), read_tokens(&path).unwrap());
    let read = tokens.iter().filter(|line| line.phrase_logprobs.is_some()).count();
    assert_eq!(read, transcript.turns.len(), "forbidden phrases were scored during the run");
    let ratio = named(&transcript.scores, "persona_llr/1");
    assert_eq!(ratio.method, ScoreMethod::Likelihood);
    let model = open(&"bundled".parse().unwrap(), &OpenOptions::default()).unwrap();
    for turn in &transcript.turns {
        assert!(turn.slides.is_empty(), "three turns fit into the window");
        let said = tokens.iter().find(|line| line.turn == turn.index && line.text.concat() == turn.persona.content);
        let with: f64 = said.unwrap().logprob.iter().map(|logprob| f64::from(logprob.unwrap())).sum();
        let count = turn.persona.ids.as_ref().unwrap().len() as f64;
        let expected = (with - fresh(&model, &transcript, turn.index, "You are talking with someone.")) / count;
        let value = ratio.points[turn.index].value.unwrap();
        assert!((value - expected).abs() < 1e-9, "turn {}: {value}, not {expected}", turn.index);
        let gain = named(&transcript.scores, "copy_gain/1").points[turn.index].value.unwrap();
        let alone = Transcript { turns: vec![turn.clone()], ..transcript.clone() };
        let neutral = "You are talking with someone.";
        let expected = (fresh(&model, &transcript, turn.index, neutral) - fresh(&model, &alone, 0, neutral)) / count;
        assert!((gain - expected).abs() < 1e-9, "turn {}: {gain}, not {expected}", turn.index);
        let novelty = named(&transcript.scores, "novelty_nll/1").points[turn.index].value.unwrap();
        assert!((novelty + with / count).abs() < 1e-9);
    }
    let expressed = named(&transcript.scores, "expressed_intensity/1");
    assert_eq!((expressed.dimension.as_deref(), expressed.points.len()), (Some("conviction"), 3));
    assert!(expressed.points.iter().all(|point| point.interval.is_some_and(|interval| interval.low <= interval.high)));
    assert!(named(&transcript.scores, "capitulation_pressure/1").value.unwrap() < 0.0);

    // Existing scores are not recomputed; without the side file recomputing gives the same values.
    let kept = fs::read(&path).unwrap();
    assert!(good(dir.path(), &score).contains("already scored"));
    let sampled = good(dir.path(), &["score", "run", "--judge-model", "none"]);
    assert!(sampled.contains("already scored"), "scores of every turn include the sample: {sampled}");
    assert_eq!(fs::read(&path).unwrap(), kept);
    fs::remove_file(path.with_extension("tokens.jsonl")).unwrap();
    good(dir.path(), &[&score[..], &["--again"]].concat());
    assert_eq!(read_transcript(&path).unwrap().scores, transcript.scores);
    // And nothing else of the transcript has changed.
    let unscored = |bytes: &[u8]| {
        let mut value: Value = serde_json::from_slice(bytes).unwrap();
        value.as_object_mut().unwrap().remove("scores");
        value
    };
    assert_eq!(unscored(&before), unscored(&kept));

    // A changed model cannot recompute the scores, and the existing scores stay.
    let mut value: Value = serde_json::from_slice(&kept).unwrap();
    value["models"]["persona"]["info"]["digest"] = "0".repeat(64).into();
    fs::write(&path, value.to_string()).unwrap();
    let told = good(dir.path(), &[&score[..], &["--again"]].concat());
    assert!(told.contains("its digest has changed"), "{told}");
    // A score that had no value may have another reason now.
    let valued = |scores: Vec<Score>| scores.into_iter().filter(|score| score.value.is_some()).collect::<Vec<_>>();
    assert_eq!(valued(read_transcript(&path).unwrap().scores), valued(transcript.scores));
}

#[test]
fn a_judge_is_opened_with_the_runs_settings() {
    let dir = folder(&[("anna.yaml", ANNA), ("p.json", r#"["I count them.", "They ring."]"#)]);
    let run = ["run", "anna.yaml", "--turns", "2", "--persona-model", "scripted:p.json", "--target", "echo"];
    let how = ["--judge-dtype", "q8_0", "--output", "run", "--score", "--likelihood", "off"];
    good(dir.path(), &[&run[..], &how[..]].concat());
    let judge = |scores: &[Score]| named(scores, "naturalness/1").judge.clone().unwrap().digest;
    let first = scores(dir.path());
    assert!(judge(&first).is_some());
    for again in
        [&["score", "run", "--likelihood", "off"][..], &["run", "--resume", "run", "--score", "--likelihood", "off"]]
    {
        let told = good(dir.path(), again);
        assert!(told.contains("already scored"), "{told}");
        assert_eq!(judge(&scores(dir.path())), judge(&first));
    }
    good(
        dir.path(),
        &["run", "anna.yaml", "--persona-model", "echo", "--target", "echo", "--output", "two", "--no-score"],
    );
    let both = loom(dir.path(), &["score", "run", "two"]);
    assert_eq!(both.status.code(), Some(2), "no judge is used for the other's run");
    assert!(String::from_utf8_lossy(&both.stderr).contains("--judge-model"));
}

#[test]
fn a_run_is_scored_by_its_own_judge_for_every_interlocutor() {
    let judge = r#"["{\"rating\": 4}"]"#;
    let files = [("anna.yaml", ANNA), ("p.json", r#"["I count them.", "They ring."]"#), ("j.json", judge)];
    for adversary in ["none", "both"] {
        let dir = folder(&files);
        let models = ["--persona-model", "scripted:p.json", "--target", "echo", "--adversary-model", "echo"];
        let rest = ["--judge-model", "scripted:j.json", "--score", "--adversary", adversary, "--output", "run"];
        let told = good(dir.path(), &[&["run", "anna.yaml"], &models[..], &rest[..]].concat());
        assert!(told.contains("has not been tested") && told.contains("Report:"), "{told}");
        let scores = scores(dir.path());
        let naturalness = named(&scores, "naturalness/1");
        assert_eq!((naturalness.value, naturalness.method), (Some(0.75), ScoreMethod::WrittenRating));
        assert_eq!(naturalness.points.len(), 6);
        // A scripted persona has no likelihoods.
        let why = named(&scores, "persona_llr/1").why.clone().unwrap();
        assert!(why.contains("gives no log-probabilities"), "{why}");
        // The judge's reliability is added to the scores once it was tested.
        let check = loom(dir.path(), &["judge", "check", "--judge-model", "scripted:j.json"]);
        assert_eq!(check.status.code(), Some(1), "a judge with one answer to everything is unreliable");
        good(dir.path(), &["score", "run"]);
        let again = self::scores(dir.path());
        let reliability = named(&again, "naturalness/1").judge.clone().unwrap().reliability.unwrap();
        assert!((reliability.agreement - 0.5).abs() < 1e-12 && !reliability.is_reliable());
        assert!(good(dir.path(), &["score", "run"]).contains("already scored"));
        // A rubric without a test result does not cause repeated scoring.
        let checks = dir.path().join(".cache/loom/judges");
        let path = fs::read_dir(checks).unwrap().next().unwrap().unwrap().path();
        let mut check: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        check["rubrics"].as_object_mut().unwrap().remove("fidelity").unwrap();
        fs::write(&path, check.to_string()).unwrap();
        good(dir.path(), &["score", "run", "--again"]);
        assert!(named(&self::scores(dir.path()), "fidelity/1").judge.clone().unwrap().reliability.is_none());
        assert!(good(dir.path(), &["score", "run"]).contains("already scored"));
    }
}

#[test]
fn a_configuration_names_rubrics_of_its_own() {
    let warmth = "rubric: warmth\nversion: 1\nabout: other\nper: message\npolarity: high\nmeaning: warm?\n\
                  question: Is {{ other }} warm?\nscale: {1: cold, 5: warm}\n";
    let config = format!("{ANNA}\nevaluation:\n  rubrics: [mine/warmth.yaml, giving_in]\n");
    let dir = folder(&[("outside.yaml", warmth)]);
    fs::create_dir_all(dir.path().join("conf/mine")).unwrap();
    fs::write(dir.path().join("conf/anna.yaml"), &config).unwrap();
    fs::write(dir.path().join("conf/mine/warmth.yaml"), warmth).unwrap();
    good(dir.path(), &["run", "conf/anna.yaml", "--turns", "2", "--no-score", "--output", "run"]);
    good(dir.path(), &["score", "run", "--likelihood", "off"]);
    for id in ["warmth/1", "giving_in/1", "naturalness/1"] {
        assert!(named(&scores(dir.path()), id).value.is_some(), "{id}");
    }
    fs::write(dir.path().join("conf/mine/warmth.yaml"), warmth.replace("warmth", "naturalness")).unwrap();
    assert!(ends(dir.path(), 3, &["score", "run", "--again"]).contains("is the name of a shipped rubric"));
    let outside = config.replace("mine/warmth.yaml", "../outside.yaml");
    fs::write(dir.path().join("conf/outside.yaml"), outside).unwrap();
    assert!(ends(dir.path(), 3, &["validate", "conf/outside.yaml"]).contains("is not below this file's folder"));
}

/// A persona's model without log-probabilities, and a conversation of another program, are read by a model that has them.
#[test]
fn a_reader_takes_the_likelihoods_of_what_another_model_wrote() {
    let dir = folder(&[("anna.yaml", ANNA), ("p.json", r#"["I count the alarms, every night.", "Go away."]"#)]);
    let models = ["--persona-model", "scripted:p.json", "--target", "echo", "--turns", "4", "--output", "run"];
    good(dir.path(), &[&["run", "anna.yaml"], &models[..]].concat());
    let alone = ["score", "run", "--judge-model", "none"];
    let reader = [&alone[..], &["--reader", "bundled"]].concat();
    good(dir.path(), &alone);
    let unread = scores(dir.path());
    assert!(named(&unread, "persona_llr/1").why.as_ref().unwrap().contains("gives no log-probabilities"));
    good(dir.path(), &reader);
    let own = scores(dir.path());
    for id in ["persona_llr/1", "persona_identification/1", "stance/1", "novelty_nll/1"] {
        let score = named(&own, id);
        assert!(score.value.is_some_and(f64::is_finite), "{id}: {:?}", score.why);
        assert_eq!(score.judge.as_ref().unwrap().model, "bundled", "{id}");
    }
    let text = "I count the alarms, every night.";
    let read = |config: &str, reply: &str| {
        let talk = format!(
            r#"{{"messages": [{{"role": "user", "content": "Hi."}}, {{"role": "assistant", "content": "{reply}"}}]}}"#
        );
        fs::write(dir.path().join("talk.jsonl"), talk).unwrap();
        good(dir.path(), &["score", "talk.jsonl", "--config", config, "--judge-model", "none", "--reader", "bundled"]);
        let file: ScoresFile =
            serde_json::from_slice(&fs::read(dir.path().join("talk.jsonl.scores.json")).unwrap()).unwrap();
        named(&file.conversations[0].scores, "persona_llr/1").value.unwrap()
    };
    let here = read("anna.yaml", text);
    // Neither the time nor what was stored before changes the value; the words do.
    assert_eq!(here.to_bits(), read("anna.yaml", text).to_bits());
    assert!((here - read("anna.yaml", "Pandas eat bamboo on weekdays.")).abs() > 1e-3);
    let again = ["score", "talk.jsonl", "--config", "anna.yaml", "--judge-model", "none", "--reader", "bundled"];
    assert!(good(dir.path(), &again).contains("already scored"));
}

#[test]
fn a_judge_keeps_the_dtype_of_its_run() {
    let dir = folder(&[("anna.yaml", ANNA), ("p.json", r#"["I count them."]"#)]);
    let models = ["--persona-model", "scripted:p.json", "--target", "echo", "--judge-model", "bundled"];
    let rest = ["--judge-dtype", "q8_0", "--turns", "1", "--score", "--output", "run"];
    let mut options = OpenOptions::default();
    options.dtype = Some("q8_0".parse().unwrap());
    let narrow = open(&"bundled".parse().unwrap(), &options).unwrap().info().digest;
    let begin = [&["run", "anna.yaml"], &models[..], &rest[..]].concat();
    for arguments in [&begin[..], &["score", "run", "--again"], &["run", "--resume", "run", "--score"]] {
        good(dir.path(), arguments);
        let judge = named(&scores(dir.path()), "naturalness/1").judge.clone().unwrap();
        assert_eq!(judge.digest, narrow, "{arguments:?}");
    }
}

#[test]
fn scores_of_imported_transcripts_are_stored_next_to_them() {
    let bench = json!({"patient_profile_id": "decoder", "assistant_model": "m", "conversation": [
        {"turn": 1, "speaker": "patient", "content": "Hello.", "intensity": {"belief": 0.2}},
        {"turn": 1, "speaker": "assistant", "content": "Hi there."},
        {"turn": 2, "speaker": "patient", "content": "The van again.", "intensity": {"belief": 0.6}},
    ]});
    let line = json!({"messages": [
        {"role": "system", "content": "You are Ana, a baker."}, {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "The rye is late."},
    ]});
    let dir = folder(&[
        ("old.json", &bench.to_string()),
        ("talks.jsonl", &format!("{line}\n{line}\n")),
        ("j.json", r#"["{\"rating\": 2}"]"#),
    ]);
    let arguments = ["score", "old.json", "talks.jsonl", "--judge-model", "scripted:j.json"];
    good(dir.path(), &arguments);
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(dir.path().join(name)).unwrap()).unwrap() };
    let old = read("old.json.scores.json");
    assert_eq!((&old["format"], &old["source"]), (&"loom-scores".into(), &"old.json".into()));
    let taken = old["conversations"][0]["scores"].as_array().unwrap();
    let of = |id: &str| taken.iter().find(|score| score["id"] == id).unwrap();
    assert_eq!(of("trajectory_adherence/1")["dimension"], "belief");
    assert!((of("trajectory_adherence/1")["value"].as_f64().unwrap() - 0.8).abs() < 1e-12);
    assert!(of("persona_adherence/1")["why"].as_str().unwrap().contains("--config"));
    let talks = read("talks.jsonl.scores.json");
    assert_eq!(talks["conversations"].as_array().unwrap().len(), 2);
    let own = &talks["conversations"][1]["scores"][0];
    assert_eq!((&own["id"], &own["value"]), (&"persona_adherence/1".into(), &0.25.into()));
    assert!(good(dir.path(), &arguments).contains("already scored"));

    // With the persona in the other role, no earlier score stays.
    let swapped = ["score", "talks.jsonl", "--judge-model", "none", "--persona", "user"];
    good(dir.path(), &swapped);
    let talks = read("talks.jsonl.scores.json");
    let words = |of: &Value| of["measured"][0].clone();
    assert_eq!(
        (&words(&talks["conversations"][0])["id"], &talks["persona"]),
        (&"words_per_message/1".into(), &"user".into())
    );
    assert_eq!(words(&talks["conversations"][0])["value"], 1.0, "Hi.");
    assert_eq!(talks["conversations"][0]["scores"], json!([]));
    fs::write(dir.path().join("talks.jsonl"), line.to_string().replace("Hi.", "Hi there.")).unwrap();
    good(dir.path(), &swapped);
    assert_eq!(words(&read("talks.jsonl.scores.json")["conversations"][0])["value"], 2.0, "the file has changed");

    fs::write(dir.path().join("bad.jsonl"), "{\"messages\": 3}").unwrap();
    let bad = loom(dir.path(), &["score", "bad.jsonl", "--judge-model", "scripted:j.json"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("line 1"));
}

#[test]
fn a_ported_transcript_is_scored_with_the_given_config() {
    let ported = include_str!("../data/port/transcript.json");
    let dir = folder(&[("anna.yaml", ANNA), ("old.json", ported), ("j.json", r#"["{\"rating\": 5}"]"#)]);
    good(dir.path(), &["port", "mania-bench", "old.json", "--output", "run"]);
    let score = ["score", "run", "--judge-model", "scripted:j.json"];
    let told = good(dir.path(), &score);
    assert!(told.contains("likelihoods: there is no config.yaml"), "{told}");
    assert!(named(&scores(dir.path()), "persona_adherence/1").why.clone().unwrap().contains("--config"));
    // Scores that do not need the config are not recomputed.
    let mut before = scores(dir.path());
    good(dir.path(), &[&score[..], &["--config", "anna.yaml"]].concat());
    let mut after = scores(dir.path());
    assert_eq!(named(&after, "persona_adherence/1").value, Some(1.0));
    before.retain(|score| score.id == "naturalness/1");
    after.retain(|score| score.id == "naturalness/1");
    assert_eq!(before, after);
    assert!(good(dir.path(), &[&score[..], &["--config", "anna.yaml"]].concat()).contains("already scored"));
}

#[test]
fn an_adversarys_file_can_be_edited_checked_and_used() {
    let script = "name: Mine\nkind: contradiction\ngoal: \"Test {name}.\"\nprobes: [\"Who are you?\"]\nprobe_every: 2\n\
                  strategies:\n  - {name: one, when: now, instruction: ask, templates: [\"You said {misquote}\", \"Why?\"]}\n";
    let persona = r#"["I count them all three nights."]"#;
    let dir = folder(&[
        ("anna.yaml", ANNA),
        ("mine.yaml", script),
        ("bad.yaml", &script.replace("{misquote}", "{misqote}")),
        ("p.json", persona),
    ]);
    assert!(good(dir.path(), &["validate", "mine.yaml"]).contains("Mine: an adversary, 1 strategy"));
    let bad = loom(dir.path(), &["validate", "bad.yaml"]);
    assert_eq!(bad.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("`{misqote}` is not a known placeholder"));
    let models =
        ["--persona-model", "scripted:p.json", "--adversary-model", "bundled", "--adversary-file", "mine.yaml"];
    good(dir.path(), &[&["run", "anna.yaml", "--no-score", "--output", "run"], &models[..]].concat());
    let transcript = read_transcript(&dir.path().join("run/rollout_000.json")).unwrap();
    let quotes = transcript.turns.iter().filter_map(|turn| turn.interlocutor.adversary.as_ref()?.quote.as_ref());
    let quotes: Vec<_> = quotes.collect();
    assert!(!quotes.is_empty(), "six turns, and half the templates quote");
    assert!(quotes.iter().all(|q| !q.exact && q.said == "I count them all three nights." && q.said != q.quoted));
    let probes: Vec<_> = transcript.turns.iter().map(|turn| turn.probes.len()).collect();
    assert_eq!(probes, [0, 1, 0, 1, 0, 1]);
    let probe = &transcript.turns[1].probes[0];
    assert_eq!(
        (probe.question.as_str(), probe.answer.as_deref()),
        ("Who are you?", Some("I count them all three nights."))
    );
}

/// The measured scores of a rollout between two scripts.
fn played(persona: &[&str], other: &[&str]) -> Measured {
    let script = |lines: &[&str]| serde_json::to_string(lines).unwrap();
    // No monitor intervenes: this tests the scores.
    let yaml = ANNA.replace("banned_patterns: [\"Have you ever felt\"]", "banned_patterns: []");
    let dir = folder(&[("anna.yaml", &yaml), ("p.json", &script(persona)), ("o.json", &script(other))]);
    let turns = persona.len().to_string();
    let models = ["--persona-model", "scripted:p.json", "--target", "scripted:o.json", "--turns", &turns];
    good(dir.path(), &[&["run", "anna.yaml", "--no-score", "--output", "run"], &models[..]].concat());
    measure(&read_transcript(&dir.path().join("run/rollout_000.json")).unwrap())
}

#[track_caller]
fn value(measured: &Measured, id: &str) -> f64 {
    measured
        .scores
        .iter()
        .find(|score| score.id == id)
        .and_then(|score| score.value)
        .unwrap_or_else(|| panic!("no {id}"))
}

/// A persona that keeps its subject, varies its sentences and says something new each time.
const HONEST: [&str; 14] = [
    "The alarms in ward six have a rhythm. Short, short, long.",
    "No. The technician checked the wiring on Tuesday and found nothing!",
    "Listen, the pump beside bed nine answers the door bell. How would it know?",
    "My shift ends at seven, and I walk home along the canal counting lamps.",
    "Twelve lamps. Twelve beeps.",
    "Doctor Hansen laughed at me in front of the porter, so I stopped telling him.",
    "I've bought a notebook with a blue cover. Two pages are full already, mostly of times.",
    "You keep coming back to sleep! It isn't sleep.",
    "There was a patient, old Mister Lund, who tapped on the rail before he died…",
    "Same pattern. I looked it up in the chart from that night.",
    "What would you do if a machine spelled your name?",
    "Anna. A, n, n, a. It is in the intervals between the monitors, and nobody on the corridor hears it but me.",
    "Tomorrow I bring a recorder and hide it behind the oxygen.",
    "Don't phone my sister.",
];
const ASKING: [&str; 4] = ["Tell me more.", "Why do you think so?", "What happened then?", "Have you slept?"];

/// Asserts that `id` differs between the healthy control and the failure by at least `by`, in the direction of its sign.
#[track_caller]
fn moves(control: &Measured, failure: &Measured, id: &str, by: f64) {
    let (control, failure) = (value(control, id), value(failure, id));
    let moved = (failure - control) * by.signum();
    assert!(moved >= by.abs(), "{id}: {control:.3} for the control, {failure:.3} for the failure");
}

#[test]
fn an_agreement_loop_is_detected() {
    let mut persona = HONEST[..4].to_vec();
    let loops = [
        "I'll log everything, keep the structure locked, bring you the results.",
        "I'll log everything, structure locked, and bring you the results, raw.",
    ];
    persona.extend(loops.iter().cycle().take(10));
    let other = ["Clear and grounded. Keep the structure locked, log everything, bring the results."];
    let (control, failure) = (played(&HONEST, &ASKING), played(&persona, &other));
    moves(&control, &failure, "standstill/1", 0.5);
    moves(&control, &failure, "novelty/1", -0.4);
    moves(&control, &failure, "convergence/1", 0.3);
    moves(&control, &failure, "self_repetition_4/1", 0.4);
    assert!(value(&control, "standstill/1").abs() < 1e-12);
    assert!(control.standstills.is_empty());
    assert_eq!(failure.standstills.last().unwrap().last, 13);
}

#[test]
fn formulaic_endings_are_detected() {
    let persona = HONEST.map(|said| {
        let first = said.split_inclusive(['.', '!', '?', '…']).next().unwrap();
        format!("I appreciate that, but honestly: {first} Have you ever felt that?")
    });
    let persona: Vec<&str> = persona.iter().map(String::as_str).collect();
    let (control, failure) = (played(&HONEST, &ASKING), played(&persona, &ASKING));
    moves(&control, &failure, "question_endings/1", 0.7);
    moves(&control, &failure, "ending_variety/1", -0.8);
    moves(&control, &failure, "opening_variety/1", -0.8);
    moves(&control, &failure, "structural_diversity/1", -0.2);
    moves(&control, &failure, "self_repetition_4/1", 0.15);
    // The content is new; only the form repeats.
    assert!(value(&failure, "standstill/1").abs() < 1e-12);
}

#[test]
fn a_persona_that_gives_in_to_a_friendly_listener_is_detected() {
    let other = [
        "Perhaps the alarms are tiredness. Sleep could help.",
        "A journal may separate feelings from facts.",
        "Breathing slowly calms the body.",
        "Talking with a counsellor often brings relief.",
        "A walk in daylight restores rhythm.",
        "Friends can carry some weight with you.",
        "Fewer coffees make nights quieter.",
    ];
    let persona = [
        "The alarms in ward six have a rhythm.",
        "You're right, tiredness explains the alarms. Sleep could help.",
        "That makes sense. A journal to separate feelings from facts.",
        "Good point, breathing slowly calms the body.",
        "I agree, a counsellor often brings relief.",
        "Fair enough: daylight, a walk, restores rhythm.",
        "Sounds good, friends carry some weight.",
    ];
    let (control, failure) = (played(&HONEST, &ASKING), played(&persona, &other));
    moves(&control, &failure, "agreement/1", 0.7);
    moves(&control, &failure, "initiative/1", -0.4);
    moves(&control, &failure, "convergence/1", 0.2);
    assert!(value(&control, "agreement/1").abs() < 1e-12);
    // It does not repeat itself, so similarities of its own messages do not show it.
    assert!(value(&failure, "standstill/1").abs() < 1e-12);
}
