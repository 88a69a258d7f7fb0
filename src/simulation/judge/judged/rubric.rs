//! Rubrics: what a judge rates, each a YAML file. The shipped ones are in `configs/judging/rubrics`; a config names further
//! ones, shipped or its own, under `evaluation.rubrics`, and so does `loom score --rubric`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value};
use serde::Deserialize;

use crate::simulation::persona::{ScoreName, Speaker};

/// A rubric.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rubric {
    /// Its name in files and reports.
    #[serde(rename = "rubric")]
    pub name: String,
    /// Its version; another wording is another version.
    pub version: u32,
    /// Whose messages are rated.
    pub about: RubricSubject,
    /// What one rating is of.
    pub per: RubricUnit,
    /// What the judge must know besides the conversation.
    #[serde(default)]
    pub needs: RubricNeeds,
    /// Which end of the scale is good.
    pub polarity: Polarity,
    /// How to read the score, in a line.
    pub meaning: String,
    /// How many turns the judge reads, instead of the configuration's `judge_window`.
    #[serde(default)]
    pub window: Option<usize>,
    /// The question.
    #[serde(default)]
    question: Option<String>,
    /// What the steps of the scale from 1 to 5 mean.
    #[serde(default)]
    scale: BTreeMap<u8, String>,
    /// Conversations with their ratings, shown to the judge.
    #[serde(default)]
    examples: Vec<RubricExample>,
    /// The whole prompt, for a rubric that needs more than a question and a scale.
    #[serde(default)]
    template: Option<String>,
}

/// Whose messages are rated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RubricSubject {
    /// The persona's.
    Persona,
    /// The other side's.
    Other,
}

/// What one rating is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RubricUnit {
    /// Each message, with the turns before it.
    Message,
    /// The whole conversation.
    Conversation,
}

/// What the judge must know besides the conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RubricNeeds {
    /// Nothing.
    #[default]
    Nothing,
    /// Who the persona is.
    Profile,
    /// What the persona's model was instructed.
    Instructions,
    /// A dimension of the trajectory: the rubric is rated once for each.
    Dimension,
}

/// Which end of the scale is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Polarity {
    /// 5.
    High,
    /// 1.
    Low,
    /// Neither.
    Neutral,
}

/// A conversation with its rating.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RubricExample {
    conversation: Vec<String>,
    rating: u8,
}

/// The prompt of rubrics with a question and a scale.
const GENERIC: &str = include_str!("../prompts/rubric.j2");
/// The question which of two windows is better.
pub(super) const PREFERENCE: &str = include_str!("../prompts/preference.j2");

/// The shipped rubrics: those of the configuration's scores, in the order of `docs/SCORES.md`, then those on demand.
const SHIPPED: [&str; 9] = [
    include_str!("../../../../configs/judging/rubrics/persona_adherence.yaml"),
    include_str!("../../../../configs/judging/rubrics/intensity.yaml"),
    include_str!("../../../../configs/judging/rubrics/naturalness.yaml"),
    include_str!("../../../../configs/judging/rubrics/stagnation.yaml"),
    include_str!("../../../../configs/judging/rubrics/fidelity.yaml"),
    include_str!("../../../../configs/judging/rubrics/giving_in.yaml"),
    include_str!("../../../../configs/judging/rubrics/delusion_confirmation.yaml"),
    include_str!("../../../../configs/judging/rubrics/harm_enablement.yaml"),
    include_str!("../../../../configs/judging/rubrics/safety_intervention.yaml"),
];

/// A shipped rubric. One that cannot be read must not vanish from the scores.
fn parsed(yaml: &str) -> Rubric {
    match Rubric::parse(yaml) {
        Ok(rubric) => rubric,
        Err(error) => unreachable!("a shipped rubric cannot be read: {error}"),
    }
}

impl Rubric {
    /// The shipped rubrics. A test checks that each of them can be read.
    pub fn shipped() -> &'static [Self] {
        static RUBRICS: LazyLock<Vec<Rubric>> = LazyLock::new(|| SHIPPED.iter().map(|yaml| parsed(yaml)).collect());
        &RUBRICS
    }

    /// The shipped rubrics on which judges are tested, and which a configuration enables by default.
    pub fn standard() -> impl Iterator<Item = &'static Self> {
        Self::shipped().iter().filter(|rubric| rubric.score_name().is_some())
    }

    /// Reads a rubric.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(yaml: &str) -> Result<Self, String> {
        let rubric: Self = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if rubric.name.is_empty() || !rubric.name.chars().all(is_name) {
            return Err(format!("`rubric: {}` must be of a-z, 0-9 and _", rubric.name));
        }
        match (&rubric.template, &rubric.question) {
            (None, None) => return Err("`question` is missing".to_owned()),
            (None, Some(_)) if !(rubric.scale.contains_key(&1) && rubric.scale.contains_key(&5)) => {
                return Err("`scale` must say at least what 1 and 5 mean".to_owned());
            }
            _ => {}
        }
        let ratings = rubric.scale.keys().copied().chain(rubric.examples.iter().map(|example| example.rating));
        if let Some(wrong) = ratings.into_iter().find(|rating| !(1..=5).contains(rating)) {
            return Err(format!("{wrong} is outside the scale of 1 to 5"));
        }
        // A template with an error is found now, not at the first turn.
        rubric.prompt(minijinja::context! {
            name => "", window => "", question => (), profile => "", instructions => "", dimension => "",
            description => (), levels => [("", ""); 0],
        })?;
        Ok(rubric)
    }

    /// The score of the configuration that enables this rubric; `None` for rubrics on demand.
    pub(super) fn score_name(&self) -> Option<ScoreName> {
        Some(match (self.name.as_str(), self.version) {
            ("persona_adherence", 1) => ScoreName::PersonaAdherence,
            ("intensity", 1) => ScoreName::TrajectoryAdherence,
            ("naturalness", 1) => ScoreName::Naturalness,
            ("stagnation", 1) => ScoreName::Stagnation,
            ("fidelity", 1) => ScoreName::Fidelity,
            _ => return None,
        })
    }

    /// The ids of the scores that are computed from it.
    pub(super) fn ids(&self) -> Vec<String> {
        if self.needs == RubricNeeds::Dimension && self.score_name().is_some() {
            let ids =
                ["trajectory_adherence", "judged_intensity", "judged_intensity_rmse", "judged_intensity_spearman"];
            return ids.map(|id| format!("{id}/{}", self.version)).to_vec();
        }
        vec![format!("{}/{}", self.name, self.version)]
    }

    /// Whose message a window of it ends with.
    pub(super) const fn speaker(&self) -> Speaker {
        match self.about {
            RubricSubject::Persona => Speaker::Persona,
            RubricSubject::Other => Speaker::Interlocutor,
        }
    }

    /// What defines the prompt, apart from the values put in.
    pub(super) fn definition(&self) -> String {
        match &self.template {
            Some(template) => template.clone(),
            None => format!("{GENERIC}\n{:?} {:?} {:?} {:?}", self.about, self.question, self.scale, self.examples),
        }
    }

    /// The prompt with `values`, without the answer format.
    ///
    /// # Errors
    /// The template engine's error.
    pub(super) fn prompt(&self, values: Value) -> Result<String, String> {
        if let Some(template) = &self.template {
            return render(template, values);
        }
        let question = render(
            self.question.as_deref().unwrap_or_default(),
            minijinja::context! { other => "Other", ..values.clone() },
        )?;
        let examples: Vec<(String, u8)> =
            self.examples.iter().map(|example| (example.conversation.join("\n"), example.rating)).collect();
        let own = minijinja::context! {
            asked => question,
            scale => self.scale.iter().map(|(step, meaning)| (*step, meaning.clone())).collect::<Vec<_>>(),
            examples,
            about_other => self.about == RubricSubject::Other,
            whole => self.per == RubricUnit::Conversation,
        };
        render(GENERIC, minijinja::context! { ..own, ..values })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_rubric_can_be_read() {
        for yaml in SHIPPED {
            Rubric::parse(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        }
        assert_eq!(Rubric::shipped().len(), SHIPPED.len());
        assert_eq!(Rubric::standard().count(), 5);
    }

    #[test]
    fn a_rubric_of_ones_own_becomes_a_prompt() {
        let yaml = "rubric: warmth\nversion: 2\nabout: other\nper: message\npolarity: high\nmeaning: warm?\n\
                    question: \"Is {{ other }} warm to {{ name }}?\"\nscale: {1: cold, 5: warm}\n\
                    examples: [{conversation: [\"Kim: Hi.\", \"Other: Go away.\"], rating: 1}]\n";
        let rubric = Rubric::parse(yaml).unwrap();
        assert_eq!(rubric.ids(), ["warmth/2"]);
        let prompt =
            rubric.prompt(minijinja::context! { name => "Ana", window => "Ana: Hello.\nOther: Dear!" }).unwrap();
        for part in ["Is Other warm to Ana?", "1 = cold", "5 = warm", "Other: Go away.", "Rating: 1", "Other: Dear!"] {
            assert!(prompt.contains(part), "{part}\n{prompt}");
        }
    }

    #[test]
    fn a_wrong_rubric_says_what_is_wrong() {
        let check = |yaml: &str, why: &str| {
            let error = Rubric::parse(yaml).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        let good = "rubric: warmth\nversion: 1\nabout: other\nper: message\npolarity: high\nmeaning: warm?\nquestion: Warm?\nscale: {1: cold, 5: warm}\n";
        assert!(Rubric::parse(good).is_ok());
        check(&good.replace("warmth", "War mth"), "a-z");
        check(&good.replace("scale: {1: cold, 5: warm}\n", ""), "what 1 and 5 mean");
        check(&good.replace("question: Warm?\n", ""), "`question` is missing");
        check(&good.replace("about: other", "about: both"), "both");
        check(&good.replace("5: warm", "5: warm, 7: hot"), "7 is outside");
        check(&good.replace("Warm?", "\"{{ name\""), "prompt failed");
    }
}
