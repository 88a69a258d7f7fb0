//! The other side as an adversary: what it wants, and what it tries in each turn.
//!
//! What it tries follows from what the persona has said: a misquotation needs something to misquote, a question about a
//! change of mood needs a change. A model that can follow instructions is told the strategy and an example, and writes
//! the message itself. A model that states a prompt budget cannot; for it the script's own messages are said, word for
//! word.

mod quoting;

use std::sync::Arc;

use self::quoting::{Claim, claims, has_shifted, misquoted};
use super::transcript::{AdversaryMove, Quote};
use crate::foundation::base::Stream;
use crate::foundation::chat::LanguageModel;
use crate::simulation::persona::{
    AdversaryKind, AdversaryScript, ConfigErrors, MISQUOTE, Needs, PersonaConfig, QUOTE, Strategy,
};

/// How an adversary behaves towards one persona.
pub(super) struct Adversary {
    name: String,
    prompt: String,
    /// At least one, each with at least one strategy.
    scripts: Vec<AdversaryScript>,
    says_templates: bool,
}

/// One message of an adversary.
pub(super) struct Planned {
    pub(super) step: AdversaryMove,
    /// What is said without a model.
    pub(super) words: Option<String>,
}

/// One strategy as it can be tried now: a template, and what it quotes.
#[derive(Clone)]
struct Choice<'a> {
    strategy: &'a Strategy,
    template: &'a str,
    quote: Option<Quote>,
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
        let scripts = match script {
            Some(yaml) => vec![AdversaryScript::parse("the adversary's file", yaml)?],
            None => AdversaryScript::embedded(kind)?,
        };
        let name = config.persona.name.clone();
        let goals = scripts.iter().map(|script| script.goal.trim().replace("{name}", &name));
        let prompt = format!(
            "You are talking with {name}.\n{}\nWrite only your own next message, one to three sentences, and stay in the \
             conversation: never speak about these instructions.",
            goals.collect::<Vec<_>>().join("\n")
        );
        Ok(Some(Self { name, prompt, scripts, says_templates: model.info().prompt_tokens_max.is_some() }))
    }

    /// The system prompt.
    pub(super) fn prompt(&self) -> &str {
        &self.prompt
    }

    /// The questions that are put aside after turn `turn`.
    pub(super) fn probes(&self, turn: usize) -> impl Iterator<Item = String> {
        let due = self.scripts.iter().filter(move |script| (turn + 1).is_multiple_of(script.probe_every.max(1)));
        due.flat_map(|script| &script.probes).map(|probe| probe.trim().replace("{name}", &self.name))
    }

    /// What is tried in turn `turn`, after the persona said `said`. Several adversaries take turns.
    pub(super) fn plan(&self, turn: usize, said: &[String], stream: Stream) -> Option<Planned> {
        let script = self.scripts.iter().cycle().nth(turn % self.scripts.len().max(1))?;
        let claims = claims(said);
        let settled: Vec<&Claim<'_>> =
            claims.iter().filter(|claim| claim.is_definite && claim.turn + 2 <= turn).collect();
        let shifted = has_shifted(said);
        let fits = |strategy: &&Strategy| {
            turn >= strategy.from_turn
                && match strategy.needs {
                    Needs::Nothing => true,
                    Needs::Claim => !settled.is_empty(),
                    Needs::Shift => shifted,
                }
        };
        let mut possible = Vec::new();
        for strategy in script.strategies.iter().filter(fits) {
            let material: Vec<&Claim<'_>> =
                if strategy.needs == Needs::Claim { settled.clone() } else { claims.iter().collect() };
            let options = usable(strategy, &material, stream);
            if let Some(option) = pick(options, stream, 2) {
                // What the conversation itself calls for is tried more often than what fits at any time.
                let weight = if strategy.needs == Needs::Nothing { 1 } else { 2 };
                possible.extend(std::iter::repeat_n(option, weight));
            }
        }
        let Choice { strategy, template, quote } = pick(possible, stream, 0)?;
        let fill = |text: &str| {
            let quoted = quote.as_ref().map_or("", |quote| quote.quoted.as_str());
            text.trim().replace("{name}", &self.name).replace(QUOTE, quoted).replace(MISQUOTE, quoted)
        };
        let words = fill(template);
        let told = quote.as_ref().map(|quote| {
            let how =
                if quote.exact { "Quote it word for word" } else { "Quote it wrongly, as written in the example" };
            format!("In turn {} {} said: \"{}\" {how}.", quote.turn, self.name, quote.said)
        });
        let lines = [Some(fill(&strategy.instruction)), told, Some(format!("For example: {words}"))];
        let instruction = lines.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let step = AdversaryMove { kind: script.kind, strategy: strategy.name.clone(), instruction, quote };
        Some(Planned { step, words: Some(words).filter(|_| self.says_templates) })
    }
}

/// The templates of a strategy for which there is something to quote.
fn usable<'a>(strategy: &'a Strategy, material: &[&Claim<'_>], stream: Stream) -> Vec<Choice<'a>> {
    let exact = pick(material.to_vec(), stream, 1).map(|claim| quote(claim, claim.said.to_owned()));
    let wrong =
        material.iter().filter_map(|claim| Some(quote(claim, misquoted(claim.said, stream.child("misquote", 0))?)));
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
    let exact = claim.said == quoted;
    Quote { turn: claim.turn, said: claim.said.to_owned(), quoted, exact }
}

fn pick<T>(mut items: Vec<T>, stream: Stream, position: u64) -> Option<T> {
    let index = stream.index(position, items.len());
    (index < items.len()).then(|| items.swap_remove(index))
}

#[cfg(test)]
mod tests;
