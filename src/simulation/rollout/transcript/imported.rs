//! Transcripts of imported conversations: only their messages are known.

use super::turn::{
    PromptRecord, RegulatorRecord, ReplyFailure, TokenCount, Turn, TurnTiming, Utterance, UtteranceTiming,
};
use super::{ModelRef, TokenSummary};
use crate::foundation::base::Digest;
use crate::foundation::chat::{Finish, ModelInfo};
use crate::governance::regulator::TurnStats;
use crate::simulation::persona::{InjectionKind, Speaker};

/// The content recorded for a missing message, as after any failed reply.
const STAND_IN: &str = "…";
/// The template version of conversations that Loom did not produce.
const NO_TEMPLATE: u32 = 0;

impl Utterance {
    /// A message of `speaker`; if it has no text, `why` is recorded as the failure.
    pub fn imported(speaker: Speaker, said: Option<String>, why: &str) -> Self {
        let said = said.filter(|text| !text.trim().is_empty());
        Self {
            speaker,
            adversary: None,
            thought: None,
            ids: None,
            model: None,
            fallbacks: Vec::new(),
            finish: said.is_some().then_some(Finish::Stop),
            failure: said.is_none().then(|| ReplyFailure { why: why.to_owned() }),
            content: said.unwrap_or_else(|| STAND_IN.to_owned()),
            attempt: 0,
            instruction: None,
            attempts: Vec::new(),
            usage: TokenCount::default(),
            hosted: None,
            tokens: TokenSummary::default(),
            regulator: RegulatorRecord { reading: TurnStats::default(), decisions: Vec::new() },
            quality: None,
            interventions: Vec::new(),
            resampled: None,
            timing: UtteranceTiming::default(),
        }
    }
}

impl Turn {
    /// The turn number `index` of `planned`, without phase and intensities.
    pub fn imported(index: usize, planned: usize, persona: Utterance, interlocutor: Utterance) -> Self {
        Self {
            index,
            phase: None,
            progress: if planned > 1 { (index as f64 / (planned - 1) as f64).min(1.0) } else { 0.0 },
            intensities: Vec::new(),
            prompt: PromptRecord {
                injection: InjectionKind::None,
                told: None,
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
    /// A model of which only the name is known, if anything.
    pub fn imported(name: Option<&str>) -> Self {
        let spec = name.unwrap_or("unknown").to_owned();
        let info = ModelInfo { name: spec.clone(), ..ModelInfo::default() };
        Self { spec, dtype: None, info, sampling: None }
    }
}
