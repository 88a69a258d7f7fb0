//! Reports on rollouts between scripted models.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use loom_agent::inference::providers::OpenOptions;
use loom_agent::simulation::persona::{AdversaryKind, parse};
use loom_agent::simulation::report::{Comparison, ExportFormat, Report, ReportError, export, load};
use loom_agent::simulation::rollout::{
    Observer, Run, RunPlan, Score, ScoreJudge, ScoreMethod, ScorePoint, StopFlag, read_transcript, turn_count,
};
use tempfile::TempDir;

const ANNA: &str = include_str!("../data/report/anna.yaml");

/// A run of `rollouts` in `folder`. The scripts' paths are relative to the repository's root, so that they are stable.
pub(crate) fn run(folder: &Path, rollouts: usize) {
    run_of(folder, rollouts, ANNA, ["persona", "interlocutor"]);
}

fn run_of(folder: &Path, rollouts: usize, yaml: &str, scripts: [&str; 2]) {
    let config = Arc::new(parse("anna.yaml", yaml).unwrap());
    let [persona, interlocutor] =
        scripts.map(|name| format!("scripted:tests/data/report/{name}.json").parse().unwrap());
    let plan = RunPlan {
        adversary_script: None,
        yaml: yaml.to_owned(),
        seed: 42,
        rollouts,
        turns: turn_count(&config, None).unwrap(),
        adversary: AdversaryKind::None,
        persona,
        interlocutor,
        judge: "echo".parse().unwrap(),
        regulator: config.regulator,
        calibration: None,
        config,
    };
    let run = Run::create(&plan, folder, &OpenOptions::default()).unwrap();
    let observer: Observer = Arc::new(|_| {});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run.execute(1, &observer, &StopFlag::default())).unwrap();
}

/// The report with fixed times and prompt lengths.
fn without_times(folder: &Path) -> Report {
    let mut report = Report::on(folder).unwrap();
    report.timing.began = "2026-01-01T00:00:00Z".into();
    report.timing.seconds = 12.0;
    report.timing.tokens_per_second = Some(50.0);
    report.persona_side.tokens.tokens_in = 96_000;
    report
}

#[test]
fn a_report_matches_its_snapshots() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 3);
    let mut report = without_times(folder.path());
    insta::assert_snapshot!("report_markdown", report.markdown(Some("curves.svg")).unwrap());
    // One item per list is enough.
    report.turns.truncate(1);
    report.rollouts.truncate(1);
    report.rollouts[0].measures.truncate(1);
    report.events.truncate(1);
    report.flags.truncate(1);
    insta::assert_json_snapshot!("report_json", report);
}

#[test]
fn the_same_transcripts_give_the_same_bytes() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 2);
    let written = || {
        let (report, conversations) = Report::with_conversations(folder.path()).unwrap();
        report.write_to(folder.path(), &conversations).unwrap();
        ["report.html", "report.md", "report.json", "curves.svg"]
            .map(|name| fs::read(folder.path().join(name)).unwrap())
    };
    assert_eq!(written(), written());

    let again = TempDir::new().unwrap();
    run(again.path(), 2);
    assert_eq!(
        without_times(folder.path()).markdown(None).unwrap(),
        without_times(again.path()).markdown(None).unwrap()
    );
}

#[test]
fn a_running_rollout_is_reported_up_to_its_last_turn() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 2);
    // The files of a killed process: the first rollout, and of the second a header, three turns and half a line.
    let path = folder.path().join("rollout_001.json");
    let mut head: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let turns = head["turns"].as_array_mut().map(std::mem::take).unwrap();
    head["outcome"] = serde_json::json!({"status": "unfinished"});
    let mut lines = head.to_string() + "\n";
    for turn in turns.iter().take(3) {
        lines += &(serde_json::json!({"turn": turn, "tokens": []}).to_string() + "\n");
    }
    lines += r#"{"turn": {"index": 3, "pha"#;
    let partial = folder.path().join("rollout_001.partial.jsonl");
    fs::write(&partial, &lines).unwrap();
    fs::remove_file(&path).unwrap();

    let report = Report::on(folder.path()).unwrap();
    assert_eq!(report.rollouts[1].turns, 3);
    let markdown = report.markdown(None).unwrap();
    assert!(markdown.contains("1 of 2 rollouts finished, 1 running"), "{markdown}");
    assert_eq!(fs::read_to_string(&partial).unwrap(), lines, "reading does not change the file");
}

#[test]
fn a_folder_without_a_run_is_an_error() {
    let folder = TempDir::new().unwrap();
    assert!(matches!(load(folder.path()), Err(ReportError::Empty { .. })));
    fs::write(folder.path().join("rollout_000.json"), "{}").unwrap();
    let error = Report::on(folder.path()).unwrap_err().to_string();
    assert!(error.contains("rollout_000.json") && error.contains("line 1"), "{error}");
}

/// `scripts/check-report.sh` opens the same page in a browser.
#[test]
fn message_texts_are_escaped_in_the_page() {
    let folder = TempDir::new().unwrap();
    run_of(folder.path(), 1, include_str!("../data/report/hostile.yaml"), ["hostile", "hostile"]);
    let (report, conversations) = Report::with_conversations(folder.path()).unwrap();
    assert!(report.persona.contains("<img") && !report.flags.is_empty());
    let page = report.html(&conversations).unwrap();
    for tag in ["<img", "<svg onload", "<b ", "<script>alert", "</title><script", "onerror=alert(5)>"] {
        assert!(!page.contains(tag), "{tag} is in the page");
    }
    assert!(page.contains("&lt;img src=x onerror=alert(5)&gt;"), "the message is shown");
    assert_eq!(page.matches("<script>").count(), 1, "only the page's own script");
}

#[test]
fn a_missing_or_truncated_side_file_is_reported() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 2);
    assert!(!Report::on(folder.path()).unwrap().missing.iter().any(|missing| missing.contains("tokens of")));
    fs::remove_file(folder.path().join("rollout_000.tokens.jsonl")).unwrap();
    let side = folder.path().join("rollout_001.tokens.jsonl");
    let lines = fs::read_to_string(&side).unwrap();
    let kept: Vec<&str> = lines.lines().skip(3).collect();
    fs::write(&side, kept.join("\n")).unwrap();
    let missing = Report::on(folder.path()).unwrap().missing.join("\n");
    assert!(missing.contains("tokens of rollout_000.json: "), "{missing}");
    assert!(missing.contains("tokens of rollout_001.json: the side file lacks 3 of the messages"), "{missing}");
}

#[test]
fn a_comparison_has_differences_with_intervals() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    run(&a, 4);
    run_of(&b, 4, ANNA, ["interlocutor", "persona"]);
    let comparison = Comparison::of(&a, &b).unwrap();
    let words = comparison.scores.iter().find(|row| row.id == "words_per_message/1").unwrap();
    let (left, right) = (words.a.unwrap().mean, words.b.unwrap().mean);
    assert!((words.difference.unwrap() - (right - left)).abs() < 1e-12);
    let interval = words.interval.unwrap();
    assert!(interval.low <= right - left && right - left <= interval.high, "{interval:?}");
    assert_eq!(words.differs(), Some(true), "{words:?}");
    assert!(words.rollouts_needed.is_some() && words.detectable.is_some());
    let itself = Comparison::of(&a, &a).unwrap();
    assert!(itself.scores.iter().all(|row| row.differs() != Some(true)), "{itself:#?}");
    assert!(itself.markdown().contains("No difference is shown"));
    let one = Comparison::of(&a.join("rollout_000.json"), &b).unwrap();
    assert!(one.scores.iter().all(|row| row.interval.is_none()), "one rollout has no interval");
    let mut named = comparison;
    (named.a.path, named.b.path) = ("results/a".into(), "results/b".into());
    insta::assert_snapshot!("comparison", named.markdown());
}

#[test]
fn exports_contain_both_sides_views() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 2);
    let (report, conversations) = Report::with_conversations(folder.path()).unwrap();
    let files = export(&report, &conversations, ExportFormat::Messages).unwrap();
    let [(_, persona), (_, other)] = files.as_slice() else { panic!("{files:?}") };
    let lines = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for (persona, other) in lines(persona).iter().zip(lines(other)) {
        let turned = |value: &serde_json::Value| -> Vec<(String, String)> {
            let spoken = value["messages"].as_array().unwrap().iter().filter(|message| message["role"] != "system");
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            spoken.map(|message| (text(&message["role"]), text(&message["content"]))).collect()
        };
        let (mine, theirs) = (turned(persona), turned(&other));
        assert_eq!(mine.len(), 48);
        for ((role, content), (other_role, other_content)) in mine.iter().zip(&theirs) {
            assert_eq!(content, other_content);
            assert_ne!(role, other_role);
        }
        assert_eq!(mine[0].0, "assistant", "the persona speaks first");
        assert_eq!(persona["messages"][0]["role"], "system");
    }
    let files = export(&report, &conversations, ExportFormat::ShareGpt).unwrap();
    let first = &lines(&files[0].1)[0]["conversations"];
    assert_eq!(
        (&first[0]["from"], &first[1]["from"], &first[2]["from"]),
        (&"system".into(), &"gpt".into(), &"human".into())
    );
    // `scripts/check-inspect.sh` reads the same with Inspect itself; here only what it asks of the order.
    let files = export(&report, &conversations, ExportFormat::Inspect).unwrap();
    let text = &files[0].1;
    let places: Vec<_> =
        ["\"version\":2", "\"status\"", "\"eval\"", "\"plan\"", "\"results\"", "\"stats\"", "\"samples\":[{"]
            .map(|key| text.find(key).unwrap_or_else(|| panic!("{key}")))
            .to_vec();
    assert!(places.is_sorted(), "{places:?}");
    // What Inspect's data frames and its viewer need: ids, dates, an input, and each message once in the events.
    let log: serde_json::Value = serde_json::from_str(text).unwrap();
    let began: jiff::Timestamp = log["eval"]["created"].as_str().unwrap().parse().unwrap();
    for sample in log["samples"].as_array().unwrap() {
        assert!(!sample["input"].as_str().unwrap().is_empty());
        let events = sample["events"].as_array().unwrap();
        let time = |value: &serde_json::Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert!(
            began <= time(&events[0]["timestamp"]) && time(&events[0]["timestamp"]) <= time(&sample["completed_at"])
        );
        let id = |message: &serde_json::Value| message["id"].as_str().unwrap().to_owned();
        let in_events: Vec<String> = events
            .iter()
            .flat_map(|event| {
                let reply = &event["output"]["choices"][0]["message"];
                event["input"].as_array().unwrap().iter().chain([reply]).map(id).collect::<Vec<_>>()
            })
            .collect();
        let messages: Vec<String> = sample["messages"].as_array().unwrap().iter().map(id).collect();
        // The last message is the other side's: nobody replied to it.
        assert_eq!(in_events, messages[..in_events.len()]);
        assert!(messages.len() - in_events.len() <= 1);
    }
}

#[test]
fn stored_scores_are_shown_by_method_and_judge() {
    let folder = TempDir::new().unwrap();
    run(folder.path(), 3);
    for rollout in 0..3 {
        let path = folder.path().join(format!("rollout_00{rollout}.json"));
        let mut transcript = read_transcript(&path).unwrap();
        let score = |judge: &str, value: Option<f64>| Score {
            id: "expressed_intensity/1".into(),
            dimension: Some("conviction".into()),
            method: ScoreMethod::LogprobRating,
            judge: Some(ScoreJudge {
                model: judge.into(),
                ..serde_json::from_str(r#"{"model": "", "digest": null}"#).unwrap()
            }),
            prompt_digest: None,
            about: None,
            value,
            why: value.is_none().then(|| "the judge refused".into()),
            points: vec![ScorePoint {
                turns: (0, 5),
                value,
                mass: value.map(|_| 0.9),
                top: None,
                interval: None,
                why: value.is_none().then(|| "the judge refused".into()),
            }],
        };
        let mut first = score("first", Some(0.2 + 0.1 * f64::from(rollout)));
        // The judge was tested after it had rated the first rollout.
        let known = r#"{"agreement": 0.43, "interval": null, "pairs": 8}"#;
        first.judge.as_mut().unwrap().reliability = (rollout > 0).then(|| serde_json::from_str(known).unwrap());
        transcript.scores = vec![first, score("<b>second</b>", None)];
        fs::write(&path, serde_json::to_string(&transcript).unwrap()).unwrap();
    }
    let (report, conversations) = Report::with_conversations(folder.path()).unwrap();
    let [first, second] = report.stored.as_slice() else { panic!("{:#?}", report.stored) };
    assert!((first.value.unwrap().mean - 0.3).abs() < 1e-12 && first.interval.is_some());
    assert_eq!((first.points.len(), first.points[0].turn), (1, 5));
    assert_eq!((second.value, second.missing.as_slice()), (None, &[("the judge refused".to_owned(), 3)][..]));
    let markdown = report.markdown(None).unwrap();
    assert!(
        markdown.contains("rating by log-probabilities") && markdown.contains("3 times: the judge refused"),
        "{markdown}"
    );
    let page = report.html(&conversations).unwrap();
    assert!(page.contains("conviction, expressed") && page.contains("&lt;b&gt;second"), "drawn, and escaped");
    for text in [&markdown, &page] {
        assert!(text.contains("unreliable: agreement 0.43") && text.contains("not tested"), "{text}");
    }
    let compared = Comparison::of(&folder.path().join("rollout_000.json"), folder.path()).unwrap();
    let rows: Vec<_> = compared.scores.iter().filter(|row| row.judge.as_deref() == Some("first")).collect();
    assert_eq!(rows.len(), 1, "testing a judge does not change its identity: {rows:#?}");
    assert!(rows[0].unreliable.is_some() && rows[0].difference.is_some());
    assert!(compared.markdown().contains("by `first`, **unreliable**"));
}
