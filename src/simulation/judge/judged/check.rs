//! The judge's own test: windows whose order is known, written for Loom (`configs/judging/calibration.yaml`). How often
//! does it tell which of two shows more of what is asked? Does it lean to the one it reads first, or to the longer one?

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use futures_util::stream;
use minijinja::context;
use serde::{Deserialize, Serialize};

use super::judge::Judge;
use super::rubric::{PREFERENCE, Rubric, render};
use super::window::Window;
use crate::foundation::base::limits::JUDGE_QUESTIONS_MAX;
use crate::foundation::base::{Digest, Stream};
use crate::foundation::stats::{Interval, auroc, bootstrap, mean};
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{Reliability, ScoreMethod};

const CALIBRATION: &str = include_str!("../../../../configs/judging/calibration.yaml");
/// Resamples behind an interval.
const RESAMPLES: u32 = 2_000;

/// How well a judge judges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub model: String,
    /// The digest of its weights, tokenizer and template, where it is known.
    pub digest: Option<Digest>,
    /// How it answered.
    pub method: ScoreMethod,
    /// The digest of the calibration set and of all that it was asked.
    pub calibration: Digest,
    /// Per rubric: the area under the ROC curve of its ratings. Rubrics that it could not rate are missing.
    pub rubrics: BTreeMap<Rubric, Reliability>,
    /// How far its choice between two windows leans to the one it reads first, in `[-0.5, 0.5]`; 0 is even-handed.
    pub position_bias: Option<f64>,
    /// How much higher it rates the longer one of two equally good windows, in `[-1, 1]`; 0 is even-handed.
    pub verbosity_bias: Option<f64>,
    /// The mean probability that it gave to the scale; absent for written ratings. Little of it means that the judge
    /// did not understand how to answer.
    pub mass: Option<f64>,
    /// How many alternatives `mass` was summed over at least, where not all were told: it is then a lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<usize>,
    /// What it could not rate, and why, each reason once.
    pub unrated: Vec<String>,
}

/// Why a judge cannot be tested.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The embedded set cannot be read.
    #[error("the calibration set is damaged (a bug in Loom, please report it): {0}")]
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
    rubric: Rubric,
    /// What the rubric needs to know: the person, the dimension or the instructions.
    about: Option<String>,
    higher: Vec<String>,
    lower: Vec<String>,
}

/// Two windows that say the same, one of them in more words.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Equal {
    rubric: Rubric,
    about: Option<String>,
    short: Vec<String>,
    long: Vec<String>,
}

/// Who the persona is called in the set.
const NAME: &str = "Kim";

fn calibration() -> Result<Calibration, CheckError> {
    serde_saphyr::from_str(CALIBRATION).map_err(|error| CheckError::Calibration(error.to_string()))
}

/// The digest of the calibration set and of everything that `judge` is asked on it: another set, another result.
pub fn calibration_digest(judge: &Judge) -> Digest {
    let templates: String = Rubric::ALL.iter().map(|rubric| rubric.template()).collect();
    Digest::of(format!("{CALIBRATION}\n{templates}\n{PREFERENCE}\n{}", judge.how()))
}

/// Lines such as `- Kim: …` as a window; whoever is not the persona is the other side.
fn window(lines: &[String]) -> Window {
    Window::written(lines.iter().map(|line| match line.strip_prefix("Kim: ") {
        Some(text) => (Speaker::Persona, text.to_owned()),
        None => (Speaker::Interlocutor, line.strip_prefix("Other: ").unwrap_or(line).to_owned()),
    }))
}

fn prompt(rubric: Rubric, about: Option<&str>, lines: &[String]) -> Result<String, String> {
    let levels: [(&str, &str); 0] = [];
    render(
        rubric.template(),
        context! {
            name => NAME, window => window(lines).text(NAME), question => (), profile => about, instructions => about,
            dimension => about, description => (), levels => levels,
        },
    )
}

/// What the pairwise question asks of a rubric.
fn asks(rubric: Rubric, about: Option<&str>) -> String {
    let about = about.unwrap_or_default();
    match rubric {
        Rubric::PersonaAdherence => format!("In which one does {NAME} stay this person? {about}"),
        Rubric::Intensity => format!("In which one does {NAME} show more of this: {about}?"),
        Rubric::Naturalness => format!("In which one does {NAME} sound more like a living person?"),
        Rubric::Stagnation => "Which one stands still?".to_owned(),
        Rubric::Fidelity => format!("In which one does {NAME} follow these instructions? {about}"),
    }
}

/// What was found while asking.
#[derive(Default)]
struct Asked {
    masses: Vec<f64>,
    top: Option<usize>,
    unrated: Vec<String>,
}

impl Asked {
    fn failed(&mut self, why: String) {
        if !self.unrated.contains(&why) {
            self.unrated.push(why);
        }
    }

    /// The rating of every window, in order.
    async fn rate(&mut self, judge: &Judge, prompts: Vec<Result<String, String>>) -> Vec<Option<f64>> {
        let each = prompts.into_iter().map(async |prompt| {
            let prompt = prompt?;
            judge.fits(&prompt)?;
            Ok::<_, String>(judge.rate(&prompt, Stream::root(0)).await)
        });
        let rated: Vec<_> = stream::iter(each).buffered(JUDGE_QUESTIONS_MAX).collect().await;
        let mut values = Vec::with_capacity(rated.len());
        for rated in rated {
            let value = rated.and_then(|rated| {
                self.masses.extend(rated.mass);
                self.top = self.top.into_iter().chain(rated.top).min();
                rated.value
            });
            values.push(value.map_err(|why| self.failed(why)).ok());
        }
        values
    }
}

/// Tests `judge` on the shipped set.
///
/// # Errors
/// When the set cannot be read, which the tests of this program exclude.
pub async fn check(judge: &Judge) -> Result<Check, CheckError> {
    let set = calibration()?;
    let mut asked = Asked::default();

    let mut rubrics = BTreeMap::new();
    for rubric in Rubric::ALL {
        let pairs: Vec<&Pair> = set.pairs.iter().filter(|pair| pair.rubric == rubric).collect();
        let both = pairs.iter().flat_map(|pair| [&pair.higher, &pair.lower].map(|lines| (pair, lines)));
        let prompts = both.map(|(pair, lines)| prompt(rubric, pair.about.as_deref(), lines)).collect();
        let rated = asked.rate(judge, prompts).await;
        let rated: Vec<(f64, f64)> = rated
            .chunks(2)
            .filter_map(|pair| if let [Some(higher), Some(lower)] = pair { Some((*higher, *lower)) } else { None })
            .collect();
        if let Some(reliability) = reliability(rubric, &rated) {
            rubrics.insert(rubric, reliability);
        }
    }

    let each = set.pairs.iter().flat_map(|pair| {
        let (higher, lower) = (window(&pair.higher).text(NAME), window(&pair.lower).text(NAME));
        let question = asks(pair.rubric, pair.about.as_deref());
        [(higher.clone(), lower.clone()), (lower, higher)]
            .map(|(first, second)| render(PREFERENCE, context! { question => question.clone(), first, second }))
    });
    let each = each.map(async |prompt| {
        let prompt = prompt?;
        judge.fits(&prompt)?;
        judge.prefers_first(&prompt, Stream::root(0)).await
    });
    let chosen: Vec<Result<f64, String>> = stream::iter(each).buffered(JUDGE_QUESTIONS_MAX).collect().await;
    // A pair counts with both its orders or not at all: what is better in it then cancels out.
    let mut firsts = Vec::new();
    for pair in chosen.chunks(2) {
        match pair {
            [Ok(one), Ok(other)] => firsts.extend([*one, *other]),
            _ => pair.iter().filter_map(|chosen| chosen.as_ref().err()).for_each(|why| asked.failed(why.clone())),
        }
    }

    let both = set.equals.iter().flat_map(|equal| [&equal.long, &equal.short].map(|lines| (equal, lines)));
    let prompts = both.map(|(equal, lines)| prompt(equal.rubric, equal.about.as_deref(), lines)).collect();
    let rated = asked.rate(judge, prompts).await;
    let longer =
        rated.chunks(2).filter_map(|pair| if let [Some(long), Some(short)] = pair { Some(long - short) } else { None });
    let verbosity_bias = mean(&longer.collect::<Vec<_>>());

    let info = judge.info();
    Ok(Check {
        model: info.name.clone(),
        digest: info.digest,
        method: judge.method(),
        calibration: calibration_digest(judge),
        rubrics,
        position_bias: mean(&firsts).map(|first| first - 0.5),
        verbosity_bias,
        mass: mean(&asked.masses),
        top: asked.top,
        unrated: asked.unrated,
    })
}

/// How often a window that is higher was rated above one that is lower, over all pairs of windows of the rubric.
fn reliability(rubric: Rubric, rated: &[(f64, f64)]) -> Option<Reliability> {
    let area =
        |pairs: &[(f64, f64)]| auroc(pairs.iter().flat_map(|(higher, lower)| [(*higher, true), (*lower, false)]));
    let agreement = area(rated)?;
    let stream = Stream::root(0).child("judge check", 0).child(rubric.name(), 0);
    let interval: Option<Interval> = bootstrap(rated, RESAMPLES, &stream, area);
    Some(Reliability { agreement, interval, pairs: rated.len() })
}

#[cfg(test)]
mod tests;
