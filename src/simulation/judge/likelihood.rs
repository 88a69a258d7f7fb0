//! Scores from the log-probabilities of what was said, taken by the persona's own model. No judge.
//!
//! The words stay; what stands before them changes. Each change is a shadow conversation with a state of its own, which
//! is read once, as the real one was. What the model thought of its words when it said them is in the transcript
//! already and is not computed again. The default set is taken on every turn; [`variants`] are read on a sample.

mod copying;
mod shadow;
mod variants;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use self::copying::copied;
use self::shadow::{Likely, Shadow};
use self::variants::Variants;
use super::points::{Definition, is_sampled, point, taker};
use crate::foundation::base::Digest;
use crate::foundation::chat::{Basis, Continuation, LanguageModel, Message, Role, TokenId, TokenLogprob};
use crate::foundation::stats::mean;
use crate::simulation::persona::{PersonaConfig, Speaker};
use crate::simulation::rollout::{
    Heard, Rehearsal, Score, ScoreJudge, ScoreMethod, ScorePoint, TokenLine, Transcript, Turn, Utterance,
};

/// The prompt of the neutral shadow: someone speaks, and nothing is known of them.
const NEUTRAL: &str = "You are talking with someone.";
/// The share of turns on which the variants are read, unless all are.
const VARIANTS_RATE: f64 = 0.1;

/// How much is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Extent {
    /// Nothing.
    Off,
    /// The default set on every turn, the variants on a sample.
    #[default]
    Default,
    /// Everything on every turn.
    Full,
}

impl Extent {
    /// Which turns the variants are read on.
    const fn sample(self) -> &'static str {
        if matches!(self, Self::Full) { "every turn" } else { "one turn in ten" }
    }
}

/// What is scored, and by whom.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The rollout.
    pub transcript: &'a Transcript,
    /// Its side file.
    pub tokens: &'a [TokenLine],
    /// The persona's configuration.
    pub config: &'a Arc<PersonaConfig>,
    /// The persona's model.
    pub model: &'a Arc<dyn LanguageModel>,
}

/// The scores and what they cost.
#[derive(Debug)]
pub struct Likelihoods {
    /// In the order of `docs/SCORES.md`.
    pub scores: Vec<Score>,
    /// What the default set took, seconds.
    pub seconds: f64,
    /// What the variants took, seconds.
    pub variants_seconds: f64,
}

/// The default set: id, and what defines it beside the transcript.
const DEFAULT: [(&str, Option<&str>); 6] = [
    ("persona_llr/1", Some(NEUTRAL)),
    ("persona_llr_own_words/1", Some(NEUTRAL)),
    ("copy_rate/1", None),
    ("novelty_nll/1", None),
    ("copy_gain/1", Some(NEUTRAL)),
    ("capitulation_pressure/1", None),
];

/// Takes the likelihood scores of a rollout.
pub async fn scores(subject: Subject<'_>, extent: Extent) -> Likelihoods {
    let mut taken = Likelihoods { scores: Vec::new(), seconds: 0.0, variants_seconds: 0.0 };
    if extent == Extent::Off {
        return taken;
    }
    let mut reading = match Reading::new(subject) {
        Ok(reading) => reading,
        Err(why) => {
            taken.scores = missing(subject.config, Some(subject.model.as_ref()), &why, extent);
            return taken;
        }
    };
    let turns = subject.transcript.turns.len();
    let mut rows: Vec<[ScorePoint; 6]> = Vec::with_capacity(turns);
    let mut variants = Variants::new(&reading.rehearsal, subject.config, &subject.transcript.config.name);
    for turn in &subject.transcript.turns {
        let begun = Instant::now();
        let read = match reading.rehearsal.turn(turn).await {
            Ok(heard) => match reading.turn(turn, &heard).await {
                Ok(values) => Ok((heard, values)),
                Err(why) => Err(why),
            },
            Err(error) => Err(error.to_string()),
        };
        taken.seconds += begun.elapsed().as_secs_f64();
        let at = (turn.index, turn.index);
        rows.push(match &read {
            Ok((_, values)) => values.clone().map(|value| point(at, value)),
            Err(why) => std::array::from_fn(|_| point(at, Err(why.clone()))),
        });
        if extent == Extent::Full || is_sampled(turn.index, turns, VARIANTS_RATE) {
            let begun = Instant::now();
            match &read {
                Ok((heard, _)) => variants.read(subject.model.as_ref(), &reading.rehearsal, turn, heard).await,
                Err(why) => variants.skip(turn, why),
            }
            taken.variants_seconds += begun.elapsed().as_secs_f64();
        }
    }
    let by = reading.taker();
    for (index, (id, prompt)) in DEFAULT.iter().enumerate() {
        let points = rows.iter().filter_map(|row| row.get(index).cloned()).collect();
        taken.scores.push(definition(id, None, *prompt, Some(by.clone())).over(points));
    }
    taken.scores.extend(variants.scores(&by, extent));
    taken
}

/// All likelihood scores of a configuration, none of which could be taken.
pub fn missing(config: &PersonaConfig, model: Option<&dyn LanguageModel>, why: &str, extent: Extent) -> Vec<Score> {
    let judge = model.map(|model| taker(model.info(), None));
    let default = DEFAULT.iter().map(|(id, prompt)| (*id, None, *prompt));
    let variants = variants::ids(config).map(|(id, dimension)| (id, dimension, Some(extent.sample())));
    let all = default.chain(variants);
    all.map(|(id, dimension, prompt)| definition(id, dimension, prompt, judge.clone()).whole(None, || why.to_owned()))
        .collect()
}

fn definition<'a>(
    id: &'a str,
    dimension: Option<&'a str>,
    prompt: Option<&str>,
    judge: Option<ScoreJudge>,
) -> Definition<'a> {
    Definition { id, dimension, method: ScoreMethod::Likelihood, judge, prompt: prompt.map(Digest::of) }
}

/// The shadows of one rollout.
struct Reading<'a> {
    subject: Subject<'a>,
    rehearsal: Rehearsal,
    /// What the persona's model really read.
    real: Shadow<'a>,
    /// The same history under [`NEUTRAL`].
    neutral: Shadow<'a>,
    /// [`NEUTRAL`] without any history.
    alone: Shadow<'a>,
    phrases: Vec<String>,
}

impl<'a> Reading<'a> {
    fn new(subject: Subject<'a>) -> Result<Self, String> {
        let (recorded, info) = (&subject.transcript.models.persona, subject.model.info());
        if !info.logprobs {
            return Err(format!("`{}` gives no log-probabilities of a text that it is given", info.name));
        }
        if recorded.info.digest != info.digest {
            return Err(format!("`{}` is not the model that spoke: its digest has changed", info.name));
        }
        let rehearsal = Rehearsal::new(subject.transcript, subject.config, subject.model);
        let model = subject.model.as_ref();
        Ok(Self {
            rehearsal: rehearsal.map_err(|error| error.to_string())?,
            real: Shadow::new(model),
            neutral: Shadow::new(model),
            alone: Shadow::new(model),
            phrases: openings(&subject.config.interaction.anti_capitulation.forbidden_phrases),
            subject,
        })
    }

    fn taker(&self) -> ScoreJudge {
        taker(self.subject.model.info(), None)
    }

    /// The default set on one turn, in the order of [`DEFAULT`].
    async fn turn(&mut self, turn: &Turn, heard: &Heard) -> Result<[Result<f64, String>; 6], String> {
        let utterance = &turn.persona;
        let ids = self.ids(utterance)?;
        let (instructions, history): (Vec<Message>, Vec<Message>) =
            heard.messages.iter().cloned().partition(|message| message.role == Role::System);
        let prompt: Vec<&str> = instructions.iter().map(|message| message.content.as_str()).collect();
        let prompt = prompt.join("\n");
        let alone = vec![Message::system(NEUTRAL)];
        let neutral: Vec<Message> = alone.iter().cloned().chain(history).collect();

        let recorded = self.recorded(turn, ids);
        let gains = heard.gains.as_ref();
        let mut asked: Vec<Continuation> = self.phrases.iter().cloned().map(Continuation::Text).collect();
        if recorded.is_none() {
            asked.push(Continuation::Ids(ids.to_vec()));
        }
        let said = vec![Continuation::Ids(ids.to_vec())];
        let (mut pressures, without_persona, mut without_history) = tokio::join!(
            self.real.stay(heard.messages.clone(), asked, gains),
            self.neutral.go_on(neutral, ids, gains),
            self.alone.stay(alone, said, gains),
        );
        let read_now = if recorded.is_none() { pressures.pop() } else { None };
        let tokens = match (recorded, read_now) {
            (Some(tokens), _) => tokens,
            (None, read) => read.unwrap_or_else(|| Err("it was not read".to_owned()))?,
        };
        let without_history = without_history.pop().unwrap_or_else(|| Err("it was not read".to_owned()));

        let own = logprobs(&tokens)?;
        let (nll, texts) = (-mean(&own).unwrap_or_default(), tokens.iter().map(|token| token.text.as_str()));
        let copying = copied(&prompt, texts);
        let neutral = without_persona.and_then(|tokens| logprobs(&tokens));
        let ratio = |keep: &dyn Fn(bool) -> bool| {
            let neutral = neutral.as_ref().map_err(Clone::clone)?;
            let pairs = own.iter().zip(neutral).zip(&copying.tokens);
            let kept = pairs.filter(|(_, copied)| keep(**copied)).map(|((with, without), _)| with - without);
            mean(&kept.collect::<Vec<_>>()).ok_or_else(|| "every word stands in the prompt".to_owned())
        };
        let alone = without_history.and_then(|tokens| logprobs(&tokens));
        let gain = alone.and_then(|alone| {
            let neutral = neutral.as_ref().map_err(Clone::clone)?;
            Ok(mean(neutral).unwrap_or_default() - mean(&alone).unwrap_or_default())
        });
        Ok([
            ratio(&|_| true),
            ratio(&|copied| !copied),
            copying.rate.ok_or_else(|| "the reply has no words".to_owned()),
            Ok(nll),
            gain,
            pressure(pressures),
        ])
    }

    /// The ids that were said, if this model said them.
    fn ids<'u>(&self, utterance: &'u Utterance) -> Result<&'u [TokenId], String> {
        if let Some(failure) = &utterance.failure {
            return Err(format!("there is no reply: {}", failure.why));
        }
        let (name, answered) = (&self.subject.model.info().name, utterance.model.as_deref().unwrap_or_default());
        if answered != self.subject.transcript.models.persona.info.name && answered != name {
            return Err(format!("`{answered}` answered, not `{name}`"));
        }
        match utterance.ids.as_deref() {
            Some(ids) if !ids.is_empty() => Ok(ids),
            _ => Err("the reply's token ids are not recorded".to_owned()),
        }
    }

    /// What the model thought of its words when it said them: true log-probabilities of the same ids.
    fn recorded(&self, turn: &Turn, ids: &[TokenId]) -> Option<Vec<TokenLogprob>> {
        let of = |line: &&TokenLine| line.turn == turn.index && line.speaker == Speaker::Persona;
        let line = self.subject.tokens.iter().find(of)?;
        let same = line.ids.iter().map(|id| id.unwrap_or(TokenId::MAX)).eq(ids.iter().copied());
        let known = line.basis == Basis::Raw && line.logprob.iter().all(Option::is_some);
        (same && known).then(|| line.tokens())
    }
}

/// How a reply begins with one of `phrases`: with a capital, none of them the beginning of another.
fn openings(phrases: &[String]) -> Vec<String> {
    let capital = |phrase: &String| {
        let mut chars = phrase.trim().chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>())
    };
    let mut all: Vec<String> = phrases.iter().filter_map(capital).collect();
    all.sort();
    all.dedup_by(|later, earlier| later.starts_with(earlier.as_str()));
    all
}

/// ln of the probability that the reply begins with any of the phrases, which exclude each other.
fn pressure(phrases: Vec<Likely>) -> Result<f64, String> {
    if phrases.is_empty() {
        return Err("the configuration forbids no phrases".to_owned());
    }
    let mut sum = 0.0;
    for phrase in phrases {
        sum += libm::exp(logprobs(&phrase?)?.iter().sum());
    }
    Ok(libm::log(sum))
}

fn logprobs(tokens: &[TokenLogprob]) -> Result<Vec<f64>, String> {
    let each: Option<Vec<f64>> = tokens.iter().map(|token| token.logprob.map(f64::from)).collect();
    each.ok_or_else(|| "the model gives no log-probabilities of a text that it is given".to_owned())
}
