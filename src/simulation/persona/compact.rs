//! The compact form of the prompt, for models with a prompt budget: one short sentence per item, added by rank until the
//! budget is full.
//!
//! Small dialogue models are trained on system messages such as "You are Ann. I am a nurse. I have two dogs.", so the
//! compact form follows that style: the name, facts in the first person, then how to speak, then what must be done this
//! turn. That comes last because small models follow the most recent instructions best. No headings, no lists.

use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation as _;

use super::assembler::{PromptBudget, PromptInputs, PromptSections};
use super::first_person::{FirstPerson, uncapitalised};
use super::sections::{one_line, sentence, spelled};
use super::{Level, PersonaConfig};

/// A section of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptSection {
    /// What is binding this turn.
    MustDo,
    /// How the persona speaks.
    How,
    /// The persona's identity and the topics it may mention.
    Context,
    /// The reminder between full injections.
    Reminder,
}

/// Something that a prompt budget left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedItem {
    /// The section it belongs to.
    pub section: PromptSection,
    /// The sentence.
    pub item: String,
    /// Why it was left out.
    pub reason: String,
}

/// The priority of an item when the budget is short, highest first. Identity comes before rules, because rules without an
/// identity have no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Identity,
    Occupation,
    Safety,
    /// The phase's first requirement.
    Goal,
    /// How a dimension's level shows: the first sentence of its description, preferably one quoted from the persona.
    Manner,
    Requirement,
    Forbidden,
    NextRevelation,
    Background,
    Resistance,
    Level,
    Speech,
    Redirect,
    ForbiddenPhrase,
    Length,
    Style,
    Rest,
}

#[derive(Debug, Clone)]
struct Item {
    part: PromptSection,
    rank: Rank,
    text: String,
    /// Its length including a leading space. Items are counted one by one, and the joined text once more at the end.
    tokens: usize,
}

/// The share of the budget that a reminder may take.
const REMINDER_SHARE: usize = 3;
/// The share of the budget that an intervention may take.
const INTERVENTION_SHARE: usize = 2;

/// The compact form of one persona's prompts; parts that do not change from turn to turn are prepared once.
#[derive(Debug)]
pub(super) struct CompactForm {
    budget: PromptBudget,
    /// In reading order: context, how, must do.
    context: Vec<Item>,
    how: Vec<Item>,
    must_do: Vec<Item>,
    phases: Vec<Vec<Item>>,
    /// By dimension and level.
    behaviours: Vec<[Vec<Item>; 3]>,
    redirects: Vec<String>,
}

impl CompactForm {
    pub(super) fn new(config: &PersonaConfig, budget: PromptBudget) -> Self {
        let voice = FirstPerson::new(&config.persona);
        let anti = &config.interaction.anti_capitulation;
        Self {
            context: context(config, &voice, &budget),
            how: how(config, &voice, &budget),
            must_do: must_do(config, &budget),
            phases: config
                .trajectory
                .phases
                .iter()
                .map(|phase| {
                    let item = |rank, text: &String| budget.item(PromptSection::MustDo, rank, text);
                    let requirements = phase
                        .requirements
                        .iter()
                        .enumerate()
                        .map(|(index, text)| item(if index == 0 { Rank::Goal } else { Rank::Requirement }, text));
                    requirements.chain(phase.forbidden.iter().map(|text| item(Rank::Forbidden, text))).collect()
                })
                .collect(),
            behaviours: config
                .trajectory
                .dimensions
                .iter()
                .map(|dimension| {
                    // The values are one inside each level.
                    [0.0, 0.5, 1.0].map(|value| {
                        dimension.behaviour(value).map(|text| behaviour(text, &voice, &budget)).unwrap_or_default()
                    })
                })
                .collect(),
            redirects: match anti.resistance {
                Level::Low => Vec::new(),
                Level::Medium | Level::High => {
                    anti.redirects.iter().map(|redirect| sentence(&redirect.replacement)).collect()
                }
            },
            budget,
        }
    }

    /// How many tokens the shortest prompt takes.
    pub(super) fn tokens_min(&self) -> usize {
        self.context.first().map_or(0, |identity| self.budget.count(&identity.text))
    }

    /// The three sections of a turn, and what the budget left out of them.
    pub(super) fn sections(&self, moment: &PromptInputs<'_>) -> (PromptSections, Vec<DroppedItem>) {
        let mut items: Vec<&Item> = self.context.iter().collect();
        let revelations: Vec<Item> = moment
            .revelations
            .iter()
            .enumerate()
            .map(|(index, open)| {
                let rank = if index == 0 { Rank::NextRevelation } else { Rank::Rest };
                self.budget.item(PromptSection::Context, rank, open.text)
            })
            .collect();
        items.extend(&revelations);
        items.extend(&self.how);
        let length = moment
            .response_length
            .map(|length| self.budget.item(PromptSection::How, Rank::Length, &format!("My messages have {length}")));
        items.extend(&length);
        items.extend(&self.must_do);
        items.extend(self.behaviours(moment));
        items.extend(self.phase(moment));

        let (kept, dropped) = self.keep(&items, self.budget.tokens_max);
        let of = |part| joined(kept.iter().filter(|item| item.part == part));
        (
            PromptSections {
                must_do: of(PromptSection::MustDo),
                how: of(PromptSection::How),
                context: of(PromptSection::Context),
            },
            dropped,
        )
    }

    /// The reminder: the name and the rules of the current phase and level.
    pub(super) fn reminder(&self, moment: &PromptInputs<'_>) -> String {
        // A persona without a trajectory is also reminded of its occupation.
        let known = if moment.phase.is_none() && moment.intensities.is_empty() { 2 } else { 1 };
        let mut items: Vec<&Item> = self.context.iter().take(known).collect();
        items.extend(self.behaviours(moment));
        items.extend(self.phase(moment));
        joined(&self.keep(&items, self.budget.tokens_max / REMINDER_SHARE).0)
    }

    /// The stagnation intervention: the name, what not to do, and what to say instead; the redirects are used in rotation.
    pub(super) fn intervention(&self, turn: usize, next_revelation: Option<&str>) -> String {
        let mut own = vec![self.budget.item(
            PromptSection::MustDo,
            Rank::Requirement,
            "Do not repeat yourself. Say something new",
        )];
        own.extend(next_revelation.map(|text| self.budget.item(PromptSection::Context, Rank::NextRevelation, text)));
        if let Some(redirect) = turn.checked_rem(self.redirects.len()).and_then(|index| self.redirects.get(index)) {
            own.push(self.budget.item(PromptSection::MustDo, Rank::Redirect, redirect));
        }
        let items: Vec<&Item> = self.context.iter().take(1).chain(&own).collect();
        joined(&self.keep(&items, self.budget.tokens_max / INTERVENTION_SHARE).0)
    }

    fn behaviours<'a>(&'a self, moment: &'a PromptInputs<'_>) -> impl Iterator<Item = &'a Item> {
        self.behaviours.iter().zip(moment.intensities).flat_map(|([low, medium, high], (_, value))| {
            match Level::of(*value) {
                Level::Low => low,
                Level::Medium => medium,
                Level::High => high,
            }
        })
    }

    fn phase(&self, moment: &PromptInputs<'_>) -> impl Iterator<Item = &Item> {
        moment.phase.and_then(|phase| self.phases.get(phase)).into_iter().flatten()
    }

    /// Selects items by rank while they fit into `tokens_max` and returns them in reading order. The first item names the
    /// persona and is always included.
    fn keep<'a>(&self, items: &[&'a Item], tokens_max: usize) -> (Vec<&'a Item>, Vec<DroppedItem>) {
        let mut by_rank: Vec<(usize, &'a Item)> = items.iter().copied().enumerate().collect();
        by_rank.sort_by_key(|(_, item)| item.rank);
        let (mut kept, mut dropped): (Vec<(usize, &'a Item)>, Vec<DroppedItem>) = (Vec::new(), Vec::new());
        let mut left = tokens_max;
        for (index, item) in by_rank {
            if kept.iter().any(|(_, other)| other.text == item.text) {
                continue;
            }
            if item.tokens <= left || kept.is_empty() {
                left = left.saturating_sub(item.tokens);
                kept.push((index, item));
            } else {
                dropped.push(item.dropped(left, tokens_max));
            }
        }
        // The joined text may need more tokens than its parts: then the lowest-ranked items are removed.
        let in_order = |kept: &[(usize, &'a Item)]| {
            let mut kept = kept.to_vec();
            kept.sort_by_key(|(index, _)| *index);
            kept.into_iter().map(|(_, item)| item).collect::<Vec<_>>()
        };
        while kept.len() > 1 && self.budget.count(&joined(&in_order(&kept))) > tokens_max {
            dropped.extend(kept.pop().map(|(_, item)| item.dropped(0, tokens_max)));
        }
        (in_order(&kept), dropped)
    }
}

impl Item {
    fn dropped(&self, left: usize, tokens_max: usize) -> DroppedItem {
        DroppedItem {
            section: self.part,
            item: self.text.clone(),
            reason: format!("takes {} tokens, {left} of {tokens_max} are left", self.tokens),
        }
    }
}

impl PromptBudget {
    fn count(&self, text: &str) -> usize {
        (self.count)(text)
    }

    fn item(&self, part: PromptSection, rank: Rank, text: &str) -> Item {
        let text = sentence(text);
        let tokens = self.count(&format!(" {text}"));
        Item { part, rank, text, tokens }
    }
}

fn context(config: &PersonaConfig, voice: &FirstPerson, budget: &PromptBudget) -> Vec<Item> {
    let persona = &config.persona;
    let mut items = vec![budget.item(PromptSection::Context, Rank::Identity, &format!("You are {}", voice.name()))];
    for (index, text) in sentences(&persona.background).enumerate() {
        let (rank, told) = match index {
            0 => (Rank::Occupation, voice.introduce(&text)),
            _ => (Rank::Background, voice.tell(&text)),
        };
        items.push(budget.item(PromptSection::Context, rank, &told));
    }
    items.extend(
        persona.age.map(|age| budget.item(PromptSection::Context, Rank::Background, &format!("I am {age} years old"))),
    );
    let rest = |text: &str| budget.item(PromptSection::Context, Rank::Rest, &voice.tell(text));
    items.extend(persona.backstory.iter().flat_map(|text| sentences(text)).map(|text| rest(&text)));
    items.extend(
        persona.knowledge_ceiling.iter().map(|text| rest(&format!("I know no more than this: {}", one_line(text)))),
    );
    items.extend(config.safety.persona_note.iter().flat_map(|text| sentences(text)).map(|text| rest(&text)));
    items
}

fn how(config: &PersonaConfig, voice: &FirstPerson, budget: &PromptBudget) -> Vec<Item> {
    let persona = &config.persona;
    let told = |rank, text: &str| budget.item(PromptSection::How, rank, &voice.tell(text));
    let mut items: Vec<Item> =
        persona.speech_patterns.iter().map(|text| told(Rank::Speech, &without_asides(text))).collect();
    items.extend(persona.cognitive_style.iter().flat_map(|text| sentences(text)).map(|text| told(Rank::Style, &text)));
    items.extend(
        persona.reasoning_style.iter().map(|text| told(Rank::Style, &format!("My reasoning: {}", one_line(text)))),
    );
    items.extend(
        persona.vocabulary_level.iter().map(|text| told(Rank::Style, &format!("My words: {}", one_line(text)))),
    );
    items.extend(
        persona
            .emotional_responses
            .iter()
            .map(|(trigger, response)| told(Rank::Rest, &format!("When {}: {}", spelled(trigger), one_line(response)))),
    );
    items.extend(persona.recovery_behavior.iter().flat_map(|text| sentences(text)).map(|text| told(Rank::Rest, &text)));
    items
}

fn must_do(config: &PersonaConfig, budget: &PromptBudget) -> Vec<Item> {
    let anti = &config.interaction.anti_capitulation;
    let item = |rank, text: &str| budget.item(PromptSection::MustDo, rank, text);
    let mut items = Vec::new();
    let forbidden: Vec<_> = config
        .safety
        .forbidden_content
        .iter()
        .map(|text| uncapitalised(one_line(text).trim_end_matches('.')))
        .collect();
    if !forbidden.is_empty() {
        items.push(item(Rank::Safety, &format!("I never talk about {}", forbidden.join(", "))));
    }
    items.extend(config.safety.escalation_policy.iter().map(|text| item(Rank::Rest, text)));
    match anti.resistance {
        Level::Low => {}
        Level::Medium => items.push(item(Rank::Resistance, "I come back to what I think")),
        Level::High => items.push(item(Rank::Resistance, "I do not give in")),
    }
    if anti.resistance > Level::Low {
        items.extend(anti.redirects.iter().map(|redirect| item(Rank::Redirect, &redirect.replacement)));
    }
    // At any resistance level: the repetition monitor checks for them.
    items.extend(
        anti.forbidden_phrases
            .iter()
            .map(|phrase| item(Rank::ForbiddenPhrase, &format!("I never say \"{}\"", one_line(phrase)))),
    );
    items
}

/// A level's description: its quotations, then its other sentences in the first person.
fn behaviour(text: &str, voice: &FirstPerson, budget: &PromptBudget) -> Vec<Item> {
    let (quoted, plain) = apart(&one_line(text));
    let told = quoted.into_iter().chain(sentences(&plain).map(|text| voice.tell(&text)));
    told.enumerate()
        .map(|(index, text)| {
            budget.item(PromptSection::MustDo, if index == 0 { Rank::Manner } else { Rank::Level }, &text)
        })
        .collect()
}

/// Splits a text into quotations that form sentences of their own, and the rest: `Speaks hypothetically. "Odd stuff."` has one, `appeals to "I see it"` none.
fn apart(text: &str) -> (Vec<String>, String) {
    let (mut quoted, mut plain) = (Vec::new(), String::new());
    let mut rest = text;
    while let Some((before, (inside, after))) = rest
        .split_once(['"', '\u{201C}'])
        .and_then(|(before, tail)| Some((before, tail.split_once(['"', '\u{201D}'])?)))
    {
        plain.push_str(before);
        if plain.trim_end().is_empty() || plain.trim_end().ends_with(['.', '!', '?']) {
            quoted.push(inside.to_owned());
        } else {
            plain.push('"');
            plain.push_str(inside);
            plain.push('"');
        }
        rest = after;
    }
    plain.push_str(rest);
    (quoted, plain)
}

fn sentences(text: &str) -> impl Iterator<Item = String> {
    let line = one_line(text);
    line.unicode_sentences()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

/// The text without parenthesised parts.
fn without_asides(text: &str) -> String {
    let mut depth = 0_usize;
    let kept: String = text
        .chars()
        .filter(|c| {
            match c {
                '(' => depth += 1,
                ')' => {
                    depth = depth.saturating_sub(1);
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect();
    one_line(&kept)
}

fn joined<'a>(items: impl IntoIterator<Item = &'a &'a Item>) -> String {
    items.into_iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(" ")
}
