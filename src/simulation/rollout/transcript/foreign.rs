//! What a transcript holds of a conversation that Loom did not play: what was said, and nothing made up beside it.

use super::turn::{Failure, PromptRecord, Regulated, TokenCount, Turn, TurnTiming, Utterance, UtteranceTiming};
use super::{ModelRef, TokenSummary};
use crate::foundation::base::Digest;
use crate::foundation::chat::{Finish, ModelInfo, Sampling};
use crate::governance::regulator::TurnReading;
use crate::simulation::persona::{InjectionKind, Speaker};

/// What stands in place of a message that is not there; as after any failed reply.
const STAND_IN: &str = "…";
/// No template of Loom's made the prompt.
const NO_TEMPLATE: u32 = 0;

impl Utterance {
    /// What `speaker` said; where there are no words, `why` says so.
    pub fn foreign(speaker: Speaker, said: Option<String>, why: &str) -> Self {
        let said = said.filter(|text| !text.trim().is_empty());
        Self {
            speaker,
            adversary: None,
            ids: None,
            model: None,
            fallbacks: Vec::new(),
            finish: said.is_some().then_some(Finish::Stop),
            failure: said.is_none().then(|| Failure { why: why.to_owned() }),
            content: said.unwrap_or_else(|| STAND_IN.to_owned()),
            attempt: 0,
            instruction: None,
            attempts: Vec::new(),
            usage: TokenCount::default(),
            hosted: None,
            tokens: TokenSummary::default(),
            regulator: Regulated { reading: TurnReading::default(), decisions: Vec::new() },
            quality: None,
            interventions: Vec::new(),
            timing: UtteranceTiming::default(),
        }
    }
}

impl Turn {
    /// The turn number `index` of `planned`, without phase and intensities.
    pub fn foreign(index: usize, planned: usize, persona: Utterance, interlocutor: Utterance) -> Self {
        Self {
            index,
            phase: None,
            progress: if planned > 1 { (index as f64 / (planned - 1) as f64).min(1.0) } else { 0.0 },
            intensities: Vec::new(),
            prompt: PromptRecord {
                injection: InjectionKind::None,
                digest: Digest::of(""),
                template_version: NO_TEMPLATE,
                dropped: Vec::new(),
            },
            injected: Vec::new(),
            gains: None,
            slides: Vec::new(),
            persona,
            interlocutor,
            probes: Vec::new(),
            monitor_events: Vec::new(),
            timing: TurnTiming::default(),
        }
    }
}

impl ModelRef {
    /// A model of which at most the name is known.
    pub fn foreign(name: Option<&str>) -> Self {
        let spec = name.unwrap_or("unknown").to_owned();
        let info = ModelInfo { name: spec.clone(), ..ModelInfo::default() };
        Self { spec, dtype: None, info, sampling: Sampling::default() }
    }
}
