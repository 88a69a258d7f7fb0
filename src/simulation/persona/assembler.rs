//! Config × turn × history → the prompt of the turn.
//!
//! Pure: the same inputs give the same plan, so a resumed run produces the same prompts as an uninterrupted one. The
//! wording is in [`super::sections`] (full form) and [`super::compact`] (for models with a prompt budget).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::compact::{CompactForm, DroppedItem, PromptSection};
use super::injection::InjectionKind;
use super::phases::standing;
use super::placeholders::{PlaceholderError, Template, Values};
use super::revelations::{OpenRevelation, Revelations};
use super::sections::FullForm;
use super::{Dimension, PersonaConfig};
use crate::foundation::base::limits::TURNS_MAX;

/// The version of the prompts' wording. It is raised whenever any prompt's text changes, and is recorded in every transcript.
pub const TEMPLATE_VERSION: u32 = 1;

/// The most tokens of instructions that a model accepts, and how they are counted.
#[derive(Clone)]
pub struct PromptBudget {
    /// Tokens at most.
    pub tokens_max: usize,
    /// Counts a text's tokens.
    pub count: Arc<dyn Fn(&str) -> usize + Send + Sync>,
}

impl fmt::Debug for PromptBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptBudget").field("tokens_max", &self.tokens_max).finish_non_exhaustive()
    }
}

/// The input of [`Assembler::plan`]: the turn and the conversation so far.
#[derive(Debug, Clone, Copy)]
pub struct TurnInput<'a> {
    /// The turn to plan, counted from 0.
    pub turn: usize,
    /// The persona's accepted messages, in order, one per finished turn. Those of `turn` and later are ignored.
    pub persona_messages: &'a [String],
}

/// The three sections of a prompt. In the full form each begins with its heading; the compact form has no headings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptSections {
    /// What is binding this turn.
    pub must_do: String,
    /// How the persona speaks.
    pub how: String,
    /// The persona's identity and the topics it may mention.
    pub context: String,
}

/// Everything about one turn that is known before the persona's model is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnPlan {
    /// Counted from 0.
    pub turn: usize,
    /// In `[0, 1]`: over the run, or within the phase when the trajectory is phase-gated.
    pub progress: f64,
    /// The phase's name; `None` when there are no phases.
    pub phase: Option<String>,
    /// The prescribed intensity of each dimension, in the file's order.
    pub intensities: Vec<(String, f64)>,
    /// Always assembled, whatever is injected.
    pub sections: PromptSections,
    /// The three sections joined.
    pub prompt: String,
    /// Which instructions are given to the model this turn.
    pub injection: InjectionKind,
    /// The text given to the model this turn: the prompt, the reminder or nothing.
    pub message: Option<String>,
    /// Items omitted because of the prompt budget.
    pub dropped: Vec<DroppedItem>,
    /// The unused topics open at this turn, the next one first.
    pub revelations: Vec<String>,
    /// The prescribed length of the persona's message.
    pub response_length: Option<String>,
    /// [`TEMPLATE_VERSION`] of the wording.
    pub template_version: u32,
}

/// Why a persona's prompts cannot be assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The run has no turns, or too many.
    #[error("a run has 1 to {TURNS_MAX} turns, not {0}: set `--turns` or `trajectory.expected_turns`")]
    Turns(usize),
    /// A user template does not parse.
    #[error("`{key}`, byte {}: {source}", source.at)]
    Placeholder {
        /// The template's key in the config.
        key: &'static str,
        /// What is wrong with it.
        source: PlaceholderError,
    },
    /// The budget cannot hold even the persona's name.
    #[error(
        "a prompt budget of {tokens_max} tokens cannot hold even the persona's name, which takes {needed}: raise it"
    )]
    Budget {
        /// The budget.
        tokens_max: usize,
        /// What the shortest prompt takes.
        needed: usize,
    },
    /// An embedded template failed.
    #[error("an embedded prompt template failed (a bug in Loom, please report it): {0}")]
    Template(#[from] minijinja::Error),
}

/// Computes the plan of each turn. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Assembler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Arc<PersonaConfig>,
    turns: usize,
    revelations: Revelations,
    reminder: Template,
    intervention: Option<Template>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Full(Box<FullForm>),
    Compact(CompactForm),
}

/// The inputs of a turn's prompt.
pub(super) struct PromptInputs<'a> {
    pub dimensions: &'a [Dimension],
    pub intensities: &'a [(String, f64)],
    pub phase: Option<usize>,
    pub revelations: &'a [OpenRevelation<'a>],
    pub response_length: Option<&'a str>,
}

impl Assembler {
    /// Prepares the prompts of a run of `turns` turns; with a `budget` they take the compact form.
    ///
    /// # Errors
    /// A user template that does not parse, a budget too small for the persona's name, a run without turns.
    pub fn new(config: Arc<PersonaConfig>, turns: usize, budget: Option<PromptBudget>) -> Result<Self, AssembleError> {
        if !(1..=TURNS_MAX).contains(&turns) {
            return Err(AssembleError::Turns(turns));
        }
        let dimensions: Vec<&str> =
            config.trajectory.dimensions.iter().map(|dimension| dimension.name.as_str()).collect();
        let template = |key, text: &str| {
            Template::parse(text, &dimensions).map_err(|source| AssembleError::Placeholder { key, source })
        };
        let interaction = &config.interaction;
        let reminder = template("interaction.injection.reminder_template", &interaction.injection.reminder_template)?;
        let intervention = interaction
            .stagnation
            .as_ref()
            .map(|stagnation| {
                template("interaction.stagnation_detection.intervention_template", &stagnation.intervention_template)
            })
            .transpose()?;
        let form = match budget {
            None => Form::Full(Box::new(FullForm::new(&config)?)),
            Some(budget) => {
                let tokens_max = budget.tokens_max;
                let compact = CompactForm::new(&config, budget);
                let needed = compact.tokens_min();
                if needed > tokens_max {
                    return Err(AssembleError::Budget { tokens_max, needed });
                }
                Form::Compact(compact)
            }
        };
        let revelations = Revelations::new(&config.trajectory.phases);
        Ok(Self(Arc::new(Inner { config, turns, revelations, reminder, intervention, form })))
    }

    /// How many turns the run has.
    pub fn turns(&self) -> usize {
        self.0.turns
    }

    /// The plan of turn `situation.turn`. Pure: same inputs, same plan.
    pub fn plan(&self, situation: &TurnInput<'_>) -> TurnPlan {
        self.plan_with(situation, &[])
    }

    /// The plan of turn `situation.turn` with the named dimensions at the given values instead of the prescribed ones. Pure.
    pub fn plan_with(&self, situation: &TurnInput<'_>, instead: &[(&str, f64)]) -> TurnPlan {
        let Inner { config, turns, revelations, reminder, form, .. } = &*self.0;
        let TurnInput { turn, persona_messages } = *situation;
        let said = persona_messages.get(..turn).unwrap_or(persona_messages);

        let standing = standing(&config.trajectory, *turns, turn, said);
        let mut intensities = self.intensities(standing.progress);
        for (name, value) in &mut intensities {
            if let Some((_, other)) = instead.iter().find(|(dimension, _)| dimension == name) {
                *value = *other;
            }
        }
        let open = revelations.open(standing.phase, &intensities, said);
        let phase =
            standing.phase.and_then(|phase| config.trajectory.phases.get(phase)).map(|phase| phase.name.as_str());
        let lengths = &config.interaction.response_length;
        let response_length = phase.and_then(|name| lengths.by_phase.get(name)).or(lengths.default.as_ref());
        let moment = PromptInputs {
            dimensions: &config.trajectory.dimensions,
            intensities: &intensities,
            phase: standing.phase,
            revelations: &open,
            response_length: response_length.map(String::as_str),
        };

        let (sections, prompt, mut dropped) = form.assemble(&moment);
        let injection = config.interaction.injection.at(turn);
        let message = match (injection, form) {
            (InjectionKind::None, _) => None,
            (InjectionKind::Full, _) => Some(prompt.clone()),
            (InjectionKind::Reminder, Form::Full(_)) => Some(reminder.render(&Values {
                name: &config.persona.name,
                phase,
                next_revelation: open.first().map(|open| open.text),
                turn,
                intensities: &intensities,
            })),
            (InjectionKind::Reminder, Form::Compact(compact)) => {
                dropped.push(DroppedItem {
                    section: PromptSection::Reminder,
                    item: "interaction.injection.reminder_template".to_owned(),
                    reason: "with a prompt budget the short reminder stands in for it".to_owned(),
                });
                Some(compact.reminder(&moment))
            }
        };
        TurnPlan {
            turn,
            progress: standing.progress,
            phase: phase.map(str::to_owned),
            revelations: open.iter().map(|open| open.topic.to_owned()).collect(),
            response_length: response_length.cloned(),
            intensities,
            sections,
            prompt,
            injection,
            message: message.map(|text| text.trim_end().to_owned()),
            dropped,
            template_version: TEMPLATE_VERSION,
        }
    }

    /// The instruction given when the stagnation monitor fires on a draft of the planned turn: the config's template, or a
    /// shorter text with a prompt budget. Empty if the monitor is off.
    pub fn intervention(&self, situation: &TurnInput<'_>, plan: &TurnPlan) -> String {
        let Inner { config, revelations, intervention, form, .. } = &*self.0;
        let said = situation.persona_messages.get(..situation.turn).unwrap_or(situation.persona_messages);
        let reached =
            plan.phase.as_ref().and_then(|name| config.trajectory.phases.iter().position(|phase| phase.name == *name));
        let next_revelation = revelations.open(reached, &plan.intensities, said).first().map(|open| open.text);
        match (intervention, form) {
            (None, _) => String::new(),
            (Some(_), Form::Compact(compact)) => compact.intervention(situation.turn, next_revelation),
            (Some(template), Form::Full(_)) => {
                let text = template.render(&Values {
                    name: &config.persona.name,
                    phase: plan.phase.as_deref(),
                    next_revelation,
                    turn: situation.turn,
                    intensities: &plan.intensities,
                });
                text.trim_end().to_owned()
            }
        }
    }

    fn intensities(&self, progress: f64) -> Vec<(String, f64)> {
        let ceiling = self.0.config.safety.intensity_ceiling;
        let dimensions = self.0.config.trajectory.dimensions.iter();
        dimensions.map(|dimension| (dimension.name.clone(), dimension.intensity(progress, ceiling))).collect()
    }
}

impl Form {
    /// The sections, the joined prompt, and the omitted items.
    fn assemble(&self, moment: &PromptInputs<'_>) -> (PromptSections, String, Vec<DroppedItem>) {
        let join = |parts: [&str; 3], between: &str| {
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join(between)
        };
        match self {
            Self::Full(full) => {
                let sections = full.sections(moment);
                let prompt = join([&sections.must_do, &sections.how, &sections.context], "\n\n");
                (sections, prompt, Vec::new())
            }
            Self::Compact(compact) => {
                let (sections, dropped) = compact.sections(moment);
                let prompt = join([&sections.context, &sections.how, &sections.must_do], " ");
                (sections, prompt, dropped)
            }
        }
    }
}

#[cfg(test)]
mod tests;
