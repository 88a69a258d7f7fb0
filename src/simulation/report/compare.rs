//! Compares two results folders: the difference of every score, with an interval.

use std::fmt::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::aggregate::{INTERVAL_ROLLOUTS_MIN, RESAMPLES, summary};
use super::data::{Mean, Report};
use super::format::{NONE, code, number, plain, table};
use super::load::{LoadedRollout, ReportError};
use super::markdown::adversary;
use crate::foundation::base::RngStream;
use crate::foundation::stats::{Interval, bootstrap_difference};
use crate::simulation::persona::AdversaryKind;
use crate::simulation::rollout::Reliability;

/// The value of [`Comparison::format`].
const FORMAT: &str = "loom-comparison";
/// The version that this program writes.
const VERSION: u32 = 1;

/// A comparison of two results folders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `loom-comparison`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// The first folder.
    pub a: ComparedFolder,
    /// The second.
    pub b: ComparedFolder,
    /// Score by score.
    pub scores: Vec<DifferenceRow>,
}

/// One of the compared folders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedFolder {
    /// The path as the user gave it.
    pub path: String,
    /// The persona's name.
    pub persona: String,
    /// The first digits of the configuration's digest.
    pub config_digest: String,
    /// The persona's models.
    pub persona_models: Vec<String>,
    /// The kinds of adversaries; `none` for a plain target.
    #[serde(default)]
    pub adversaries: Vec<AdversaryKind>,
    /// The other side's models.
    pub interlocutor_models: Vec<String>,
    /// The seeds.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// How many rollouts.
    pub rollouts: usize,
    /// Turns planned per rollout.
    pub turns_planned: usize,
}

/// One score of both folders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DifferenceRow {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// Its dimension, if any.
    pub dimension: Option<String>,
    /// The model that computed it; absent for measured scores.
    pub judge: Option<String>,
    /// The judge's test result on this score's rubric, if the judge failed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreliable: Option<Reliability>,
    /// The mean over the first folder's rollouts.
    pub a: Option<Mean>,
    /// The mean over the second folder's rollouts.
    pub b: Option<Mean>,
    /// The second mean minus the first.
    pub difference: Option<f64>,
    /// 95 % bootstrap interval of the difference, with both folders resampled independently; absent if one has fewer than
    /// three rollouts.
    pub interval: Option<Interval>,
}

/// A score of one folder and its value in each rollout.
struct ScoreValues {
    id: String,
    dimension: Option<String>,
    judge: Option<String>,
    unreliable: Option<Reliability>,
    /// Scores are compared if their keys are equal: id, dimension, judge, method and question.
    key: String,
    values: Vec<f64>,
}

impl Comparison {
    /// Compares the results folders, or transcripts, at `a` and `b`.
    ///
    /// # Errors
    /// If one contains no transcript or cannot be read.
    pub fn of(a: &Path, b: &Path) -> Result<Self, ReportError> {
        let (first, first_loaded) = Report::with_conversations(a)?;
        let (second, second_loaded) = Report::with_conversations(b)?;
        let (left, right) = (score_values(&first, &first_loaded), score_values(&second, &second_loaded));
        let only_right = right.iter().filter(|side| left.iter().all(|other| other.key != side.key));
        let scores = left
            .iter()
            .map(|side| {
                let other = right.iter().find(|other| other.key == side.key);
                let unreliable = side.unreliable.as_ref().or(other.and_then(|other| other.unreliable.as_ref()));
                row(side, unreliable, &side.values, other.map_or(&[], |other| &other.values))
            })
            .chain(only_right.map(|side| row(side, side.unreliable.as_ref(), &[], &side.values)))
            .collect();
        Ok(Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            a: compared(a, &first),
            b: compared(b, &second),
            scores,
        })
    }

    /// The comparison as JSON.
    ///
    /// # Errors
    /// If it cannot be serialised.
    pub fn json(&self) -> Result<String, ReportError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The comparison as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _infallible = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "# {} and {}\n", plain(&self.a.path), plain(&self.b.path))?;
        let both = |what: &str, of: fn(&ComparedFolder) -> String| vec![what.to_owned(), of(&self.a), of(&self.b)];
        table(
            out,
            &["", "A", "B"],
            &[
                both("Folder", |side| code(&side.path)),
                both("Persona", |side| plain(&side.persona)),
                both("Configuration", |side| code(&side.config_digest)),
                both("Persona's model", |side| code(&side.persona_models.join(", "))),
                both("Other side", |side| listed(side.adversaries.iter().map(|kind| adversary(*kind)))),
                both("Other side's model", |side| code(&side.interlocutor_models.join(", "))),
                both("Seed", |side| listed(side.seeds.iter())),
                both("Rollouts", |side| format!("{} of {} turns", side.rollouts, side.turns_planned)),
            ],
        )?;
        if self.a.turns_planned != self.b.turns_planned {
            writeln!(
                out,
                "> The rollouts differ in length. Scores that fall with length (`docs/SCORES.md`) cannot be compared.\n"
            )?;
        }
        let mean =
            |value: Option<Mean>| value.map_or(NONE.into(), |mean| format!("{} ({})", number(mean.mean), mean.n));
        let rows: Vec<Vec<String>> = self
            .scores
            .iter()
            .map(|row| {
                let dimension = row.dimension.as_ref().map_or(String::new(), |name| format!(" {}", plain(name)));
                let mut judge = row.judge.as_ref().map_or(String::new(), |name| format!(" by {}", code(name)));
                if row.unreliable.is_some() {
                    judge.push_str(", **unreliable**");
                }
                let interval = row.interval.map_or(NONE.into(), |i| format!("{} to {}", number(i.low), number(i.high)));
                let clear = match row.interval {
                    None => NONE,
                    Some(interval) if interval.low > 0.0 || interval.high < 0.0 => "**yes**",
                    Some(_) => "no",
                };
                vec![
                    format!("{}{dimension}{judge}", code(&row.id)),
                    mean(row.a),
                    mean(row.b),
                    row.difference.map_or(NONE.into(), number),
                    interval,
                    clear.to_owned(),
                ]
            })
            .collect();
        table(out, &["Score", "A (rollouts)", "B (rollouts)", "B − A", "95 % interval", "Excludes 0"], &rows)?;
        writeln!(
            out,
            "The interval is a percentile bootstrap of the difference of means over rollouts ({RESAMPLES} resamples of each \
             folder) and needs three rollouts in each folder. {} scores are compared without correction: at 95 % each, one in \
             twenty intervals excludes 0 by chance.",
            self.scores.len()
        )
    }
}

fn listed(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

fn compared(path: &Path, report: &Report) -> ComparedFolder {
    ComparedFolder {
        path: path.display().to_string(),
        persona: report.persona.clone(),
        config_digest: report.config_digest.short(),
        persona_models: report.persona_side.specs.clone(),
        adversaries: report.adversaries.clone(),
        interlocutor_models: report.interlocutor_side.specs.clone(),
        seeds: report.seeds.clone(),
        rollouts: report.rollouts.len(),
        turns_planned: report.turns_planned,
    }
}

fn score_values(report: &Report, loaded: &[LoadedRollout]) -> Vec<ScoreValues> {
    let measured = report.scores.iter().map(|score| ScoreValues {
        id: score.id.clone(),
        dimension: None,
        judge: None,
        unreliable: None,
        key: score.id.clone(),
        values: report.rollouts.iter().filter_map(|row| row.scores.iter().find(|(id, _)| *id == score.id)?.1).collect(),
    });
    let mut sides: Vec<ScoreValues> = measured.collect();
    let measured = sides.len();
    for score in loaded.iter().flat_map(|loaded| &loaded.transcript.scores) {
        if sides.iter().take(measured).any(|side| side.id == score.id) {
            continue;
        }
        let judge = score.judge.as_ref().map(|judge| (&judge.model, judge.digest));
        let key = format!("{:?}", (&score.id, &score.dimension, score.method, judge, score.prompt_digest));
        let known = score.judge.as_ref().and_then(|judge| judge.reliability.clone());
        let unreliable = known.filter(|known| !known.is_reliable());
        match sides.iter_mut().find(|side| side.key == key) {
            Some(side) => {
                side.values.extend(score.value);
                side.unreliable = side.unreliable.take().or(unreliable);
            }
            None => sides.push(ScoreValues {
                id: score.id.clone(),
                dimension: score.dimension.clone(),
                judge: score.judge.as_ref().map(|judge| judge.model.clone()),
                unreliable,
                key,
                values: score.value.into_iter().collect(),
            }),
        }
    }
    sides
}

fn row(score: &ScoreValues, unreliable: Option<&Reliability>, a: &[f64], b: &[f64]) -> DifferenceRow {
    let (left, right) = (summary(a.iter().copied()), summary(b.iter().copied()));
    let enough = a.len().min(b.len()) >= INTERVAL_ROLLOUTS_MIN;
    // The stream does not depend on a run's seed: the interval is a function of the values.
    let stream = RngStream::root(0).child("compare", 0).child(&score.key, 0);
    DifferenceRow {
        id: score.id.clone(),
        dimension: score.dimension.clone(),
        judge: score.judge.clone(),
        unreliable: unreliable.cloned(),
        a: left,
        b: right,
        difference: left.zip(right).map(|(a, b)| b.mean - a.mean),
        interval: if enough { bootstrap_difference(a, b, RESAMPLES, &stream) } else { None },
    }
}
