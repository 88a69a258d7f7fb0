//! Which turn breaks character? Rollouts of known personas in which one reply was replaced by one that is out of character.
//!
//! Versions of each rollout are read by a local model: as it was, with one turn replaced by a break, and, as controls, with the
//! same turn replaced by a reply in character: of the same persona at the same turn of another rollout, and, for the shipped
//! personas, written by hand. So neither the replacement nor a stranger's style is found, but the break. Every turn gets the model's likelihood scores; each is measured by how well it
//! ranks broken turns below sound ones. Nothing is fitted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::study::MetricEstimate;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{LanguageModel, ModelChain};
use crate::foundation::stats::{auroc, bootstrap, prediction_rejection_ratio, quantile};
use crate::inference::providers::OpenOptions;
use crate::simulation::judge::likelihood::{LikelihoodInput, LikelihoodSet, scores};
use crate::simulation::rollout::{
    FileError, Observer, PlanError, Run, RunError, RunPlan, StopFlag, Transcript, observe, read_transcript,
};

/// The planted replies, by kind.
const PLANTED: &str = include_str!("../../../configs/tasks/breaks.tsv");
/// Replies in character, by the name of a shipped example.
const IN_CHARACTER: &str = include_str!("../../../configs/tasks/in_character.tsv");
/// The kind whose replies come from another persona's rollout.
const OTHER_PERSONA: &str = "other_persona";
/// Scores that say nothing of the reply itself.
const LEFT_OUT: [&str; 1] = ["capitulation_pressure/1"];
/// Scores of which less is more in character.
const REVERSED: [&str; 1] = ["novelty_nll/1"];
/// The parts of `combined`.
const COMBINED: [&str; 3] = ["persona_llr/1", "persona_identification/1", "novelty_nll/1"];

/// What is measured.
#[derive(Debug, Clone)]
pub struct BreakPlan {
    /// The personas: a name and the text of the configuration of each; at least two.
    pub personas: Vec<(String, String)>,
    /// The model that plays them.
    pub model: ModelChain,
    /// Rollouts of each; at least two.
    pub rollouts: usize,
    /// Turns of each; at least three.
    pub turns: usize,
    /// The seed of the runs and of the planted turns.
    pub seed: u64,
    /// Resamples behind each interval.
    pub resamples: u32,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BreaksError {
    /// The plan is too small.
    #[error("at least two personas, two rollouts of each and three turns are needed")]
    TooSmall,
    /// A run cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A transcript cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// No turn has a score.
    #[error("no turn has a score: {0}")]
    Unscored(String),
}

/// What was done to a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// Nothing.
    Untouched,
    /// One reply was replaced by a break.
    Broken,
    /// The same one was replaced by the persona's own reply of another rollout.
    Control,
    /// The same one was replaced by a reply in character that was written by hand.
    Written,
}

/// One turn with its scores.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadTurn {
    /// The persona.
    pub persona: String,
    /// The rollout, from 0.
    pub rollout: usize,
    /// What was done to it.
    pub version: Version,
    /// The turn, from 0.
    pub turn: usize,
    /// The kind of break, if this turn was broken.
    pub broken: Option<String>,
    /// Its reply was replaced, by a break or by a reply in character.
    pub replaced: bool,
    /// The reply.
    pub reply: String,
    /// Its scores; higher is more in character, so the sign of some is changed.
    pub values: BTreeMap<String, f64>,
}

/// How well a score tells broken turns.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakMetrics {
    /// The score.
    pub score: String,
    /// Broken turns that have it.
    pub broken: usize,
    /// Sound turns that have it.
    pub sound: usize,
    /// Prediction–rejection ratio over all turns of broken rollouts.
    pub prr: Option<MetricEstimate>,
    /// AUROC over all turns of all versions.
    pub auroc: Option<MetricEstimate>,
    /// AUROC against the replaced turns of the controls alone.
    pub auroc_of_replaced: Option<MetricEstimate>,
    /// AUROC against those that were written by hand; `None` if there are none.
    pub auroc_of_written: Option<MetricEstimate>,
    /// The same over all turns, with each rollout's own median taken off.
    pub auroc_within: Option<MetricEstimate>,
    /// Share of broken rollouts in which the broken turn has the lowest value.
    pub found_first: Option<MetricEstimate>,
    /// AUROC by the kind of break.
    pub by_kind: BTreeMap<String, f64>,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakStudy {
    /// The model.
    pub model: String,
    /// Rollouts, in three or four versions each.
    pub rollouts: usize,
    /// Turns of each.
    pub turns: usize,
    /// One row per score, by descending AUROC.
    pub scores: Vec<BreakMetrics>,
}

/// All versions of one rollout; intervals resample these.
#[derive(Clone)]
struct Trio(Vec<ReadTurn>);

/// Plays the personas in new folders below `output`, plants breaks and measures. `reader` computes the scores.
///
/// # Errors
/// See [`BreaksError`].
pub async fn breaks(
    plan: &BreakPlan,
    reader: &Arc<dyn LanguageModel>,
    output: &Path,
    options: &OpenOptions,
    mut on_progress: impl FnMut(usize),
) -> Result<(BreakStudy, Vec<ReadTurn>), BreaksError> {
    if plan.personas.len() < 2 || plan.rollouts < 2 || plan.turns < 3 {
        return Err(BreaksError::TooSmall);
    }
    let mut played = Vec::new();
    for (name, yaml) in &plan.personas {
        let run = RunPlan::from_yaml(name, yaml.clone())?
            .seed(plan.seed)
            .rollouts(plan.rollouts)
            .turns(plan.turns)
            .persona_model(plan.model.clone())
            .build()?;
        let folder = output.join(name);
        let observer: Observer = Arc::new(|_| {});
        Run::create(&run, &folder, options)?.execute(plan.rollouts, &observer, &StopFlag::default()).await?;
        let transcripts: Result<Vec<Transcript>, FileError> =
            (0..plan.rollouts).map(|rollout| read_transcript(&transcript_path(&folder, rollout))).collect();
        played.push((name, run.config, transcripts?));
        on_progress(played.len());
    }
    let kinds = kinds();
    let (mut trios, mut done, mut why) = (Vec::new(), played.len(), String::new());
    for (number, (name, config, transcripts)) in played.iter().enumerate() {
        for (rollout, transcript) in transcripts.iter().enumerate() {
            let draws = RngStream::root(plan.seed).child(name, rollout as u64);
            // Never the first turn: before it there is no character to break.
            let at = 1 + draws.index(0, transcript.turns.len().saturating_sub(1).max(1));
            let said = |transcript: Option<&Transcript>| {
                let turn = transcript.and_then(|transcript| transcript.turns.get(at))?;
                turn.persona.failure.is_none().then(|| turn.persona.content.clone())
            };
            let (kind, texts) = match kinds.get((number + rollout) % kinds.len().max(1)) {
                Some((kind, texts)) => (kind.as_str(), texts.as_slice()),
                None => continue,
            };
            let planted = if kind == OTHER_PERSONA {
                let other = played.get((number + 1) % played.len());
                said(other.and_then(|(.., transcripts)| transcripts.get(rollout)))
            } else {
                texts.get(draws.index(1, texts.len().max(1))).cloned()
            };
            let control = said(transcripts.get((rollout + 1) % transcripts.len()));
            let (Some(planted), Some(control), Some(_)) = (planted, control, said(Some(transcript))) else {
                continue;
            };
            let written = in_character(name);
            let written = written.get(draws.index(2, written.len().max(1))).cloned();
            let mut versions =
                vec![(Version::Untouched, None), (Version::Broken, Some(planted)), (Version::Control, Some(control))];
            versions.extend(written.map(|written| (Version::Written, Some(written))));
            let mut trio = Vec::new();
            for (version, text) in versions {
                let mut changed = transcript.clone();
                if let (Some(text), Some(turn)) = (text, changed.turns.get_mut(at)) {
                    turn.persona.content = text;
                }
                let input = LikelihoodInput { transcript: &changed, tokens: &[], config, model: reader, reader: true };
                let found = scores(input, LikelihoodSet::Full).await.scores;
                why = found.iter().find_map(|score| score.why.clone()).unwrap_or(why);
                changed.monitors = None;
                changed.turns.iter_mut().for_each(|turn| turn.monitor_events.clear());
                observe(&mut changed, Some(config));
                for turn in changed.turns.iter().filter(|turn| turn.persona.failure.is_none()) {
                    let mut values: BTreeMap<String, f64> = found
                        .iter()
                        .filter(|score| score.dimension.is_none() && !LEFT_OUT.contains(&score.id.as_str()))
                        .filter_map(|score| {
                            let point = score.points.iter().find(|point| point.turns == (turn.index, turn.index))?;
                            let sign = if REVERSED.contains(&score.id.as_str()) { -1.0 } else { 1.0 };
                            Some((score.id.clone(), sign * point.value?))
                        })
                        .collect();
                    values.insert("monitors".to_owned(), -(turn.monitor_events.len() as f64));
                    let replaced = version != Version::Untouched && turn.index == at;
                    trio.push(ReadTurn {
                        persona: (*name).clone(),
                        rollout,
                        version,
                        turn: turn.index,
                        broken: (replaced && version == Version::Broken).then(|| kind.to_owned()),
                        replaced,
                        reply: turn.persona.content.clone(),
                        values,
                    });
                }
            }
            combine(&mut trio);
            trios.push(Trio(trio));
            done += 1;
            on_progress(done);
        }
    }
    let scores = measured(&trios, plan);
    if scores.is_empty() {
        return Err(BreaksError::Unscored(why));
    }
    let study = BreakStudy { model: plan.model.to_string(), rollouts: trios.len(), turns: plan.turns, scores };
    Ok((study, trios.into_iter().flat_map(|trio| trio.0).collect()))
}

fn transcript_path(folder: &Path, rollout: usize) -> PathBuf {
    folder.join(format!("rollout_{rollout:03}.json"))
}

/// The kinds of breaks with their replies.
fn kinds() -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for line in PLANTED.lines().filter(|line| !line.starts_with('#')) {
        let Some((kind, text)) = line.split_once('\t') else { continue };
        match found.iter_mut().find(|(known, _)| known == kind) {
            Some((_, texts)) => texts.push(text.to_owned()),
            None => found.push((kind.to_owned(), vec![text.to_owned()])),
        }
    }
    found.push((OTHER_PERSONA.to_owned(), Vec::new()));
    found
}

/// The replies in character of a shipped persona.
fn in_character(name: &str) -> Vec<String> {
    let lines = IN_CHARACTER.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter_map(|line| line.split_once('\t'));
    lines.filter(|(known, _)| *known == name).map(|(_, text)| text.to_owned()).collect()
}

/// Adds `combined`: the mean share of the rollout's turns that are at most as much in character, over three scores.
fn combine(turns: &mut [ReadTurn]) {
    let read: Vec<(Version, BTreeMap<String, f64>)> =
        turns.iter().map(|turn| (turn.version, turn.values.clone())).collect();
    for turn in turns {
        let ranks = COMBINED.iter().map(|name| {
            let own = *turn.values.get(*name)?;
            let others = read.iter().filter(|(version, _)| *version == turn.version);
            let others: Vec<f64> = others.filter_map(|(_, values)| values.get(*name).copied()).collect();
            let below = others.iter().map(|&other| {
                if other < own {
                    1.0
                } else if other > own {
                    0.0
                } else {
                    0.5
                }
            });
            Some(below.sum::<f64>() / others.len() as f64)
        });
        if let Some(ranks) = ranks.collect::<Option<Vec<f64>>>() {
            turn.values.insert("combined".to_owned(), ranks.iter().sum::<f64>() / ranks.len() as f64);
        }
    }
}

fn measured(trios: &[Trio], plan: &BreakPlan) -> Vec<BreakMetrics> {
    let names: std::collections::BTreeSet<&str> =
        trios.iter().flat_map(|trio| trio.0.iter().flat_map(|turn| turn.values.keys().map(String::as_str))).collect();
    let mut rows: Vec<BreakMetrics> = names.into_iter().map(|name| row(name, trios, plan)).collect();
    rows.retain(|row| row.auroc.is_some());
    rows.sort_by(|a, b| {
        let value = |row: &BreakMetrics| row.auroc.map_or(0.0, |auroc| auroc.value);
        value(b).total_cmp(&value(a))
    });
    rows
}

fn row(name: &str, trios: &[Trio], plan: &BreakPlan) -> BreakMetrics {
    type Chosen = fn(&ReadTurn) -> bool;
    type Labelled = Vec<(f64, bool)>;
    // Each turn's value, and whether it is sound, by rollout: computed once for all resamples.
    let labelled = |chosen: Chosen, within: bool| -> Vec<Labelled> {
        let of = |trio: &Trio| {
            let mut found = Vec::new();
            for version in [Version::Untouched, Version::Broken, Version::Control, Version::Written] {
                let turns: Vec<&ReadTurn> = trio.0.iter().filter(|turn| turn.version == version).collect();
                let all: Vec<f64> = turns.iter().filter_map(|turn| turn.values.get(name).copied()).collect();
                let median = if within { quantile(&all, 0.5).unwrap_or(0.0) } else { 0.0 };
                let turns = turns.into_iter().filter(|turn| chosen(turn));
                found.extend(turns.filter_map(|turn| Some((turn.values.get(name)? - median, turn.broken.is_none()))));
            }
            found
        };
        trios.iter().map(of).collect()
    };
    let stream = RngStream::root(plan.seed).child(name, 1);
    let figure = |label: &str, values: &[Labelled], statistic: fn(Labelled) -> Option<f64>| {
        let whole = |values: &[Labelled]| statistic(values.iter().flatten().copied().collect());
        let value = whole(values)?;
        Some(MetricEstimate { value, interval: bootstrap(values, plan.resamples, &stream.child(label, 0), whole) })
    };
    let first = trios.iter().map(|trio| {
        let turns = || trio.0.iter().filter(|turn| turn.version == Version::Broken);
        let own = *turns().find(|turn| turn.broken.is_some())?.values.get(name)?;
        let others = turns().filter(|turn| turn.broken.is_none()).filter_map(|turn| turn.values.get(name));
        let (lower, ties) = others.fold((0, 0), |(lower, ties), &other| {
            (lower + u32::from(other < own), ties + u32::from(other.total_cmp(&own).is_eq()))
        });
        // Among equals any may come first.
        Some(if lower == 0 { 1.0 / f64::from(1 + ties) } else { 0.0 })
    });
    let first: Vec<Labelled> = first.map(|first| first.map(|share| (share, true)).into_iter().collect()).collect();
    let all = labelled(|_| true, false);
    let count = |sound: bool| all.iter().flatten().filter(|(_, is_sound)| *is_sound == sound).count();
    let kinds = kinds().into_iter().filter_map(|(kind, _)| {
        let turns = trios.iter().flat_map(|trio| &trio.0);
        let turns = turns.filter(|turn| turn.broken.as_ref().is_none_or(|broken| *broken == kind));
        let value = auroc(turns.filter_map(|turn| Some((*turn.values.get(name)?, turn.broken.is_none()))))?;
        Some((kind, value))
    });
    let in_broken = labelled(|turn| turn.version == Version::Broken, false);
    let replaced = labelled(|turn| turn.replaced, false);
    let written = labelled(|turn| turn.broken.is_some() || (turn.replaced && turn.version == Version::Written), false);
    BreakMetrics {
        score: name.to_owned(),
        broken: count(false),
        sound: count(true),
        prr: figure("prr", &in_broken, |values| prediction_rejection_ratio(&values)),
        auroc: figure("auroc", &all, auroc),
        auroc_of_replaced: figure("replaced", &replaced, auroc),
        auroc_of_written: figure("written", &written, auroc),
        auroc_within: figure("within", &labelled(|_| true, true), auroc),
        found_first: figure("first", &first, |values| {
            let values: Vec<f64> = values.into_iter().map(|(share, _)| share).collect();
            crate::foundation::stats::mean(&values)
        }),
        by_kind: kinds.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> BreakPlan {
        BreakPlan {
            personas: Vec::new(),
            model: "bundled".parse().unwrap(),
            rollouts: 2,
            turns: 4,
            seed: 1,
            resamples: 50,
        }
    }

    /// Three versions of a rollout of four turns, with the value of the turn that is replaced.
    fn trio(broken: f64, control: f64, kind: &str) -> Trio {
        let versions = [(Version::Untouched, 3.0), (Version::Broken, broken), (Version::Control, control)];
        let turns = versions.into_iter().flat_map(|(version, value)| {
            (0..4).map(move |turn| {
                let replaced = turn == 2 && version != Version::Untouched;
                ReadTurn {
                    persona: "p".to_owned(),
                    rollout: 0,
                    version,
                    turn,
                    broken: (replaced && version == Version::Broken).then(|| kind.to_owned()),
                    replaced,
                    reply: String::new(),
                    values: BTreeMap::from([("s".to_owned(), if replaced { value } else { 2.0 + turn as f64 })]),
                }
            })
        });
        Trio(turns.collect())
    }

    #[test]
    fn a_score_is_measured_against_sound_and_against_replaced_turns() {
        let found = row("s", &[trio(0.0, 3.0, "leak"), trio(1.0, 3.5, "assistant")], &plan());
        let value = |figure: Option<MetricEstimate>| figure.map(|figure| figure.value);
        assert_eq!((found.broken, found.sound), (2, 22));
        assert_eq!([value(found.auroc), value(found.auroc_of_replaced), value(found.found_first)], [Some(1.0); 3]);
        assert_eq!((found.by_kind.len(), found.by_kind.get("leak")), (2, Some(&1.0)));
        // What finds every replacement finds no break.
        let fooled = row("s", &[trio(0.0, -1.0, "leak"), trio(0.0, 0.0, "leak")], &plan());
        assert_eq!(value(fooled.auroc_of_replaced), Some(0.25));
        assert_eq!(fooled.auroc_of_written, None, "nothing was written by hand");
    }

    #[test]
    fn the_combined_score_needs_all_of_its_parts() {
        let mut turns = trio(0.0, 3.0, "leak").0;
        combine(&mut turns);
        assert!(turns.iter().all(|turn| !turn.values.contains_key("combined")));
        for turn in &mut turns {
            let value = turn.values["s"];
            turn.values.extend(COMBINED.map(|name| (name.to_owned(), value)));
        }
        combine(&mut turns);
        let broken = turns.iter().find(|turn| turn.broken.is_some()).unwrap();
        assert_eq!(broken.values.get("combined"), Some(&0.125), "the lowest of four");
    }

    #[test]
    fn there_are_six_kinds_of_breaks_and_replies_in_character_of_each_shipped_persona() {
        let shipped = crate::simulation::persona::examples().iter().filter(|one| one.path.starts_with("personas/"));
        assert!(shipped.clone().count() == 4 && shipped.clone().all(|one| in_character(one.name).len() == 6));
        let kinds = kinds();
        assert_eq!(kinds.len(), 6);
        assert!(kinds.iter().all(|(kind, texts)| kind == OTHER_PERSONA || texts.len() == 4), "{kinds:?}");
    }
}
