//! Adversaries' strategies: what an interlocutor tries in order to move the persona. This module parses them; the rollout
//! decides which one is used when.

use std::path::Path;

use super::examples::adversaries;
use super::load::read_text;
use super::lower::check_template;
use super::spec::AdversaryKind;
use crate::foundation::base::limits;
use crate::foundation::config::{ConfigErrors, FromNode as _, Located, Node, Optional, Problem, Problems, Required};
use crate::{config_choices, config_record};

/// The placeholders of templates: the persona's name, and a sentence of the persona, exact or altered.
const PLACEHOLDERS: &[&str] = &["name", "quote", "misquote"];
/// The placeholder for an exact quotation of the persona.
pub const QUOTE: &str = "{quote}";
/// The placeholder for a quotation with one word changed.
pub const MISQUOTE: &str = "{misquote}";
/// The default interval between probes, in turns.
const PROBE_EVERY: usize = 5;

/// An adversary, as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdversaryScript {
    /// Its name in reports.
    pub name: String,
    /// [`AdversaryKind::Contradiction`] or [`AdversaryKind::Helpfulness`].
    pub kind: AdversaryKind,
    /// Its goal; may contain `{name}`.
    pub goal: String,
    /// Its strategies; at least one.
    pub strategies: Vec<Strategy>,
    /// Questions put to a fork of the persona that is then discarded; may contain `{name}`.
    pub probes: Vec<String>,
    /// The interval between probes, in turns.
    pub probe_every: usize,
}

/// One strategy of an adversary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    /// Its name, unique.
    pub name: String,
    /// When it applies, as an instruction to a model.
    pub when: String,
    /// How to carry it out, as an instruction to a model.
    pub instruction: String,
    /// Messages for where no model writes them; know `{name}`, `{quote}` and `{misquote}`. At least one.
    pub templates: Vec<String>,
    /// What the conversation must contain before it can be used.
    pub needs: StrategyNeeds,
    /// The first turn in which it is tried, from 0.
    pub from_turn: usize,
}

impl AdversaryScript {
    /// The embedded scripts for `kind`: none for [`AdversaryKind::None`], both for
    /// [`AdversaryKind::Both`].
    ///
    /// # Errors
    /// When an embedded script has problems, which the tests of this program exclude.
    pub fn embedded(kind: AdversaryKind) -> Result<Vec<Self>, ConfigErrors> {
        let wanted = |script: &Self| kind == AdversaryKind::Both || script.kind == kind;
        let scripts: Result<Vec<_>, _> =
            adversaries().iter().map(|example| Self::parse(example.path, example.yaml)).collect();
        Ok(scripts?.into_iter().filter(wanted).collect())
    }

    /// Whether `yaml` describes an adversary rather than a persona.
    pub fn is_one(yaml: &str) -> bool {
        yaml.lines().any(|line| line.starts_with("strategies:"))
    }

    /// Reads the script at `path`.
    ///
    /// # Errors
    /// When the file cannot be read or holds problems.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Self::parse(&path.display().to_string(), &read_text(path)?)
    }

    /// Reads a script from its text; `source_name` is the name used in messages.
    ///
    /// # Errors
    /// All problems that were found.
    pub fn parse(source_name: &str, yaml: &str) -> Result<Self, ConfigErrors> {
        let text = yaml.strip_prefix('\u{feff}').unwrap_or(yaml);
        if text.len() as u64 > limits::CONFIG_BYTES_MAX {
            let message = format!("the text is larger than {} bytes (CONFIG_BYTES_MAX)", limits::CONFIG_BYTES_MAX);
            return Err(ConfigErrors::new(source_name, "", vec![Problem::new(0..0, message).help("shorten it")]));
        }
        let root = Node::parse(source_name, text)?;
        let mut problems = Problems::new(text);
        let script = Script::read(&root, &mut problems).and_then(|raw| lower(&raw, &mut problems));
        problems.finish(source_name, script)
    }
}

config_record! {
    /// An adversary's strategies.
    struct Script {
        /// What it is called in reports.
        name: Required<String>,
        /// What it probes for.
        kind: Required<Kind>,
        /// What it wants.
        goal: Required<String>,
        /// What it tries.
        strategies: Required<Vec<Located<RawStrategy>>>,
        /// Questions that are put to the persona aside, in a fork that nobody remembers.
        probes: Optional<Vec<Located<String>>>,
        /// After how many turns, again and again.
        probe_every: Optional<usize>,
    }

    /// One thing that an adversary tries.
    struct RawStrategy {
        /// Its name, unique.
        name: Required<String>,
        /// When it fits.
        when: Required<String>,
        /// How it is done.
        instruction: Required<String>,
        /// Messages for where no model writes them.
        templates: Required<Vec<Located<String>>>,
        /// What must have been said for it to fit.
        needs: Optional<StrategyNeeds>,
        /// The first turn in which it is tried.
        from_turn: Optional<usize>,
    }
}

/// What a strategy requires of the conversation so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum StrategyNeeds {
    /// Nothing: it can be used at any time.
    #[default]
    Nothing,
    /// A definite statement of the persona, made at least two turns ago.
    Claim,
    /// The tone of the persona's last message differs from those before it.
    Shift,
}

config_choices! {
    StrategyNeeds { "nothing" => Nothing, "claim" => Claim, "shift" => Shift }
}

/// What an adversary probes for.
#[derive(Debug, Clone, Copy, schemars::JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum Kind {
    /// Contradictions.
    Contradiction,
    /// The wish to be a helpful assistant.
    Helpfulness,
}

config_choices! {
    Kind { "contradiction" => Contradiction, "helpfulness" => Helpfulness }
}

fn lower(raw: &Script, problems: &mut Problems) -> Option<AdversaryScript> {
    let mut strategies = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    if let Some(goal) = raw.goal.as_ref() {
        check_template(goal, PLACEHOLDERS, &[], problems);
    }
    for raw in raw.strategies.iter().flat_map(|list| &list.value) {
        if let Some(name) = raw.name.as_ref() {
            if names.contains(&name.as_str()) {
                let problem =
                    Problem::new(name.span.clone(), format!("there are two strategies called `{}`", name.value));
                problems.add(problem.label("again here").help("give this one another name"));
            }
            names.push(name);
        }
        strategies.extend(strategy(raw, problems));
    }
    if let Some(list) = raw.strategies.as_ref().filter(|list| list.is_empty()) {
        let problem = Problem::new(list.span.clone(), "an adversary needs at least one strategy");
        problems.add(problem.help("add `- name: …` with `when`, `instruction` and `templates`"));
    }
    let kind = match raw.kind.as_ref()?.value {
        Kind::Contradiction => AdversaryKind::Contradiction,
        Kind::Helpfulness => AdversaryKind::Helpfulness,
    };
    Some(AdversaryScript {
        name: raw.name.as_ref()?.value.clone(),
        kind,
        goal: raw.goal.as_ref()?.value.clone(),
        strategies,
        probes: probes(raw, problems),
        probe_every: raw.probe_every.as_ref().map_or(PROBE_EVERY, |every| every.value.max(1)),
    })
}

fn probes(raw: &Script, problems: &mut Problems) -> Vec<String> {
    let each = raw.probes.iter().flat_map(|list| &list.value);
    each.map(|probe| {
        check_template(probe, &["name"], &[], problems);
        probe.value.clone()
    })
    .collect()
}

fn strategy(raw: &RawStrategy, problems: &mut Problems) -> Option<Strategy> {
    let templates = raw.templates.as_ref();
    for template in templates.iter().flat_map(|list| &list.value) {
        check_template(template, PLACEHOLDERS, &[], problems);
    }
    if let Some(list) = templates.filter(|list| list.is_empty()) {
        let problem = Problem::new(list.span.clone(), "a strategy needs at least one template");
        problems.add(problem.help("add a message such as `- \"Where did you grow up?\"`"));
    }
    Some(Strategy {
        name: raw.name.as_ref()?.value.clone(),
        when: raw.when.as_ref()?.value.clone(),
        instruction: raw.instruction.as_ref()?.value.clone(),
        templates: templates?.iter().map(|template| template.value.clone()).collect(),
        needs: raw.needs.as_ref().map_or_else(StrategyNeeds::default, |needs| needs.value),
        from_turn: raw.from_turn.as_ref().map_or(0, |turn| turn.value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_script() {
        for (kind, count) in [
            (AdversaryKind::None, 0),
            (AdversaryKind::Contradiction, 1),
            (AdversaryKind::Helpfulness, 1),
            (AdversaryKind::Both, 2),
        ] {
            assert_eq!(AdversaryScript::embedded(kind).unwrap().len(), count, "{kind:?}");
        }
    }

    #[test]
    fn every_problem_of_a_script_is_reported() {
        let yaml = "name: x\nkind: contradicton\ngoal: \"cure {nmae}\"\nstrategies:\n  - name: a\n    when: now\n    templates: []\n";
        let errors = AdversaryScript::parse("a.yaml", yaml).unwrap_err();
        let messages: Vec<_> = errors.problems().map(|problem| problem.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "`contradicton` is not a valid value here",
                "`{nmae}` is not a known placeholder",
                "`instruction` is missing",
                "a strategy needs at least one template",
            ]
        );
    }
}
