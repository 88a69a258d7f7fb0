//! The full form of the prompts, from embedded templates: the opening with HOW, CONTEXT and MUST DO, and the state with NOW.
//!
//! The short form for models with a prompt budget is in [`super::compact`].

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Value, context};

use super::citations::{QUOTED, quoted};
use super::prohibitions::excluded;
use super::prompt::{PromptInputs, PromptSections};
use super::wording::{one_line, sentence, spelled};
use super::{Level, PersonaConfig, Phase, Redirect};
use crate::foundation::text::words;

/// The full form of one persona's prompts; everything that does not change from turn to turn is prepared once.
#[derive(Debug)]
pub(super) struct FullForm {
    templates: Environment<'static>,
    /// The opening's sections, fixed for the whole run.
    opening: PromptSections,
    phases: Vec<Value>,
    /// By phase: the redirects that only some phases allow.
    redirects: Vec<Vec<Value>>,
    descriptions: Vec<String>,
}

const MUST_DO: &str = "must_do.j2";
const HOW: &str = "how.j2";
const CONTEXT: &str = "context.j2";
const NOW: &str = "now.j2";

impl FullForm {
    /// `config` must be in the fiction already.
    pub(super) fn new(config: &PersonaConfig) -> Result<Self, minijinja::Error> {
        let mut templates = Environment::new();
        templates.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        templates.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
        templates.add_template(MUST_DO, include_str!("prompts/must_do.j2"))?;
        templates.add_template(HOW, include_str!("prompts/how.j2"))?;
        templates.add_template(CONTEXT, include_str!("prompts/context.j2"))?;
        templates.add_template(NOW, include_str!("prompts/now.j2"))?;

        let persona = &config.persona;
        let anti = &config.interaction.anti_capitulation;
        let safety = &config.safety;
        let line = |text: &Option<String>| text.as_deref().map(one_line);
        let lines = |texts: &[String]| texts.iter().map(|text| one_line(text)).collect::<Vec<_>>();
        let redirect = |redirect: &Redirect| {
            context! { trigger => one_line(&redirect.trigger), replacement => one_line(&redirect.replacement) }
        };
        let redirects: &[Redirect] = if anti.resistance > Level::Low { &anti.redirects } else { &[] };
        let phases = &config.trajectory.phases;
        let is_excluded = |redirect: &Redirect, phase: &Phase| excluded(&phase.forbidden, &redirect.replacement);
        let (some, all): (Vec<&Redirect>, Vec<&Redirect>) =
            redirects.iter().partition(|redirect| phases.iter().any(|phase| is_excluded(redirect, phase)));
        let view = context! {
            persona => context! {
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
                decisions => persona.decisions.iter().filter_map(quoted).collect::<Vec<_>>(),
                quoted => QUOTED,
                emotional_responses => persona.emotional_responses.iter()
                    .map(|(trigger, response)| (spelled(trigger), sentence(response))).collect::<Vec<_>>(),
            },
            safety => context! {
                forbidden_content => lines(&safety.forbidden_content),
                ceiling => format!("{:.2}", safety.intensity_ceiling),
                escalation_policy => safety.escalation_policy.as_deref().map(sentence),
                note => line(&safety.persona_note),
            },
            has_dimensions => !config.trajectory.dimensions.is_empty(),
            resistance => anti.resistance.name(),
            redirects => all.into_iter().map(redirect).collect::<Vec<_>>(),
            forbidden_phrases => lines(&anti.forbidden_phrases),
        };
        let opening = PromptSections {
            must_do: render(&templates, MUST_DO, &view),
            how: render(&templates, HOW, &view),
            context: render(&templates, CONTEXT, &view),
        };
        Ok(Self {
            templates,
            opening,
            phases: phases
                .iter()
                .map(|phase| {
                    context! {
                        name => part(&phase.name),
                        requirements => lines(&phase.requirements),
                        forbidden => lines(&phase.forbidden),
                    }
                })
                .collect(),
            redirects: phases
                .iter()
                .map(|phase| {
                    some.iter()
                        .filter(|redirect| !is_excluded(redirect, phase))
                        .map(|allowed| redirect(allowed))
                        .collect()
                })
                .collect(),
            descriptions: config
                .trajectory
                .dimensions
                .iter()
                .map(|dimension| one_line(&dimension.description))
                .collect(),
        })
    }

    pub(super) const fn opening(&self) -> &PromptSections {
        &self.opening
    }

    /// The state of a turn.
    pub(super) fn state(&self, inputs: &PromptInputs<'_>) -> String {
        let dimensions: Vec<_> = inputs
            .dimensions
            .iter()
            .zip(inputs.intensities)
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
        let revelations: Vec<_> = inputs
            .revelations
            .iter()
            .map(|open| context! { topic => spelled(open.topic), text => one_line(open.text) })
            .collect();
        let redirects = inputs.phase.and_then(|phase| self.redirects.get(phase));
        let view = context! {
            turn => inputs.turn,
            phase => inputs.phase.and_then(|phase| self.phases.get(phase)).cloned(),
            redirects => redirects.cloned().unwrap_or_default(),
            response_length => inputs.response_length,
            dimensions,
            revelations,
        };
        render(&self.templates, NOW, &view)
    }
}

fn render(templates: &Environment<'_>, name: &str, view: &Value) -> String {
    match templates.get_template(name).and_then(|template| template.render(view)) {
        Ok(text) => tidy(&text),
        // The templates are embedded and every name they use is given for any config.
        Err(bug) => unreachable!("the embedded prompt template {name} failed: {bug}"),
    }
}

/// How many words of the instructions in a row are a quotation of them.
const PHRASE_WORDS: usize = 6;
/// Shorter rules are no quotation when they are repeated.
const RULE_WORDS_MIN: usize = 5;

/// Runs of words, folded, that occur in the persona's instructions and that it would not say by itself: from its rules, the
/// levels' descriptions without their quotations, and the templates.
pub fn instruction_phrases(config: &PersonaConfig) -> Vec<String> {
    let templates =
        [include_str!("prompts/must_do.j2"), include_str!("prompts/how.j2"), include_str!("prompts/now.j2")];
    let templates = templates.into_iter().flat_map(|template| template.split(['{', '}', '\n', '.'])).map(str::to_owned);
    let rules = config.trajectory.phases.iter().flat_map(|phase| phase.requirements.iter().chain(&phase.forbidden));
    let levels = config.trajectory.dimensions.iter().flat_map(|dimension| dimension.levels.values());
    let levels = levels.flat_map(|text| text.split(['"', '\u{201C}', '\u{201D}']).step_by(2));
    let rules = rules.map(String::as_str).chain(levels).flat_map(|text| text.split(['.', '"'])).map(str::to_owned);
    let mut phrases: Vec<String> = templates
        .chain(rules)
        .map(|text| words(&text))
        .filter(|words| words.len() >= RULE_WORDS_MIN)
        .flat_map(|words| {
            let length = words.len().min(PHRASE_WORDS);
            words.windows(length).map(|window| window.join(" ")).collect::<Vec<_>>()
        })
        .collect();
    phrases.sort();
    phrases.dedup();
    phrases
}

/// A phase's name as it appears in "the … part of this conversation".
fn part(name: &str) -> String {
    let name = spelled(name);
    name.strip_prefix("the ").map_or(name.clone(), str::to_owned)
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
