//! A sweep's YAML file.

use std::path::Path;

use crate::config_record;
use crate::foundation::base::limits::CONFIG_BYTES_MAX;
use crate::foundation::chat::{ModelChain, ModelSpec};
use crate::foundation::config::{
    At, ConfigErrors, Entries, Maybe, Node, Problem, Problems, Read, Required, Span, Value,
};
use crate::simulation::persona::AdversaryKind;

config_record! {
    /// A sweep: every combination of what is listed is one run.
    struct File {
        /// The version of this format, "0.1.0".
        sweep_version: Required<String>,
        /// Persona configs, as seen from this file.
        configs: Required<Vec<At<String>>>,
        /// The persona's models. Default `[bundled]`.
        persona_models: Maybe<Vec<At<String>>>,
        /// The models under test. Default `[bundled]`.
        targets: Maybe<Vec<At<String>>>,
        /// Who the interlocutor is. Default: what each config says.
        adversaries: Maybe<Vec<At<AdversaryKind>>>,
        /// The adversaries' model. Default: what each config says, else `bundled`.
        adversary_model: Maybe<String>,
        /// The judge's model. Default `bundled`.
        judge_model: Maybe<String>,
        /// Where all draws come from. Default `[0]`.
        seeds: Maybe<Vec<At<usize>>>,
        /// Policies of Δ modulation by name, each as `delta` in a persona config. Default: what each config says.
        deltas: Maybe<Entries<Policy>>,
        /// How many rollouts each run has. Default 1.
        #[schemars(range(min = 1))]
        rollouts: Maybe<usize>,
        /// How many turns each rollout has. Default: what each config says.
        #[schemars(range(min = 1))]
        turns: Maybe<usize>,
    }
}

/// A Δ policy as it stands in the file; the config that it is put into checks it.
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

impl Read for Policy {
    fn read(node: &Node, problems: &mut Problems) -> Option<Self> {
        if !matches!(node.value, Value::Map(_)) {
            let problem =
                Problem::new(node.span.clone(), format!("a mapping is needed here, not {}", node.value.kind()));
            problems.add(problem.help("write a policy as under `delta` in a persona config, such as {policy: off}"));
            return None;
        }
        Some(Self(json(node)))
    }
}

/// YAML of which JSON has every kind; a number that is not finite becomes `null`, which no policy takes.
fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Integer(value) => i64::try_from(*value).map_or_else(|_| value.to_string().into(), Into::into),
        Value::Number(value) => (*value).into(),
        Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.name.clone(), json(&entry.value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

/// What a sweep's file says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SweepFile {
    pub(super) configs: Vec<String>,
    pub(super) persona_models: Vec<ModelChain>,
    pub(super) targets: Vec<ModelChain>,
    /// `None`: as the config says.
    pub(super) adversaries: Vec<Option<AdversaryKind>>,
    pub(super) adversary_model: Option<ModelChain>,
    pub(super) judge: ModelChain,
    pub(super) seeds: Vec<u64>,
    /// A name and a policy, as one line of YAML; `None`: as the config says.
    pub(super) deltas: Vec<Option<(String, String)>>,
    pub(super) rollouts: usize,
    pub(super) turns: Option<usize>,
}

impl SweepFile {
    /// Reads a sweep's text; `name` is how messages call it.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let root = Node::parse(name, text)?;
        let mut problems = Problems::new(text);
        let file = File::read(&root, &mut problems).and_then(|file| Self::lower(&file, &mut problems));
        problems.finish(name, file)
    }

    /// Reads the file at `path`; its text is given back as well.
    pub(super) fn load(path: &Path) -> Result<(Self, String), ConfigErrors> {
        let name = path.display().to_string();
        let refuse = |message: String| ConfigErrors::new(&name, "", vec![Problem::new(0..0, message)]);
        let length =
            std::fs::metadata(path).map_err(|error| refuse(format!("the file cannot be read: {error}")))?.len();
        if length > CONFIG_BYTES_MAX {
            return Err(refuse(format!("the file is larger than {CONFIG_BYTES_MAX} bytes (CONFIG_BYTES_MAX)")));
        }
        let text =
            std::fs::read_to_string(path).map_err(|error| refuse(format!("the file cannot be read: {error}")))?;
        Ok((Self::parse(&name, &text)?, text))
    }

    fn lower(file: &File, problems: &mut Problems) -> Option<Self> {
        if let Some(version) = file.sweep_version.as_ref().filter(|version| version.value != "0.1.0") {
            let problem = Problem::new(version.span.clone(), format!("version `{}` is not known", version.value));
            problems.add(problem.help("write \"0.1.0\""));
        }
        let configs = filled(file.configs.as_ref()?, "configs", problems);
        let chains = |list: &Maybe<Vec<At<String>>>, key, problems: &mut Problems| match list {
            None => Some(vec![ModelSpec::Bundled.into()]),
            Some(list) => {
                filled(list, key, problems);
                list.iter().map(|one| chain(&one.value, &one.span, problems)).collect()
            }
        };
        let one = |text: &Maybe<String>, problems: &mut Problems| {
            text.as_ref().map(|text| chain(&text.value, &text.span, problems))
        };
        let persona_models = chains(&file.persona_models, "persona_models", problems);
        let targets = chains(&file.targets, "targets", problems);
        let adversary_model = one(&file.adversary_model, problems);
        let judge = one(&file.judge_model, problems);
        let adversaries = file.adversaries.as_ref().map_or_else(
            || vec![None],
            |list| filled(list, "adversaries", problems).iter().map(|kind| Some(kind.value)).collect(),
        );
        let seeds = file.seeds.as_ref().map_or_else(
            || vec![0],
            |list| filled(list, "seeds", problems).iter().map(|seed| seed.value as u64).collect(),
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

/// A list that is given names something.
fn filled<'f, T>(list: &'f At<Vec<At<T>>>, key: &str, problems: &mut Problems) -> &'f [At<T>] {
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
