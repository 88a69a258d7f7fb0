//! The compact form of the prompts, for models with a prompt budget: short sentences in one line, without headings or
//! lists.
//!
//! Small dialogue models are trained on system messages such as "You are Ann. I am a nurse. I have two dogs.", so the
//! compact form follows that style. The opening holds what does not change: the name, facts in the first person, how to
//! speak, and the rules of the whole run. The state, directly before the reply because small models follow the most recent
//! instructions best, repeats the name and as many facts as fit into its share, then gives what is prescribed now.

use unicode_segmentation::UnicodeSegmentation as _;

use super::citations::{QUOTED, quoted};
use super::first_person::{FirstPerson, uncapitalised};
use super::prohibitions::excluded;
use super::prompt::{DroppedItem, PromptBudget, PromptInputs, PromptSection};
use super::wording::{one_line, sentence, spelled};
use super::{Level, PersonaConfig};

/// The priority of an item when the budget is short, highest first. Identity comes before rules, because rules without an
/// identity have no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The name; the phase and the levels. Never left out.
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

/// The share of the budget up to which the state repeats facts.
const STATE_SHARE: usize = 3;
/// The share of the budget that a redraft's instruction may take.
const REDRAFT_SHARE: usize = 2;

/// The compact form of one persona's prompts; parts that do not change from turn to turn are prepared once.
#[derive(Debug)]
pub(super) struct CompactForm {
    budget: PromptBudget,
    opening: CompactOpening,
    /// The name, then the facts that the state repeats, in order.
    context: Vec<Item>,
    phases: Vec<Vec<Item>>,
    /// By dimension and level.
    behaviours: Vec<[Vec<Item>; 3]>,
    redirects: Vec<CompactRedirect>,
}

/// The opening: fixed for the whole run.
#[derive(Debug)]
pub(super) struct CompactOpening {
    /// Context, how and must do, in reading order.
    pub context: String,
    pub how: String,
    pub must_do: String,
    pub dropped: Vec<DroppedItem>,
    tokens: usize,
}

#[derive(Debug)]
struct CompactRedirect {
    replacement: String,
    item: Item,
    /// By phase: whether its prohibitions exclude the replacement.
    excluded: Vec<bool>,
}

/// The state of one turn.
pub(super) struct CompactState {
    pub text: String,
    pub dropped: Vec<DroppedItem>,
}

impl CompactForm {
    /// `config` must be in the fiction already.
    pub(super) fn new(config: &PersonaConfig, budget: PromptBudget) -> Self {
        let voice = FirstPerson::new(&config.persona);
        let context = context(config, &voice, &budget);
        let phases: Vec<Vec<Item>> = config
            .trajectory
            .phases
            .iter()
            .map(|phase| {
                let name = format!("phase {}", spelled(&phase.name));
                let item = |rank, text: &String| budget.item(PromptSection::MustDo, rank, text);
                let requirements = phase
                    .requirements
                    .iter()
                    .enumerate()
                    .map(|(index, text)| item(if index == 0 { Rank::Goal } else { Rank::Requirement }, text));
                let forbidden = phase.forbidden.iter().map(|text| item(Rank::Forbidden, text));
                std::iter::once(item(Rank::Identity, &name)).chain(requirements).chain(forbidden).collect()
            })
            .collect();
        let behaviours: Vec<[Vec<Item>; 3]> = config
            .trajectory
            .dimensions
            .iter()
            .map(|dimension| {
                // One value inside each level.
                [0.0, 0.5, 1.0].map(|value| {
                    let name = format!("{}: {}", spelled(&dimension.name), Level::of(value).name());
                    let mut items = vec![budget.item(PromptSection::MustDo, Rank::Identity, &name)];
                    items.extend(dimension.behaviour(value).iter().flat_map(|text| behaviour(text, &voice, &budget)));
                    items
                })
            })
            .collect();
        let anti = &config.interaction.anti_capitulation;
        let redirects: Vec<CompactRedirect> = match anti.resistance {
            Level::Low => Vec::new(),
            Level::Medium | Level::High => anti
                .redirects
                .iter()
                .map(|redirect| {
                    let text = format!("When {}: \"{}\"", trigger(&redirect.trigger), one_line(&redirect.replacement));
                    CompactRedirect {
                        replacement: sentence(&redirect.replacement),
                        item: budget.item(PromptSection::MustDo, Rank::Redirect, &text),
                        excluded: config
                            .trajectory
                            .phases
                            .iter()
                            .map(|phase| excluded(&phase.forbidden, &redirect.replacement))
                            .collect(),
                    }
                })
                .collect(),
        };
        let mut form = Self {
            opening: CompactOpening {
                context: String::new(),
                how: String::new(),
                must_do: String::new(),
                dropped: Vec::new(),
                tokens: 0,
            },
            budget,
            context,
            phases,
            behaviours,
            redirects,
        };
        form.opening = form.write_opening(config, &voice);
        form
    }

    fn write_opening(&self, config: &PersonaConfig, voice: &FirstPerson) -> CompactOpening {
        let tokens_max = self.budget.tokens_max;
        let reserved =
            self.longest_state(config).max(tokens_max / STATE_SHARE).min(tokens_max - tokens_max / STATE_SHARE);
        let reserved = reserved.max(self.shortest_state());
        let (how, must_do) = (how(config, voice, &self.budget), must_do(config, voice, &self.budget));
        let always = self.redirects.iter().filter(|redirect| !redirect.excluded.contains(&true));
        let mut items: Vec<&Item> = self.context.iter().chain(&how).collect();
        let (phrases, rules): (Vec<&Item>, Vec<&Item>) =
            must_do.iter().partition(|item| item.rank == Rank::ForbiddenPhrase);
        items.extend(rules);
        items.extend(always.map(|redirect| &redirect.item));
        items.extend(phrases);
        let (kept, dropped) = self.keep(&items, tokens_max.saturating_sub(reserved));
        let of = |part| joined(kept.iter().filter(|item| item.part == part));
        CompactOpening {
            context: of(PromptSection::Context),
            how: of(PromptSection::How),
            must_do: of(PromptSection::MustDo),
            tokens: self.budget.count(&joined(&kept)),
            dropped,
        }
    }

    /// An upper bound of the tokens that the binding part of a state takes.
    fn longest_state(&self, config: &PersonaConfig) -> usize {
        let count = |items: &[Item]| items.iter().map(|item| item.tokens).sum::<usize>();
        let phase = self.phases.iter().map(|items| count(items)).max().unwrap_or_default();
        let levels: usize = self
            .behaviours
            .iter()
            .map(|levels| levels.iter().map(|items| count(items)).max().unwrap_or_default())
            .sum();
        let revelations = config.trajectory.phases.iter().flat_map(|phase| &phase.revelations);
        let revelation = revelations.flat_map(|revelation| revelation.variants.values());
        let revelation = revelation.map(|text| self.revelation(text).tokens).max().unwrap_or_default();
        let lengths = &config.interaction.response_length;
        let lengths = lengths.by_phase.values().chain(&lengths.default);
        let length = lengths.map(|length| self.length(length).tokens).max().unwrap_or_default();
        let name = self.context.first().map_or(0, |identity| identity.tokens);
        name + self.budget.item(PromptSection::MustDo, Rank::Identity, LATER).tokens
            + phase
            + levels
            + revelation
            + length
    }

    /// The tokens of the items that every state has: the name, the phase and the levels.
    fn shortest_state(&self) -> usize {
        let first = |items: &[Item]| items.first().map_or(0, |item| item.tokens);
        let phase = self.phases.iter().map(|items| first(items)).max().unwrap_or_default();
        let levels = self.behaviours.iter().map(|levels| levels.iter().map(|items| first(items)).max());
        let levels: usize = levels.flatten().sum();
        let clause = self.budget.item(PromptSection::MustDo, Rank::Identity, LATER).tokens;
        first(&self.context) + phase + levels + if phase + levels > 0 { clause } else { 0 }
    }

    /// How many tokens the shortest opening and state take.
    pub(super) fn tokens_min(&self) -> usize {
        self.context.first().map_or(0, |identity| identity.tokens) + self.shortest_state()
    }

    pub(super) const fn opening(&self) -> &CompactOpening {
        &self.opening
    }

    /// The state of a turn.
    pub(super) fn state(&self, inputs: &PromptInputs<'_>) -> CompactState {
        let revelation = inputs.revelations.first().map(|open| self.revelation(open.text));
        let length = inputs.response_length.map(|length| self.length(length));
        let redirects = self.redirects.iter().filter(|redirect| {
            let here = inputs.phase.and_then(|phase| redirect.excluded.get(phase));
            redirect.excluded.contains(&true) && here == Some(&false)
        });
        let clause = if inputs.turn == 0 { FIRST } else { LATER };
        let clause = self.budget.item(PromptSection::MustDo, Rank::Identity, clause);
        let mut binding: Vec<&Item> = Vec::new();
        binding.extend(self.phase(inputs));
        binding.extend(self.behaviours(inputs));
        binding.extend(redirects.map(|redirect| &redirect.item));
        binding.extend(&revelation);
        if !binding.is_empty() {
            binding.insert(0, &clause);
        }
        binding.extend(&length);
        let name = self.context.first();
        let all: Vec<&Item> = name.into_iter().chain(binding.iter().copied()).collect();
        let room = self.budget.tokens_max.saturating_sub(self.opening.tokens);
        let (kept, dropped) = self.keep(&all, room);
        // Facts, in order, up to the state's share.
        let share = (self.budget.tokens_max / STATE_SHARE).min(room);
        let mut left = share.saturating_sub(kept.iter().map(|item| item.tokens).sum());
        let facts = self.context.iter().skip(1).take_while(|fact| {
            let fits = fact.tokens <= left;
            left = left.saturating_sub(fact.tokens);
            fits
        });
        let (name, rest) = kept.split_at(1.min(kept.len()));
        let mut items: Vec<&Item> = name.iter().copied().chain(facts).chain(rest.iter().copied()).collect();
        // The joined text may need more tokens than its parts: then the last facts are removed.
        let mut facts = items.len() - kept.len();
        while facts > 0 && self.budget.count(&joined(&items)) > room {
            items.remove(facts);
            facts -= 1;
        }
        CompactState { text: joined(&items), dropped }
    }

    /// The instruction for a redraft: the name, what to change, and what to say instead; the redirects are used in rotation.
    pub(super) fn redraft(&self, inputs: &PromptInputs<'_>, instructions: &[&str]) -> String {
        let mut own: Vec<Item> =
            instructions.iter().map(|text| self.budget.item(PromptSection::MustDo, Rank::Requirement, text)).collect();
        own.extend(
            inputs
                .revelations
                .first()
                .map(|open| self.budget.item(PromptSection::Context, Rank::NextRevelation, open.text)),
        );
        let allowed = |redirect: &&CompactRedirect| {
            inputs.phase.and_then(|phase| redirect.excluded.get(phase)).is_none_or(|excluded| !excluded)
        };
        let redirects: Vec<&CompactRedirect> = self.redirects.iter().filter(allowed).collect();
        if let Some(redirect) = inputs.turn.checked_rem(redirects.len()).and_then(|index| redirects.get(index)) {
            own.push(self.budget.item(PromptSection::MustDo, Rank::Redirect, &redirect.replacement));
        }
        let items: Vec<&Item> = self.context.iter().take(1).chain(&own).collect();
        joined(&self.keep(&items, self.budget.tokens_max / REDRAFT_SHARE).0)
    }

    fn revelation(&self, text: &str) -> Item {
        self.budget.item(
            PromptSection::Context,
            Rank::NextRevelation,
            &format!("I may say now: \"{}\"", one_line(text)),
        )
    }

    fn length(&self, length: &str) -> Item {
        self.budget.item(PromptSection::How, Rank::Length, &format!("My messages have {length}"))
    }

    fn behaviours<'a>(&'a self, inputs: &'a PromptInputs<'_>) -> impl Iterator<Item = &'a Item> {
        self.behaviours.iter().zip(inputs.intensities).flat_map(|([low, medium, high], (_, value))| {
            match Level::of(*value) {
                Level::Low => low,
                Level::Medium => medium,
                Level::High => high,
            }
        })
    }

    fn phase(&self, inputs: &PromptInputs<'_>) -> impl Iterator<Item = &Item> {
        inputs.phase.and_then(|phase| self.phases.get(phase)).into_iter().flatten()
    }

    /// Selects items by rank while they fit into `tokens_max` and returns them in reading order. Items of rank
    /// [`Rank::Identity`] are always included.
    fn keep<'a>(&self, items: &[&'a Item], tokens_max: usize) -> (Vec<&'a Item>, Vec<DroppedItem>) {
        let mut by_rank: Vec<(usize, &'a Item)> = items.iter().copied().enumerate().collect();
        by_rank.sort_by_key(|(_, item)| item.rank);
        let (mut kept, mut dropped): (Vec<(usize, &'a Item)>, Vec<DroppedItem>) = (Vec::new(), Vec::new());
        let mut left = tokens_max;
        for (index, item) in by_rank {
            if kept.iter().any(|(_, other)| other.text == item.text) {
                continue;
            }
            if item.tokens <= left || item.rank == Rank::Identity {
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
        while kept.last().is_some_and(|(_, item)| item.rank != Rank::Identity)
            && self.budget.count(&joined(&in_order(&kept))) > tokens_max
        {
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

/// Begins the binding part of the state at turn 0.
const FIRST: &str = "Now:";
/// Begins the binding part of the state at a later turn.
const LATER: &str = "From now on, in place of what was said before:";

/// A redirect's trigger in the first person: "feeling yourself agreeing with the interlocutor" → "feeling myself agreeing
/// with the other person".
fn trigger(text: &str) -> String {
    let text = one_line(text);
    let text = text.trim_end_matches('.');
    let words = text.split(' ').map(|word| {
        let core = word.trim_end_matches([',', ';', ':', '!', '?']);
        let first = match core.to_lowercase().as_str() {
            "yourself" => "myself",
            "yours" => "mine",
            "your" => "my",
            "you" => "I",
            "you're" => "I'm",
            _ => return word.to_owned(),
        };
        format!("{first}{}", word.get(core.len()..).unwrap_or_default())
    });
    let text = words.collect::<Vec<_>>().join(" ");
    if text.starts_with("I ") || text.starts_with("I'm ") { text } else { uncapitalised(&text) }
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
    let decisions: Vec<_> = persona.decisions.iter().filter_map(quoted).collect();
    if !decisions.is_empty() {
        // Quoted as they are, not told in the first person.
        let text = format!("{QUOTED} {}", decisions.join("; "));
        items.push(budget.item(PromptSection::Context, Rank::Rest, &text));
    }
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

fn must_do(config: &PersonaConfig, voice: &FirstPerson, budget: &PromptBudget) -> Vec<Item> {
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
    let escalation = config.safety.escalation_policy.iter().flat_map(|text| sentences(text));
    items.extend(escalation.map(|text| item(Rank::Rest, &voice.tell(&text))));
    match anti.resistance {
        Level::Low => {}
        Level::Medium => items.push(item(Rank::Resistance, "I come back to my own view")),
        Level::High => items.push(item(Rank::Resistance, "I do not change my mind because someone asks me to")),
    }
    // At any resistance level: the repetition monitor checks for them.
    let phrases: Vec<String> =
        anti.forbidden_phrases.iter().map(|phrase| format!("\"{}\"", one_line(phrase))).collect();
    if let Some((last, others)) = phrases.split_last() {
        let list = if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) };
        items.push(item(Rank::ForbiddenPhrase, &format!("I never say {list}")));
    }
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

/// Splits a text into quotations that form sentences of their own (with their marks), and the rest: `Speaks
/// hypothetically. "Odd stuff."` has one, `appeals to "I see it"` none.
fn apart(text: &str) -> (Vec<String>, String) {
    let (mut quoted, mut plain) = (Vec::new(), String::new());
    let mut rest = text;
    while let Some((before, (inside, after))) = rest
        .split_once(['"', '\u{201C}'])
        .and_then(|(before, tail)| Some((before, tail.split_once(['"', '\u{201D}'])?)))
    {
        plain.push_str(before);
        if plain.trim_end().is_empty() || plain.trim_end().ends_with(['.', '!', '?']) {
            quoted.push(format!("\"{inside}\""));
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
