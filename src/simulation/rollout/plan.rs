//! The settings of a new run, and their builder.

use std::path::Path;
use std::sync::Arc;

use crate::foundation::base::limits::{ROLLOUTS_MAX, TURNS_MAX};
use crate::foundation::chat::{ModelChain, ModelSpec};
use crate::governance::regulator::Calibration;
use crate::simulation::persona::{
    AdversaryKind, AdversaryScript, ConfigErrors, PersonaConfig, RegulatorConfig, RegulatorPolicy, TrajectoryMode,
    load_with_text, parse,
};

/// The settings of a new run. [`RunPlan::from_file`] and [`RunPlan::from_yaml`] build one.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The configuration.
    pub config: Arc<PersonaConfig>,
    /// Its text, stored with the run.
    pub yaml: String,
    /// The seed of all random draws.
    pub seed: u64,
    /// The number of rollouts.
    pub rollouts: usize,
    /// The number of turns of each; see [`turn_count`].
    pub turns: usize,
    /// Who the interlocutor is.
    pub adversary: AdversaryKind,
    /// The text of the adversary's file, instead of the embedded strategies.
    pub adversary_script: Option<String>,
    /// The persona's model.
    pub persona: ModelChain,
    /// The interlocutor's model: the target's, or the adversary's if there is one.
    pub interlocutor: ModelChain,
    /// The judge's model.
    pub judge: ModelChain,
    /// Whether the regulator's decisions are carried out, and how far.
    pub regulator: RegulatorConfig,
    /// A calibration that turns confidence into a probability, if any.
    pub calibration: Option<Calibration>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The configuration, or the adversary's file, is invalid.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// Neither the configuration nor the plan has a number of turns.
    #[error("the configuration's trajectory has no length of its own (`mode: {mode}`); say how long with --turns N")]
    NoTurns {
        /// The trajectory's mode.
        mode: &'static str,
    },
    /// The configuration cites a decision whose statement is not known.
    #[error("the configuration cites the decision {id}; name the memory that has it, with --memory DIR")]
    Unquoted {
        /// The decision.
        id: String,
    },
    /// A number is out of bounds.
    #[error("{what} must be from 1 to {max} ({limit}), not {value}")]
    Bounds {
        /// Which number.
        what: &'static str,
        /// The largest that is allowed.
        max: usize,
        /// That limit's name.
        limit: &'static str,
        /// The requested value.
        value: usize,
    },
}

/// The number of turns of a run of `config`; `requested` takes precedence over the configuration.
///
/// # Errors
/// If neither gives a number, or it is out of bounds.
pub fn turn_count(config: &PersonaConfig, requested: Option<usize>) -> Result<usize, PlanError> {
    let (own, mode) = match config.trajectory.mode {
        TrajectoryMode::FixedLength { turns } => (Some(turns), "fixed_length"),
        TrajectoryMode::PhaseGated { turns } => (turns, "phase_gated"),
        TrajectoryMode::OpenEnded => (None, "open_ended"),
    };
    let turns = requested.or(own).ok_or(PlanError::NoTurns { mode })?;
    bounded("the number of turns", turns, TURNS_MAX, "TURNS_MAX")
}

fn bounded(what: &'static str, value: usize, max: usize, limit: &'static str) -> Result<usize, PlanError> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(PlanError::Bounds { what, max, limit, value }) }
}

/// Builds a [`RunPlan`]. A setting that is not made is the configuration's; a model is then the bundled one.
#[derive(Debug, Clone)]
pub struct RunPlanBuilder {
    config: Arc<PersonaConfig>,
    yaml: String,
    seed: u64,
    rollouts: usize,
    turns: Option<usize>,
    adversary: Option<AdversaryKind>,
    adversary_script: Option<String>,
    persona_model: Option<ModelChain>,
    target_model: Option<ModelChain>,
    adversary_model: Option<ModelChain>,
    judge_model: Option<ModelChain>,
    regulator: Option<RegulatorPolicy>,
    calibration: Option<Calibration>,
}

impl RunPlan {
    /// Begins a plan with the persona config at `path`.
    ///
    /// # Errors
    /// [`PlanError::Config`] with all problems of the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<RunPlanBuilder, PlanError> {
        let (config, yaml) = load_with_text(path.as_ref())?;
        Ok(Self::builder(config, yaml))
    }

    /// Begins a plan with the text of a persona config; messages refer to it as `source_name`.
    ///
    /// # Errors
    /// [`PlanError::Config`] with all problems of the text.
    pub fn from_yaml(source_name: &str, yaml: impl Into<String>) -> Result<RunPlanBuilder, PlanError> {
        let yaml = yaml.into();
        Ok(Self::builder(parse(source_name, &yaml)?, yaml))
    }

    /// Begins a plan with a parsed persona config and its text.
    pub fn builder(config: PersonaConfig, yaml: String) -> RunPlanBuilder {
        RunPlanBuilder {
            config: Arc::new(config),
            yaml,
            seed: 0,
            rollouts: 1,
            turns: None,
            adversary: None,
            adversary_script: None,
            persona_model: None,
            target_model: None,
            adversary_model: None,
            judge_model: None,
            regulator: None,
            calibration: None,
        }
    }

    /// Checks the numbers of turns and rollouts.
    ///
    /// # Errors
    /// [`PlanError::Bounds`], [`PlanError::Unquoted`].
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let unquoted = self.config.persona.decisions.iter().find(|decision| decision.statement.is_none());
        if let Some(decision) = unquoted {
            return Err(PlanError::Unquoted { id: decision.id.clone() });
        }
        bounded("the number of rollouts", self.rollouts, ROLLOUTS_MAX, "ROLLOUTS_MAX")?;
        bounded("the number of turns", self.turns, TURNS_MAX, "TURNS_MAX").map(|_| ())
    }
}

impl RunPlanBuilder {
    /// The configuration.
    pub fn config(&self) -> &PersonaConfig {
        &self.config
    }

    /// Sets the seed of all random draws; 0 by default.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the number of rollouts; 1 by default.
    #[must_use]
    pub fn rollouts(self, rollouts: usize) -> Self {
        Self { rollouts, ..self }
    }

    /// Sets the number of turns of each rollout. It is required if the trajectory has no length.
    #[must_use]
    pub fn turns(self, turns: impl Into<Option<usize>>) -> Self {
        Self { turns: turns.into(), ..self }
    }

    /// Sets the kind of adversary. With one, its model takes the place of the target's.
    #[must_use]
    pub fn adversary(self, adversary: impl Into<Option<AdversaryKind>>) -> Self {
        Self { adversary: adversary.into(), ..self }
    }

    /// Sets the adversary's strategies, and with them its kind, from the text of an adversary file.
    ///
    /// # Errors
    /// [`PlanError::Config`] with all problems of the text.
    pub fn adversary_script(self, source_name: &str, yaml: impl Into<String>) -> Result<Self, PlanError> {
        let yaml = yaml.into();
        let adversary = AdversaryScript::parse(source_name, &yaml)?.kind;
        Ok(Self { adversary: Some(adversary), adversary_script: Some(yaml), ..self })
    }

    /// Sets the persona's model.
    #[must_use]
    pub fn persona_model(self, model: impl Into<Option<ModelChain>>) -> Self {
        Self { persona_model: model.into(), ..self }
    }

    /// Sets the model of the interlocutor if there is no adversary.
    #[must_use]
    pub fn target_model(self, model: impl Into<Option<ModelChain>>) -> Self {
        Self { target_model: model.into(), ..self }
    }

    /// Sets the model of the adversary; the configuration's by default, else the judge's.
    #[must_use]
    pub fn adversary_model(self, model: impl Into<Option<ModelChain>>) -> Self {
        Self { adversary_model: model.into(), ..self }
    }

    /// Sets the judge's model.
    #[must_use]
    pub fn judge_model(self, model: impl Into<Option<ModelChain>>) -> Self {
        Self { judge_model: model.into(), ..self }
    }

    /// Sets whether the regulator's decisions are carried out.
    #[must_use]
    pub fn regulator(self, policy: impl Into<Option<RegulatorPolicy>>) -> Self {
        Self { regulator: policy.into(), ..self }
    }

    /// Sets the calibration of the regulator's confidence.
    #[must_use]
    pub fn calibration(self, calibration: impl Into<Option<Calibration>>) -> Self {
        Self { calibration: calibration.into(), ..self }
    }

    /// The plan.
    ///
    /// # Errors
    /// [`PlanError::NoTurns`] if neither the configuration nor the plan has a length, and [`PlanError::Bounds`] for numbers
    /// out of bounds.
    pub fn build(self) -> Result<RunPlan, PlanError> {
        let config = self.config;
        let turns = turn_count(&config, self.turns)?;
        let or_bundled = |model: Option<ModelChain>| model.unwrap_or_else(|| ModelSpec::Bundled.into());
        let judge = or_bundled(self.judge_model);
        let adversary = self.adversary.unwrap_or(config.evaluation.adversary);
        let interlocutor = match adversary {
            AdversaryKind::None => or_bundled(self.target_model),
            _ => self
                .adversary_model
                .or_else(|| config.evaluation.adversary_model.clone())
                .unwrap_or_else(|| judge.clone()),
        };
        let regulator =
            RegulatorConfig { policy: self.regulator.unwrap_or(config.regulator.policy), ..config.regulator };
        let plan = RunPlan {
            yaml: self.yaml,
            seed: self.seed,
            rollouts: self.rollouts,
            turns,
            adversary,
            adversary_script: self.adversary_script,
            persona: or_bundled(self.persona_model),
            interlocutor,
            judge,
            regulator,
            calibration: self.calibration,
            config,
        };
        plan.check()?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = include_str!("../../../configs/personas/mania_patient.yaml");

    fn chain(text: &str) -> ModelChain {
        text.parse().unwrap()
    }

    fn builder() -> RunPlanBuilder {
        RunPlan::from_yaml("mania.yaml", YAML).unwrap()
    }

    #[test]
    fn settings_that_are_not_made_are_those_of_the_config() {
        let plan = builder().build().unwrap();
        assert_eq!((plan.seed, plan.rollouts, plan.yaml.as_str()), (0, 1, YAML));
        assert_eq!(plan.turns, turn_count(&plan.config, None).unwrap());
        assert_eq!(plan.adversary, plan.config.evaluation.adversary);
        assert_eq!((plan.persona, plan.judge), (chain("bundled"), chain("bundled")));
    }

    #[test]
    fn the_interlocutor_is_the_target_or_the_adversary() {
        let models = || builder().target_model(chain("echo")).judge_model(chain("openai/j"));
        let interlocutor = |builder: RunPlanBuilder| builder.build().unwrap().interlocutor;
        assert_eq!(interlocutor(models().adversary(AdversaryKind::None)), chain("echo"));
        let named = models().adversary(AdversaryKind::Both).adversary_model(chain("openai/a"));
        assert_eq!(interlocutor(named), chain("openai/a"));
        let unnamed = models().adversary(AdversaryKind::Both);
        let of_config = unnamed.config().evaluation.adversary_model.clone();
        assert_eq!(interlocutor(unnamed), of_config.unwrap_or(chain("openai/j")));
    }

    #[test]
    fn numbers_out_of_bounds_and_invalid_configs_are_errors() {
        assert!(matches!(builder().turns(0).build(), Err(PlanError::Bounds { .. })));
        assert!(matches!(builder().rollouts(ROLLOUTS_MAX + 1).build(), Err(PlanError::Bounds { .. })));
        assert!(matches!(RunPlan::from_yaml("x.yaml", "persona: 7"), Err(PlanError::Config(_))));
        assert!(matches!(RunPlan::from_file("no/such/file.yaml"), Err(PlanError::Config(_))));
    }
}
