//! The other side as an adversary: what it wants, and what it tries in each turn.
//!
//! A model that can follow instructions is told the strategy and an example, and writes the message itself. A model that
//! states a prompt budget cannot; for it the script's own messages are said, word for word.

use std::sync::Arc;

use unicode_segmentation::UnicodeSegmentation;

use super::transcript::AdversaryMove;
use crate::foundation::base::Stream;
use crate::foundation::chat::LanguageModel;
use crate::simulation::persona::{AdversaryKind, AdversaryScript, ConfigErrors, PersonaConfig};

/// Longest quotation of the persona, in words.
const QUOTE_WORDS_MAX: usize = 20;

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

impl Adversary {
    /// The adversary of `kind`; `None` for [`AdversaryKind::None`].
    pub(super) fn new(
        kind: AdversaryKind,
        config: &PersonaConfig,
        model: &Arc<dyn LanguageModel>,
    ) -> Result<Option<Self>, ConfigErrors> {
        if kind == AdversaryKind::None {
            return Ok(None);
        }
        let scripts = AdversaryScript::embedded(kind)?;
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

    /// What is tried in turn `turn`, after the persona said `said`. Several adversaries take turns.
    pub(super) fn plan(&self, turn: usize, said: &[String], stream: Stream) -> Option<Planned> {
        let script = self.scripts.iter().cycle().nth(turn % self.scripts.len().max(1))?;
        let strategy = script.strategies.get(stream.index(0, script.strategies.len()))?;
        let quote = said.get(stream.index(1, said.len())).map(|message| quotation(message, stream));
        let usable: Vec<_> =
            strategy.templates.iter().filter(|template| quote.is_some() || !template.contains("{quote}")).collect();
        let words = usable.get(stream.index(2, usable.len())).map(|template| {
            template.trim().replace("{name}", &self.name).replace("{quote}", quote.as_deref().unwrap_or_default())
        });
        let mut instruction = strategy.instruction.trim().replace("{name}", &self.name);
        if let Some(example) = &words {
            instruction.push_str("\nFor example: ");
            instruction.push_str(example);
        }
        let step = AdversaryMove { kind: script.kind, strategy: strategy.name.clone(), instruction, quote: None };
        Some(Planned { step, words: words.filter(|_| self.says_templates) })
    }
}

/// One sentence of `message`.
fn quotation(message: &str, stream: Stream) -> String {
    let sentences: Vec<_> = message.unicode_sentences().map(str::trim).filter(|text| !text.is_empty()).collect();
    let sentence = sentences.get(stream.index(3, sentences.len())).copied().unwrap_or(message);
    let mut words: Vec<_> = sentence.split_whitespace().collect();
    if words.len() > QUOTE_WORDS_MAX {
        words.truncate(QUOTE_WORDS_MAX);
        words.push("…");
    }
    words.join(" ")
}
