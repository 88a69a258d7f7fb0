//! Compares two results folders: the difference of every score, with an interval.

use std::fmt::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::data::Report;
use super::format::{NONE, code, number, plain, table};
use super::load::{LoadedRollout, ReportError};
use super::markdown::adversary;
use super::summary::Mean;
use super::summary::summary;
use crate::foundation::base::RngStream;
use crate::foundation::stats::small_sample::{
    ALPHA, GroupDifference, compare_groups, detectable_difference, rollouts_needed,
};
use crate::foundation::stats::{Interval, mean, sd};
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
    /// The 95 % interval of the difference, by relabelling rollouts; absent for fewer than four rollouts per folder.
    pub interval: Option<Interval>,
    /// The p-value of this difference by itself.
    #[serde(default)]
    pub p: Option<f64>,
    /// The p-value corrected for all scores of the comparison. Up to .05, the folders differ.
    #[serde(default)]
    pub p_corrected: Option<f64>,
    /// The smallest difference that so many rollouts show with 80 % probability.
    #[serde(default)]
    pub detectable: Option<f64>,
    /// How many rollouts per folder show a difference as large as the observed one with 80 % probability.
    #[serde(default)]
    pub rollouts_needed: Option<usize>,
}

impl DifferenceRow {
    /// One score compared by itself: its value in each rollout of two groups. The difference is that of the second mean
    /// minus the first.
    pub fn of(id: &str, a: &[Option<f64>], b: &[Option<f64>]) -> Self {
        let values = a.iter().chain(b).copied().collect();
        let stream = RngStream::root(0).child("compare", 0).child(id, 0);
        let tested = compare_groups(&[values], a.len(), b.len(), &stream).into_iter().next().flatten();
        let score = ScoreValues {
            id: id.to_owned(),
            dimension: None,
            judge: None,
            unreliable: None,
            key: String::new(),
            values: Vec::new(),
        };
        row(&score, None, a, b, tested, 1)
    }

    /// Whether the folders differ in this score, after the correction for all scores. `None` where it cannot be told.
    pub fn differs(&self) -> Option<bool> {
        self.p_corrected.map(|p| p <= ALPHA)
    }
}

/// A score of one folder and its value in each rollout.
struct ScoreValues {
    id: String,
    dimension: Option<String>,
    judge: Option<String>,
    unreliable: Option<Reliability>,
    /// Scores are compared if their keys are equal: id, dimension, judge, method and question.
    key: String,
    /// By rollout, in the folder's order.
    values: Vec<Option<f64>>,
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
        let missing = |rollouts: usize| vec![None; rollouts];
        let (a_count, b_count) = (first.rollouts.len(), second.rollouts.len());
        let only_right = right.iter().filter(|side| left.iter().all(|other| other.key != side.key));
        #[expect(clippy::type_complexity, reason = "used in this function only")]
        let pairs: Vec<(&ScoreValues, Option<Reliability>, Vec<Option<f64>>, Vec<Option<f64>>)> = left
            .iter()
            .map(|side| {
                let other = right.iter().find(|other| other.key == side.key);
                let unreliable = side.unreliable.as_ref().or(other.and_then(|other| other.unreliable.as_ref()));
                let values = other.map_or_else(|| missing(b_count), |other| other.values.clone());
                (side, unreliable.cloned(), side.values.clone(), values)
            })
            .chain(only_right.map(|side| (side, side.unreliable.clone(), missing(a_count), side.values.clone())))
            .collect();
        let joined: Vec<Vec<Option<f64>>> =
            pairs.iter().map(|(_, _, a, b)| a.iter().chain(b).copied().collect()).collect();
        let tested = compare_groups(&joined, a_count, b_count, &RngStream::root(0).child("compare", 0));
        let comparisons = tested.iter().flatten().count();
        let scores = pairs
            .into_iter()
            .zip(tested)
            .map(|((side, unreliable, a, b), tested)| row(side, unreliable, &a, &b, tested, comparisons))
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
                let differs = match row.differs() {
                    None => NONE,
                    Some(true) => "**yes**",
                    Some(false) => "no",
                };
                vec![
                    format!("{}{dimension}{judge}", code(&row.id)),
                    mean(row.a),
                    mean(row.b),
                    row.difference.map_or(NONE.into(), number),
                    interval,
                    row.p_corrected.map_or(NONE.into(), |p| format!("{p:.3}")),
                    differs.to_owned(),
                    row.detectable.map_or(NONE.into(), number),
                    row.rollouts_needed.map_or(NONE.into(), |n| n.to_string()),
                ]
            })
            .collect();
        let differing = self.scores.iter().filter(|row| row.differs() == Some(true)).count();
        let told = self.scores.iter().filter(|row| row.differs().is_some()).count();
        writeln!(out, "**{}**\n", self.sentence(differing, told))?;
        let head = [
            "Score",
            "A (rollouts)",
            "B (rollouts)",
            "B − A",
            "95 % interval",
            "p, corrected",
            "Differs",
            "Detectable",
            "Rollouts needed",
        ];
        table(out, &head, &rows)?;
        writeln!(
            out,
            "*Differs* is a relabelling test of the rollouts over all {told} scores at once (step-down maximum of Westfall and \
             Young): if the folders do not differ, it says **yes** to any score in at most 5 % of comparisons. It needs four \
             rollouts per folder. The interval of each difference is by itself, by the same relabelling. *Detectable* is the \
             smallest difference that so many rollouts show with 80 % probability; *Rollouts needed* is how many per folder \
             show the observed one."
        )
    }

    /// The result in a sentence.
    fn sentence(&self, differing: usize, told: usize) -> String {
        let fewest = self.a.rollouts.min(self.b.rollouts);
        if told == 0 {
            return "The folders have no score in common.".to_owned();
        }
        if self.scores.iter().all(|row| row.detectable.is_none()) {
            return format!("Cannot tell whether the folders differ: {fewest} rollouts per folder are too few.");
        }
        match differing {
            0 => format!("No difference is shown in {told} scores; that is not proof that there is none."),
            _ => format!("The folders differ in {differing} of {told} scores."),
        }
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
        values: report
            .rollouts
            .iter()
            .map(|row| row.scores.iter().find(|(id, _)| *id == score.id).and_then(|(_, value)| *value))
            .collect(),
    });
    let mut sides: Vec<ScoreValues> = measured.collect();
    let measured = sides.len();
    let all = loaded
        .iter()
        .enumerate()
        .flat_map(|(at, loaded)| loaded.transcript.scores.iter().map(move |score| (at, score)));
    for (at, score) in all {
        if sides.iter().take(measured).any(|side| side.id == score.id) {
            continue;
        }
        let judge = score.judge.as_ref().map(|judge| (&judge.model, judge.digest));
        let key = format!("{:?}", (&score.id, &score.dimension, score.method, judge, score.prompt_digest));
        let known = score.judge.as_ref().and_then(|judge| judge.reliability.clone());
        let unreliable = known.filter(|known| !known.is_reliable());
        let index = sides.iter().position(|side| side.key == key).unwrap_or_else(|| {
            sides.push(ScoreValues {
                id: score.id.clone(),
                dimension: score.dimension.clone(),
                judge: score.judge.as_ref().map(|judge| judge.model.clone()),
                unreliable: None,
                key,
                values: vec![None; loaded.len()],
            });
            sides.len() - 1
        });
        let Some(side) = sides.get_mut(index) else { continue };
        side.unreliable = side.unreliable.take().or(unreliable);
        if let (Some(slot), Some(_)) = (side.values.get_mut(at), score.value) {
            *slot = score.value;
        }
    }
    sides
}

fn row(
    score: &ScoreValues,
    unreliable: Option<Reliability>,
    a: &[Option<f64>],
    b: &[Option<f64>],
    tested: Option<GroupDifference>,
    comparisons: usize,
) -> DifferenceRow {
    let known = |values: &[Option<f64>]| values.iter().flatten().copied().collect::<Vec<f64>>();
    let (left, right) = (known(a), known(b));
    let spread = within(&left, &right);
    DifferenceRow {
        id: score.id.clone(),
        dimension: score.dimension.clone(),
        judge: score.judge.clone(),
        unreliable,
        a: summary(left.iter().copied()),
        b: summary(right.iter().copied()),
        difference: mean(&left).zip(mean(&right)).map(|(a, b)| b - a),
        interval: tested.and_then(|tested| tested.interval),
        p: tested.map(|tested| tested.p),
        p_corrected: tested.map(|tested| tested.p_corrected),
        detectable: spread.and_then(|spread| detectable_difference(spread, left.len(), right.len(), comparisons)),
        rollouts_needed: tested
            .zip(spread)
            .and_then(|(tested, spread)| rollouts_needed(tested.difference, spread, comparisons)),
    }
}

/// The standard deviation within the groups.
fn within(a: &[f64], b: &[f64]) -> Option<f64> {
    let squares = |values: &[f64]| sd(values).map_or(0.0, |sd| sd * sd * (values.len() as f64 - 1.0));
    let freedom = (a.len() + b.len()).checked_sub(2).filter(|freedom| *freedom > 0)?;
    Some(((squares(a) + squares(b)) / freedom as f64).sqrt())
}
