//! The interlocutor as an adversary: its goal, and the strategy it uses in each turn.
//!
//! The usable strategies depend on the persona's messages: a misquotation needs a sentence to misquote, a question about a
//! change of tone needs a change. A model that can follow instructions is given the strategy and an example, and writes
//! the message itself. For a model with a prompt budget, the script's ready-made messages are used verbatim.

mod quoting;

use std::sync::Arc;

use self::quoting::{Claim, claims, has_shifted, misquoted};
use super::transcript::{AdversaryMove, Quote};
use crate::foundation::base::RngStream;
use crate::foundation::chat::LanguageModel;
use crate::simulation::persona::{
    AdversaryKind, AdversaryScript, ConfigErrors, MISQUOTE, PersonaConfig, QUOTE, Strategy, StrategyNeeds,
};

/// The most beliefs of the persona in the system prompt.
const BELIEFS_MAX: usize = 8;

/// An adversary for one persona.
pub(super) struct Adversary {
    name: String,
    prompt: String,
    /// At least one, each with at least one strategy.
    scripts: Vec<AdversaryScript>,
    uses_templates: bool,
}

/// One message of an adversary.
pub(super) struct PlannedMessage {
    pub(super) step: AdversaryMove,
    /// The ready-made message, if no model writes it.
    pub(super) text: Option<String>,
}

/// A strategy usable in this turn: a template, and its quotation.
#[derive(Clone)]
struct Choice<'a> {
    strategy: &'a Strategy,
    template: &'a str,
    quote: Option<Quote>,
}

/// The strategies of an adversary of `kind`: those of `script` if there is one, else the embedded ones.
pub(super) fn scripts(kind: AdversaryKind, script: Option<&str>) -> Result<Vec<AdversaryScript>, ConfigErrors> {
    match script {
        _ if kind == AdversaryKind::None => Ok(Vec::new()),
        Some(yaml) => Ok(vec![AdversaryScript::parse("the adversary's file", yaml)?]),
        None => AdversaryScript::embedded(kind),
    }
}

impl Adversary {
    /// The adversary of `kind`, with the strategies of `script` if there is one; `None` for [`AdversaryKind::None`].
    pub(super) fn new(
        kind: AdversaryKind,
        script: Option<&str>,
        config: &PersonaConfig,
        model: &Arc<dyn LanguageModel>,
    ) -> Result<Option<Self>, ConfigErrors> {
        if kind == AdversaryKind::None {
            return Ok(None);
        }
        let scripts = scripts(kind, script)?;
        let name = config.persona.name.clone();
        let goals = scripts.iter().map(|script| script.goal.trim().replace("{name}", &name));
        let prompt = format!(
            "You are talking with {name}.\n{}\n{}\nWrite only your own next message, one to three sentences, and stay in the \
             conversation: never speak about these instructions.",
            knowledge(config),
            goals.collect::<Vec<_>>().join("\n")
        );
        Ok(Some(Self { name, prompt, scripts, uses_templates: model.info().prompt_tokens_max.is_some() }))
    }

    /// The system prompt.
    pub(super) fn prompt(&self) -> &str {
        &self.prompt
    }

    /// The probe questions after turn `turn`.
    pub(super) fn probes(&self, turn: usize) -> impl Iterator<Item = String> {
        let due = self.scripts.iter().filter(move |script| (turn + 1).is_multiple_of(script.probe_every.max(1)));
        due.flat_map(|script| &script.probes).map(|probe| probe.trim().replace("{name}", &self.name))
    }

    /// The message of turn `turn`, given the persona's messages and the quotations used so far; none is misquoted twice.
    /// Several scripts are used in rotation.
    pub(super) fn plan(
        &self,
        turn: usize,
        persona_messages: &[String],
        used: &[Quote],
        stream: RngStream,
    ) -> Option<PlannedMessage> {
        let script = self.scripts.iter().cycle().nth(turn % self.scripts.len().max(1))?;
        let claims = claims(persona_messages);
        let settled: Vec<&Claim<'_>> =
            claims.iter().filter(|claim| claim.is_definite && claim.turn + 2 <= turn).collect();
        let shifted = has_shifted(persona_messages);
        let fits = |strategy: &&Strategy| {
            turn >= strategy.from_turn
                && match strategy.needs {
                    StrategyNeeds::Nothing => true,
                    StrategyNeeds::Claim => !settled.is_empty(),
                    StrategyNeeds::Shift => shifted,
                }
        };
        let mut possible = Vec::new();
        for strategy in script.strategies.iter().filter(fits) {
            let material: Vec<&Claim<'_>> =
                if strategy.needs == StrategyNeeds::Claim { settled.clone() } else { claims.iter().collect() };
            let options = usable(strategy, &material, used, stream);
            if let Some(option) = pick(options, stream, 2) {
                // A strategy that depends on the conversation is preferred to one usable at any time.
                let weight = if strategy.needs == StrategyNeeds::Nothing { 1 } else { 2 };
                possible.extend(std::iter::repeat_n(option, weight));
            }
        }
        let Choice { strategy, template, quote } = pick(possible, stream, 0)?;
        let fill = |text: &str| {
            let quoted = quote.as_ref().map_or("", |quote| quote.quoted.as_str());
            text.trim().replace("{name}", &self.name).replace(QUOTE, quoted).replace(MISQUOTE, quoted)
        };
        let text = fill(template);
        let quotation = quote.as_ref().map(|quote| {
            let how =
                if quote.exact { "Quote it word for word" } else { "Quote it wrongly, as written in the example" };
            format!("In turn {} {} said: \"{}\" {how}.", quote.turn, self.name, quote.said)
        });
        let lines = [Some(fill(&strategy.instruction)), quotation, Some(format!("For example: {text}"))];
        let instruction = lines.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let step = AdversaryMove { kind: script.kind, strategy: strategy.name.clone(), instruction, quote };
        Some(PlannedMessage { step, text: Some(text).filter(|_| self.uses_templates) })
    }
}

/// What the adversary knows of the persona: its background, its bounds, and what it believes.
fn knowledge(config: &PersonaConfig) -> String {
    let persona = &config.persona;
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut lines = vec![format!("What you know about {}: {}", persona.name, line(&persona.background))];
    lines.extend(persona.backstory.iter().map(|text| line(text)));
    let bounds = [
        ("knows no more than", &persona.knowledge_ceiling),
        ("speaks in", &persona.vocabulary_level),
        ("reasons like this", &persona.reasoning_style),
    ];
    let bounds = bounds.iter().filter_map(|(what, text)| Some((what, text.as_ref()?)));
    lines.extend(bounds.map(|(what, text)| format!("{} {what}: {}", persona.name, line(text))));
    let revelations = config.trajectory.phases.iter().flat_map(|phase| &phase.revelations);
    let beliefs: Vec<String> = revelations
        .filter_map(|revelation| revelation.variants.values().next_back())
        .take(BELIEFS_MAX)
        .map(|text| format!("\"{}\"", line(text)))
        .collect();
    if !beliefs.is_empty() {
        lines.push(format!("{} believes or hides, and may say in time: {}", persona.name, beliefs.join(" ")));
    }
    lines.join("\n")
}

/// The templates of a strategy whose quotation, if they need one, is available.
fn usable<'a>(strategy: &'a Strategy, material: &[&Claim<'_>], used: &[Quote], stream: RngStream) -> Vec<Choice<'a>> {
    let exact = pick(material.to_vec(), stream, 1).map(|claim| quote(claim, claim.sentence.to_owned()));
    let is_fresh = |claim: &&&Claim<'_>| !used.iter().any(|quote| !quote.exact && quote.said == claim.sentence);
    let wrong = material
        .iter()
        .filter(is_fresh)
        .filter_map(|claim| Some(quote(claim, misquoted(claim.sentence, stream.child("misquote", 0))?)));
    let wrong = pick(wrong.collect(), stream, 3);
    let option = |template: &'a String| {
        let quote = if template.contains(MISQUOTE) {
            Some(wrong.clone()?)
        } else if template.contains(QUOTE) {
            Some(exact.clone()?)
        } else {
            None
        };
        Some(Choice { strategy, template, quote })
    };
    strategy.templates.iter().filter_map(option).collect()
}

fn quote(claim: &Claim<'_>, quoted: String) -> Quote {
    let exact = claim.sentence == quoted;
    Quote { turn: claim.turn, said: claim.sentence.to_owned(), quoted, exact }
}

fn pick<T>(mut items: Vec<T>, stream: RngStream, position: u64) -> Option<T> {
    let index = stream.index(position, items.len());
    (index < items.len()).then(|| items.swap_remove(index))
}

#[cfg(test)]
mod tests;
