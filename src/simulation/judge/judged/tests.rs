//! Tests of how valid and invalid judge answers are handled.

mod hosted;

use std::fs;

use super::*;
use crate::foundation::chat::ModelChain;
use crate::inference::providers::{OpenOptions, open};
use crate::simulation::judge::measured::tests::transcript;
use crate::simulation::persona::parse;
use crate::simulation::rollout::Intensity;

const ANNA: &str = include_str!("../../../../tests/data/rollout/anna.yaml");

/// A conversation of four turns whose third reply is missing.
fn talk() -> Transcript {
    let mut talk =
        transcript(&[("They ring.", "Who?"), ("The alarms.", "Why?"), ("", "Still there?"), ("Yes.", "Go on.")]);
    for (turn, value) in talk.turns.iter_mut().zip([0.1, 0.3, 0.5, 0.8]) {
        turn.intensities = vec![Intensity { dimension: "conviction".to_owned(), value }];
    }
    if let Some(turn) = talk.turns.first_mut() {
        turn.prompt.injection = InjectionKind::Full;
        turn.injected = vec!["Ring the bell.".to_owned()];
    }
    talk
}

/// The scores of the conversation by a judge that answers with `script`.
fn judged(script: &str, yaml: &str) -> Vec<Score> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("judge.json");
    fs::write(&path, script).unwrap();
    let chain: ModelChain = format!("scripted:{}", path.display()).parse().unwrap();
    let (talk, config) = (talk(), parse("anna.yaml", yaml).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let judge = Judge::new(open(&chain, &OpenOptions::default()).unwrap()).await.unwrap();
        assert_eq!(judge.method(), ScoreMethod::WrittenRating);
        let input = JudgeInput { transcript: &talk, config: Some(&config), profile: None, window: None, rubrics: &[] };
        let scores = scores(input, &judge, None, &|_| true).await;
        let questions = input.questions();
        let wanted = questions.iter().flat_map(|question| input.requested_scores(question, &judge));
        let wanted: Vec<_> = wanted.map(|wanted| (wanted.id, wanted.dimension)).collect();
        let taken: Vec<_> = scores.iter().map(|score| (score.id.clone(), score.dimension.clone())).collect();
        assert_eq!(taken, wanted);
        scores
    })
}

fn named<'a>(scores: &'a [Score], id: &str) -> &'a Score {
    scores.iter().find(|score| score.id == id).unwrap_or_else(|| panic!("no {id}"))
}

#[test]
fn written_ratings_become_scores() {
    let scores = judged(r#"["{\"rating\": 4}"]"#, ANNA);
    let adherence = named(&scores, "persona_adherence/1");
    assert_eq!((adherence.value, adherence.method), (Some(0.75), ScoreMethod::WrittenRating));
    let points: Vec<_> = adherence.points.iter().map(|point| (point.turns, point.value)).collect();
    assert_eq!(points, [((0, 0), Some(0.75)), ((0, 1), Some(0.75)), ((2, 2), None), ((0, 3), Some(0.75))]);
    assert!(adherence.points[2].why.as_ref().unwrap().starts_with("there is no reply"));
    assert_eq!(adherence.judge.as_ref().unwrap().reliability, None);
    let trajectory = named(&scores, "trajectory_adherence/1");
    let expected = (0.35 + 0.55 + 0.95) / 3.0;
    assert!((trajectory.value.unwrap() - expected).abs() < 1e-12, "{trajectory:?}");
    assert_eq!(named(&scores, "judged_intensity/1").value, Some(0.75));
    let spread: f64 = [0.65_f64, 0.45, -0.05].iter().map(|d| d * d).sum::<f64>() / 3.0;
    assert!((named(&scores, "judged_intensity_rmse/1").value.unwrap() - spread.sqrt()).abs() < 1e-12);
    assert_eq!(named(&scores, "judged_intensity_spearman/1").value, None, "it never changed");
}

#[test]
fn an_answer_in_the_wrong_format_is_requested_again_a_few_times() {
    let repaired = judged(r#"["I would say four.", "{\"rating\": 2}"]"#, ANNA);
    assert_eq!(named(&repaired, "naturalness/1").value, Some(0.25));
    let rambling = judged(r#"["I would say four."]"#, ANNA);
    let score = named(&rambling, "naturalness/1");
    assert_eq!(score.value, None);
    assert!(score.why.as_ref().unwrap().contains("no rating in 3 answers"), "{score:?}");
}

#[test]
fn a_refusal_and_a_failure_leave_no_value_but_a_reason() {
    let refused = judged(r#"[{"content": "I can't judge that.", "finish": "refusal"}]"#, ANNA);
    assert!(refused.iter().all(|score| score.value.is_none() && score.why.is_some()));
    assert!(named(&refused, "stagnation/1").why.as_ref().unwrap().contains("refused: I can't judge that."));
    let failed = judged(r#"[{"error": "overloaded"}]"#, ANNA);
    assert!(named(&failed, "fidelity/1").why.as_ref().unwrap().contains("overloaded"));
}

#[test]
fn the_configuration_selects_scores_and_sample_rates() {
    let yaml = format!(
        "{ANNA}\nevaluation:\n  scoring:\n    naturalness: {{enabled: false}}\n    stagnation: {{sample_rate: 0.5}}\n"
    );
    let scores = judged(r#"["{\"rating\": 4}"]"#, &yaml);
    assert!(scores.iter().all(|score| score.id != "naturalness/1"));
    let turns: Vec<_> = named(&scores, "stagnation/1").points.iter().map(|point| point.turns.1).collect();
    assert_eq!(turns, [1, 3]);
}

#[test]
fn prompts_match_their_snapshot() {
    let (talk, config) = (talk(), parse("anna.yaml", ANNA).unwrap());
    let input = JudgeInput { transcript: &talk, config: Some(&config), profile: None, window: Some(2), rubrics: &[] };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let model = open(&"echo".parse().unwrap(), &OpenOptions::default()).unwrap();
    let judge = runtime.block_on(Judge::new(model)).unwrap();
    let turn = &talk.turns[3];
    let prompts: Vec<String> = input
        .questions()
        .iter()
        .map(|question| {
            let window = Window::ending_with(Speaker::Persona, &talk, turn, 2);
            format!("== {}\n{}", question.rubric.name, input.prompt(question, &judge, turn, &window).unwrap())
        })
        .collect();
    insta::assert_snapshot!("judge_prompts", prompts.join("\n\n"));
}

#[test]
fn every_score_is_defined_in_the_docs() {
    let docs = include_str!("../../../../docs/SCORES.md");
    for rubric in Rubric::shipped() {
        for id in rubric.ids() {
            assert!(docs.contains(&format!("`{id}`")), "{id} is not defined");
        }
    }
}
