//! What all rollouts of a run share: the configuration, the models, the assembler, who plays whom.

use std::sync::Arc;

use super::adversary::{Adversary, Planned};
use super::beginnings::{Beginning, Beginnings, Place};
use super::delta::{self, FittedGains};
use super::manifest::Manifest;
use super::run::RunError;
use super::side;
use super::transcript::{
    ModelRef, Models, Opening, Outcome, PlacementUsed, RunRef, TRANSCRIPT_FORMAT, TRANSCRIPT_VERSION, Totals,
    Transcript,
};
use super::watch::Watch;
use crate::foundation::base::Stream;
use crate::foundation::chat::{DeltaGains, LanguageModel, Message, ModelChain, ModelInfo, Snapshot};
use crate::governance::regulator::{Calibration, CalibrationError};
use crate::inference::engine::Dtype;
use crate::simulation::persona::{
    AdversaryKind, Assembler, DeltaPolicy, PersonaConfig, Placement, PromptBudget, Regulation, Speaker, TurnPlan,
};

pub(super) struct Stage {
    pub(super) config: Arc<PersonaConfig>,
    pub(super) seed: u64,
    pub(super) assembler: Assembler,
    pub(super) persona: Arc<dyn LanguageModel>,
    pub(super) interlocutor: Arc<dyn LanguageModel>,
    pub(super) interlocutor_prompt: String,
    pub(super) first_speaker: Speaker,
    pub(super) regulation: Regulation,
    calibration: Option<Calibration>,
    delta: DeltaPolicy,
    placement: PlacementUsed,
    adversary: Option<Adversary>,
    /// What the persona must not say, where its model tells how likely it would have been.
    beginnings: Option<Beginnings>,
}

/// How a run is set, beside its configuration and its models.
#[derive(Clone, Copy, Default)]
pub(super) struct Setting<'s> {
    pub(super) seed: u64,
    pub(super) turns: usize,
    pub(super) adversary: AdversaryKind,
    /// The text of the adversary's own file.
    pub(super) script: Option<&'s str>,
    pub(super) regulation: Regulation,
    pub(super) calibration: Option<&'s Calibration>,
    /// What a file of fitted gains holds, where the configuration names one.
    pub(super) fitted: Option<&'s FittedGains>,
}

impl<'s> Setting<'s> {
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

impl Stage {
    pub(super) fn new(
        config: Arc<PersonaConfig>,
        setting: Setting<'_>,
        persona: Arc<dyn LanguageModel>,
        interlocutor: Arc<dyn LanguageModel>,
    ) -> Result<Self, RunError> {
        let Setting { seed, turns, adversary, script, regulation, calibration, fitted } = setting;
        if let Some(calibration) = calibration {
            holds(calibration, persona.info(), interlocutor.info())?;
        }
        let delta = delta::resolved(&config.delta, fitted, persona.info())?;
        let assembler = Assembler::new(Arc::clone(&config), turns, budget(&persona))?;
        let interaction = &config.interaction;
        let placement = match interaction.injection.placement {
            Placement::System => PlacementUsed::System,
            Placement::Append if persona.info().prompt_tokens_max.is_some() => PlacementUsed::SystemForBudget,
            Placement::Append => PlacementUsed::Append,
        };
        let adversary = Adversary::new(adversary, script, &config, &interlocutor)?;
        let interlocutor_prompt = adversary
            .as_ref()
            .map_or_else(|| interaction.target_prompt.clone(), |adversary| adversary.prompt().to_owned());
        let phrases = &interaction.anti_capitulation.forbidden_phrases;
        let vocabulary = persona.vocabulary().filter(|_| persona.info().logprobs && !phrases.is_empty());
        // Phrases that have no tokens are no part of a conversation: whoever scores it says so.
        let beginnings = vocabulary.and_then(|vocabulary| Beginnings::new(phrases, vocabulary).ok());
        let first_speaker = if interaction.opening.is_some() { Speaker::Persona } else { interaction.first_speaker };
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
            beginnings,
        })
    }

    /// The prompts of another persona, for the same model and as many turns.
    pub(super) fn other(&self, config: Arc<PersonaConfig>) -> Result<Assembler, RunError> {
        Ok(Assembler::new(config, self.assembler.turns(), budget(&self.persona))?)
    }

    /// A regulator for one side.
    pub(super) fn watch(&self, speaker: Speaker) -> Watch {
        let model = match speaker {
            Speaker::Persona => &self.persona,
            Speaker::Interlocutor => &self.interlocutor,
        };
        Watch::new(speaker, model.info(), self.regulation, self.calibration.as_ref())
    }

    /// Whether instructions are put into the opening of the persona's conversation instead of behind its history.
    pub(super) fn rewrites_opening(&self) -> bool {
        self.placement != PlacementUsed::Append
    }

    /// The gains of the turn that `plan` is for; `watch` has heard the turns before it.
    pub(super) fn gains(&self, plan: &TurnPlan, watch: &Watch) -> Option<DeltaGains> {
        delta::gains(&self.delta, &self.config, &plan.intensities, &watch.signals(), self.persona.info())
    }

    /// Whether the gains move from turn to turn.
    pub(super) fn gains_vary(&self) -> bool {
        matches!(self.delta, DeltaPolicy::Trajectory { .. } | DeltaPolicy::Regulator(_))
    }

    /// Where the persona began to speak: behind `messages`, of which `before` has been read. `None` where nothing is read
    /// there.
    pub(super) fn place(
        &self,
        before: Option<Snapshot>,
        gains: Option<&DeltaGains>,
        messages: impl FnOnce() -> Vec<Message>,
    ) -> Option<Place> {
        let (_, after) = self.beginnings.as_ref().zip(before)?;
        let before = self.persona.vocabulary()?.chat(&messages()).ok()?;
        Some(Place { before, after, gains: gains.cloned() })
    }

    /// How likely the persona was to begin with what it must not say. What cannot be read is left to whoever scores.
    pub(super) async fn beginnings_at(&self, place: Option<Place>) -> Option<Vec<Beginning>> {
        let (beginnings, Place { before, after, gains }) = self.beginnings.as_ref().zip(place)?;
        let read = beginnings.read(self.persona.as_ref(), &before, Some(after), gains.as_ref()).await;
        read.ok().map(|(read, _)| read)
    }

    /// What the adversary tries in turn `turn`, if there is one.
    pub(super) fn adversary(&self, turn: usize, said: &[String], stream: Stream) -> Option<Planned> {
        self.adversary.as_ref()?.plan(turn, said, stream.child("strategy", 0))
    }

    /// The questions that are put to the persona aside after turn `turn`.
    pub(super) fn probes(&self, turn: usize) -> Vec<String> {
        self.adversary.iter().flat_map(|adversary| adversary.probes(turn)).collect()
    }

    /// A transcript of rollout number `rollout` before its first turn.
    pub(super) fn head(&self, manifest: &Manifest, rollout: usize, created_at: String) -> Transcript {
        Transcript {
            format: TRANSCRIPT_FORMAT.to_owned(),
            version: TRANSCRIPT_VERSION,
            loom: manifest.loom.clone(),
            created_at,
            notes: Vec::new(),
            config: manifest.config.clone(),
            run: RunRef { seed: manifest.seed, rollout, turns_planned: manifest.turns, adversary: manifest.adversary },
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
            turns: Vec::new(),
            outcome: Outcome::Unfinished,
            totals: Totals::default(),
            scores: Vec::new(),
        }
    }
}

/// A calibration must hold for one of the two models at least; what stands against the persona's is told.
fn holds(calibration: &Calibration, persona: &ModelInfo, interlocutor: &ModelInfo) -> Result<(), CalibrationError> {
    let of = |model: &ModelInfo| calibration.holds_for(&model.name, model.digest, model.template);
    of(persona).or_else(|error| of(interlocutor).map_err(|_| error))
}

/// How many tokens of instructions the model takes, and how they are counted.
fn budget(model: &Arc<dyn LanguageModel>) -> Option<PromptBudget> {
    let tokens_max = model.info().prompt_tokens_max?;
    model.count(&[])?;
    let model = Arc::clone(model);
    // A text whose length the model cannot tell counts as too long.
    let count = move |text: &str| model.count(&[Message::system(text)]).unwrap_or(usize::MAX);
    Some(PromptBudget { tokens_max, count: Arc::new(count) })
}

/// A model as a run uses it.
pub(super) fn model_ref(chain: &ModelChain, dtype: Option<Dtype>, model: &dyn LanguageModel) -> ModelRef {
    let dtype = dtype.map(|dtype| dtype.to_string());
    ModelRef { spec: chain.to_string(), dtype, info: model.info().clone(), sampling: side::sampling(model) }
}
