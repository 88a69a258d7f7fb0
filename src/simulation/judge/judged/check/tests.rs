//! Tests of the judge check on synthetic judges with known results: an oracle, its opposite, a coin, one that always
//! prefers the first window, one that always prefers the longer window.

use std::sync::Arc;

use std::sync::LazyLock;

use super::*;
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, LanguageModel, ModelError, ModelInfo, PrefixReuse, Prompt, Request, Scored,
    TokenLogprob, TokenSink, Usage,
};
use crate::simulation::judge::judged::RubricNeeds;

/// The probability of a label after a prompt.
type LabelProbability = dyn Fn(&str, &str) -> f64 + Send + Sync;

/// A model that only scores labels.
struct Synthetic {
    info: ModelInfo,
    probability: Box<LabelProbability>,
}

impl LanguageModel for Synthetic {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn complete<'a>(
        &'a self,
        _: Request,
        _: Option<Box<dyn TokenSink + 'a>>,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async { Err(ModelError::Failed { model: "synthetic".to_owned(), why: "it only scores".to_owned() }) })
    }

    fn score(&self, request: Request, continuation: Continuation) -> BoxFuture<'_, Result<Scored, ModelError>> {
        let (Prompt::Chat(messages), Continuation::Text(text)) = (request.prompt, continuation) else {
            panic!("a judge gets a chat prompt and text continuations")
        };
        let (lead, label) = text.split_at(text.len() - 1);
        let token = |text: &str, p: f64| {
            let mut token = TokenLogprob::unknown(None, text);
            token.logprob = Some(p.ln() as f32);
            token
        };
        let mut tokens = vec![token(label, (self.probability)(&messages[0].content, label))];
        if !lead.is_empty() {
            tokens.insert(0, token(lead, 0.5));
        }
        Box::pin(async { Ok(Scored::new(tokens, Usage::default(), PrefixReuse::Fresh, None)) })
    }
}

fn checked(probability: impl Fn(&str, &str) -> f64 + Send + Sync + 'static) -> JudgeCheck {
    let info = ModelInfo { name: "synthetic".to_owned(), logprobs: true, ..ModelInfo::default() };
    let model = Arc::new(Synthetic { info, probability: Box::new(probability) });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { check_judge(&Judge::new(model).await.unwrap()).await.unwrap() })
}

/// Whether the first window in `prompt` is the one that must be rated higher.
fn truth(prompt: &str) -> Option<bool> {
    static WINDOWS: LazyLock<Vec<(String, bool)>> = LazyLock::new(|| {
        let both = |pair: &Pair| {
            [(&pair.higher, true), (&pair.lower, false)].map(|(lines, higher)| (window(lines).text(NAME), higher))
        };
        calibration().unwrap().pairs.iter().flat_map(both).collect()
    });
    let positions = WINDOWS.iter().filter_map(|(text, higher)| Some((prompt.find(text)?, *higher)));
    positions.min().map(|(_, higher)| higher)
}

/// .9 for the right answer, .05 for the opposite one.
fn confident(higher: Option<bool>, label: &str) -> f64 {
    let high = matches!(label, "5" | "A");
    match (higher, label) {
        (None, _) => 0.2,
        (Some(_), "2" | "3" | "4") => 0.0,
        (Some(higher), _) => {
            if higher == high {
                0.9
            } else {
                0.05
            }
        }
    }
}

#[track_caller]
fn agreements(check: &JudgeCheck, expected: f64) {
    assert_eq!(check.rubrics.len(), Rubric::standard().count());
    for (rubric, reliability) in &check.rubrics {
        assert!((reliability.agreement - expected).abs() < 1e-12, "{rubric:?}: {reliability:?}");
    }
}

#[test]
fn an_oracle_has_agreement_one_and_its_opposite_zero() {
    let oracle = checked(|prompt, label| confident(truth(prompt), label));
    agreements(&oracle, 1.0);
    assert!(oracle.rubrics.values().all(Reliability::is_reliable));
    assert!(oracle.position_bias.unwrap().abs() < 1e-6, "{oracle:?}");
    assert!(oracle.verbosity_bias.unwrap().abs() < 1e-6);
    // .95 on each of the windows of the 200 pairs, 1 on each of the 12 others.
    let expected = (400.0 * 0.95 + 12.0) / 412.0;
    assert!((oracle.mass.unwrap() - expected).abs() < 1e-6, "{:?}", oracle.mass);
    assert_eq!(oracle.unrated, Vec::<String>::new());

    let inverted = checked(|prompt, label| confident(truth(prompt).map(|higher| !higher), label));
    agreements(&inverted, 0.0);
    assert!(!inverted.rubrics.values().any(Reliability::is_reliable));
}

#[test]
fn a_coin_has_agreement_one_half() {
    // Every rating is the same.
    agreements(&checked(|_, _| 0.2), 0.5);
    // Random ratings.
    let coin = checked(|prompt, label| confident(Some(Digest::of(prompt).as_bytes()[0].is_multiple_of(2)), label));
    let mean = coin.rubrics.values().map(|reliability| reliability.agreement).sum::<f64>() / 5.0;
    assert!((0.25..0.75).contains(&mean), "{mean}");
    let holds = |reliability: &&Reliability| reliability.interval.is_some_and(|i| i.low <= 0.5 && 0.5 <= i.high);
    assert!(coin.rubrics.values().filter(holds).count() >= 3, "{:?}", coin.rubrics);
}

#[test]
fn position_and_verbosity_bias_are_measured() {
    let first = checked(|_, label| match label {
        "A" => 0.9,
        "B" => 0.1,
        _ => 0.2,
    });
    assert!((first.position_bias.unwrap() - 0.4).abs() < 1e-6, "{first:?}");
    assert!(first.verbosity_bias.unwrap().abs() < 1e-6);

    let long = checked(|prompt, label| {
        let set = calibration().unwrap();
        let long = set.equals.iter().any(|equal| prompt.contains(&window(&equal.long).text(NAME)));
        confident(Some(long), label)
    });
    // (.9·1 + .05·0) / .95 − (.9·0 + .05·1) / .95
    assert!((long.verbosity_bias.unwrap() - 0.85 / 0.95).abs() < 1e-6, "{long:?}");
}

#[test]
fn a_rating_is_the_mean_over_the_scale_at_the_last_token() {
    let info = ModelInfo { name: "synthetic".to_owned(), ..ModelInfo::default() };
    let probability: Box<LabelProbability> = Box::new(|_, label| match label {
        "2" => 0.1,
        "3" | "5" => 0.2,
        "4" => 0.3,
        _ => 0.0,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let judge = Judge::new(Arc::new(Synthetic { info, probability })).await.unwrap();
        assert_eq!(judge.method(), ScoreMethod::LogprobRating);
        let rated = judge.rate("How good?", RngStream::root(0)).await;
        assert!((rated.mass.unwrap() - 0.8).abs() < 1e-6);
        assert!((rated.value.unwrap() - (0.1 + 0.4 + 0.9 + 0.8) / 0.8 / 4.0).abs() < 1e-6);
    });
}

#[test]
fn the_calibration_set_is_complete() {
    let set = calibration().unwrap();
    for rubric in Rubric::standard() {
        let pairs: Vec<_> = set.pairs.iter().filter(|pair| pair.rubric == rubric.name).collect();
        assert!(pairs.len() >= 40, "{rubric:?} has {} pairs", pairs.len());
        let needs = rubric.needs != RubricNeeds::Nothing;
        assert!(pairs.iter().all(|pair| pair.about.is_some() == needs), "{rubric:?}");
    }
    let lines = set.pairs.iter().flat_map(|pair| [&pair.higher, &pair.lower]);
    let lines = lines.chain(set.equals.iter().flat_map(|equal| [&equal.short, &equal.long]));
    for lines in lines {
        assert!(lines.iter().any(|line| line.starts_with("Kim: ")), "{lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("Kim: ") || line.starts_with("Other: ")), "{lines:?}");
    }
    for equal in &set.equals {
        assert!(equal.long.concat().len() > equal.short.concat().len() * 3 / 2, "{:?}", equal.short);
    }
    assert!(set.equals.len() >= 6);
}
