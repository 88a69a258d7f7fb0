//! Tests a judge on conversation windows whose order is known (`configs/judging/calibration.yaml`, written for Loom):
//! how often the judge rates the right one of two windows higher, and whether it prefers the first or the longer one.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use futures_util::stream;
use minijinja::context;
use serde::{Deserialize, Serialize};

use super::judge::Judge;
use super::rubric::{PREFERENCE, Rubric, render};
use super::window::Window;
use crate::foundation::base::limits::JUDGE_QUESTIONS_MAX;
use crate::foundation::base::{Digest, RngStream};
use crate::foundation::stats::{Interval, auroc, bootstrap, mean};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Reliability, ScoreMethod};

const CALIBRATION: &str = include_str!("../../../../configs/judging/calibration.yaml");
/// Pairs of each rubric that are also shown together, in both orders: a preference for a place is one for all rubrics.
const PREFERENCE_PAIRS: usize = 8;
/// Bootstrap resamples per interval.
const RESAMPLES: u32 = 2_000;

/// The result of a judge's test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgeCheck {
    /// The judge model's name.
    pub model: String,
    /// The digest of its weights, tokenizer and template, if known.
    pub digest: Option<Digest>,
    /// How the ratings were read.
    pub method: ScoreMethod,
    /// The digest of the calibration set and of the questions.
    pub calibration: Digest,
    /// Per rubric: the area under the ROC curve of the ratings. Rubrics that the judge could not rate are missing.
    pub rubrics: BTreeMap<String, Reliability>,
    /// Preference for the first of two windows, in `[-0.5, 0.5]`; 0 is unbiased.
    pub position_bias: Option<f64>,
    /// How much higher the longer one of two equally good windows is rated, in `[-1, 1]`; 0 is unbiased.
    pub verbosity_bias: Option<f64>,
    /// The mean probability of the answers on the scale; absent for written ratings. A low value means that the judge
    /// did not understand the answer format.
    pub mass: Option<f64>,
    /// The smallest number of alternatives that `mass` was summed over, if the provider returns only some: `mass` is
    /// then a lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// The reasons why windows were not rated, each once.
    pub unrated: Vec<String>,
}

/// An error in the test of a judge.
#[derive(Debug, thiserror::Error)]
pub enum JudgeCheckError {
    /// The embedded calibration set cannot be read.
    #[error("the calibration set cannot be read (a bug in Loom, please report it): {0}")]
    Calibration(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calibration {
    pairs: Vec<Pair>,
    equals: Vec<Equal>,
}

/// Two windows, one of which must be rated higher.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    rubric: String,
    /// What the rubric refers to: the person, the dimension or the instructions.
    about: Option<String>,
    higher: Vec<String>,
    lower: Vec<String>,
}

/// Two windows with the same content, one of them longer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Equal {
    rubric: String,
    about: Option<String>,
    short: Vec<String>,
    long: Vec<String>,
}

/// The persona's name in the calibration set.
const NAME: &str = "Kim";

fn calibration() -> Result<Calibration, JudgeCheckError> {
    serde_saphyr::from_str(CALIBRATION).map_err(|error| JudgeCheckError::Calibration(error.to_string()))
}

/// The digest of the calibration set and of all questions that `judge` is asked.
pub fn calibration_digest(judge: &Judge) -> Digest {
    let templates: String = Rubric::standard().map(Rubric::definition).collect();
    Digest::of(format!("{CALIBRATION}\n{templates}\n{PREFERENCE}\n{}", judge.answer_format()))
}

/// A window from lines such as `Kim: …`; every other speaker is the interlocutor.
fn window(lines: &[String]) -> Window {
    Window::from_lines(lines.iter().map(|line| match line.strip_prefix("Kim: ") {
        Some(text) => (Speaker::Persona, text.to_owned()),
        None => (Speaker::Interlocutor, line.strip_prefix("Other: ").unwrap_or(line).to_owned()),
    }))
}

fn prompt(rubric: &Rubric, about: Option<&str>, lines: &[String]) -> Result<String, String> {
    let levels: [(&str, &str); 0] = [];
    rubric.prompt(context! {
        name => NAME, window => window(lines).text(NAME), question => (), profile => about, instructions => about,
        dimension => about, description => (), levels => levels,
    })
}

/// A shipped rubric.
fn named(name: &str) -> Result<&'static Rubric, String> {
    Rubric::shipped().iter().find(|rubric| rubric.name == name).ok_or_else(|| format!("there is no rubric `{name}`"))
}

/// The pairwise question of a rubric.
fn preference_question(rubric: &str, about: Option<&str>) -> String {
    let about = about.unwrap_or_default();
    match rubric {
        "persona_adherence" => format!("In which one does {NAME} stay this person? {about}"),
        "intensity" => format!("In which one does {NAME} show more of this: {about}?"),
        "naturalness" => format!("In which one does {NAME} sound more like a living person?"),
        "stagnation" => "Which one stands still?".to_owned(),
        _ => format!("In which one does {NAME} follow these instructions? {about}"),
    }
}

/// What was collected while the judge was tested.
#[derive(Default)]
struct CheckRun {
    masses: Vec<f64>,
    top: Option<usize>,
    unrated: Vec<String>,
}

impl CheckRun {
    fn record_failure(&mut self, why: String) {
        if !self.unrated.contains(&why) {
            self.unrated.push(why);
        }
    }

    /// The ratings of the prompts, in order.
    async fn rate(&mut self, judge: &Judge, prompts: Vec<Result<String, String>>) -> Vec<Option<f64>> {
        let each = prompts.into_iter().map(async |prompt| {
            let prompt = prompt?;
            judge.fits(&prompt)?;
            Ok::<_, String>(judge.rate(&prompt, RngStream::root(0)).await)
        });
        let rated: Vec<_> = stream::iter(each).buffered(JUDGE_QUESTIONS_MAX).collect().await;
        let mut values = Vec::with_capacity(rated.len());
        for rated in rated {
            let value = rated.and_then(|rated| {
                self.masses.extend(rated.mass);
                self.top = self.top.into_iter().chain(rated.top).min();
                rated.value
            });
            values.push(value.map_err(|why| self.record_failure(why)).ok());
        }
        values
    }
}

/// Tests `judge` on the embedded calibration set.
///
/// # Errors
/// If the set cannot be read, which a unit test excludes.
pub async fn check_judge(judge: &Judge) -> Result<JudgeCheck, JudgeCheckError> {
    let set = calibration()?;
    let mut run = CheckRun::default();

    let mut rubrics = BTreeMap::new();
    for rubric in Rubric::standard() {
        let pairs: Vec<&Pair> = set.pairs.iter().filter(|pair| pair.rubric == rubric.name).collect();
        let both = pairs.iter().flat_map(|pair| [&pair.higher, &pair.lower].map(|lines| (pair, lines)));
        let prompts = both.map(|(pair, lines)| prompt(rubric, pair.about.as_deref(), lines)).collect();
        let rated = run.rate(judge, prompts).await;
        let rated: Vec<(f64, f64)> = rated
            .chunks(2)
            .filter_map(|pair| if let [Some(higher), Some(lower)] = pair { Some((*higher, *lower)) } else { None })
            .collect();
        if let Some(reliability) = reliability(&rubric.name, &rated) {
            rubrics.insert(rubric.name.clone(), reliability);
        }
    }

    let some_of = |rubric: &Rubric| {
        let name = rubric.name.clone();
        set.pairs.iter().filter(move |pair| pair.rubric == name).take(PREFERENCE_PAIRS)
    };
    let each = Rubric::standard().flat_map(some_of).flat_map(|pair| {
        let (higher, lower) = (window(&pair.higher).text(NAME), window(&pair.lower).text(NAME));
        let question = preference_question(&pair.rubric, pair.about.as_deref());
        [(higher.clone(), lower.clone()), (lower, higher)]
            .map(|(first, second)| render(PREFERENCE, context! { question => question.clone(), first, second }))
    });
    let each = each.map(async |prompt| {
        let prompt = prompt?;
        judge.fits(&prompt)?;
        judge.prefers_first(&prompt, RngStream::root(0)).await
    });
    let chosen: Vec<Result<f64, String>> = stream::iter(each).buffered(JUDGE_QUESTIONS_MAX).collect().await;
    // A pair counts only if both orders were answered, so that the difference in quality cancels out.
    let mut firsts = Vec::new();
    for pair in chosen.chunks(2) {
        match pair {
            [Ok(one), Ok(other)] => firsts.extend([*one, *other]),
            _ => pair.iter().filter_map(|chosen| chosen.as_ref().err()).for_each(|why| run.record_failure(why.clone())),
        }
    }

    let both = set.equals.iter().flat_map(|equal| [&equal.long, &equal.short].map(|lines| (equal, lines)));
    let prompts = both.map(|(equal, lines)| prompt(named(&equal.rubric)?, equal.about.as_deref(), lines)).collect();
    let rated = run.rate(judge, prompts).await;
    let longer =
        rated.chunks(2).filter_map(|pair| if let [Some(long), Some(short)] = pair { Some(long - short) } else { None });
    let verbosity_bias = mean(&longer.collect::<Vec<_>>());

    let info = judge.info();
    Ok(JudgeCheck {
        model: info.name.clone(),
        digest: info.digest,
        method: judge.method(),
        calibration: calibration_digest(judge),
        rubrics,
        position_bias: mean(&firsts).map(|first| first - 0.5),
        verbosity_bias,
        mass: mean(&run.masses),
        top: run.top,
        unrated: run.unrated,
    })
}

/// How often a window that should be rated higher was, over all pairs of one such and one other window of the rubric.
fn reliability(rubric: &str, rated: &[(f64, f64)]) -> Option<Reliability> {
    let area =
        |pairs: &[(f64, f64)]| auroc(pairs.iter().flat_map(|(higher, lower)| [(*higher, true), (*lower, false)]));
    let agreement = area(rated)?;
    let stream = RngStream::root(0).child("judge check", 0).child(rubric, 0);
    let interval: Option<Interval> = bootstrap(rated, RESAMPLES, &stream, area);
    Some(Reliability { agreement, interval, pairs: rated.len() })
}

#[cfg(test)]
mod tests;
