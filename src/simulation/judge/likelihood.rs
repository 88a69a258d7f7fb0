//! Scores from the log-probabilities of what was said, taken by the persona's own model. No judge.
//!
//! The words stay; what stands before them changes. Each change is a shadow conversation with a state of its own, which
//! is read once, as the real one was. What the model thought of its words when it said them, and of those that it must not
//! begin with, is in the transcript already and is not computed again. The default set is taken on every turn, of all turns
//! at once; [`variants`] are read on a sample.

mod copying;
mod shadow;
mod variants;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use self::copying::copied;
use self::shadow::{Found, Likely, Place, Reply, read};
use self::variants::Variants;
use super::points::{Definition, is_sampled, point, taker};
use crate::foundation::base::Digest;
use crate::foundation::chat::{Basis, LanguageModel, Message, Role, TokenId, TokenLogprob, Vocabulary};
use crate::foundation::stats::mean;
use crate::simulation::persona::{PersonaConfig, Speaker};
use crate::simulation::rollout::{
    Beginning, Beginnings, Heard, Rehearsal, Score, ScoreJudge, ScoreMethod, ScorePoint, TokenLine, Transcript, Turn,
    Utterance,
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
    let begun = Instant::now();
    let read = reading.turns().await;
    taken.seconds = begun.elapsed().as_secs_f64();

    let turns = &subject.transcript.turns;
    let mut rows: Vec<[ScorePoint; 6]> = Vec::with_capacity(turns.len());
    let mut variants = Variants::new(&reading.rehearsal, subject.config, &subject.transcript.config.name);
    for (turn, read) in turns.iter().zip(read) {
        let at = (turn.index, turn.index);
        if extent == Extent::Full || is_sampled(turn.index, turns.len(), VARIANTS_RATE) {
            let begun = Instant::now();
            match &read {
                Ok((heard, _)) => variants.read(&reading, turn, heard).await,
                Err(why) => variants.skip(turn, why),
            }
            taken.variants_seconds += begun.elapsed().as_secs_f64();
        }
        rows.push(match read {
            Ok((_, values)) => values.map(|value| point(at, value)),
            Err(why) => std::array::from_fn(|_| point(at, Err(why.clone()))),
        });
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
    Definition { id, dimension, method: ScoreMethod::Likelihood, judge, prompt: prompt.map(Digest::of), about: None }
}

/// One rollout and its shadows.
struct Reading<'a> {
    subject: Subject<'a>,
    vocabulary: &'a dyn Vocabulary,
    rehearsal: Rehearsal,
    beginnings: Beginnings,
}

/// A turn in which the model spoke, and what it had before it.
struct Spoken<'a> {
    heard: Heard,
    ids: &'a [TokenId],
    /// What the model thought of its words, where that is in the side file.
    recorded: Option<Vec<TokenLogprob>>,
    /// What it thought of those that it must not begin with, likewise.
    beginnings: Option<Vec<Beginning>>,
}

/// The values of one turn, in the order of [`DEFAULT`].
type Values = [Result<f64, String>; 6];

impl<'a> Reading<'a> {
    fn new(subject: Subject<'a>) -> Result<Self, String> {
        let (recorded, info) = (&subject.transcript.models.persona, subject.model.info());
        let vocabulary = subject.model.vocabulary().filter(|_| info.logprobs);
        let vocabulary = vocabulary
            .ok_or_else(|| format!("`{}` gives no log-probabilities of a text that it is given", info.name))?;
        if recorded.info.digest != info.digest {
            return Err(format!("`{}` is not the model that spoke: its digest has changed", info.name));
        }
        let rehearsal = Rehearsal::new(subject.transcript, subject.config, subject.model);
        let beginnings = Beginnings::new(&subject.config.interaction.anti_capitulation.forbidden_phrases, vocabulary);
        Ok(Self {
            rehearsal: rehearsal.map_err(|error| error.to_string())?,
            beginnings: beginnings.map_err(|error| error.to_string())?,
            vocabulary,
            subject,
        })
    }

    fn taker(&self) -> ScoreJudge {
        taker(self.subject.model.info(), None)
    }

    /// The default set on every turn.
    async fn turns(&mut self) -> Vec<Result<(Heard, Values), String>> {
        let Subject { transcript, model, .. } = self.subject;
        let (turns, model) = (&transcript.turns, model.as_ref());
        // By itself each reply is read while the turns are played again.
        let said = turns.iter().filter_map(|turn| {
            let ids = self.ids(&turn.persona).ok()?.to_vec();
            Some(Reply { ids, gains: turn.gains.clone() })
        });
        let alone = read(model, vec![self.place(&[Message::system(NEUTRAL)], said.collect())]);
        let (mut alone, (spoken, real, neutral)) = tokio::join!(alone, self.in_place());
        let alone = alone.pop().unwrap_or_else(|| Err(UNREAD.to_owned())).map(|found| found.replies);
        let mut alone = alone.map(Vec::into_iter);
        let mut shadows = real.into_iter().zip(neutral);
        let values = turns.iter().zip(spoken).map(|(turn, spoken)| {
            let alone = self.ids(&turn.persona).and_then(|_| match &mut alone {
                Ok(replies) => replies.next().unwrap_or_else(|| Err(UNREAD.to_owned())),
                Err(why) => Err(why.clone()),
            });
            let spoken = spoken?;
            let (real, neutral) = shadows.next().ok_or(UNREAD)?;
            let values = spoken.values(real, neutral.and_then(|found| only(found.replies)), alone)?;
            Ok((spoken.heard, values))
        });
        values.collect()
    }

    /// The turns as the model met them, and of those in which it spoke what is found where it did and in the neutral shadow.
    async fn in_place(
        &mut self,
    ) -> (Vec<Result<Spoken<'a>, String>>, Vec<Result<Found, String>>, Vec<Result<Found, String>>) {
        let Subject { transcript, model, .. } = self.subject;
        let mut spoken = Vec::with_capacity(transcript.turns.len());
        for turn in &transcript.turns {
            spoken.push(self.spoken(turn).await);
        }
        let all = || spoken.iter().flatten();
        let known = all().all(|spoken| spoken.recorded.is_some() && spoken.beginnings.is_some());
        let real = all().map(|spoken| if known { Ok(Place::default()) } else { self.real(spoken) }).collect();
        let neutral = all().map(|spoken| self.neutral(spoken)).collect();
        let (real, neutral) = tokio::join!(read(model.as_ref(), real), read(model.as_ref(), neutral));
        (spoken, real, neutral)
    }

    /// A turn as the model met it; they come in order.
    async fn spoken(&mut self, turn: &'a Turn) -> Result<Spoken<'a>, String> {
        let heard = self.rehearsal.turn(turn).await.map_err(|error| error.to_string())?;
        let ids = self.ids(&turn.persona)?;
        let line = self.line(turn, ids);
        let recorded = line.filter(|line| line.basis == Basis::Raw && line.logprob.iter().all(Option::is_some));
        let read = line.and_then(|line| line.beginnings.clone()).filter(|read| self.beginnings.are(read));
        let beginnings = if self.beginnings.is_empty() { Some(Vec::new()) } else { read };
        Ok(Spoken { heard, ids, recorded: recorded.map(TokenLine::tokens), beginnings })
    }

    /// What the model really read: the reply might have begun otherwise here.
    fn real(&self, spoken: &Spoken<'_>) -> Result<Place<'_>, String> {
        let gains = &spoken.heard.gains;
        // What was said under other gains than what follows is read under its own.
        let reply = (spoken.recorded.is_none() || gains.is_some()).then(|| spoken.reply());
        let beginnings = spoken.beginnings.is_none().then(|| (&self.beginnings, gains.clone()));
        if reply.is_none() && beginnings.is_none() {
            return Ok(Place::default());
        }
        Ok(Place { beginnings, ..self.place(&spoken.heard.messages, reply.into_iter().collect())? })
    }

    /// The same history under [`NEUTRAL`].
    fn neutral(&self, spoken: &Spoken<'_>) -> Result<Place<'static>, String> {
        let history = spoken.heard.messages.iter().filter(|message| message.role != Role::System).cloned();
        let messages: Vec<Message> = std::iter::once(Message::system(NEUTRAL)).chain(history).collect();
        self.place(&messages, vec![spoken.reply()])
    }

    fn place(&self, messages: &[Message], replies: Vec<Reply>) -> Result<Place<'static>, String> {
        let before = self.vocabulary.chat(messages).map_err(|error| error.to_string())?;
        Ok(Place { before, replies, beginnings: None })
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

    /// What the side file tells of the same ids.
    fn line(&self, turn: &Turn, ids: &[TokenId]) -> Option<&'a TokenLine> {
        let of = |line: &&TokenLine| line.turn == turn.index && line.speaker == Speaker::Persona;
        let line = self.subject.tokens.iter().find(of)?;
        line.ids.iter().map(|id| id.unwrap_or(TokenId::MAX)).eq(ids.iter().copied()).then_some(line)
    }
}

impl Spoken<'_> {
    fn reply(&self) -> Reply {
        Reply { ids: self.ids.to_vec(), gains: self.heard.gains.clone() }
    }

    /// The default set, from what was recorded, else found at its own place.
    fn values(&self, real: Result<Found, String>, neutral: Likely, alone: Likely) -> Result<Values, String> {
        let (beginnings, computed) = match real {
            Ok(found) => (found.beginnings.unwrap_or_else(|| Err(UNREAD.to_owned())), only(found.replies)),
            Err(why) => (Err(why.clone()), Err(why)),
        };
        let pressure = match &self.beginnings {
            Some(recorded) => pressure(recorded),
            None => beginnings.and_then(|found| pressure(&found)),
        };
        let tokens = match &self.recorded {
            Some(tokens) => tokens,
            None => &computed?,
        };
        let own = logprobs(tokens)?;
        let instructions = self.heard.messages.iter().filter(|message| message.role == Role::System);
        let instructions: Vec<&str> = instructions.map(|message| message.content.as_str()).collect();
        let copying = copied(&instructions.join("\n"), tokens.iter().map(|token| token.text.as_str()));
        let neutral = neutral.and_then(|tokens| logprobs(&tokens));
        let ratio = |keep: &dyn Fn(bool) -> bool| {
            let neutral = neutral.as_ref().map_err(Clone::clone)?;
            let pairs = own.iter().zip(neutral).zip(&copying.tokens);
            let kept = pairs.filter(|(_, copied)| keep(**copied)).map(|((with, without), _)| with - without);
            mean(&kept.collect::<Vec<_>>()).ok_or_else(|| "every word stands in the prompt".to_owned())
        };
        let alone = alone.and_then(|tokens| logprobs(&tokens));
        let gain = alone.and_then(|alone| {
            let neutral = neutral.as_ref().map_err(Clone::clone)?;
            Ok(mean(neutral).unwrap_or_default() - mean(&alone).unwrap_or_default())
        });
        Ok([
            ratio(&|_| true),
            ratio(&|copied| !copied),
            copying.rate.ok_or_else(|| "the reply has no words".to_owned()),
            Ok(-mean(&own).unwrap_or_default()),
            gain,
            pressure,
        ])
    }
}

/// Why something is not known that was never asked: a bug in Loom.
const UNREAD: &str = "it was not read (a bug in Loom, please report it)";

/// The one reply that was asked for.
fn only(mut likely: Vec<Likely>) -> Likely {
    likely.pop().unwrap_or_else(|| Err(UNREAD.to_owned()))
}

/// ln of the probability that the reply begins with any of the phrases, which exclude each other.
fn pressure(phrases: &[Beginning]) -> Result<f64, String> {
    if phrases.is_empty() {
        return Err("the configuration forbids no phrases".to_owned());
    }
    let each = phrases.iter().map(|phrase| libm::exp(phrase.logprob.iter().copied().map(f64::from).sum()));
    Ok(libm::log(each.sum()))
}

fn logprobs(tokens: &[TokenLogprob]) -> Result<Vec<f64>, String> {
    let each: Option<Vec<f64>> = tokens.iter().map(|token| token.logprob.map(f64::from)).collect();
    each.ok_or_else(|| "the model gives no log-probabilities of a text that it is given".to_owned())
}
