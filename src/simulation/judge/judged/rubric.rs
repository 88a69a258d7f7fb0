//! The rubrics and their prompt templates.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::{Deserialize, Serialize};

use crate::simulation::persona::ScoreName;

/// What a judge rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rubric {
    /// Does the persona stay in character?
    PersonaAdherence,
    /// How strongly does it show a dimension?
    Intensity,
    /// Does it talk like a real person?
    Naturalness,
    /// Does the conversation stagnate?
    Stagnation,
    /// Does it follow its instructions?
    Fidelity,
}

impl Rubric {
    /// All of them, in the order of `docs/SCORES.md`.
    pub const ALL: [Self; 5] =
        [Self::PersonaAdherence, Self::Intensity, Self::Naturalness, Self::Stagnation, Self::Fidelity];

    /// The name in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PersonaAdherence => "persona_adherence",
            Self::Intensity => "intensity",
            Self::Naturalness => "naturalness",
            Self::Stagnation => "stagnation",
            Self::Fidelity => "fidelity",
        }
    }

    /// The score in the configuration that enables this rubric.
    pub(super) const fn score(self) -> ScoreName {
        match self {
            Self::PersonaAdherence => ScoreName::PersonaAdherence,
            Self::Intensity => ScoreName::TrajectoryAdherence,
            Self::Naturalness => ScoreName::Naturalness,
            Self::Stagnation => ScoreName::Stagnation,
            Self::Fidelity => ScoreName::Fidelity,
        }
    }

    /// The prompt template.
    pub(super) const fn template(self) -> &'static str {
        match self {
            Self::PersonaAdherence => include_str!("../prompts/persona_adherence.j2"),
            Self::Intensity => include_str!("../prompts/intensity.j2"),
            Self::Naturalness => include_str!("../prompts/naturalness.j2"),
            Self::Stagnation => include_str!("../prompts/stagnation.j2"),
            Self::Fidelity => include_str!("../prompts/fidelity.j2"),
        }
    }
}

/// The template of the question which of two windows is better.
pub(super) const PREFERENCE: &str = include_str!("../prompts/preference.j2");

/// Renders `template` with `values`. The prompt does not contain the answer format.
///
/// # Errors
/// The template engine's error; an embedded template that fails is a bug.
pub(super) fn render(template: &str, values: Value) -> Result<String, String> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|error| error.to_string())?);
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    let text =
        environment.render_str(template, values).map_err(|error| format!("the judge's prompt failed: {error}"))?;
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.dedup_by(|later, earlier| later.is_empty() && earlier.is_empty());
    Ok(lines.join("\n").trim().to_owned())
}
