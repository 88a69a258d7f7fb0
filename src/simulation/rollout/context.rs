//! What all rollouts of a run share: the configuration, the models and the assembler.

use std::sync::Arc;

use super::adversary::{Adversary, PlannedMessage};
use super::delta::{self, FittedGains};
use super::error::RunError;
use super::forbidden_phrases::{ForbiddenPhraseLogprobs, PhraseLogprob, ReplyStart};
use super::listener::RegulatorListener;
use super::manifest::Manifest;
use super::monitors::Monitors;
use super::participant::{self, StatePlacement};
use super::transcript::{
    ModelRef, Models, Opening, Outcome, PlacementUsed, Quote, RunRef, TRANSCRIPT_FORMAT, TRANSCRIPT_VERSION, Totals,
    Transcript,
};
use crate::foundation::base::RngStream;
use crate::foundation::chat::{DeltaGains, LanguageModel, Message, ModelChain, ModelInfo, Snapshot};
use crate::foundation::gate::CallPermit;
use crate::governance::regulator::{Calibration, CalibrationError};
use crate::inference::engine::Dtype;
use crate::inference::providers;
use crate::simulation::persona::{
    AdversaryKind, Assembler, DeltaPolicy, PersonaConfig, Placement, PromptBudget, RegulatorConfig, Speaker, TurnInput,
    TurnPlan,
};

pub(super) struct RolloutContext {
    pub(super) config: Arc<PersonaConfig>,
    pub(super) seed: u64,
    pub(super) assembler: Assembler,
    pub(super) persona: Arc<dyn LanguageModel>,
    pub(super) interlocutor: Arc<dyn LanguageModel>,
    pub(super) interlocutor_prompt: String,
    pub(super) first_speaker: Speaker,
    pub(super) regulation: RegulatorConfig,
    calibration: Option<Calibration>,
    delta: DeltaPolicy,
    placement: PlacementUsed,
    adversary: Option<Adversary>,
    /// The persona's forbidden phrases, if its model gives log-probabilities.
    forbidden_phrases: Option<ForbiddenPhraseLogprobs>,
}

/// Settings of a run other than its configuration and models.
#[derive(Clone, Copy, Default)]
pub(super) struct RunSettings<'s> {
    pub(super) seed: u64,
    pub(super) turns: usize,
    pub(super) adversary: AdversaryKind,
    /// The text of a user-supplied adversary file.
    pub(super) script: Option<&'s str>,
    pub(super) regulation: RegulatorConfig,
    pub(super) calibration: Option<&'s Calibration>,
    /// The gains of the file that the configuration names, if any.
    pub(super) fitted: Option<&'s FittedGains>,
}

impl<'s> RunSettings<'s> {
    pub(super) fn of(manifest: &'s Manifest) -> Self {
        Self {
            seed: manifest.seed,
            turns: manifest.turns,
            adversary: manifest.adversary,
            script: manifest.adversary_script.as_deref(),
            regulation: manifest.regulator,
            calibration: manifest.calibration.as_ref(),
            fitted: manifest.fitted_gains.as_ref(),
        }
    }
}

impl RolloutContext {
    pub(super) fn new(
        config: Arc<PersonaConfig>,
        setting: RunSettings<'_>,
        persona: Arc<dyn LanguageModel>,
        interlocutor: Arc<dyn LanguageModel>,
    ) -> Result<Self, RunError> {
        let RunSettings { seed, turns, adversary, script, regulation, calibration, fitted } = setting;
        if let Some(calibration) = calibration {
            check_calibration(calibration, persona.info(), interlocutor.info())?;
        }
        let delta = delta::resolved(&config.delta, fitted, persona.info())?;
        let assembler = Assembler::new(Arc::clone(&config), turns, prompt_budget(&persona))?;
        let interaction = &config.interaction;
        let placement = match interaction.injection.placement {
            Placement::System => PlacementUsed::System,
            _ if !takes_later_instructions(persona.as_ref()) => PlacementUsed::SystemForTemplate,
            Placement::Replace => PlacementUsed::Replace,
            Placement::Append => PlacementUsed::Append,
        };
        let adversary = Adversary::new(adversary, script, &config, &interlocutor)?;
        let interlocutor_prompt = adversary
            .as_ref()
            .map_or_else(|| interaction.target_prompt.clone(), |adversary| adversary.prompt().to_owned());
        let phrases = &interaction.anti_capitulation.forbidden_phrases;
        let vocabulary = persona.vocabulary().filter(|_| persona.info().logprobs && !phrases.is_empty());
        // A phrase that cannot be tokenised is reported when the transcript is scored.
        let forbidden_phrases =
            vocabulary.and_then(|vocabulary| ForbiddenPhraseLogprobs::new(phrases, vocabulary).ok());
        let first_speaker = if interaction.opening.is_some() { Speaker::Persona } else { interaction.first_speaker };
        let first = assembler.plan(&TurnInput::new(0, &[]));
        let opening = interaction.opening.iter().map(|text| Message::user(text.clone()));
        let told: Vec<Message> = [first.opening, first.state].map(Message::system).into_iter().chain(opening).collect();
        check_window("persona", persona.as_ref(), &told)?;
        check_window("interlocutor", interlocutor.as_ref(), &[Message::system(interlocutor_prompt.clone())])?;
        Ok(Self {
            config,
            seed,
            assembler,
            persona,
            interlocutor,
            interlocutor_prompt,
            first_speaker,
            regulation,
            calibration: calibration.cloned(),
            delta,
            placement,
            adversary,
            forbidden_phrases,
        })
    }

    /// The assembler of another persona, for the same model and number of turns.
    pub(super) fn assembler_for(&self, config: Arc<PersonaConfig>) -> Result<Assembler, RunError> {
        Ok(Assembler::new(config, self.assembler.turns(), prompt_budget(&self.persona))?)
    }

    /// A new regulator listener for one side.
    pub(super) fn listener(&self, speaker: Speaker) -> RegulatorListener {
        let model = match speaker {
            Speaker::Persona => &self.persona,
            Speaker::Interlocutor => &self.interlocutor,
        };
        RegulatorListener::new(speaker, model.info(), self.regulation, self.calibration.as_ref())
    }

    /// How the state reaches the persona's model.
    pub(super) const fn state_placement(&self) -> StatePlacement {
        match self.placement {
            PlacementUsed::Replace => StatePlacement::Replace,
            PlacementUsed::Append => StatePlacement::Append,
            PlacementUsed::System | PlacementUsed::SystemForBudget | PlacementUsed::SystemForTemplate => {
                StatePlacement::System
            }
        }
    }

    /// The gains of the planned turn; `listener` has processed the turns before it.
    pub(super) fn gains(&self, plan: &TurnPlan, listener: &RegulatorListener) -> Option<DeltaGains> {
        delta::gains(&self.delta, &self.config, &plan.intensities, &listener.signals(), self.persona.info())
    }

    /// Whether the gains can differ between turns.
    pub(super) fn gains_vary(&self) -> bool {
        matches!(self.delta, DeltaPolicy::Trajectory { .. } | DeltaPolicy::Regulator(_))
    }

    /// The start of the persona's reply: after `messages`, whose state is `before`. `None` if forbidden phrases are not
    /// scored.
    pub(super) fn reply_start(
        &self,
        before: Option<Snapshot>,
        gains: Option<&DeltaGains>,
        messages: impl FnOnce() -> Vec<Message>,
    ) -> Option<ReplyStart> {
        let (_, after) = self.forbidden_phrases.as_ref().zip(before)?;
        let before = self.persona.vocabulary()?.chat_to_answer(&messages()).ok()?;
        Some(ReplyStart { before, after, gains: gains.cloned() })
    }

    /// The log-probabilities of the forbidden phrases at the start of the reply. If they cannot be computed here, scoring
    /// computes them later.
    pub(super) async fn phrase_logprobs_at(
        &self,
        start: Option<ReplyStart>,
        permit: Option<CallPermit>,
    ) -> Option<Vec<PhraseLogprob>> {
        let (forbidden_phrases, ReplyStart { before, after, gains }) = self.forbidden_phrases.as_ref().zip(start)?;
        let read = forbidden_phrases.score(self.persona.as_ref(), &before, Some(after), gains.as_ref(), permit).await;
        read.ok().map(|(read, _)| read)
    }

    /// The adversary's message of turn `turn`, if there is an adversary.
    pub(super) fn adversary(
        &self,
        turn: usize,
        persona_messages: &[String],
        used: &[Quote],
        stream: RngStream,
    ) -> Option<PlannedMessage> {
        self.adversary.as_ref()?.plan(turn, persona_messages, used, stream.child("strategy", 0))
    }

    /// The probe questions after turn `turn`.
    pub(super) fn probes(&self, turn: usize) -> Vec<String> {
        self.adversary.iter().flat_map(|adversary| adversary.probes(turn)).collect()
    }

    /// The transcript of rollout number `rollout` before its first turn.
    pub(super) fn new_transcript(&self, manifest: &Manifest, rollout: usize, created_at: String) -> Transcript {
        Transcript {
            format: TRANSCRIPT_FORMAT.to_owned(),
            version: TRANSCRIPT_VERSION,
            loom: manifest.loom.clone(),
            created_at,
            notes: Vec::new(),
            config: manifest.config.clone(),
            run: RunRef {
                seed: Some(manifest.seed),
                rollout,
                turns_planned: manifest.turns,
                adversary: manifest.adversary,
            },
            models: Models {
                persona: manifest.models.persona.clone(),
                interlocutor: manifest.models.interlocutor.clone(),
            },
            opening: Opening {
                first_speaker: self.first_speaker,
                words: self.config.interaction.opening.clone(),
                interlocutor_prompt: self.interlocutor_prompt.clone(),
                placement: self.placement,
            },
            monitors: Some(Monitors::new(Some(&self.config)).names()),
            turns: Vec::new(),
            outcome: Outcome::Unfinished,
            totals: Totals::default(),
            scores: Vec::new(),
        }
    }
}

/// A calibration must apply to at least one of the two models; the error names the persona's.
fn check_calibration(
    calibration: &Calibration,
    persona: &ModelInfo,
    interlocutor: &ModelInfo,
) -> Result<(), CalibrationError> {
    let of = |model: &ModelInfo| calibration.check_model(&model.name, model.digest, model.template);
    of(persona).or_else(|error| of(interlocutor).map_err(|_| error))
}

/// Whether the model's chat template gives a system message after the first user message to the model. Hosted models, whose
/// templates are unknown, are assumed not to; models without any (scripted ones) are given all messages.
pub(super) fn takes_later_instructions(model: &dyn LanguageModel) -> bool {
    let Some(vocabulary) = model.vocabulary() else {
        let chain = model.info().name.parse::<ModelChain>();
        return chain.is_ok_and(|chain| chain.specs().all(|spec| providers::host(spec).is_none()));
    };
    let talk = [Message::system("a"), Message::user("b"), Message::assistant("c"), Message::user("d")];
    let mut later = talk.to_vec();
    later.push(Message::system("e"));
    match (vocabulary.chat(&talk), vocabulary.chat(&later)) {
        (Ok(without), Ok(with)) => without != with,
        _ => false,
    }
}

/// A role's first prompt must fit into its model's window with room for a reply.
fn check_window(role: &'static str, model: &dyn LanguageModel, told: &[Message]) -> Result<(), RunError> {
    let info = model.info();
    let (Some(window), Some(tokens)) = (info.window_tokens, model.count(told)) else { return Ok(()) };
    let window =
        window.saturating_sub(participant::sampling(model).max_tokens + info.thought_tokens_max().unwrap_or_default());
    if tokens <= window {
        return Ok(());
    }
    Err(RunError::PromptTooLong { role, model: info.name.clone(), tokens, window })
}

/// The prompt budget that the model states, if any.
pub(super) fn prompt_budget(model: &Arc<dyn LanguageModel>) -> Option<PromptBudget> {
    let tokens_max = model.info().prompt_tokens_max?;
    model.count(&[])?;
    let model = Arc::clone(model);
    // A text that the model cannot count is treated as too long.
    let count = move |text: &str| model.count(&[Message::system(text)]).unwrap_or(usize::MAX);
    Some(PromptBudget { tokens_max, count: Arc::new(count) })
}

/// The record of a model as a run uses it.
pub(super) fn model_ref(chain: &ModelChain, dtype: Option<Dtype>, model: &dyn LanguageModel) -> ModelRef {
    let dtype = dtype.map(|dtype| dtype.to_string());
    ModelRef {
        spec: chain.to_string(),
        dtype,
        info: model.info().clone(),
        sampling: Some(participant::sampling(model)),
    }
}
