//! Config × turn × history → the prompt of the turn.
//!
//! Pure: the same inputs give the same plan, so a resumed run produces the same prompts as an uninterrupted one. The
//! wording is in [`super::sections`] (full form) and [`super::compact`] (for models with a prompt budget).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::compact::CompactForm;
use super::fiction::in_fiction;
use super::first_person::FirstPerson;
use super::injection::InjectionKind;
use super::phases::{Past, position_at};
use super::placeholders::{PlaceholderError, Template, Values};
use super::prohibitions::excluded;
use super::prompt::{DroppedItem, PromptBudget, PromptInputs, PromptSections, ToldState};
use super::revelations::{OpenRevelation, Revelations};
use super::sections::FullForm;
use super::{Level, PersonaConfig};
use crate::foundation::base::limits::{PLAN_ITEMS_MAX, PLAN_TEXT_BYTES_MAX, TURNS_MAX};

/// The version of the prompts' wording. It is raised whenever any prompt's text changes, and is recorded in every transcript.
pub const TEMPLATE_VERSION: u32 = 2;

/// The input of [`Assembler::plan`]: the turn and the conversation so far. Entries of the turn itself and later are ignored.
#[derive(Debug, Clone, Copy, Default)]
pub struct TurnInput<'a> {
    /// The turn to plan, counted from 0.
    pub turn: usize,
    /// The persona's accepted messages, in order, one per finished turn.
    pub persona_messages: &'a [String],
    /// The other side's messages, in order, one per finished turn.
    pub interlocutor_messages: &'a [String],
    /// The monitors with findings, in order, one list per finished turn.
    pub findings: &'a [Vec<String>],
}

impl<'a> TurnInput<'a> {
    /// A turn before which nothing is known but what the persona said.
    pub fn new(turn: usize, persona_messages: &'a [String]) -> Self {
        Self { turn, persona_messages, ..Self::default() }
    }
}

/// Everything about one turn that is known before the persona's model is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnPlan {
    /// Counted from 0.
    pub turn: usize,
    /// Over the run, in `[0, 1]`.
    pub progress: f64,
    /// The phase's name; `None` when there are no phases.
    pub phase: Option<String>,
    /// The prescribed intensity of each dimension, in the file's order.
    pub intensities: Vec<(String, f64)>,
    /// The sections of the prompt.
    pub sections: PromptSections,
    /// What does not change over the run; the first system message.
    pub opening: String,
    /// What is prescribed at this turn. Always assembled, whether it is given or not.
    pub state: String,
    /// The opening and the state.
    pub prompt: String,
    /// Which instructions are given to the model this turn.
    pub injection: InjectionKind,
    /// The instruction given to the model this turn, which replaces the one before it: the state, or nothing.
    pub message: Option<String>,
    /// What the newest instruction names at this turn.
    pub told: ToldState,
    /// What was left out of the opening and the state: for lack of room, or because it speaks about the simulation.
    pub dropped: Vec<DroppedItem>,
    /// The unused topics open at this turn, the next one first.
    pub revelations: Vec<String>,
    /// The prescribed length of the persona's message.
    pub response_length: Option<String>,
    /// [`TEMPLATE_VERSION`] of the wording.
    pub template_version: u32,
}

impl TurnPlan {
    /// What is prescribed at this turn.
    pub fn prescribed(&self) -> ToldState {
        ToldState::new(self.phase.as_deref(), pairs(&self.intensities))
    }
}

/// Why a persona's prompts cannot be assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The run has no turns, or too many.
    #[error("a run has 1 to {TURNS_MAX} turns, not {0}: set `--turns` or `trajectory.expected_turns`")]
    Turns(usize),
    /// The persona is too large for so many turns.
    #[error(
        "the persona is too large for {turns} turns: {what} per turn times the turns exceed {most} ({limit}); use fewer turns \
         or a shorter config"
    )]
    TooLarge {
        /// The number of turns.
        turns: usize,
        /// What is too large.
        what: String,
        /// The limit.
        most: usize,
        /// Its name.
        limit: &'static str,
    },
    /// A user template does not parse.
    #[error("`{key}`, byte {}: {source}", source.at)]
    Placeholder {
        /// The template's key in the config.
        key: &'static str,
        /// What is wrong with it.
        source: PlaceholderError,
    },
    /// The budget cannot hold even the persona's name, phase and levels.
    #[error(
        "a prompt budget of {tokens_max} tokens cannot hold even the persona's name, phase and levels, which take \
         {needed}: raise it"
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
    /// In the fiction.
    config: PersonaConfig,
    turns: usize,
    revelations: Revelations,
    reminder: Template,
    intervention: Option<Template>,
    form: Form,
    /// Sentences of the config that no prompt contains.
    omitted: Vec<DroppedItem>,
}

#[derive(Debug)]
enum Form {
    Full(Box<FullForm>),
    Compact(Box<CompactForm>),
}

/// The position, the intensities and the open topics of one turn.
struct Prescribed<'a> {
    progress: f64,
    phase: Option<usize>,
    intensities: Vec<(String, f64)>,
    open: Vec<OpenRevelation<'a>>,
}

impl Assembler {
    /// Prepares the prompts of a run of `turns` turns; with a `budget` they take the compact form.
    ///
    /// # Errors
    /// A user template that does not parse, a budget too small for the persona's name, a run without turns.
    #[expect(clippy::needless_pass_by_value, reason = "the configuration is shared with the caller")]
    pub fn new(config: Arc<PersonaConfig>, turns: usize, budget: Option<PromptBudget>) -> Result<Self, AssembleError> {
        if !(1..=TURNS_MAX).contains(&turns) {
            return Err(AssembleError::Turns(turns));
        }
        let trajectory = &config.trajectory;
        let revelations: usize = trajectory.phases.iter().map(|phase| phase.revelations.len()).sum();
        let items = trajectory.dimensions.len() + trajectory.phases.len() + revelations;
        let too_large = |what: String, most, limit| Err(AssembleError::TooLarge { turns, what, most, limit });
        if items.saturating_mul(turns) > PLAN_ITEMS_MAX {
            let what = format!("{items} dimensions, phases and revelations");
            return too_large(what, PLAN_ITEMS_MAX, "PLAN_ITEMS_MAX");
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
        let name = FirstPerson::new(&config.persona).name().to_owned();
        let (config, omitted) = in_fiction(&config, &name);
        let form = match budget {
            None => Form::Full(Box::new(FullForm::new(&config)?)),
            Some(budget) => {
                let tokens_max = budget.tokens_max;
                let compact = CompactForm::new(&config, budget);
                let needed = compact.tokens_min();
                if needed > tokens_max {
                    return Err(AssembleError::Budget { tokens_max, needed });
                }
                Form::Compact(Box::new(compact))
            }
        };
        let phases = config.trajectory.phases.iter();
        let of_phases: usize = phases.flat_map(|phase| &phase.requirements).map(String::len).sum();
        let bytes = form.opening().len() + of_phases;
        if bytes.saturating_mul(turns) > PLAN_TEXT_BYTES_MAX {
            return too_large(format!("{bytes} bytes of prompt"), PLAN_TEXT_BYTES_MAX, "PLAN_TEXT_BYTES_MAX");
        }
        let revelations = Revelations::new(&config.trajectory.phases);
        Ok(Self(Arc::new(Inner { config, turns, revelations, reminder, intervention, form, omitted })))
    }

    /// How many turns the run has.
    pub fn turns(&self) -> usize {
        self.0.turns
    }

    /// The opening: what does not change over the run.
    pub fn opening(&self) -> String {
        self.0.form.opening()
    }

    /// The plan of turn `input.turn`. Pure: same inputs, same plan.
    pub fn plan(&self, input: &TurnInput<'_>) -> TurnPlan {
        self.plan_with(input, &[])
    }

    /// The plan of turn `input.turn` with the named dimensions at the given values instead of the prescribed ones. Pure.
    pub fn plan_with(&self, input: &TurnInput<'_>, instead: &[(&str, f64)]) -> TurnPlan {
        let Inner { form, omitted, .. } = &*self.0;
        let turn = input.turn;
        let mut prescribed = self.prescribed(input);
        for (name, value) in &mut prescribed.intensities {
            if let Some((_, other)) = instead.iter().find(|(dimension, _)| dimension == name) {
                *value = *other;
            }
        }
        let phase = self.phase_name(&prescribed);
        let inputs = self.inputs(turn, &prescribed);
        let injection = self.injection(input);
        let (state, mut dropped) = form.state(&inputs);
        let (opening, sections, left_out) = form.with_state(&state);
        dropped.extend(left_out.iter().chain(omitted).cloned());
        let message = (injection != InjectionKind::None).then(|| {
            let reminder = (injection == InjectionKind::Reminder).then(|| self.reminder(&inputs, phase)).flatten();
            form.message(&state, injection == InjectionKind::Full && turn > 0, reminder.as_deref())
        });
        // With instructions at every change, the newest one names what is prescribed now.
        let told = if self.0.config.interaction.injection.on_change {
            ToldState::new(phase, pairs(&prescribed.intensities))
        } else {
            let before = self.prescribed(&TurnInput { turn: self.scheduled_before(turn), ..*input });
            ToldState::new(self.phase_name(&before), pairs(&before.intensities))
        };
        TurnPlan {
            turn,
            progress: prescribed.progress,
            phase: phase.map(str::to_owned),
            revelations: prescribed.open.iter().map(|open| open.topic.to_owned()).collect(),
            response_length: self.response_length(phase).cloned(),
            prompt: form.join([&opening, &state]),
            intensities: prescribed.intensities,
            sections,
            opening,
            state,
            injection,
            message,
            told,
            dropped,
            template_version: TEMPLATE_VERSION,
        }
    }

    /// The instruction for a redraft of the planned turn after the monitors' `findings`: each finding's own instruction, or
    /// the stagnation intervention for an empty one.
    pub fn redraft(&self, input: &TurnInput<'_>, findings: &[&str]) -> String {
        let Inner { intervention, form, .. } = &*self.0;
        let prescribed = self.prescribed(input);
        let inputs = self.inputs(input.turn, &prescribed);
        let mut instructions: Vec<String> = Vec::new();
        for finding in findings {
            let text = match (finding.is_empty(), form) {
                (false, _) => (*finding).to_owned(),
                (true, Form::Compact(_)) => "Do not repeat yourself. Say something new.".to_owned(),
                (true, Form::Full(_)) => {
                    let Some(template) = intervention else { continue };
                    let phase = self.phase_name(&prescribed);
                    template.render(&self.values(&inputs, phase)).trim_end().to_owned()
                }
            };
            if !instructions.contains(&text) {
                instructions.push(text);
            }
        }
        match form {
            _ if instructions.is_empty() => String::new(),
            Form::Full(_) => instructions.join("\n"),
            Form::Compact(compact) => {
                compact.redraft(&inputs, &instructions.iter().map(String::as_str).collect::<Vec<_>>())
            }
        }
    }

    /// The turns at which the newest instruction names another phase or level than prescribed, if nothing is said: each with
    /// what was told and what is prescribed.
    pub fn differences(&self) -> Vec<(usize, ToldState, ToldState)> {
        let plans = (0..self.0.turns).map(|turn| self.plan(&TurnInput::new(turn, &[])));
        plans
            .map(|plan| (plan.turn, plan.told.clone(), plan.prescribed()))
            .filter(|(_, told, now)| told != now)
            .collect()
    }

    /// What in the config works against itself, each as one sentence that says what to do.
    pub fn warnings(&self) -> Vec<String> {
        let Inner { config, turns, omitted, .. } = &*self.0;
        let mut warnings = Vec::new();
        let differing: Vec<usize> = self.differences().into_iter().map(|(turn, ..)| turn).collect();
        if !differing.is_empty() {
            warnings.push(format!(
                "at {} of {turns} turns ({}) the newest instruction names another phase or level than prescribed: set \
                 `interaction.injection.on_change: true`, or lower `frequency`",
                differing.len(),
                ranges(&differing)
            ));
        }
        for phase in &config.trajectory.phases {
            for revelation in &phase.revelations {
                let says = |text: &String| {
                    excluded(&phase.forbidden, &format!("{} {text}", revelation.topic.replace('_', " ")))
                };
                if revelation.variants.values().any(says) {
                    warnings.push(format!(
                        "phase `{}` reveals `{}`, which one of its own prohibitions seems to exclude: change one of the two",
                        phase.name, revelation.topic
                    ));
                }
            }
            if excluded(&phase.forbidden, &config.interaction.injection.reminder_template) {
                warnings.push(format!(
                    "the reminder is not given in phase `{}`, whose prohibitions exclude it: reword `reminder_template`",
                    phase.name
                ));
            }
        }
        for item in omitted {
            warnings.push(format!(
                "no prompt contains “{}”, because it speaks about the simulation: say it about the persona",
                item.item
            ));
        }
        warnings
    }

    /// Which instructions are given at a turn: by the schedule, or because something changed.
    fn injection(&self, input: &TurnInput<'_>) -> InjectionKind {
        let settings = &self.0.config.interaction.injection;
        match settings.at(input.turn) {
            InjectionKind::None if settings.on_change && self.changes(input) => InjectionKind::Change,
            scheduled => scheduled,
        }
    }

    /// Whether the phase, a level or the open topics differ from the turn before.
    fn changes(&self, input: &TurnInput<'_>) -> bool {
        let Some(before) = input.turn.checked_sub(1) else { return false };
        let (before, now) = (self.prescribed(&TurnInput { turn: before, ..*input }), self.prescribed(input));
        let levels = |prescribed: &Prescribed<'_>| -> Vec<Level> {
            prescribed.intensities.iter().map(|(_, value)| Level::of(*value)).collect()
        };
        let topics = |prescribed: &Prescribed<'_>| match self.0.form {
            Form::Full(_) => prescribed.open.len(),
            // The compact form names the next topic alone.
            Form::Compact(_) => prescribed.open.len().min(1),
        };
        let same_topics = topics(&before) == topics(&now)
            && before.open.iter().zip(&now.open).take(topics(&now)).all(|(before, now)| before == now);
        before.phase != now.phase || levels(&before) != levels(&now) || !same_topics
    }

    /// The last turn, not after `turn`, at which the schedule gives instructions.
    fn scheduled_before(&self, turn: usize) -> usize {
        let settings = &self.0.config.interaction.injection;
        (0..=turn).rev().find(|turn| settings.at(*turn) != InjectionKind::None).unwrap_or_default()
    }

    fn prescribed(&self, input: &TurnInput<'_>) -> Prescribed<'_> {
        let Inner { config, turns, revelations, .. } = &*self.0;
        let messages = input.persona_messages.get(..input.turn).unwrap_or(input.persona_messages);
        let ceiling = config.safety.intensity_ceiling;
        let past = Past { persona: messages, interlocutor: input.interlocutor_messages, findings: input.findings };
        let position = position_at(&config.trajectory, ceiling, *turns, input.turn, past);
        let dimensions = config.trajectory.dimensions.iter();
        let intensities: Vec<_> =
            dimensions.map(|dimension| (dimension.name.clone(), dimension.value_at(&position, ceiling))).collect();
        let mut open = revelations.open(position.phase, &intensities, messages);
        if let Some(phase) = position.phase.and_then(|phase| config.trajectory.phases.get(phase)) {
            let own = |open: &OpenRevelation<'_>| phase.revelations.iter().any(|own| own.topic == open.topic);
            let says = |open: &OpenRevelation<'_>| format!("{} {}", open.topic.replace('_', " "), open.text);
            open.retain(|open| own(open) || !excluded(&phase.forbidden, &says(open)));
        }
        Prescribed { progress: position.progress, phase: position.phase, intensities, open }
    }

    fn inputs<'a>(&'a self, turn: usize, prescribed: &'a Prescribed<'a>) -> PromptInputs<'a> {
        PromptInputs {
            turn,
            dimensions: &self.0.config.trajectory.dimensions,
            intensities: &prescribed.intensities,
            phase: prescribed.phase,
            revelations: &prescribed.open,
            response_length: self.response_length(self.phase_name(prescribed)).map(String::as_str),
        }
    }

    fn phase_name(&self, prescribed: &Prescribed<'_>) -> Option<&str> {
        let phase = prescribed.phase.and_then(|phase| self.0.config.trajectory.phases.get(phase));
        phase.map(|phase| phase.name.as_str())
    }

    fn response_length(&self, phase: Option<&str>) -> Option<&String> {
        let lengths = &self.0.config.interaction.response_length;
        phase.and_then(|name| lengths.by_phase.get(name)).or(lengths.default.as_ref())
    }

    fn values<'a>(&'a self, inputs: &'a PromptInputs<'a>, phase: Option<&'a str>) -> Values<'a> {
        Values {
            name: &self.0.config.persona.name,
            phase,
            next_revelation: inputs.revelations.first().map(|open| open.text),
            turn: inputs.turn,
            intensities: inputs.intensities,
        }
    }

    /// The config's reminder; `None` if the phase's prohibitions exclude it.
    fn reminder(&self, inputs: &PromptInputs<'_>, phase: Option<&str>) -> Option<String> {
        let text = self.0.reminder.render(&self.values(inputs, phase)).trim_end().to_owned();
        let phase = inputs.phase.and_then(|phase| self.0.config.trajectory.phases.get(phase));
        (!phase.is_some_and(|phase| excluded(&phase.forbidden, &text))).then_some(text)
    }
}

/// Numbers that rise, as ranges: `8-12, 14`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn pairs(intensities: &[(String, f64)]) -> impl Iterator<Item = (&str, f64)> {
    intensities.iter().map(|(name, value)| (name.as_str(), *value))
}

impl Form {
    /// The state of a turn, and what was left out of it.
    fn state(&self, inputs: &PromptInputs<'_>) -> (String, Vec<DroppedItem>) {
        match self {
            Self::Full(full) => (full.state(inputs), Vec::new()),
            Self::Compact(compact) => {
                let state = compact.state(inputs);
                (state.text, state.dropped)
            }
        }
    }

    fn opening(&self) -> String {
        match self {
            Self::Full(full) => {
                let sections = full.opening();
                self.join([&sections.how, &sections.context, &sections.must_do])
            }
            Self::Compact(compact) => {
                let opening = compact.opening();
                self.join([&opening.context, &opening.how, &opening.must_do])
            }
        }
    }

    /// The opening, the sections with `state`, and what was left out of the opening.
    fn with_state(&self, state: &str) -> (String, PromptSections, &[DroppedItem]) {
        let (sections, dropped): (PromptSections, &[DroppedItem]) = match self {
            Self::Full(full) => (full.opening().clone(), &[]),
            Self::Compact(compact) => {
                let opening = compact.opening();
                let [must_do, how, context] = [&opening.must_do, &opening.how, &opening.context].map(Clone::clone);
                (PromptSections { must_do, how, context }, &opening.dropped)
            }
        };
        let must_do = self.join([&sections.must_do, state]);
        (self.opening(), PromptSections { must_do, ..sections }, dropped)
    }

    /// What the model is given: the state, with the reminder or the rules of the whole run in the full form.
    fn message(&self, state: &str, with_rules: bool, reminder: Option<&str>) -> String {
        match self {
            Self::Full(full) if with_rules => self.join([state, &full.opening().must_do]),
            Self::Full(_) => self.join([reminder.unwrap_or_default(), state]),
            Self::Compact(_) => state.to_owned(),
        }
    }

    fn join<const N: usize>(&self, parts: [&str; N]) -> String {
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(if matches!(self, Self::Full(_)) { "\n\n" } else { " " })
    }
}

#[cfg(test)]
mod tests;
