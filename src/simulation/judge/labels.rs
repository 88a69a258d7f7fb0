//! Agreement of a judge with people: their ratings of messages, from a CSV file with the columns `transcript` (a path, as seen
//! from the file), `turn`, `rubric`, `rating` (1 to 5) and, if needed, `dimension` and `rater`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::judged::{Judge, JudgeInput, Rubric, rate_message};
use crate::foundation::stats::small_sample::krippendorff_alpha;
use crate::foundation::stats::{auroc, mean, spearman};
use crate::simulation::persona::load;
use crate::simulation::rollout::read_transcript;

/// A person's rating.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// The transcript.
    pub transcript: PathBuf,
    /// The turn of the rated message.
    pub turn: usize,
    /// The rubric.
    pub rubric: String,
    /// The dimension, for rubrics of a dimension.
    pub dimension: Option<String>,
    /// Who rated.
    pub rater: String,
    /// From 1 to 5, as a value from 0 to 1.
    pub rating: f64,
}

/// How far a judge agrees with people on one rubric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelAgreement {
    /// The rubric.
    pub rubric: String,
    /// How many messages both rated.
    pub messages: usize,
    /// The mean absolute difference of the judge's rating and the people's mean, from 0 to 1.
    pub distance: Option<f64>,
    /// The rank correlation of both.
    pub spearman: Option<f64>,
    /// How well the judge's ratings tell messages that people rate above the middle from those below.
    pub auroc: Option<f64>,
    /// Krippendorff's α of the judge and the people together.
    pub alpha: Option<f64>,
    /// Krippendorff's α of the people alone; absent for one person.
    pub alpha_people: Option<f64>,
    /// Why messages have no rating of the judge, each reason once.
    pub unrated: Vec<String>,
}

/// Reads labels; `folder` is the one of the file.
///
/// # Errors
/// What is wrong, with the line.
pub fn parse_labels(text: &str, folder: &Path) -> Result<Vec<Label>, String> {
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let (_, head) = lines.next().ok_or("the file is empty")?;
    let head = fields(head);
    let column = |name: &str| head.iter().position(|field| field == name);
    let needed = |name: &str| column(name).ok_or_else(|| format!("line 1: the column `{name}` is missing"));
    let (transcript, turn, rubric, rating) =
        (needed("transcript")?, needed("turn")?, needed("rubric")?, needed("rating")?);
    let (dimension, rater) = (column("dimension"), column("rater"));
    let mut labels = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let row = fields(line);
        let at = |column: usize| row.get(column).cloned().unwrap_or_default();
        let wrong = |what: &str| format!("line {}: {what}", index + 1);
        let rating: u8 = at(rating).parse().map_err(|_| wrong("`rating` must be a whole number from 1 to 5"))?;
        if !(1..=5).contains(&rating) {
            return Err(wrong("`rating` must be a whole number from 1 to 5"));
        }
        labels.push(Label {
            transcript: folder.join(at(transcript)),
            turn: at(turn).parse().map_err(|_| wrong("`turn` must be a whole number"))?,
            rubric: at(rubric),
            dimension: dimension.map(at).filter(|name| !name.is_empty()),
            rater: rater.map(at).unwrap_or_default(),
            rating: f64::from(rating - 1) / 4.0,
        });
    }
    if labels.is_empty() { Err("there are no labels".to_owned()) } else { Ok(labels) }
}

/// The fields of a line; quoted ones may contain commas and doubled quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.trim_end_matches('\r').chars().peekable();
    while let Some(c) = chars.next() {
        let Some(field) = fields.last_mut() else { break };
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => field.push(c),
        }
    }
    fields.iter().map(|field| field.trim().to_owned()).collect()
}

/// Has `judge` rate the labelled messages, and compares.
///
/// # Errors
/// When a transcript cannot be read.
pub async fn compare_labels(
    judge: &Judge,
    labels: &[Label],
    rubrics: &[Rubric],
) -> Result<Vec<LabelAgreement>, String> {
    type Key<'a> = (&'a Path, usize, Option<&'a str>);
    let mut by_rubric: BTreeMap<&str, BTreeMap<Key<'_>, Vec<f64>>> = BTreeMap::new();
    for label in labels {
        let key = (label.transcript.as_path(), label.turn, label.dimension.as_deref());
        by_rubric.entry(&label.rubric).or_default().entry(key).or_default().push(label.rating);
    }
    let mut agreements = Vec::new();
    for (rubric, messages) in by_rubric {
        let (mut both, mut unrated): (Vec<(f64, Vec<f64>)>, Vec<String>) = (Vec::new(), Vec::new());
        for ((path, turn, dimension), people) in messages {
            let transcript = read_transcript(path).map_err(|error| error.to_string())?;
            let config = path.parent().and_then(|folder| load(&folder.join("config.yaml")).ok());
            let input =
                JudgeInput { transcript: &transcript, config: config.as_ref(), profile: None, window: None, rubrics };
            match rate_message(input, judge, rubric, dimension, turn).await {
                Ok(rating) => both.push((rating, people)),
                Err(why) if unrated.contains(&why) => {}
                Err(why) => unrated.push(why),
            }
        }
        agreements.push(agreement(rubric, &both, unrated));
    }
    Ok(agreements)
}

fn agreement(rubric: &str, both: &[(f64, Vec<f64>)], unrated: Vec<String>) -> LabelAgreement {
    let pairs: Vec<(f64, f64)> = both.iter().filter_map(|(judge, people)| Some((*judge, mean(people)?))).collect();
    let (judge, people): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let together: Vec<Vec<f64>> =
        both.iter().map(|(judge, people)| people.iter().copied().chain([*judge]).collect()).collect();
    let alone: Vec<Vec<f64>> = both.iter().map(|(_, people)| people.clone()).collect();
    let decided = pairs.iter().filter(|(_, people)| (people - 0.5).abs() > 1e-9);
    LabelAgreement {
        rubric: rubric.to_owned(),
        messages: both.len(),
        distance: mean(&pairs.iter().map(|(judge, people)| (judge - people).abs()).collect::<Vec<_>>()),
        spearman: spearman(&judge, &people),
        auroc: auroc(decided.map(|(judge, people)| (*judge, *people > 0.5))),
        alpha: krippendorff_alpha(&together),
        alpha_people: krippendorff_alpha(&alone),
        unrated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_and_wrong_ones_located() {
        let text = "transcript,turn,rubric,rating,rater\n\"run, a/rollout_000.json\",3,naturalness,5,ann\r\n\nb.json,0,fidelity,1,\n";
        let labels = parse_labels(text, Path::new("/x")).unwrap();
        assert_eq!(labels.len(), 2);
        assert_eq!(labels[0].transcript, Path::new("/x/run, a/rollout_000.json"));
        assert_eq!(
            (labels[0].turn, labels[0].rating.to_bits(), labels[0].rater.as_str()),
            (3, 1.0_f64.to_bits(), "ann")
        );
        for (text, why) in [
            ("", "empty"),
            ("transcript,turn,rubric\n", "`rating` is missing"),
            ("transcript,turn,rubric,rating\na,0,b,6\n", "line 2"),
            ("transcript,turn,rubric,rating\na,x,b,5\n", "`turn` must"),
        ] {
            let error = parse_labels(text, Path::new("")).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn agreement_with_people_is_high_for_their_own_ratings_and_low_for_others() {
        let people = [0.0, 0.25, 0.75, 1.0, 0.0, 1.0];
        let same: Vec<(f64, Vec<f64>)> = people.iter().map(|&rating| (rating, vec![rating, rating])).collect();
        let good = agreement("naturalness", &same, Vec::new());
        assert_eq!((good.distance, good.auroc, good.alpha), (Some(0.0), Some(1.0), Some(1.0)));
        let opposite: Vec<(f64, Vec<f64>)> =
            people.iter().map(|&rating| (1.0 - rating, vec![rating, rating])).collect();
        let bad = agreement("naturalness", &opposite, Vec::new());
        assert_eq!(bad.auroc, Some(0.0));
        assert!(bad.alpha.unwrap() < 0.2 && bad.alpha_people == Some(1.0), "{bad:?}");
    }
}
