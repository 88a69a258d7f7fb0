//! Scores that another model takes: it reads the last turns and rates what it is asked. The same questions are put
//! whoever the persona talked with. A judge that fails or refuses leaves no value and says why.

mod check;
mod judge;
mod rubric;
mod window;
#[cfg(test)]
mod tests;

use futures_util::StreamExt as _;
use futures_util::stream;
use minijinja::{Value, context};

pub use check::{Check, CheckError, calibration_digest, check};
pub use judge::Judge;
pub use rubric::Rubric;

use self::judge::Rated;
use self::rubric::render;
use self::window::Window;
use super::points::{Definition, is_sampled, point, taker};
use crate::foundation::base::limits::JUDGE_QUESTIONS_MAX;
use crate::foundation::base::{Digest, Stream};
use crate::foundation::stats::{rmse, spearman};
use crate::simulation::persona::{Dimension, InjectionKind, Level, PersonaConfig, ScoreConfig};
use crate::simulation::rollout::{Score, ScoreJudge, ScoreMethod, ScorePoint, Transcript, Turn};

/// How many turns a judge reads where nothing says otherwise.
const WINDOW: usize = 6;
/// A judge that reads fewer tokens than this well is told of the persona in a sentence.
const BRIEF_BELOW_TOKENS: usize = 1024;
/// That sentence's length, words.
const BRIEF_WORDS: usize = 25;

/// What is judged.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The conversation.
    pub transcript: &'a Transcript,
    /// The persona's configuration, where it is known.
    pub config: Option<&'a PersonaConfig>,
    /// Who the persona is, where no configuration says so.
    pub profile: Option<&'a str>,
    /// How many turns the judge reads; the configuration's `judge_window` if absent.
    pub window: Option<usize>,
}

/// One rubric on one dimension, or on none, as it is asked here.
struct Question<'a> {
    rubric: Rubric,
    /// Its place among the turns' dimensions, and what is known of it.
    dimension: Option<(&'a str, Option<&'a Dimension>)>,
    rate: f64,
    asked: Option<&'a str>,
}

/// A score that is wanted.
pub(super) struct Wanted {
    pub(super) id: &'static str,
    pub(super) dimension: Option<String>,
    /// The digest of what is asked.
    pub(super) prompt: Digest,
    /// The digest of what the judge is told of the persona, where the question needs it and it is known.
    pub(super) about: Option<Digest>,
    /// What it rests on.
    pub(super) rubric: Rubric,
}

/// The scores that rest on a rubric.
const fn ids(rubric: Rubric) -> &'static [&'static str] {
    match rubric {
        Rubric::PersonaAdherence => &["persona_adherence/1"],
        Rubric::Intensity => {
            &["trajectory_adherence/1", "judged_intensity/1", "judged_intensity_rmse/1", "judged_intensity_spearman/1"]
        }
        Rubric::Naturalness => &["naturalness/1"],
        Rubric::Stagnation => &["stagnation/1"],
        Rubric::Fidelity => &["fidelity/1"],
    }
}

/// Has `judge` take the scores that the configuration wants: all that rest on a question of which `wanted` says so of
/// any. What is known of the judge goes with them.
pub(super) async fn scores(
    case: Case<'_>,
    judge: &Judge,
    known: Option<&Check>,
    wanted: &(dyn Fn(&Wanted) -> bool + Sync),
) -> Vec<Score> {
    let mut scores = Vec::new();
    for question in case.questions() {
        if !case.wants(&question, judge).iter().any(wanted) {
            continue;
        }
        let turns = &case.transcript.turns;
        let asked = turns.iter().filter(|turn| is_sampled(turn.index, turns.len(), question.rate));
        let points: Vec<ScorePoint> = stream::iter(asked.map(|turn| case.ask(&question, judge, turn)))
            .buffered(JUDGE_QUESTIONS_MAX)
            .collect()
            .await;
        let reliability = known.and_then(|check| check.rubrics.get(&question.rubric).cloned());
        let taken = Taken {
            judge: taker(judge.info(), reliability),
            method: judge.method(),
            prompt: case.digest(&question, judge),
            about: case.about(&question, judge),
            dimension: question.dimension.map(|(name, _)| name),
        };
        scores.extend(taken.scores(&question, turns, points));
    }
    scores
}

/// What the scores of one question have in common.
struct Taken<'a> {
    judge: ScoreJudge,
    method: ScoreMethod,
    prompt: Digest,
    about: Option<Digest>,
    dimension: Option<&'a str>,
}

impl Taken<'_> {
    fn definition<'a>(&'a self, id: &'a str) -> Definition<'a> {
        let (judge, prompt) = (Some(self.judge.clone()), Some(self.prompt));
        Definition { id, dimension: self.dimension, method: self.method, judge, prompt, about: self.about }
    }

    fn scores(&self, question: &Question<'_>, turns: &[Turn], points: Vec<ScorePoint>) -> Vec<Score> {
        let [id, rest @ ..] = ids(question.rubric) else { return Vec::new() };
        let [expressed_id, rmse_id, spearman_id] = rest else { return vec![self.definition(id).over(points)] };
        let prescribed = |point: &ScorePoint| {
            let turn = turns.iter().find(|turn| turn.index == point.turns.1)?;
            let named = |name: &str| turn.intensities.iter().find(|intensity| intensity.dimension == name);
            self.dimension.and_then(named).map(|intensity| intensity.value)
        };
        let pairs = points.iter().filter_map(|point| Some((point.value?, prescribed(point)?)));
        let (expressed, wanted): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let adherence = points.iter().map(|point| {
            let value = point.value.zip(prescribed(point)).map(|(value, wanted)| 1.0 - (value - wanted).abs());
            ScorePoint { value, ..point.clone() }
        });
        let adherence = adherence.collect();
        vec![
            self.definition(id).over(adherence),
            self.definition(expressed_id).over(points),
            self.definition(rmse_id).whole(rmse(&expressed, &wanted), || "no turn was rated".to_owned()),
            self.definition(spearman_id).whole(spearman(&expressed, &wanted), || {
                "fewer than two turns were rated, or one of the two never changed".to_owned()
            }),
        ]
    }
}

impl<'a> Case<'a> {
    /// Everything that is to be asked.
    fn questions(&self) -> Vec<Question<'a>> {
        let mut questions = Vec::new();
        for rubric in Rubric::ALL {
            let wanted = self.config.and_then(|config| config.evaluation.scoring.get(&rubric.score()));
            if wanted.is_some_and(|wanted: &ScoreConfig| !wanted.enabled) {
                continue;
            }
            let (rate, asked) =
                wanted.map_or((1.0, None), |wanted| (wanted.sample_rate, wanted.description.as_deref()));
            let question = |dimension| Question { rubric, dimension, rate, asked };
            if rubric == Rubric::Intensity {
                let prescribed = self.transcript.turns.first().into_iter().flat_map(|turn| &turn.intensities);
                questions.extend(prescribed.map(|intensity| {
                    let name = intensity.dimension.as_str();
                    let known =
                        self.config.and_then(|config| config.trajectory.dimensions.iter().find(|d| d.name == name));
                    question(Some((name, known)))
                }));
            } else {
                questions.push(question(None));
            }
        }
        questions
    }

    /// The scores that rest on a question.
    fn wants(&self, question: &Question<'_>, judge: &Judge) -> Vec<Wanted> {
        let (prompt, about) = (self.digest(question, judge), self.about(question, judge));
        let dimension = question.dimension.map(|(name, _)| name.to_owned());
        let rubric = question.rubric;
        ids(rubric).iter().map(|&id| Wanted { id, dimension: dimension.clone(), prompt, about, rubric }).collect()
    }

    /// The digest of what the judge is told of the persona. It is no part of what is asked, so that personas can be
    /// compared.
    fn about(&self, question: &Question<'_>, judge: &Judge) -> Option<Digest> {
        let profile = (question.rubric == Rubric::PersonaAdherence).then(|| self.profile(judge).ok()).flatten();
        profile.map(Digest::of)
    }

    fn window(&self) -> usize {
        self.window.or(self.config.map(|config| config.interaction.judge_window)).unwrap_or(WINDOW)
    }

    /// What defines a question: its template, how the answer is wanted, what the configuration asks and how much is read.
    fn digest(&self, question: &Question<'_>, judge: &Judge) -> Digest {
        let (template, asked) = (question.rubric.template(), question.asked.unwrap_or_default());
        let described =
            question.dimension.and_then(|(_, known)| known).map(|known| (&known.description, &known.levels));
        Digest::of(format!("{template}\n{}\n{asked}\n{described:?}\n{} {}", judge.how(), self.window(), question.rate))
    }

    /// One reading.
    async fn ask(&self, question: &Question<'_>, judge: &Judge, turn: &Turn) -> ScorePoint {
        let mut window = Window::of(self.transcript, turn, self.window());
        let at = |value| point((turn.index, turn.index), value);
        if let Some(failure) = &turn.persona.failure {
            return at(Err(format!("there is no reply: {}", failure.why)));
        }
        // A window that is too long for the judge loses its oldest turns; how many were read stands in the point.
        let prompt = loop {
            let prompt = match self.prompt(question, judge, turn, &window) {
                Ok(prompt) => prompt,
                Err(why) => return at(Err(why)),
            };
            match (judge.fits(&prompt), window.shorter()) {
                (Ok(()), _) => break prompt,
                (Err(_), Some(shorter)) => window = shorter,
                (Err(why), None) => return at(Err(why)),
            }
        };
        let run = &self.transcript.run;
        let stream = Stream::root(run.seed).child("rollout", run.rollout as u64).child("turn", turn.index as u64);
        let Rated { value, mass, top } = judge.rate(&prompt, stream.child(question.rubric.name(), 0)).await;
        ScorePoint { mass, top, ..point(window.turns, value) }
    }

    fn prompt(&self, question: &Question<'_>, judge: &Judge, turn: &Turn, window: &Window) -> Result<String, String> {
        let name = self.transcript.config.name.as_str();
        let window = window.text(name);
        let common = context! { name, window, question => question.asked.map(str::trim) };
        let own = match question.rubric {
            Rubric::PersonaAdherence => context! { profile => self.profile(judge)? },
            Rubric::Intensity => intensity(question.dimension),
            Rubric::Fidelity => context! { instructions => self.instructions(turn)? },
            Rubric::Naturalness | Rubric::Stagnation => context! {},
        };
        render(question.rubric.template(), context! { ..own, ..common })
    }

    fn profile(&self, judge: &Judge) -> Result<String, String> {
        let brief = judge.info().window_tokens.is_some_and(|window| window < BRIEF_BELOW_TOKENS);
        let whole = match (self.config, self.profile) {
            (Some(config), _) => profile(config),
            (None, Some(profile)) => profile.to_owned(),
            (None, None) => {
                return Err("nothing says who the persona is: name its configuration with --config".to_owned());
            }
        };
        let mut words: Vec<&str> = whole.split_whitespace().collect();
        if brief && words.len() > BRIEF_WORDS {
            words.truncate(BRIEF_WORDS);
            words.push("…");
        }
        Ok(if brief { words.join(" ") } else { whole })
    }

    /// What the persona's model was told and still held in `turn`: the last whole prompt, and what came after it.
    fn instructions(&self, turn: &Turn) -> Result<String, String> {
        let until = self.transcript.turns.iter().filter(|told| told.index <= turn.index);
        let mut held: Vec<&str> = Vec::new();
        for told in until {
            if told.prompt.injection == InjectionKind::Full {
                held.clear();
            }
            // A reminder is for its turn and those after it, until the next one.
            if told.prompt.injection != InjectionKind::None {
                held.truncate(1);
            }
            held.extend(told.injected.iter().map(String::as_str));
        }
        if held.is_empty() {
            return Err("the transcript holds no instructions".to_owned());
        }
        Ok(held.join("\n"))
    }
}

fn intensity(dimension: Option<(&str, Option<&Dimension>)>) -> Value {
    let (name, known) = dimension.unwrap_or_default();
    let levels = known.map(|known| {
        let level = |(level, behaviour): (&Level, &String)| (level.name(), behaviour.trim().to_owned());
        known.levels.iter().map(level).collect::<Vec<_>>()
    });
    context! {
        dimension => name.replace('_', " "),
        description => known.map(|known| known.description.trim()),
        levels => levels.unwrap_or_default(),
    }
}

/// Who the persona is, for a judge: what can be heard in what it says.
fn profile(config: &PersonaConfig) -> String {
    let persona = &config.persona;
    let age = persona.age.map(|age| format!(", {age}"));
    let mut lines = vec![format!("{}{}. {}", persona.name, age.unwrap_or_default(), persona.background.trim())];
    let told = [
        ("Knows at most", &persona.knowledge_ceiling),
        ("Words", &persona.vocabulary_level),
        ("Reasons", &persona.reasoning_style),
        ("When caught in a contradiction", &persona.recovery_behavior),
    ];
    lines.extend(told.iter().filter_map(|(what, text)| Some(format!("{what}: {}", text.as_ref()?.trim()))));
    if !persona.speech_patterns.is_empty() {
        lines.push(format!("Speaks: {}", persona.speech_patterns.join("; ")));
    }
    lines.join("\n")
}
