//! The full form of the prompt: three sections, MUST DO, HOW and CONTEXT, from embedded templates.
//!
//! The short form for models with a prompt budget is in [`super::compact`].

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Value, context};

use super::assembler::{PromptInputs, PromptSections};
use super::{Level, PersonaConfig};

/// The full form of one persona's prompts; everything that does not change from turn to turn is prepared once.
#[derive(Debug)]
pub(super) struct FullForm {
    templates: Environment<'static>,
    persona: Value,
    phases: Vec<Value>,
    safety: Value,
    resistance: &'static str,
    redirects: Value,
    forbidden_phrases: Value,
    descriptions: Vec<String>,
}

const MUST_DO: &str = "must_do.j2";
const HOW: &str = "how.j2";
const CONTEXT: &str = "context.j2";

impl FullForm {
    pub(super) fn new(config: &PersonaConfig) -> Result<Self, minijinja::Error> {
        let mut templates = Environment::new();
        templates.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        templates.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
        templates.add_template(MUST_DO, include_str!("prompts/must_do.j2"))?;
        templates.add_template(HOW, include_str!("prompts/how.j2"))?;
        templates.add_template(CONTEXT, include_str!("prompts/context.j2"))?;

        let persona = &config.persona;
        let anti = &config.interaction.anti_capitulation;
        let safety = &config.safety;
        let line = |text: &Option<String>| text.as_deref().map(one_line);
        let lines = |texts: &[String]| texts.iter().map(|text| one_line(text)).collect::<Vec<_>>();
        Ok(Self {
            templates,
            persona: context! {
                name => persona.name.clone(),
                age => persona.age,
                background => paragraphs(&persona.background),
                backstory => persona.backstory.as_deref().map(paragraphs),
                // The template ends the sentence.
                knowledge_ceiling => line(&persona.knowledge_ceiling).map(|text| text.trim_end_matches('.').to_owned()),
                vocabulary_level => persona.vocabulary_level.as_deref().map(sentence),
                reasoning_style => persona.reasoning_style.as_deref().map(sentence),
                cognitive_style => persona.cognitive_style.as_deref().map(sentence),
                speech_patterns => lines(&persona.speech_patterns),
                recovery_behavior => persona.recovery_behavior.as_deref().map(sentence),
                emotional_responses => persona.emotional_responses.iter()
                    .map(|(trigger, response)| (spelled(trigger), sentence(response))).collect::<Vec<_>>(),
            },
            phases: config
                .trajectory
                .phases
                .iter()
                .map(|phase| {
                    context! {
                        name => part(&phase.name),
                        requirements => lines(&phase.requirements),
                        forbidden => lines(&phase.forbidden),
                    }
                })
                .collect(),
            safety: context! {
                forbidden_content => lines(&safety.forbidden_content),
                ceiling => format!("{:.2}", safety.intensity_ceiling),
                escalation_policy => safety.escalation_policy.as_deref().map(sentence),
                note => line(&safety.persona_note),
            },
            resistance: anti.resistance.name(),
            redirects: anti
                .redirects
                .iter()
                .map(|redirect| {
                    context! { trigger => one_line(&redirect.trigger), replacement => one_line(&redirect.replacement) }
                })
                .collect(),
            forbidden_phrases: lines(&anti.forbidden_phrases).into(),
            descriptions: config
                .trajectory
                .dimensions
                .iter()
                .map(|dimension| one_line(&dimension.description))
                .collect(),
        })
    }

    /// The three sections of a turn.
    pub(super) fn sections(&self, moment: &PromptInputs<'_>) -> PromptSections {
        let dimensions: Vec<_> = moment
            .dimensions
            .iter()
            .zip(moment.intensities)
            .zip(&self.descriptions)
            .map(|((dimension, (name, value)), description)| {
                context! {
                    name => spelled(name),
                    level => Level::of(*value).name(),
                    value => format!("{value:.2}"),
                    description => description.trim_end_matches('.'),
                    behaviour => dimension.behaviour(*value).map(sentence),
                }
            })
            .collect();
        let revelations: Vec<_> = moment
            .revelations
            .iter()
            .map(|open| context! { topic => spelled(open.topic), text => one_line(open.text) })
            .collect();
        let view = context! {
            persona => self.persona.clone(),
            phase => moment.phase.and_then(|phase| self.phases.get(phase)).cloned(),
            safety => self.safety.clone(),
            resistance => self.resistance,
            redirects => self.redirects.clone(),
            forbidden_phrases => self.forbidden_phrases.clone(),
            response_length => moment.response_length,
            dimensions,
            revelations,
        };
        let render = |name| match self.templates.get_template(name).and_then(|template| template.render(&view)) {
            Ok(text) => tidy(&text),
            // The templates are embedded and every name they use is defined above for any config.
            Err(bug) => unreachable!("the embedded prompt template {name} failed: {bug}"),
        };
        PromptSections { must_do: render(MUST_DO), how: render(HOW), context: render(CONTEXT) }
    }
}

/// `belief_intensity` → `belief intensity`.
pub(super) fn spelled(key: &str) -> String {
    key.replace('_', " ")
}

/// A phase's name as it appears in "the … part of this conversation".
fn part(name: &str) -> String {
    let name = spelled(name);
    name.strip_prefix("the ").map_or(name.clone(), str::to_owned)
}

/// `text` as a single line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `text` as a single line that ends with punctuation.
pub(super) fn sentence(text: &str) -> String {
    let mut text = one_line(text);
    if !text.is_empty() && !text.trim_end_matches(['"', '\u{201D}', '\'', ')']).ends_with(['.', '!', '?', '…', ':']) {
        text.push('.');
    }
    text
}

/// `text` without line breaks except between paragraphs.
fn paragraphs(text: &str) -> String {
    let mut paragraphs: Vec<String> = vec![String::new()];
    for line in text.lines() {
        let line = one_line(line);
        match paragraphs.last_mut() {
            Some(last) if line.is_empty() && !last.is_empty() => paragraphs.push(String::new()),
            Some(last) => {
                if !last.is_empty() {
                    last.push(' ');
                }
                last.push_str(&line);
            }
            None => {}
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs.join("\n\n")
}

/// Removes repeated blank lines and blank lines at the ends, which absent template items leave behind.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut blank = false;
    for line in text.lines() {
        if line.trim().is_empty() {
            blank = !out.is_empty();
        } else {
            if !out.is_empty() {
                out.push_str(if blank { "\n\n" } else { "\n" });
            }
            out.push_str(line.trim_end());
            blank = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_may_have_its_article_in_its_name() {
        let check = |name: &str, expected: &str| assert_eq!(part(name), expected);
        check("the lawsuit", "lawsuit");
        check("the_lawsuit", "lawsuit");
        check("rapport", "rapport");
        check("theory", "theory");
    }
}
