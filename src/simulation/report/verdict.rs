//! The verdict: did the persona hold? Identity, the trajectory of each dimension, rules and speech each *held*, *did not
//! hold*, or *cannot be told*, with the figure, the turns that decide it and what would let Loom tell.
//!
//! There are two levels. Within a rollout, turns decide whether an aspect held in it. Over the rollouts, the share in which
//! it held has an exact interval, because each is one observation of what the configuration does. One clean rollout is
//! therefore no proof, and the verdict says how many would be.

use serde::{Deserialize, Serialize};

use super::format::counted;
use super::format::number;
use super::load::LoadedRollout;
use crate::foundation::chat::Finish;
use crate::foundation::stats::small_sample::{clean_rollouts_needed, median, proportion};
use crate::foundation::stats::{Interval, mean, rmse};
use crate::simulation::judge::measured::Measured;
use crate::simulation::rollout::{MonitorEvent, Reliability, Score, ScoreMethod, Transcript, Turn};

/// Fewer values of a dimension in a rollout do not show a trajectory.
const TRAJECTORY_POINTS_MIN: usize = 6;
/// A trajectory holds up to this root mean square distance of expressed from prescribed intensity.
const DISTANCE_MAX: f64 = 0.2;
/// A trajectory holds from this slope of expressed over prescribed intensity on; 1 follows it, 0 is flat.
const SLOPE_MIN: f64 = 0.5;
/// A prescribed intensity that varies less than this has no slope.
const RANGE_MIN: f64 = 0.15;
/// The replies are the persona's if it is told from other personas with at least this probability.
const IDENTIFIED_MIN: f64 = 0.5;
/// A judged score from 0 to 1 speaks for an aspect from this value on.
const RATING_MIN: f64 = 0.5;
/// A rollout with a larger share of missing replies shows nothing.
const MISSING_MAX: f64 = 0.2;
/// The share of failing rollouts that a clean series should exclude.
const FAILING_MAX: f64 = 0.1;
/// The most turns that are named per aspect.
const TURNS_MAX: usize = 6;

/// Did the persona hold?
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// A sentence to quote.
    pub summary: String,
    /// The aspects, trajectories per dimension.
    pub aspects: Vec<AspectVerdict>,
}

/// What is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    /// The persona stays who it is.
    Identity,
    /// Its intensities follow the prescribed ones.
    Trajectory,
    /// It keeps to what it must and must not say.
    Rules,
    /// It talks like a person: varied, and getting on.
    Speech,
}

/// The verdict on one aspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// It held in every rollout that shows it.
    Held,
    /// It did not hold in at least one rollout.
    DidNotHold,
    /// No rollout shows it.
    CannotTell,
}

/// One aspect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AspectVerdict {
    /// Which.
    pub aspect: Aspect,
    /// The dimension of a trajectory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimension: Option<String>,
    /// The verdict.
    pub held: Held,
    /// In how many rollouts it held.
    pub rollouts_held: usize,
    /// How many rollouts show whether it held.
    pub rollouts_judged: usize,
    /// The exact 95 % interval of the share of rollouts in which it holds.
    pub interval: Option<Interval>,
    /// What it rests on, in words and numbers.
    pub figure: String,
    /// The turns that decide it.
    pub turns: Vec<DecidingTurn>,
    /// What would let Loom tell, or tell more.
    pub needs: Vec<String>,
}

/// A turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidingTurn {
    /// The rollout.
    pub rollout: usize,
    /// The turn.
    pub turn: usize,
}

/// What one rollout shows of an aspect.
#[derive(Default)]
struct RolloutEvidence {
    /// Whether it held; `None` if the rollout does not show it.
    held: Option<bool>,
    figures: Vec<String>,
    turns: Vec<usize>,
    needs: Vec<String>,
}

impl RolloutEvidence {
    /// Adds a reason: it decides against the aspect if `holds` is false.
    fn add(&mut self, holds: bool, figure: String, turns: Vec<usize>) {
        self.held = Some(self.held.unwrap_or(true) && holds);
        if holds {
            self.figures.push(figure);
        } else {
            // What decides comes first.
            self.figures.insert(0, figure);
            self.turns.extend(turns);
        }
    }
}

impl Verdict {
    /// The verdict on rollouts of one configuration, with their measured scores.
    pub(super) fn of(persona: &str, loaded: &[LoadedRollout], measured: &[Measured], dimensions: &[String]) -> Self {
        let both = || loaded.iter().map(|loaded| &loaded.transcript).zip(measured);
        let aspect = |aspect, of: &dyn Fn(&Transcript, &Measured) -> RolloutEvidence| {
            let each = both()
                .map(|(transcript, measured)| (transcript, complete_enough(transcript, of(transcript, measured))));
            combined(aspect, None, each.collect())
        };
        let mut aspects = vec![aspect(Aspect::Identity, &|transcript, _| identity(transcript))];
        aspects.extend(dimensions.iter().map(|name| {
            let each = both().map(|(transcript, _)| (transcript, trajectory(transcript, name)));
            combined(Aspect::Trajectory, Some(name), each.collect())
        }));
        aspects.push(aspect(Aspect::Rules, &|transcript, _| rules(transcript)));
        aspects.push(aspect(Aspect::Speech, &speech));
        Self {
            summary: summary(persona, loaded, &aspects),
            aspects: aspects.into_iter().map(|(aspect, _)| aspect).collect(),
        }
    }
}

/// The aspect that a monitor's finding is about.
pub(super) fn aspect_of(event: &MonitorEvent) -> Aspect {
    match (event.finding.monitor.as_str(), event.finding.rule.as_str()) {
        ("repetition", "banned" | "forbidden_phrase") | ("instruction_leak", _) => Aspect::Rules,
        ("repetition" | "stagnation" | "narration" | "language" | "silence", _) => Aspect::Speech,
        _ => Aspect::Identity,
    }
}

/// The monitors that show whether an aspect holds.
const fn monitors_of(aspect: Aspect) -> &'static [&'static str] {
    match aspect {
        Aspect::Identity => &["assistant_voice", "both_sides", "refusal"],
        Aspect::Rules => &["repetition", "instruction_leak"],
        Aspect::Speech => &["stagnation", "narration", "language", "silence"],
        Aspect::Trajectory => &[],
    }
}

/// The names of the monitors that checked this transcript.
pub(super) fn monitors_of_transcript(transcript: &Transcript) -> &[String] {
    transcript.monitors.as_deref().unwrap_or_default()
}

/// A rollout with many missing replies shows nothing that held.
fn complete_enough(transcript: &Transcript, mut evidence: RolloutEvidence) -> RolloutEvidence {
    let missing = transcript.turns.iter().filter(|turn| turn.persona.failure.is_some()).count();
    if missing as f64 > MISSING_MAX * transcript.turns.len() as f64 && evidence.held == Some(true) {
        evidence.held = None;
        evidence
            .needs
            .push(format!("replies: {missing} of {} are missing", counted(transcript.turns.len(), "message")));
    }
    evidence
}

/// The accepted findings of an aspect.
fn findings(transcript: &Transcript, aspect: Aspect) -> Vec<(usize, &MonitorEvent)> {
    let accepted = |turn: &'_ Turn, event: &MonitorEvent| {
        turn.persona.failure.is_none() && event.action.is_final() && aspect_of(event) == aspect
    };
    let events = transcript.turns.iter().flat_map(|turn| turn.monitor_events.iter().map(move |event| (turn, event)));
    events.filter(|(turn, event)| accepted(turn, event)).map(|(turn, event)| (turn.index, event)).collect()
}

fn add_findings(evidence: &mut RolloutEvidence, transcript: &Transcript, aspect: Aspect) {
    let ran = monitors_of_transcript(transcript);
    let absent: Vec<&str> =
        monitors_of(aspect).iter().copied().filter(|name| !ran.iter().any(|other| other == name)).collect();
    if absent.len() == monitors_of(aspect).len() {
        evidence.needs.push(format!("the monitors {}: they did not run over this transcript", absent.join(", ")));
        return;
    }
    if !absent.is_empty() {
        evidence.needs.push(format!("the monitors {}, which did not run", absent.join(", ")));
    }
    let found = findings(transcript, aspect);
    let mut turns: Vec<usize> = found.iter().map(|(turn, _)| *turn).collect();
    turns.dedup();
    let figure = match found.first() {
        None => "no finding of a monitor".to_owned(),
        Some((_, event)) => {
            format!("{} with findings, such as: {}", counted(turns.len(), "turn"), event.finding.detail)
        }
    };
    evidence.add(turns.is_empty(), figure, turns);
}

/// Adds a judged score whose judge is reliable; asks for such a judge otherwise.
fn add_rating(evidence: &mut RolloutEvidence, transcript: &Transcript, id: &str, what: &str) {
    let judged: Vec<&Score> = transcript.scores.iter().filter(|score| score.id == id).collect();
    let reliable = judged.iter().find(|score| is_reliable(score) && score.value.is_some());
    if let Some((score, value)) = reliable.and_then(|score| Some((score, score.value?))) {
        let low = score.points.iter().filter(|point| point.value.is_some_and(|value| value < RATING_MIN));
        let turns = low.map(|point| point.turns.1).collect();
        evidence.add(value >= RATING_MIN, format!("{what} rated {}", number(value)), turns);
    } else if judged.is_empty() {
        evidence.needs.push(format!("a reliable judge of {what}: `loom score --judge-model MODEL`"));
    } else {
        evidence.needs.push(format!("a judge of {what} that passes `loom judge check`"));
    }
}

fn is_reliable(score: &Score) -> bool {
    score.judge.as_ref().and_then(|judge| judge.reliability.as_ref()).is_some_and(Reliability::is_reliable)
}

fn identity(transcript: &Transcript) -> RolloutEvidence {
    let mut evidence = RolloutEvidence::default();
    add_findings(&mut evidence, transcript, Aspect::Identity);
    let refusals: Vec<usize> = transcript
        .turns
        .iter()
        .filter(|turn| turn.persona.finish == Some(Finish::Refusal))
        .map(|turn| turn.index)
        .collect();
    if !refusals.is_empty() {
        evidence.add(false, counted(refusals.len(), "refusal") + " by the persona's model", refusals);
    }
    let before = evidence.figures.len();
    add_rating(&mut evidence, transcript, "persona_adherence/1", "adherence to the persona");
    let rated = evidence.figures.len() > before;
    let identified = add_likelihoods(&mut evidence, transcript);
    // Monitors find breakdowns. That there is none does not say who talks.
    if evidence.held == Some(true) && !rated && !identified {
        evidence.held = None;
        evidence.needs.push(
            "likelihoods, of a persona's model that gives log-probabilities (or `--reader`): `loom score`".to_owned(),
        );
    }
    evidence
}

/// Adds what the likelihoods say of who talks. Returns whether they show that it is the persona.
///
/// The replies of another person are less likely with the persona's instructions than without. Whether they are told from
/// other personas depends on how much those differ, so a low probability alone decides nothing.
fn add_likelihoods(evidence: &mut RolloutEvidence, transcript: &Transcript) -> bool {
    let of =
        |id: &str| transcript.scores.iter().find(|score| score.id == id).and_then(|score| Some((score, score.value?)));
    let Some((ratios, gain)) = of("persona_llr/1") else { return false };
    let each: Vec<f64> = ratios.points.iter().filter_map(|point| point.value).collect();
    if each.len() >= TRAJECTORY_POINTS_MIN && median(&each).is_some_and(|interval| interval.high < 0.0) {
        let mut low: Vec<_> = ratios.points.iter().filter_map(|point| Some((point.turns.1, point.value?))).collect();
        low.sort_by(|a, b| a.1.total_cmp(&b.1));
        let figure =
            format!("the persona's instructions make the replies less likely, by {} nats per token", number(-gain));
        evidence.add(false, figure, low.into_iter().take(3).map(|(turn, _)| turn).collect());
        return true;
    }
    let Some((_, identified)) = of("persona_identification/1") else { return false };
    let shows = gain > 0.0 && identified >= IDENTIFIED_MIN;
    let figure = format!(
        "told from other personas with {}, likelier with its instructions by {} nats per token",
        number(identified),
        number(gain)
    );
    if shows {
        evidence.add(true, figure, Vec::new());
    } else {
        evidence.figures.push(figure);
    }
    shows
}

fn rules(transcript: &Transcript) -> RolloutEvidence {
    let mut evidence = RolloutEvidence::default();
    add_findings(&mut evidence, transcript, Aspect::Rules);
    add_rating(&mut evidence, transcript, "fidelity/1", "fidelity to the instructions");
    evidence
}

fn speech(transcript: &Transcript, measured: &Measured) -> RolloutEvidence {
    let mut evidence = RolloutEvidence::default();
    add_findings(&mut evidence, transcript, Aspect::Speech);
    let standstill = measured.scores.iter().find(|score| score.id == "standstill/1").and_then(|score| score.value);
    match standstill {
        Some(_) if measured.standstills.is_empty() => evidence.add(true, "no standstill".to_owned(), Vec::new()),
        Some(share) => {
            let spans: Vec<String> =
                measured.standstills.iter().map(|span| format!("{}–{}", span.first, span.last)).collect();
            let turns = measured.standstills.iter().map(|span| span.first).collect();
            let figure = format!("a standstill in {} of the messages, turns {}", percent(share), spans.join(", "));
            evidence.add(false, figure, turns);
        }
        None => evidence.needs.push("at least six messages, to see a standstill".to_owned()),
    }
    add_rating(&mut evidence, transcript, "naturalness/1", "naturalness");
    evidence
}

/// The values of a dimension that show what was expressed: a reliable judge's, else the likelihood's.
fn expressed<'a>(transcript: &'a Transcript, dimension: &str) -> Option<&'a Score> {
    let of = |score: &&Score, id: &str| {
        score.id == id && score.dimension.as_deref() == Some(dimension) && score.value.is_some()
    };
    let judged = transcript.scores.iter().find(|score| of(score, "judged_intensity/1") && is_reliable(score));
    judged.or_else(|| {
        transcript
            .scores
            .iter()
            .find(|score| of(score, "expressed_intensity/1") && score.method == ScoreMethod::Likelihood)
    })
}

fn trajectory(transcript: &Transcript, dimension: &str) -> RolloutEvidence {
    let mut evidence = RolloutEvidence::default();
    let Some(score) = expressed(transcript, dimension) else {
        evidence.needs.push("expressed intensities: `loom score` with a persona's model that gives log-probabilities (or `--reader`), or a reliable judge".to_owned());
        return evidence;
    };
    let prescribed = |turn: usize| {
        let turn = transcript.turns.iter().find(|other| other.index == turn)?;
        Some(turn.intensities.iter().find(|intensity| intensity.dimension == dimension)?.value)
    };
    let mut points: Vec<(usize, f64, f64)> = score
        .points
        .iter()
        .filter_map(|point| Some((point.turns.1, point.value?, prescribed(point.turns.1)?)))
        .collect();
    if points.len() < TRAJECTORY_POINTS_MIN {
        let have = counted(points.len(), "turn");
        evidence.needs.push(format!(
            "expressed intensities of at least {TRAJECTORY_POINTS_MIN} turns (there are those of {have}): \
             `loom score --likelihood full`"
        ));
        return evidence;
    }
    let (shown, wanted): (Vec<f64>, Vec<f64>) = points.iter().map(|(_, shown, wanted)| (*shown, *wanted)).unzip();
    let Some(distance) = rmse(&shown, &wanted) else { return evidence };
    let slope = slope(&wanted, &shown);
    let ends = |values: &[f64]| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if high - low < 0.05 {
            format!("{} throughout", number(mean(values).unwrap_or(low)))
        } else {
            format!("{} to {}", number(low), number(high))
        }
    };
    let by = if score.method == ScoreMethod::Likelihood { "by likelihood" } else { "by the judge" };
    let figure = format!("expressed {} {by}, prescribed {}", ends(&shown), ends(&wanted));
    let holds = distance <= DISTANCE_MAX && slope.is_none_or(|slope| slope >= SLOPE_MIN);
    points.sort_by(|a, b| (b.1 - b.2).abs().total_cmp(&(a.1 - a.2).abs()));
    let turns = points.iter().take(3).map(|(turn, ..)| *turn).collect();
    evidence.add(holds, figure, turns);
    let slope = slope.map_or_else(String::new, |slope| format!(", slope {}", number(slope)));
    evidence.figures.push(format!("distance {}{slope}", number(distance)));
    evidence
}

/// The least-squares slope of `y` over `x`; `None` if `x` varies too little.
fn slope(x: &[f64], y: &[f64]) -> Option<f64> {
    let (low, high) = (x.iter().copied().reduce(f64::min)?, x.iter().copied().reduce(f64::max)?);
    let (mx, my) = (mean(x)?, mean(y)?);
    let both: f64 = x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum();
    let square: f64 = x.iter().map(|x| (x - mx).powi(2)).sum();
    (high - low >= RANGE_MIN).then(|| both / square)
}

/// The aspect over all rollouts, and its main figure.
#[expect(clippy::needless_pass_by_value, reason = "each caller makes the list for this call")]
fn combined(
    aspect: Aspect,
    dimension: Option<&String>,
    each: Vec<(&Transcript, RolloutEvidence)>,
) -> (AspectVerdict, String) {
    let judged = each.iter().filter(|(_, evidence)| evidence.held.is_some()).count();
    let held = each.iter().filter(|(_, evidence)| evidence.held == Some(true)).count();
    let verdict = match (judged, judged - held) {
        (0, _) => Held::CannotTell,
        (_, 0) => Held::Held,
        _ => Held::DidNotHold,
    };
    // The figure is that of the rollout that decides: the first that did not hold, else the first that did.
    let deciding = each.iter().find(|(_, evidence)| evidence.held == Some(held == judged)).or(each.first());
    let turns = deciding_turns(&each);
    let mut needs: Vec<String> = Vec::new();
    for need in each.iter().flat_map(|(_, evidence)| &evidence.needs) {
        if !needs.contains(need) {
            needs.push(need.clone());
        }
    }
    let wanted = clean_rollouts_needed(FAILING_MAX);
    if verdict == Held::Held && judged < wanted {
        needs.push(format!(
            "{} more rollouts in which it holds, to show at 95 % that it fails in at most 1 of 10",
            wanted - judged
        ));
    }
    let figures = deciding.map(|(_, evidence)| evidence.figures.as_slice()).unwrap_or_default();
    // Of several rollouts the figure says whose it is.
    let of = |figure: String| match deciding {
        Some((transcript, _)) if each.len() > 1 && !figure.is_empty() => {
            format!("rollout {}: {figure}", transcript.run.rollout)
        }
        _ => figure,
    };
    let main = of(figures.first().cloned().unwrap_or_default());
    let figure = of(figures.join("; "));
    let aspect = AspectVerdict {
        aspect,
        dimension: dimension.cloned(),
        held: verdict,
        rollouts_held: held,
        rollouts_judged: judged,
        interval: proportion(held, judged),
        figure,
        turns,
        needs,
    };
    (aspect, main)
}

/// The turns that decide, of every rollout that did not hold: the first of each, then the second of each, up to
/// [`TURNS_MAX`].
fn deciding_turns(each: &[(&Transcript, RolloutEvidence)]) -> Vec<DecidingTurn> {
    let failed = || each.iter().filter(|(_, evidence)| evidence.held == Some(false));
    let most = failed().map(|(_, evidence)| evidence.turns.len()).max().unwrap_or(0);
    let mut turns: Vec<DecidingTurn> = Vec::new();
    for place in 0..most {
        for (transcript, evidence) in failed() {
            let Some(&turn) = evidence.turns.get(place) else { continue };
            let turn = DecidingTurn { rollout: transcript.run.rollout, turn };
            if turns.len() < TURNS_MAX && !turns.contains(&turn) {
                turns.push(turn);
            }
        }
    }
    // Stable: within a rollout the turn that decides most stays first.
    turns.sort_by_key(|turn| turn.rollout);
    turns
}

impl AspectVerdict {
    /// The aspect's name, with the dimension of a trajectory.
    pub fn name(&self) -> String {
        match (self.aspect, &self.dimension) {
            (Aspect::Identity, _) => "identity".to_owned(),
            (Aspect::Rules, _) => "rules".to_owned(),
            (Aspect::Speech, _) => "speech".to_owned(),
            (Aspect::Trajectory, None) => "trajectory".to_owned(),
            (Aspect::Trajectory, Some(name)) => format!("trajectory of {name}"),
        }
    }

    /// `3 of 3 rollouts (95 %: 0.29 to 1.00)`; nothing if no rollout shows it.
    pub fn share(&self) -> Option<String> {
        let interval = self.interval?;
        Some(format!(
            "{} of {} (95 %: {} to {})",
            self.rollouts_held,
            counted(self.rollouts_judged, "rollout"),
            number(interval.low),
            number(interval.high)
        ))
    }
}

impl Held {
    /// As in reports.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::DidNotHold => "did not hold",
            Self::CannotTell => "cannot tell",
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn summary(persona: &str, loaded: &[LoadedRollout], aspects: &[(AspectVerdict, String)]) -> String {
    let turns: Vec<usize> = loaded.iter().map(|loaded| loaded.transcript.turns.len()).collect();
    let (low, high) = (turns.iter().min().copied().unwrap_or(0), turns.iter().max().copied().unwrap_or(0));
    let length = if low == high { counted(low, "turn") } else { format!("{low} to {high} turns") };
    let listed = |held: Held| -> Vec<String> {
        let of = aspects.iter().filter(|(aspect, _)| aspect.held == held);
        of.map(|(aspect, figure)| match held {
            Held::DidNotHold => format!(
                "{} in {} of {} ({figure})",
                aspect.name(),
                aspect.rollouts_judged - aspect.rollouts_held,
                counted(aspect.rollouts_judged, "rollout")
            ),
            Held::Held | Held::CannotTell => aspect.name(),
        })
        .collect()
    };
    let mut parts = Vec::new();
    for (held, verb) in [(Held::DidNotHold, "did not hold"), (Held::Held, "held"), (Held::CannotTell, "cannot be told")]
    {
        let names = listed(held);
        if !names.is_empty() {
            parts.push(format!("{verb}: {}", names.join(", ")));
        }
    }
    format!("{persona}, {} of {length}: {}.", counted(loaded.len(), "rollout"), parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::judge::measured::measure;
    use crate::simulation::judge::measured::tests::transcript;
    use crate::simulation::rollout::{Intensity, ScoreJudge, ScorePoint};

    fn loaded(transcript: Transcript) -> LoadedRollout {
        LoadedRollout {
            file: "rollout_000.json".into(),
            transcript,
            partial: false,
            tokens: Vec::new(),
            tokens_missing: None,
        }
    }

    fn verdict(transcripts: Vec<Transcript>) -> Verdict {
        let measured: Vec<Measured> = transcripts.iter().map(measure).collect();
        let loaded: Vec<LoadedRollout> = transcripts.into_iter().map(loaded).collect();
        Verdict::of("Ana", &loaded, &measured, &["belief".to_owned()])
    }

    fn named<'a>(verdict: &'a Verdict, name: &str) -> &'a AspectVerdict {
        verdict.aspects.iter().find(|aspect| aspect.name() == name).unwrap()
    }

    /// Ten turns of varied talk, prescribed from .1 to .8, expressed as `expressed` says.
    fn talk(expressed: impl Fn(f64) -> f64) -> Transcript {
        let said = [
            "grey van",
            "cold coffee",
            "three commits",
            "night shift",
            "old radio",
            "thin walls",
            "red door",
            "bus nine",
            "wet coat",
            "last call",
        ];
        let mut transcript = transcript(&said.map(|said| (said, "go on")));
        let mut points = Vec::new();
        for turn in &mut transcript.turns {
            let value = 0.1 + 0.7 * turn.index as f64 / 9.0;
            turn.intensities = vec![Intensity { dimension: "belief".to_owned(), value }];
            points.push(ScorePoint {
                turns: (turn.index, turn.index),
                value: Some(expressed(value)),
                interval: None,
                mass: None,
                top: None,
                why: None,
            });
        }
        transcript.scores = vec![Score {
            id: "expressed_intensity/1".to_owned(),
            dimension: Some("belief".to_owned()),
            method: ScoreMethod::Likelihood,
            judge: None,
            prompt_digest: None,
            about: None,
            value: Some(0.5),
            why: None,
            points,
        }];
        transcript
    }

    #[test]
    fn a_flat_intensity_does_not_follow_a_rising_one() {
        let mut other = talk(|_| 0.45);
        other.run.rollout = 1;
        let flat = verdict(vec![talk(|_| 0.45), other]);
        let trajectory = named(&flat, "trajectory of belief");
        let of_both: Vec<usize> = trajectory.turns.iter().map(|turn| turn.rollout).collect();
        assert!(of_both == [0, 0, 0, 1, 1, 1] && trajectory.figure.starts_with("rollout 0: "), "{trajectory:?}");
        assert_eq!((trajectory.held, trajectory.rollouts_held, trajectory.rollouts_judged), (Held::DidNotHold, 0, 2));
        assert!(
            trajectory.figure.contains("expressed 0.45 throughout by likelihood, prescribed 0.10 to 0.80"),
            "{trajectory:?}"
        );
        assert!(trajectory.turns.contains(&DecidingTurn { rollout: 0, turn: 0 }), "{trajectory:?}");
        assert!(flat.summary.contains("did not hold: trajectory of belief in 2 of 2 rollouts"), "{}", flat.summary);

        let followed = verdict(vec![talk(|value| value + 0.05)]);
        let trajectory = named(&followed, "trajectory of belief");
        assert_eq!(trajectory.held, Held::Held, "{trajectory:?}");
        assert!(trajectory.needs[0].starts_with("28 more rollouts"), "{trajectory:?}");
        assert!((trajectory.interval.unwrap().low - 0.025).abs() < 1e-6, "one rollout is no proof");
    }

    #[test]
    fn a_judge_counts_only_if_it_is_reliable() {
        let with = |agreement: f64| {
            let mut talk = talk(|value| value);
            let reliability = Some(Reliability { agreement, interval: None, pairs: 8 });
            let rating = Score {
                id: "persona_adherence/1".to_owned(),
                dimension: None,
                method: ScoreMethod::WrittenRating,
                judge: Some(ScoreJudge { model: "judge".to_owned(), digest: None, device: None, reliability }),
                value: Some(0.1),
                ..talk.scores[0].clone()
            };
            talk.scores.push(rating);
            talk.monitors = Some(vec!["assistant_voice".to_owned()]);
            named(&verdict(vec![talk]), "identity").clone()
        };
        assert_eq!(with(0.9).held, Held::DidNotHold);
        let unreliable = with(0.5);
        assert_eq!(unreliable.held, Held::CannotTell);
        assert!(unreliable.needs.iter().any(|need| need.contains("passes `loom judge check`")), "{unreliable:?}");
    }

    #[test]
    fn identity_needs_more_than_silent_monitors() {
        let with = |gains: &[f64], identified: f64| {
            let mut talk = talk(|value| value);
            talk.monitors = Some(monitors_of(Aspect::Identity).iter().map(|&name| name.to_owned()).collect());
            let score = |id: &str, values: &[f64]| Score {
                id: id.to_owned(),
                dimension: None,
                value: mean(values),
                points: talk.scores[0]
                    .points
                    .iter()
                    .zip(values)
                    .map(|(point, &value)| ScorePoint { value: Some(value), ..point.clone() })
                    .collect(),
                ..talk.scores[0].clone()
            };
            let added = [score("persona_llr/1", gains), score("persona_identification/1", &[identified])];
            talk.scores.extend(added);
            named(&verdict(vec![talk]), "identity").clone()
        };
        assert_eq!(with(&[0.4; 10], 0.97).held, Held::Held);
        // A persona that resembles another one: no evidence either way.
        let alike = with(&[0.4; 10], 0.3);
        assert_eq!(alike.held, Held::CannotTell);
        assert!(alike.needs.iter().any(|need| need.contains("likelihoods")), "{alike:?}");
        // Somebody else talks: the instructions make it less likely.
        let mut other = [-0.3; 10];
        other[4] = -0.9;
        let other = with(&other, 0.3);
        assert_eq!((other.held, other.turns[0].turn), (Held::DidNotHold, 4), "{other:?}");
        assert_eq!(with(&[-0.2, 0.3, -0.1, 0.2, -0.3, 0.1, -0.2, 0.2, 0.1, -0.4], 0.3).held, Held::CannotTell);
    }

    #[test]
    fn what_nothing_shows_cannot_be_told() {
        // An imported transcript: no monitor ran, and there are no scores.
        let imported = verdict(vec![transcript(&[("Hello.", "Hi."), ("Yes.", "Why?")])]);
        let aspects: Vec<Held> = imported.aspects.iter().map(|aspect| aspect.held).collect();
        assert_eq!(aspects, [Held::CannotTell; 4]);
        assert!(named(&imported, "rules").needs[0].contains("did not run"), "{imported:?}");
        assert!(
            imported.summary.ends_with("cannot be told: identity, trajectory of belief, rules, speech."),
            "{}",
            imported.summary
        );
    }

    #[test]
    fn a_standstill_and_missing_replies_decide() {
        let mut pairs = vec![("grey van", "go on"); 1];
        pairs.extend([("log everything, bring results", "good"); 8]);
        let speech = named(&verdict(vec![transcript(&pairs)]), "speech").clone();
        assert_eq!(speech.held, Held::DidNotHold, "{speech:?}");
        let mut missing = transcript(&[("", "hello"), ("", "hello?"), ("Yes.", "Good.")]);
        missing.monitors = Some(vec!["assistant_voice".to_owned()]);
        let identity = named(&verdict(vec![missing]), "identity").clone();
        assert_eq!(identity.held, Held::CannotTell, "{identity:?}");
    }
}
