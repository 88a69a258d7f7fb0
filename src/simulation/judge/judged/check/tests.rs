//! The judge's test on judges whose figures are known: an oracle, its opposite, a coin, one that takes what it reads
//! first, one that takes what is longer.

use std::sync::Arc;

use super::*;
use crate::foundation::chat::{
    BoxFuture, Completion, Continuation, LanguageModel, ModelError, ModelInfo, Prompt, Reading, Request, Scored,
    TokenLogprob, TokenSink, Usage,
};

/// The probability of a label after a prompt.
type Opinion = dyn Fn(&str, &str) -> f64 + Send + Sync;

/// A model with an opinion and nothing else.
struct Synthetic {
    info: ModelInfo,
    opinion: Box<Opinion>,
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
            panic!("a judge is asked in words")
        };
        let (lead, label) = text.split_at(text.len() - 1);
        let token = |text: &str, p: f64| {
            let mut token = TokenLogprob::unknown(None, text);
            token.logprob = Some(p.ln() as f32);
            token
        };
        let mut tokens = vec![token(label, (self.opinion)(&messages[0].content, label))];
        if !lead.is_empty() {
            tokens.insert(0, token(lead, 0.5));
        }
        Box::pin(async { Ok(Scored::new(tokens, Usage::default(), Reading::Fresh, None)) })
    }
}

fn checked(opinion: impl Fn(&str, &str) -> f64 + Send + Sync + 'static) -> Check {
    let info = ModelInfo { name: "synthetic".to_owned(), logprobs: true, ..ModelInfo::default() };
    let model = Arc::new(Synthetic { info, opinion: Box::new(opinion) });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { check(&Judge::new(model).await.unwrap()).await.unwrap() })
}

/// Whether what stands first in `prompt` must be rated higher.
fn truth(prompt: &str) -> Option<bool> {
    let set = calibration().unwrap();
    let places = set.pairs.iter().flat_map(|pair| {
        let place = |lines: &[String]| prompt.find(&window(lines).text(NAME));
        [place(&pair.higher).map(|at| (at, true)), place(&pair.lower).map(|at| (at, false))]
    });
    places.flatten().min().map(|(_, higher)| higher)
}

/// .9 for the answer that `higher` calls for, and the rest for the opposite one.
fn sure(higher: Option<bool>, label: &str) -> f64 {
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
fn agreements(check: &Check, expected: f64) {
    assert_eq!(check.rubrics.len(), Rubric::ALL.len());
    for (rubric, reliability) in &check.rubrics {
        assert!((reliability.agreement - expected).abs() < 1e-12, "{rubric:?}: {reliability:?}");
    }
}

#[test]
fn an_oracle_agrees_always_and_its_opposite_never() {
    let oracle = checked(|prompt, label| sure(truth(prompt), label));
    agreements(&oracle, 1.0);
    assert!(oracle.rubrics.values().all(Reliability::is_reliable));
    assert!(oracle.position_bias.unwrap().abs() < 1e-6, "{oracle:?}");
    assert!(oracle.verbosity_bias.unwrap().abs() < 1e-6);
    // .95 on each of the 74 windows of the pairs, 1 on each of the 12 others.
    let expected = (74.0 * 0.95 + 12.0) / 86.0;
    assert!((oracle.mass.unwrap() - expected).abs() < 1e-6, "{:?}", oracle.mass);
    assert_eq!(oracle.unrated, Vec::<String>::new());

    let inverted = checked(|prompt, label| sure(truth(prompt).map(|higher| !higher), label));
    agreements(&inverted, 0.0);
    assert!(!inverted.rubrics.values().any(Reliability::is_reliable));
}

#[test]
fn a_coin_agrees_half_the_time() {
    // One that cannot tell anything: every rating is the same.
    agreements(&checked(|_, _| 0.2), 0.5);
    // One that tells at random.
    let coin = checked(|prompt, label| sure(Some(Digest::of(prompt).as_bytes()[0].is_multiple_of(2)), label));
    let mean = coin.rubrics.values().map(|reliability| reliability.agreement).sum::<f64>() / 5.0;
    assert!((0.25..0.75).contains(&mean), "{mean}");
    let holds = |reliability: &&Reliability| reliability.interval.is_some_and(|i| i.low <= 0.5 && 0.5 <= i.high);
    assert!(coin.rubrics.values().filter(holds).count() >= 3, "{:?}", coin.rubrics);
}

#[test]
fn who_takes_the_first_or_the_longer_one_is_found_out() {
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
        sure(Some(long), label)
    });
    // (.9·1 + .05·0) / .95 − (.9·0 + .05·1) / .95
    assert!((long.verbosity_bias.unwrap() - 0.85 / 0.95).abs() < 1e-6, "{long:?}");
}

#[test]
fn a_rating_is_the_mean_over_the_scale_at_the_last_token() {
    let info = ModelInfo { name: "synthetic".to_owned(), ..ModelInfo::default() };
    let opinion: Box<Opinion> = Box::new(|_, label| match label {
        "2" => 0.1,
        "3" | "5" => 0.2,
        "4" => 0.3,
        _ => 0.0,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let judge = Judge::new(Arc::new(Synthetic { info, opinion })).await.unwrap();
        assert_eq!(judge.method(), ScoreMethod::LogprobRating);
        let rated = judge.rate("How good?", Stream::root(0)).await;
        assert!((rated.mass.unwrap() - 0.8).abs() < 1e-6);
        assert!((rated.value.unwrap() - (0.1 + 0.4 + 0.9 + 0.8) / 0.8 / 4.0).abs() < 1e-6);
    });
}

#[test]
fn the_shipped_set_is_whole() {
    let set = calibration().unwrap();
    for rubric in Rubric::ALL {
        let pairs: Vec<_> = set.pairs.iter().filter(|pair| pair.rubric == rubric).collect();
        assert!(pairs.len() >= 7, "{rubric:?} has {} pairs", pairs.len());
        let needs = !matches!(rubric, Rubric::Naturalness | Rubric::Stagnation);
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
