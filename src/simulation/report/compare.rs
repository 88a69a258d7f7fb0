//! Two results folders side by side: every score with the interval of its difference.

use std::fmt::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::aggregate::{INTERVAL_ROLLOUTS_MIN, RESAMPLES, summary};
use super::data::{Mean, Report};
use super::load::{Loaded, ReportError};
use super::markdown::adversary;
use super::notation::{NONE, code, number, plain, table};
use crate::foundation::base::Stream;
use crate::foundation::stats::{Interval, bootstrap_difference};
use crate::simulation::persona::AdversaryKind;
use crate::simulation::rollout::Reliability;

/// The value of [`Comparison::format`].
const FORMAT: &str = "loom-comparison";
/// The version that this program writes.
const VERSION: u32 = 1;

/// Two results folders, side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// `loom-comparison`.
    pub format: String,
    /// 1.
    pub version: u32,
    /// The first folder.
    pub a: Compared,
    /// The second.
    pub b: Compared,
    /// Score by score.
    pub scores: Vec<DifferenceRow>,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// The path, as the user named it.
    pub path: String,
    /// The persona's name.
    pub persona: String,
    /// The digest of the configuration, its first digits.
    pub config_digest: String,
    /// The models under which the persona spoke.
    pub persona_models: Vec<String>,
    /// Who the other side was: the kinds of its adversaries, `none` for a plain target.
    #[serde(default)]
    pub adversaries: Vec<AdversaryKind>,
    /// Its models.
    pub interlocutor_models: Vec<String>,
    /// The seeds.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// How many rollouts.
    pub rollouts: usize,
    /// Turns planned per rollout.
    pub turns_planned: usize,
}

/// One score on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DifferenceRow {
    /// Its definition in `docs/SCORES.md`.
    pub id: String,
    /// The dimension that it speaks of.
    pub dimension: Option<String>,
    /// By whom it was taken; absent for scores without a judge.
    pub judge: Option<String>,
    /// What is known of a judge that failed its own test on what this score asks; absent for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreliable: Option<Reliability>,
    /// Over the first folder's rollouts.
    pub a: Option<Mean>,
    /// Over the second's.
    pub b: Option<Mean>,
    /// The second mean less the first.
    pub difference: Option<f64>,
    /// 95 % bootstrap interval of the difference, both sides resampled by themselves; absent where a side has fewer than
    /// three rollouts.
    pub interval: Option<Interval>,
}

/// A score of one side: how it is told apart, and its value in each rollout.
struct Side {
    id: String,
    dimension: Option<String>,
    judge: Option<String>,
    unreliable: Option<Reliability>,
    /// What must agree for two scores to be the same: id, dimension, judge, method and what the judge was asked.
    key: String,
    values: Vec<f64>,
}

impl Comparison {
    /// Compares the results folders, or transcripts, at `a` and `b`.
    ///
    /// # Errors
    /// When either holds no transcript, or one cannot be read.
    pub fn of(a: &Path, b: &Path) -> Result<Self, ReportError> {
        let (first, first_loaded) = Report::with_conversations(a)?;
        let (second, second_loaded) = Report::with_conversations(b)?;
        let (left, right) = (sides(&first, &first_loaded), sides(&second, &second_loaded));
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

    /// As JSON.
    ///
    /// # Errors
    /// When it cannot be JSON.
    pub fn json(&self) -> Result<String, ReportError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _infallible = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "# {} and {}\n", plain(&self.a.path), plain(&self.b.path))?;
        let both = |what: &str, of: fn(&Compared) -> String| vec![what.to_owned(), of(&self.a), of(&self.b)];
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
        table(out, &["Score", "A (rollouts)", "B (rollouts)", "B − A", "95 % interval", "Without 0"], &rows)?;
        writeln!(
            out,
            "The interval is a percentile bootstrap of the difference of means over rollouts ({RESAMPLES} resamples, both sides \
             drawn by themselves) and needs three rollouts on each side. {} scores are compared at once: at 95 % each, one in \
             twenty leaves 0 out by chance.",
            self.scores.len()
        )
    }
}

fn listed(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

fn compared(path: &Path, report: &Report) -> Compared {
    Compared {
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

fn sides(report: &Report, loaded: &[Loaded]) -> Vec<Side> {
    let own = report.scores.iter().map(|score| Side {
        id: score.id.clone(),
        dimension: None,
        judge: None,
        unreliable: None,
        key: score.id.clone(),
        values: report.rollouts.iter().filter_map(|row| row.scores.iter().find(|(id, _)| *id == score.id)?.1).collect(),
    });
    let mut sides: Vec<Side> = own.collect();
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
            None => sides.push(Side {
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

fn row(score: &Side, unreliable: Option<&Reliability>, a: &[f64], b: &[f64]) -> DifferenceRow {
    let (left, right) = (summary(a.iter().copied()), summary(b.iter().copied()));
    let enough = a.len().min(b.len()) >= INTERVAL_ROLLOUTS_MIN;
    // No run's seed: the interval follows from the two sets of values alone.
    let stream = Stream::root(0).child("compare", 0).child(&score.key, 0);
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
