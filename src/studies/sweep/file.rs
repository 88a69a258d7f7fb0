//! A sweep's YAML file.

use std::path::Path;

use crate::config_record;
use crate::foundation::base::limits::CONFIG_BYTES_MAX;
use crate::foundation::chat::{ModelChain, ModelSpec};
use crate::foundation::config::{
    ConfigErrors, FromNode, Located, Node, NodeValue, OpenMap, Optional, Problem, Problems, Required, Span,
};
use crate::foundation::store::read_text;
use crate::simulation::persona::AdversaryKind;

config_record! {
    /// A sweep: every combination of what is listed is one run.
    struct File {
        /// The version of this format, "0.1.0".
        sweep_version: Required<String>,
        /// Persona configs, as seen from this file.
        configs: Required<Vec<Located<String>>>,
        /// The persona's models. Default `[bundled]`.
        persona_models: Optional<Vec<Located<String>>>,
        /// The models under test. Default `[bundled]`.
        targets: Optional<Vec<Located<String>>>,
        /// The kinds of adversaries. Default: each config's own.
        adversaries: Optional<Vec<Located<AdversaryKind>>>,
        /// The adversaries' model. Default: each config's own, else the judge's.
        adversary_model: Optional<String>,
        /// The judge's model. Default `bundled`.
        judge_model: Optional<String>,
        /// The seeds of all random draws. Default `[0]`.
        seeds: Optional<Vec<Located<usize>>>,
        /// Policies of Δ modulation by name, each as `delta` in a persona config. Default: each config's own.
        deltas: Optional<OpenMap<Policy>>,
        /// Rollouts per run. Default 1.
        #[schemars(range(min = 1))]
        rollouts: Optional<usize>,
        /// Turns per rollout. Default: each config's own.
        #[schemars(range(min = 1))]
        turns: Optional<usize>,
    }
}

/// A Δ policy as written in the file; it is validated as part of the config.
#[derive(Debug)]
struct Policy(serde_json::Value);

impl schemars::JsonSchema for Policy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Delta".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "object"})
    }
}

impl FromNode for Policy {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        if !matches!(node.value, NodeValue::Map(_)) {
            let problem =
                Problem::new(node.span.clone(), format!("expected a mapping here, found {}", node.value.kind()));
            problems.add(problem.help("write a policy as `delta` in a persona config, such as {policy: off}"));
            return None;
        }
        Some(Self(json(node)))
    }
}

/// YAML as JSON; a number that is not finite becomes `null`, which no policy accepts.
fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        NodeValue::Null => serde_json::Value::Null,
        NodeValue::Bool(value) => (*value).into(),
        NodeValue::Integer(value) => i64::try_from(*value).map_or_else(|_| value.to_string().into(), Into::into),
        NodeValue::Number(value) => (*value).into(),
        NodeValue::Text(text) => text.as_str().into(),
        NodeValue::List(items) => items.iter().map(json).collect(),
        NodeValue::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.name.clone(), json(&entry.value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

/// The content of a sweep's file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SweepFile {
    pub(super) configs: Vec<String>,
    pub(super) persona_models: Vec<ModelChain>,
    pub(super) targets: Vec<ModelChain>,
    /// `None`: the config's own.
    pub(super) adversaries: Vec<Option<AdversaryKind>>,
    pub(super) adversary_model: Option<ModelChain>,
    pub(super) judge: ModelChain,
    pub(super) seeds: Vec<u64>,
    /// A name and a policy in one line of YAML; `None`: the config's own.
    pub(super) deltas: Vec<Option<(String, String)>>,
    pub(super) rollouts: usize,
    pub(super) turns: Option<usize>,
}

impl SweepFile {
    /// Parses a sweep's text; `name` is its name in messages.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = Node::parse(name, text)?;
        let mut problems = Problems::new(text);
        let file = File::read(&root, &mut problems).and_then(|file| Self::lower(&file, &mut problems));
        problems.finish(name, file)
    }

    /// Reads the file at `path`; also returns its text.
    pub(super) fn load(path: &Path) -> Result<(Self, String), ConfigErrors> {
        let name = path.display().to_string();
        let refuse = |message: String| ConfigErrors::new(&name, "", vec![Problem::new(0..0, message)]);
        let text =
            read_text(path, CONFIG_BYTES_MAX).map_err(|error| refuse(format!("the file cannot be read: {error}")))?;
        Ok((Self::parse(&name, &text)?, text))
    }

    fn lower(file: &File, problems: &mut Problems) -> Option<Self> {
        if let Some(version) = file.sweep_version.as_ref().filter(|version| version.value != "0.1.0") {
            let problem = Problem::new(version.span.clone(), format!("version `{}` is not known", version.value));
            problems.add(problem.help("write \"0.1.0\""));
        }
        let configs = non_empty(file.configs.as_ref()?, "configs", problems);
        let chains = |list: &Optional<Vec<Located<String>>>, key, problems: &mut Problems| match list {
            None => Some(vec![ModelSpec::Bundled.into()]),
            Some(list) => {
                non_empty(list, key, problems);
                list.iter().map(|one| chain(&one.value, &one.span, problems)).collect()
            }
        };
        let one = |text: &Optional<String>, problems: &mut Problems| {
            text.as_ref().map(|text| chain(&text.value, &text.span, problems))
        };
        let persona_models = chains(&file.persona_models, "persona_models", problems);
        let targets = chains(&file.targets, "targets", problems);
        let adversary_model = one(&file.adversary_model, problems);
        let judge = one(&file.judge_model, problems);
        let adversaries = file.adversaries.as_ref().map_or_else(
            || vec![None],
            |list| non_empty(list, "adversaries", problems).iter().map(|kind| Some(kind.value)).collect(),
        );
        let seeds = file.seeds.as_ref().map_or_else(
            || vec![0],
            |list| non_empty(list, "seeds", problems).iter().map(|seed| seed.value as u64).collect(),
        );
        let deltas = file.deltas.as_ref().map_or_else(
            || vec![None],
            |entries| {
                entries.0.iter().map(|(key, policy)| Some((key.name.clone(), policy.value.0.to_string()))).collect()
            },
        );
        Some(Self {
            configs: configs.iter().map(|config| config.value.clone()).collect(),
            persona_models: persona_models?,
            targets: targets?,
            adversaries,
            adversary_model: adversary_model.flatten(),
            judge: judge.unwrap_or_else(|| Some(ModelSpec::Bundled.into()))?,
            seeds,
            deltas,
            rollouts: file.rollouts.as_ref().map_or(1, |rollouts| rollouts.value),
            turns: file.turns.as_ref().map(|turns| turns.value),
        })
    }
}

/// The items of a list, which must not be empty.
fn non_empty<'f, T>(list: &'f Located<Vec<Located<T>>>, key: &str, problems: &mut Problems) -> &'f [Located<T>] {
    if list.is_empty() {
        problems.add(Problem::new(list.span.clone(), format!("`{key}` is empty")).help("name at least one"));
    }
    &list.value
}

fn chain(text: &str, span: &Span, problems: &mut Problems) -> Option<ModelChain> {
    match text.parse() {
        Ok(chain) => Some(chain),
        Err(error) => {
            problems.add(Problem::new(span.clone(), format!("{error}")));
            None
        }
    }
}
