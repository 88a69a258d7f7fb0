//! Scores from the log-probabilities of the persona's replies, computed by the persona's own model, or by another one that
//! reads them. No judge.
//!
//! The replies are fixed and the prompt before them changes. Each changed prompt is a conversation of its own in the
//! model, which is read once. The log-probabilities recorded during the run, of the replies and of the forbidden phrases
//! at their beginning, are reused. The default set is computed on every turn, for all turns at once; [`variants`] are
//! computed on a sample of turns.

mod copying;
mod positions;
mod variants;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use self::copying::copied;
use self::positions::{CandidateReply, PositionResult, ReplyLogprobs, ScorePosition, read};
pub(super) use self::variants::VARIANT_SCORES;
use self::variants::Variants;
use super::points::{ScoreDefinition, is_sampled, point, score_judge};
use super::scorers::{LIKELIHOOD, NEUTRAL, ReplyLikelihoods, logprobs};
use crate::foundation::base::Digest;
use crate::foundation::chat::{Basis, LanguageModel, Message, Role, TokenId, TokenLogprob, Vocabulary};
use crate::simulation::persona::{Assembler, PersonaConfig, Speaker};
use crate::simulation::rollout::{
    ForbiddenPhraseLogprobs, PhraseLogprob, Replay, ReplayedTurn, RunError, Score, ScoreJudge, ScoreMethod, ScorePoint,
    TextReplay, TokenLine, Transcript, Turn, Utterance,
};

/// The share of turns on which the variants are computed, unless all are.
const VARIANTS_RATE: f64 = 0.1;
/// The fewest turns on which the variants are computed, if there are as many: fewer show no trajectory.
const VARIANTS_TURNS_MIN: usize = 8;

/// Which likelihood scores are computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LikelihoodSet {
    /// None.
    Off,
    /// The default set on every turn, the variants on a sample.
    #[default]
    Default,
    /// Everything on every turn.
    Full,
}

impl LikelihoodSet {
    /// The turns on which the variants are computed, as part of a score's definition.
    const fn sample(self) -> &'static str {
        if matches!(self, Self::Full) { "every turn" } else { "one turn in ten, at least eight" }
    }
}

/// A rollout, its configuration and the model that scores it.
#[derive(Clone, Copy)]
pub struct LikelihoodInput<'a> {
    /// The rollout.
    pub transcript: &'a Transcript,
    /// The tokens from its side file.
    pub tokens: &'a [TokenLine],
    /// The persona's configuration.
    pub config: &'a Arc<PersonaConfig>,
    /// The persona's model, or another one that reads its replies.
    pub model: &'a Arc<dyn LanguageModel>,
    /// Whether `model` reads replies that it did not generate: tokens and log-probabilities of the run are not used.
    pub reader: bool,
}

/// The scores and the time they took.
#[derive(Debug)]
pub struct LikelihoodScores {
    /// In the order of `docs/SCORES.md`.
    pub scores: Vec<Score>,
    /// Seconds for the default set.
    pub seconds: f64,
    /// Seconds for the variants.
    pub variants_seconds: f64,
}

/// Computes the likelihood scores of a rollout.
pub async fn scores(input: LikelihoodInput<'_>, likelihood_set: LikelihoodSet) -> LikelihoodScores {
    let mut result = LikelihoodScores { scores: Vec::new(), seconds: 0.0, variants_seconds: 0.0 };
    if likelihood_set == LikelihoodSet::Off {
        return result;
    }
    let mut scorer = match RolloutScorer::new(input) {
        Ok(scorer) => scorer,
        Err(why) => {
            result.scores = missing(input.config, Some(input.model.as_ref()), &why, likelihood_set);
            return result;
        }
    };
    let begun = Instant::now();
    let read = scorer.turns().await;
    result.seconds = begun.elapsed().as_secs_f64();

    let turns = &input.transcript.turns;
    let rate = VARIANTS_RATE.max(VARIANTS_TURNS_MIN as f64 / turns.len() as f64).min(1.0);
    let mut rows: Vec<Vec<ScorePoint>> = Vec::with_capacity(turns.len());
    let mut variants = Variants::new(&scorer.conversation, input.config, &input.transcript.config.name);
    for (turn, read) in turns.iter().zip(read) {
        let at = (turn.index, turn.index);
        if likelihood_set == LikelihoodSet::Full || is_sampled(turn.index, turns.len(), rate) {
            let begun = Instant::now();
            match &read {
                Ok((heard, _)) => variants.read(&scorer, turn, heard).await,
                Err(why) => variants.skip(turn, why),
            }
            result.variants_seconds += begun.elapsed().as_secs_f64();
        }
        rows.push(match read {
            Ok((_, values)) => values.into_iter().map(|value| point(at, value)).collect(),
            Err(why) => LIKELIHOOD.iter().map(|_| point(at, Err(why.clone()))).collect(),
        });
    }
    let by = scorer.score_judge();
    for (index, scorer) in LIKELIHOOD.iter().enumerate() {
        let points = rows.iter().filter_map(|row| row.get(index).cloned()).collect();
        result.scores.push(definition(scorer.info().id, None, scorer.prompt(), Some(by.clone())).over(points));
    }
    result.scores.extend(variants.scores(&by, likelihood_set));
    result
}

/// All likelihood scores of a configuration without values, for the reason `why`.
pub fn missing(
    config: &PersonaConfig,
    model: Option<&dyn LanguageModel>,
    why: &str,
    likelihood_set: LikelihoodSet,
) -> Vec<Score> {
    let judge = model.map(|model| score_judge(model.info(), None));
    let default = LIKELIHOOD.iter().map(|scorer| (scorer.info().id, None, scorer.prompt()));
    let variants = variants::ids(config).map(|(id, dimension)| (id, dimension, Some(likelihood_set.sample())));
    let all = default.chain(variants);
    all.map(|(id, dimension, prompt)| definition(id, dimension, prompt, judge.clone()).whole(None, || why.to_owned()))
        .collect()
}

fn definition<'a>(
    id: &'a str,
    dimension: Option<&'a str>,
    prompt: Option<&str>,
    judge: Option<ScoreJudge>,
) -> ScoreDefinition<'a> {
    ScoreDefinition {
        id,
        dimension,
        method: ScoreMethod::Likelihood,
        judge,
        prompt: prompt.map(Digest::of),
        about: None,
    }
}

/// Scores one rollout.
struct RolloutScorer<'a> {
    input: LikelihoodInput<'a>,
    vocabulary: &'a dyn Vocabulary,
    conversation: Conversation,
    beginnings: ForbiddenPhraseLogprobs,
}

/// What the model is given before each reply.
enum Conversation {
    /// What it was given in the run.
    Spoken(Box<Replay>),
    /// The messages of another model.
    Read(TextReplay),
}

impl Conversation {
    fn assembler(&self) -> &Assembler {
        match self {
            Self::Spoken(replay) => replay.assembler(),
            Self::Read(replay) => replay.assembler(),
        }
    }

    fn assembler_for(&self, config: Arc<PersonaConfig>) -> Result<Assembler, RunError> {
        match self {
            Self::Spoken(replay) => replay.assembler_for(config),
            Self::Read(replay) => replay.assembler_for(config),
        }
    }
}

/// A turn with a reply, and what the model was given before it.
struct ReplyContext<'a> {
    heard: ReplayedTurn,
    ids: Cow<'a, [TokenId]>,
    /// The recorded log-probabilities of the reply, if in the side file.
    recorded: Option<Vec<TokenLogprob>>,
    /// The recorded log-probabilities of the forbidden phrases, if in the side file.
    beginnings: Option<Vec<PhraseLogprob>>,
}

/// The values of one turn, in the order of [`LIKELIHOOD`].
type DefaultValues = Vec<Result<f64, String>>;

impl<'a> RolloutScorer<'a> {
    fn new(input: LikelihoodInput<'a>) -> Result<Self, String> {
        let (recorded, info) = (&input.transcript.models.persona, input.model.info());
        let vocabulary = input.model.vocabulary().filter(|_| info.logprobs);
        let vocabulary = vocabulary
            .ok_or_else(|| format!("`{}` gives no log-probabilities of a text that it is given", info.name))?;
        let conversation = if input.reader {
            TextReplay::new(input.transcript, Arc::clone(input.config), input.model).map(Conversation::Read)
        } else if recorded.info.digest == info.digest {
            let replay = Replay::new(input.transcript, input.config, input.model);
            replay.map(|replay| Conversation::Spoken(Box::new(replay)))
        } else {
            return Err(format!("`{}` is not the model that spoke: its digest has changed", info.name));
        };
        let beginnings =
            ForbiddenPhraseLogprobs::new(&input.config.interaction.anti_capitulation.forbidden_phrases, vocabulary);
        Ok(Self {
            conversation: conversation.map_err(|error| error.to_string())?,
            beginnings: beginnings.map_err(|error| error.to_string())?,
            vocabulary,
            input,
        })
    }

    fn score_judge(&self) -> ScoreJudge {
        score_judge(self.input.model.info(), None)
    }

    /// The default set on every turn.
    async fn turns(&mut self) -> Vec<Result<(ReplayedTurn, DefaultValues), String>> {
        let LikelihoodInput { transcript, model, .. } = self.input;
        let (turns, model) = (&transcript.turns, model.as_ref());
        // The replies without a history are scored while the turns are replayed.
        let candidates = turns.iter().filter_map(|turn| {
            let ids = self.ids(&turn.persona).ok()?.into_owned();
            Some(CandidateReply { ids, gains: turn.gains.clone().filter(|_| !self.input.reader) })
        });
        let alone = read(model, vec![self.position(&[Message::system(NEUTRAL)], candidates.collect())]);
        let (mut alone, (contexts, real, neutral)) = tokio::join!(alone, self.in_context());
        let alone = alone.pop().unwrap_or_else(|| Err(UNREAD.to_owned())).map(|found| found.replies);
        let mut alone = alone.map(Vec::into_iter);
        let mut positions = real.into_iter().zip(neutral);
        let values = turns.iter().zip(contexts).map(|(turn, context)| {
            let alone = self.ids(&turn.persona).and_then(|_| match &mut alone {
                Ok(replies) => replies.next().unwrap_or_else(|| Err(UNREAD.to_owned())),
                Err(why) => Err(why.clone()),
            });
            let context = context?;
            let (real, neutral) = positions.next().ok_or(UNREAD)?;
            let values = context.values(real, neutral.and_then(|found| only(found.replies)), alone)?;
            Ok((context.heard, values))
        });
        values.collect()
    }

    /// The context of each turn; and for each turn with a reply, the results at its own position and under [`NEUTRAL`].
    async fn in_context(
        &mut self,
    ) -> (Vec<Result<ReplyContext<'a>, String>>, Vec<Result<PositionResult, String>>, Vec<Result<PositionResult, String>>)
    {
        let LikelihoodInput { transcript, model, .. } = self.input;
        let mut contexts = Vec::with_capacity(transcript.turns.len());
        for turn in &transcript.turns {
            contexts.push(self.context(turn).await);
        }
        let all = || contexts.iter().flatten();
        let known = all().all(|context| context.recorded.is_some() && context.beginnings.is_some());
        let real = all().map(|context| if known { Ok(ScorePosition::default()) } else { self.real(context) }).collect();
        let neutral = all().map(|context| self.neutral(context)).collect();
        let (real, neutral) = tokio::join!(read(model.as_ref(), real), read(model.as_ref(), neutral));
        (contexts, real, neutral)
    }

    /// The context of a turn. Turns must be passed in order.
    async fn context(&mut self, turn: &'a Turn) -> Result<ReplyContext<'a>, String> {
        let ids = self.ids(&turn.persona);
        let heard = match &mut self.conversation {
            Conversation::Spoken(replay) => replay.turn(turn).await.map_err(|error| error.to_string())?,
            // Also a turn without a reply is part of what comes before the next one.
            Conversation::Read(replay) => replay.turn(turn, ids.as_ref().map_or(0, |ids| ids.len())),
        };
        let ids = ids?;
        let line = self.line(turn, &ids);
        let recorded = line.filter(|line| line.basis == Basis::Raw && line.logprob.iter().all(Option::is_some));
        let read = line.and_then(|line| line.phrase_logprobs.clone()).filter(|read| self.beginnings.matches(read));
        let beginnings = if self.beginnings.is_empty() { Some(Vec::new()) } else { read };
        Ok(ReplyContext { heard, ids, recorded: recorded.map(TokenLine::tokens), beginnings })
    }

    /// The position of the reply in the real conversation, with what is not recorded.
    fn real(&self, context: &ReplyContext<'_>) -> Result<ScorePosition<'_>, String> {
        let gains = &context.heard.gains;
        // With gains the reply itself must be read, since it is read under other gains than what follows it.
        let reply = (context.recorded.is_none() || gains.is_some()).then(|| context.reply());
        let beginnings = context.beginnings.is_none().then(|| (&self.beginnings, gains.clone()));
        if reply.is_none() && beginnings.is_none() {
            return Ok(ScorePosition::default());
        }
        Ok(ScorePosition { beginnings, ..self.position(&context.heard.messages, reply.into_iter().collect())? })
    }

    /// The position of the reply with the same history under [`NEUTRAL`].
    fn neutral(&self, context: &ReplyContext<'_>) -> Result<ScorePosition<'static>, String> {
        let history = context.heard.messages.iter().filter(|message| message.role != Role::System).cloned();
        let messages: Vec<Message> = std::iter::once(Message::system(NEUTRAL)).chain(history).collect();
        self.position(&messages, vec![context.reply()])
    }

    fn position(&self, messages: &[Message], replies: Vec<CandidateReply>) -> Result<ScorePosition<'static>, String> {
        let before = self.vocabulary.chat_to_answer(messages).map_err(|error| error.to_string())?;
        Ok(ScorePosition { before, replies, beginnings: None })
    }

    /// The token ids of the reply: those that this model generated, or those into which a reader divides it.
    fn ids<'u>(&self, utterance: &'u Utterance) -> Result<Cow<'u, [TokenId]>, String> {
        if let Some(failure) = &utterance.failure {
            return Err(format!("there is no reply: {}", failure.why));
        }
        if self.input.reader {
            return self.vocabulary.encode(&utterance.content).map(Cow::Owned).map_err(|error| error.to_string());
        }
        let (name, answered) = (&self.input.model.info().name, utterance.model.as_deref().unwrap_or_default());
        if answered != self.input.transcript.models.persona.info.name && answered != name {
            return Err(format!("`{answered}` answered, not `{name}`"));
        }
        match utterance.ids.as_deref() {
            Some(ids) if !ids.is_empty() => Ok(Cow::Borrowed(ids)),
            _ => Err("the reply's token ids are not recorded".to_owned()),
        }
    }

    /// The side file's line with the same ids.
    fn line(&self, turn: &Turn, ids: &[TokenId]) -> Option<&'a TokenLine> {
        let of = |line: &&TokenLine| !self.input.reader && line.turn == turn.index && line.speaker == Speaker::Persona;
        let line = self.input.tokens.iter().find(of)?;
        line.ids.iter().map(|id| id.unwrap_or(TokenId::MAX)).eq(ids.iter().copied()).then_some(line)
    }
}

impl ReplyContext<'_> {
    fn reply(&self) -> CandidateReply {
        CandidateReply { ids: self.ids.to_vec(), gains: self.heard.gains.clone() }
    }

    /// The default set, from recorded values if there are any, else from those computed at the reply's position.
    fn values(
        &self,
        real: Result<PositionResult, String>,
        neutral: ReplyLogprobs,
        alone: ReplyLogprobs,
    ) -> Result<DefaultValues, String> {
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
        let (neutral, alone) =
            (neutral.and_then(|tokens| logprobs(&tokens)), alone.and_then(|tokens| logprobs(&tokens)));
        let reply = ReplyLikelihoods {
            own: &own,
            neutral: &neutral,
            alone: &alone,
            copied: &copying.tokens,
            copy_rate: copying.rate,
            forbidden: &pressure,
        };
        Ok(LIKELIHOOD.iter().map(|scorer| scorer.score(&reply)).collect())
    }
}

/// The reason of a missing value that should have been computed.
const UNREAD: &str = "it was not read (a bug in Loom, please report it)";

/// The result of a position with one reply.
fn only(mut replies: Vec<ReplyLogprobs>) -> ReplyLogprobs {
    replies.pop().unwrap_or_else(|| Err(UNREAD.to_owned()))
}

/// ln of the probability that the reply begins with one of the phrases, none of which is a prefix of another.
fn pressure(phrases: &[PhraseLogprob]) -> Result<f64, String> {
    if phrases.is_empty() {
        return Err("the configuration forbids no phrases".to_owned());
    }
    let each = phrases.iter().map(|phrase| libm::exp(phrase.logprob.iter().copied().map(f64::from).sum()));
    Ok(libm::log(each.sum()))
}
