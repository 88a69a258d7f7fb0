//! What all rollouts of a run share: the configuration, the models, the assembler, who plays whom.

use std::sync::Arc;

use super::adversary::{Adversary, Planned};
use super::delta;
use super::manifest::Manifest;
use super::run::RunError;
use super::side;
use super::transcript::{
    ModelRef, Models, Opening, Outcome, PlacementUsed, RunRef, TRANSCRIPT_FORMAT, TRANSCRIPT_VERSION, Totals,
    Transcript,
};
use crate::foundation::base::Stream;
use crate::foundation::chat::{DeltaGains, LanguageModel, Message, ModelChain};
use crate::simulation::persona::{
    AdversaryKind, Assembler, DeltaPolicy, PersonaConfig, Placement, PromptBudget, Speaker, TurnPlan,
};

pub(super) struct Stage {
    pub(super) config: Arc<PersonaConfig>,
    pub(super) seed: u64,
    pub(super) assembler: Assembler,
    pub(super) persona: Arc<dyn LanguageModel>,
    pub(super) interlocutor: Arc<dyn LanguageModel>,
    pub(super) interlocutor_prompt: String,
    pub(super) first_speaker: Speaker,
    placement: PlacementUsed,
    adversary: Option<Adversary>,
}

impl Stage {
    pub(super) fn new(
        config: Arc<PersonaConfig>,
        seed: u64,
        turns: usize,
        adversary: AdversaryKind,
        persona: Arc<dyn LanguageModel>,
        interlocutor: Arc<dyn LanguageModel>,
    ) -> Result<Self, RunError> {
        delta::check(&config.delta, persona.info())?;
        let assembler = Assembler::new(Arc::clone(&config), turns, budget(&persona))?;
        let interaction = &config.interaction;
        let placement = match interaction.injection.placement {
            Placement::System => PlacementUsed::System,
            Placement::Append if persona.info().prompt_tokens_max.is_some() => PlacementUsed::SystemForBudget,
            Placement::Append => PlacementUsed::Append,
        };
        let adversary = Adversary::new(adversary, &config, &interlocutor)?;
        let interlocutor_prompt = adversary
            .as_ref()
            .map_or_else(|| interaction.target_prompt.clone(), |adversary| adversary.prompt().to_owned());
        let first_speaker = if interaction.opening.is_some() { Speaker::Persona } else { interaction.first_speaker };
        Ok(Self {
            config,
            seed,
            assembler,
            persona,
            interlocutor,
            interlocutor_prompt,
            first_speaker,
            placement,
            adversary,
        })
    }

    /// Whether instructions are put into the opening of the persona's conversation instead of behind its history.
    pub(super) fn rewrites_opening(&self) -> bool {
        self.placement != PlacementUsed::Append
    }

    pub(super) fn gains(&self, plan: &TurnPlan) -> Option<DeltaGains> {
        delta::gains(&self.config, &plan.intensities, self.persona.info())
    }

    /// Whether the gains move from turn to turn.
    pub(super) fn gains_vary(&self) -> bool {
        matches!(self.config.delta, DeltaPolicy::Trajectory { .. })
    }

    /// What the adversary tries in turn `turn`, if there is one.
    pub(super) fn adversary(&self, turn: usize, said: &[String], stream: Stream) -> Option<Planned> {
        self.adversary.as_ref()?.plan(turn, said, stream.child("strategy", 0))
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
pub(super) fn model_ref(chain: &ModelChain, model: &dyn LanguageModel) -> ModelRef {
    ModelRef { spec: chain.to_string(), info: model.info().clone(), sampling: side::sampling(model) }
}
