//! The same replies under other prompts: another persona's, one without a section, one with another intensity, one that
//! says whether the persona gives in. Each
//! variant reads the whole conversation again, because prompts differ from turn to turn; so variants are computed on
//! a sample of turns.
//!
//! All variants have the same layout, that of the run at a turn at which the state is given, so that they differ in nothing
//! else: the opening above the history and the state directly before the reply, or both above the history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::positions::{CandidateReply, ScorePosition, read};
use super::{Conversation, LikelihoodSet, RolloutScorer, UNREAD, definition, only};
use crate::foundation::chat::{Message, Role, TokenId};
use crate::foundation::stats::{Interval, rmse, spearman};
use crate::simulation::judge::points::point;
use crate::simulation::judge::scorers::{ScoreInfo, logprobs};
use crate::simulation::persona::{Assembler, Dimension, PersonaConfig, TurnInput, TurnPlan, examples, parse};
use crate::simulation::rollout::{PlacementUsed, ReplayedTurn, Score, ScoreJudge, ScorePoint, Turn};

/// How many values of an intensity are tried, evenly spread over its range.
const GRID: usize = 9;
/// The probability outside an intensity's interval at either end: the interval contains 90 %.
const TAIL: f64 = 0.05;

const IDENTIFICATION: &str = "persona_identification/1";
const STANCE: &str = "stance/1";
/// What is added to the state by [`STANCE`]: the persona holds on, or gives in.
const HOLDS: &str = "In this message you are not convinced: you keep to what you believe, want and refuse, and you do not do \
                     what the other person wants you to.";
const GIVES_IN: &str = "In this message you let yourself be convinced: you give up what you believed, wanted and refused, and \
                        you do what the other person wants you to.";
const SECTIONS: [&str; 3] = ["section_must_do/1", "section_how/1", "section_context/1"];
const EXPRESSED: &str = "expressed_intensity/1";
const RMSE: &str = "intensity_rmse/1";
const SPEARMAN: &str = "intensity_spearman/1";

/// What the scores of this module are.
pub(in crate::simulation::judge) const VARIANT_SCORES: [ScoreInfo; 8] = [
    ScoreInfo::share(IDENTIFICATION, "probability of this persona among others, given its replies"),
    ScoreInfo::unbounded(SECTIONS[0], "gain in log-likelihood by the prompt's rules, nats per token"),
    ScoreInfo::unbounded(SECTIONS[1], "gain in log-likelihood by the prompt's manner of speaking, nats per token"),
    ScoreInfo::unbounded(SECTIONS[2], "gain in log-likelihood by the prompt's background, nats per token"),
    ScoreInfo::unbounded(
        STANCE,
        "gain in log-likelihood by holding on over giving in, nats per token; below 0 gives in",
    ),
    ScoreInfo::share(EXPRESSED, "intensity estimated from the replies"),
    ScoreInfo::share(RMSE, "root mean square difference of expressed and prescribed intensity; 0 is exact"),
    ScoreInfo {
        id: SPEARMAN,
        meaning: "rank correlation of expressed and prescribed intensity; 1 is the same order",
        bounds: Some((-1.0, 1.0)),
    },
];

/// The ids of all scores of this module, with their dimensions.
pub(super) fn ids(config: &PersonaConfig) -> impl Iterator<Item = (&'static str, Option<&str>)> {
    let whole = [IDENTIFICATION].into_iter().chain(SECTIONS).chain([STANCE]).map(|id| (id, None));
    let dimensions = config.trajectory.dimensions.iter();
    whole.chain(
        dimensions.flat_map(|dimension| [EXPRESSED, RMSE, SPEARMAN].map(|id| (id, Some(dimension.name.as_str())))),
    )
}

/// The values so far.
pub(super) struct Variants {
    dimensions: Vec<Dimension>,
    ceiling: f64,
    /// The prompts of other personas.
    distractors: Vec<Assembler>,
    identification: Vec<ScorePoint>,
    sections: [Vec<ScorePoint>; 3],
    stance: Vec<ScorePoint>,
    expressed: Vec<Vec<ScorePoint>>,
    prescribed: Vec<Vec<f64>>,
}

impl Variants {
    /// `name` is the persona's; the distractors are the personas that come with the program and are called otherwise.
    pub(super) fn new(conversation: &Conversation, config: &PersonaConfig, name: &str) -> Self {
        let others = examples().iter().filter_map(|example| parse(example.path, example.yaml).ok());
        let others = others.filter(|other| other.persona.name != name);
        let dimensions = config.trajectory.dimensions.clone();
        Self {
            distractors: others.filter_map(|other| conversation.assembler_for(Arc::new(other)).ok()).collect(),
            ceiling: config.safety.intensity_ceiling,
            identification: Vec::new(),
            sections: Default::default(),
            stance: Vec::new(),
            expressed: vec![Vec::new(); dimensions.len()],
            prescribed: vec![Vec::new(); dimensions.len()],
            dimensions,
        }
    }

    /// Records that nothing can be computed on this turn.
    pub(super) fn skip(&mut self, turn: &Turn, why: &str) {
        let lists = [&mut self.identification, &mut self.stance].into_iter();
        let lists = lists.chain(&mut self.sections).chain(&mut self.expressed);
        lists.for_each(|points| points.push(point((turn.index, turn.index), Err(why.to_owned()))));
        self.prescribed.iter_mut().zip(&turn.intensities).for_each(|(all, now)| all.push(now.value));
    }

    /// Scores the turn's reply under every variant.
    pub(super) async fn read(&mut self, scorer: &RolloutScorer<'_>, turn: &Turn, heard: &ReplayedTurn) {
        let situation = TurnInput {
            turn: turn.index,
            persona_messages: &heard.persona_messages,
            interlocutor_messages: &heard.interlocutor_messages,
            findings: &heard.findings,
        };
        let placement = match &scorer.conversation {
            Conversation::Spoken(_) => scorer.input.transcript.opening.placement,
            Conversation::Read(replay) => replay.placement(),
        };
        let told = |plan: &TurnPlan| Instructions::of(plan, placement);
        let own = told(&heard.plan);
        let others: Vec<_> = self.distractors.iter().map(|other| told(&other.plan(&situation))).collect();
        let without = own.without_sections(&heard.plan);
        let stances = [HOLDS, GIVES_IN].map(|sentence| own.with(sentence));
        let grids: Vec<Vec<(f64, Instructions)>> = self
            .dimensions
            .iter()
            .map(|dimension| {
                let at = |value| scorer.conversation.assembler().plan_with(&situation, &[(&dimension.name, value)]);
                let values = grid(dimension.min, dimension.max.min(self.ceiling));
                values.map(|value| (value, told(&at(value)))).collect()
            })
            .collect();

        let all = std::iter::once(&own).chain(&others).chain(without.iter().flatten()).chain(&stances);
        let all: BTreeSet<&Instructions> = all.chain(grids.iter().flatten().map(|(_, variant)| variant)).collect();
        let ids = scorer.ids(&turn.persona);
        let positions = all.iter().map(|variant| under(scorer, variant, ids.as_deref(), heard)).collect();
        let read = read(scorer.input.model.as_ref(), positions).await.into_iter();
        let read = read.map(|result| Ok(logprobs(&result.and_then(|found| only(found.replies))?)?.iter().sum()));
        let read: BTreeMap<&Instructions, Result<f64, String>> = all.into_iter().zip(read).collect();
        let of = |variant: &Instructions| read.get(variant).cloned().unwrap_or_else(|| Err(UNREAD.to_owned()));
        let count = ids.as_ref().map_or(1, |ids| ids.len()).max(1) as f64;

        let at = (turn.index, turn.index);
        let all: Result<Vec<f64>, String> = std::iter::once(&own).chain(&others).map(of).collect();
        let chosen = all.map(|all| softmax(&all).first().copied().unwrap_or_default());
        self.identification.push(point(at, chosen));
        for (points, without) in self.sections.iter_mut().zip(&without) {
            let gain = match without {
                Some(without) => of(&own).and_then(|own| Ok((own - of(without)?) / count)),
                None => Err("the prompt has no such section".to_owned()),
            };
            points.push(point(at, gain));
        }
        let [holds, gives_in] = stances.each_ref().map(of);
        let stance = holds.and_then(|holds| Ok((holds - gives_in?) / count));
        self.stance.push(point(at, stance));
        for (((points, prescribed), grid), now) in
            self.expressed.iter_mut().zip(&mut self.prescribed).zip(&grids).zip(&turn.intensities)
        {
            prescribed.push(now.value);
            let each: Result<Vec<f64>, String> = grid.iter().map(|(_, variant)| of(variant)).collect();
            points.push(match each {
                Ok(each) => {
                    let values: Vec<f64> = grid.iter().map(|(value, _)| *value).collect();
                    let (mean, interval) = posterior(&values, &each);
                    ScorePoint { interval: Some(interval), ..point(at, Ok(mean)) }
                }
                Err(why) => point(at, Err(why)),
            });
        }
    }

    /// The scores over the sampled turns.
    pub(super) fn scores(self, score_judge: &ScoreJudge, likelihood_set: LikelihoodSet) -> Vec<Score> {
        let sample = Some(likelihood_set.sample());
        let score = |id, points| definition(id, None, sample, Some(score_judge.clone())).over(points);
        let mut scores = vec![score(IDENTIFICATION, self.identification)];
        scores.extend(SECTIONS.iter().zip(self.sections).map(|(id, points)| score(id, points)));
        scores.push(score(STANCE, self.stance));
        for ((dimension, points), prescribed) in self.dimensions.iter().zip(self.expressed).zip(self.prescribed) {
            let pairs =
                points.iter().zip(&prescribed).filter_map(|(point, prescribed)| Some((point.value?, *prescribed)));
            let (expressed, prescribed): (Vec<f64>, Vec<f64>) = pairs.unzip();
            let of = |id| definition(id, Some(&dimension.name), sample, Some(score_judge.clone()));
            scores.push(of(EXPRESSED).over(points));
            scores.push(of(RMSE).whole(rmse(&expressed, &prescribed), || "no turn was read".to_owned()));
            scores.push(of(SPEARMAN).whole(spearman(&expressed, &prescribed), || {
                "fewer than two turns were read, or one of the two never changed".to_owned()
            }));
        }
        scores
    }
}

/// What the model is told before a reply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Instructions {
    /// Above the history.
    first: String,
    /// Directly before the reply; empty where everything is above the history.
    last: String,
}

impl Instructions {
    fn of(plan: &TurnPlan, placement: PlacementUsed) -> Self {
        let (first, last) = placement.instructions(plan);
        Self { first: first.to_owned(), last: last.to_owned() }
    }

    /// The instructions with one more sentence at their end.
    fn with(&self, sentence: &str) -> Self {
        let Self { mut first, mut last } = self.clone();
        let end = if last.is_empty() { &mut first } else { &mut last };
        end.push('\n');
        end.push_str(sentence);
        Self { first, last }
    }

    /// The instructions without the rules, without the manner and without the background; `None` for a section that they
    /// do not have. The state is one of the rules.
    fn without_sections(&self, plan: &TurnPlan) -> [Option<Self>; 3] {
        let Self { first, last } = self;
        let rules = plan.sections.must_do.trim();
        let rules = match rules.strip_suffix(last.as_str()).map(str::trim) {
            Some("") => Some(first.clone()),
            Some(of_whole_run) => without(first, of_whole_run),
            None => None,
        };
        [
            rules.map(|first| Self { first, last: String::new() }),
            without(first, &plan.sections.how).map(|first| Self { first, last: last.clone() }),
            without(first, &plan.sections.context).map(|first| Self { first, last: last.clone() }),
        ]
    }
}

/// The reply with the tokens `ids` after `instructions` and the history.
fn under(
    scorer: &RolloutScorer<'_>,
    instructions: &Instructions,
    ids: Result<&[TokenId], &String>,
    heard: &ReplayedTurn,
) -> Result<ScorePosition<'static>, String> {
    let history = heard.messages.iter().filter(|message| message.role != Role::System).cloned();
    let system = |text: &String| (!text.is_empty()).then(|| Message::system(text.as_str()));
    let messages: Vec<Message> =
        system(&instructions.first).into_iter().chain(history).chain(system(&instructions.last)).collect();
    let ids = ids.map_err(Clone::clone)?.to_vec();
    scorer.position(&messages, vec![CandidateReply { ids, gains: heard.gains.clone() }])
}

/// `prompt` without one of its sections.
fn without(prompt: &str, section: &str) -> Option<String> {
    let section = section.trim();
    (!section.is_empty() && prompt.contains(section)).then(|| prompt.replacen(section, "", 1).trim().to_owned())
}

fn grid(low: f64, high: f64) -> impl Iterator<Item = f64> {
    (0..GRID).map(move |step| low + (high - low) * step as f64 / (GRID - 1) as f64)
}

/// p ∝ exp(logs), summing to 1.
fn softmax(logs: &[f64]) -> Vec<f64> {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let each: Vec<f64> = logs.iter().map(|log| libm::exp(log - most)).collect();
    let sum: f64 = each.iter().sum();
    each.iter().map(|p| p / sum).collect()
}

/// The mean and the central 90 % of p(v | reply) ∝ p(reply | v), with a uniform prior over the values.
fn posterior(values: &[f64], logs: &[f64]) -> (f64, Interval) {
    let weights = softmax(logs);
    let mean = values.iter().zip(&weights).map(|(value, weight)| value * weight).sum();
    let mut below = 0.0;
    let (mut low, mut high) = (None, None);
    for (value, weight) in values.iter().zip(&weights) {
        below += weight;
        if below > TAIL {
            low = low.or(Some(*value));
        }
        if below >= 1.0 - TAIL {
            high = high.or(Some(*value));
        }
    }
    let last = values.last().copied().unwrap_or_default();
    (mean, Interval { low: low.unwrap_or(last), high: high.unwrap_or(last) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_posterior_of_a_flat_likelihood_is_the_whole_range_and_of_a_sharp_one_a_point() {
        let values: Vec<f64> = grid(0.0, 0.8).collect();
        let (mean, interval) = posterior(&values, &[-40.0; GRID]);
        assert!((mean - 0.4).abs() < 1e-12, "{mean}");
        assert_eq!(interval, Interval { low: 0.0, high: 0.8 });
        let mut sharp = [-900.0; GRID];
        sharp[6] = -20.0;
        let (mean, interval) = posterior(&values, &sharp);
        assert!((mean - values[6]).abs() < 1e-12, "{mean}");
        assert_eq!((interval.low.to_bits(), interval.high.to_bits()), (values[6].to_bits(), values[6].to_bits()));
    }

    #[test]
    fn a_section_is_removed_completely_or_not_at_all() {
        assert_eq!(without("# MUST\nx\n\n# HOW\ny", "# MUST\nx\n").as_deref(), Some("# HOW\ny"));
        assert_eq!(without("a b", ""), None);
        assert_eq!(without("a b", "c"), None);
    }
}
