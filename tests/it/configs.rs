//! Shipped configs are valid, and invalid ones are refused with reasons.

use std::path::{Path, PathBuf};

use loom_agent::simulation::persona::{
    self, Curve, EndCondition, PersonaConfig, STARTER, TrajectoryMode, examples, json_schema, parse,
};
use proptest::prelude::*;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// YAML as the JSON Schema sees it.
fn json(yaml: &str) -> serde_json::Value {
    // JSON has no NaN; as text it is as wrong as it should be.
    let policy = serde_saphyr::options::NonFiniteFloatPolicy::AsString;
    serde_saphyr::from_str_with_options(yaml, serde_saphyr::options! { non_finite_float_policy: policy }).unwrap()
}

#[test]
fn every_shipped_config_is_valid_and_matches_the_schema() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let files = yaml_files("configs/personas");
    assert_eq!(files.len(), examples().len(), "every config in the folder is embedded");
    for path in files.iter().chain([&root().join("configs/starter.yaml")]) {
        persona::load(path).unwrap_or_else(|errors| panic!("{errors}: {:?}", errors.problems().collect::<Vec<_>>()));
        let value = json(&std::fs::read_to_string(path).unwrap());
        let complaints: Vec<_> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(complaints.is_empty(), "{}: {complaints:?}", path.display());
    }
}

#[test]
fn the_embedded_configs_equal_the_files() {
    for example in examples().iter().chain(persona::adversaries()) {
        let file = std::fs::read_to_string(root().join("configs").join(example.path)).unwrap();
        assert_eq!(file, example.yaml, "{}", example.path);
        assert!(!example.summary().is_empty(), "{} has no summary", example.path);
    }
}

#[test]
fn structural_mistakes_also_fail_the_schema() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    for name in ["unknown_keys", "missing_fields", "wrong_types", "bad_choices", "out_of_range"] {
        let yaml = std::fs::read_to_string(root().join(format!("tests/data/configs/{name}.yaml"))).unwrap();
        assert!(!schema.is_valid(&json(&yaml)), "{name} passes the schema");
        assert!(parse(name, &yaml).is_err(), "{name} passes the loader");
    }
}

/// What an invalid persona would break.
fn assert_valid(config: &PersonaConfig) {
    let ceiling = config.safety.intensity_ceiling;
    assert!(ceiling > 0.0 && ceiling <= 1.0);
    for dimension in &config.trajectory.dimensions {
        assert!(0.0 <= dimension.min && dimension.min < dimension.max && dimension.max <= ceiling);
        let values = match &dimension.curve {
            Curve::Linear { start, end } => vec![*start, *end],
            Curve::Sigmoid { start, end, midpoint } => {
                assert!(*midpoint > 0.0 && *midpoint < 1.0);
                vec![*start, *end]
            }
            Curve::DelayedRamp { start, end, delay } => {
                assert!((0.0..1.0).contains(delay));
                vec![*start, *end]
            }
            Curve::Step { start, thresholds: points } => {
                assert!(points.is_sorted_by(|a, b| a.0 < b.0));
                points.iter().map(|point| point.1).chain([*start]).collect()
            }
            Curve::Points(points) => {
                assert!(!points.is_empty() && points.is_sorted_by(|a, b| a.0 < b.0));
                points.iter().map(|point| point.1).collect()
            }
        };
        assert!(values.iter().all(|value| (dimension.min..=dimension.max).contains(value)), "{values:?}");
    }
    let shares: Vec<_> = config
        .trajectory
        .phases
        .iter()
        .filter_map(|phase| match phase.end {
            EndCondition::Pct(share) => Some(share),
            _ => None,
        })
        .collect();
    assert!(shares.is_sorted_by(|a, b| a < b), "{shares:?}");
    let gated = matches!(config.trajectory.mode, TrajectoryMode::PhaseGated { .. });
    if let Some(EndCondition::Pct(last)) = config.trajectory.phases.last().map(|phase| &phase.end) {
        assert!(!gated && (*last - 1.0).abs() < f64::EPSILON);
    }
    assert!(!gated || (shares.is_empty() && !config.trajectory.phases.is_empty()));
    assert!(config.interaction.injection.frequency > 0);
    assert!(config.evaluation.scoring.values().all(|score| score.sample_rate > 0.0 && score.sample_rate <= 1.0));
}

/// What a slip of the hand puts into a file.
const SLIPS: &[&str] = &[
    "",
    " ",
    "  ",
    ":",
    "- ",
    "\n",
    "\t",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "&a ",
    "*a",
    "!!int ",
    "#",
    "|",
    "null",
    "-1",
    "0",
    "1.5",
    ".nan",
    ".inf",
    "1e400",
    "true",
    "pct",
    "turn",
    "trigger",
    "step",
    "sigmoid",
    "phase_gated",
    "open_ended",
    "\u{0}",
    "\u{feff}",
    "é",
    "{name}",
    "{",
    "<<: ",
    "---\n",
    "\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// A damaged config is refused with problems that lie inside the text, or it is still sound. Nothing panics.
    #[test]
    fn no_damage_makes_an_invalid_config(
        which in 0..5_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, prop::sample::select(SLIPS)), 1..5),
    ) {
        let sound = examples().get(which).map_or(STARTER, |example| example.yaml);
        let mut characters: Vec<char> = sound.chars().collect();
        for (at, removed, slip) in edits {
            let start = at.index(characters.len());
            let end = (start + removed).min(characters.len());
            characters.splice(start..end, slip.chars());
        }
        let damaged: String = characters.into_iter().collect();
        match parse("damaged.yaml", &damaged) {
            Ok(config) => assert_valid(&config),
            Err(errors) => {
                prop_assert!(errors.problems().count() > 0);
                for problem in errors.problems() {
                    let text = damaged.strip_prefix('\u{feff}').unwrap_or(&damaged);
                    prop_assert!(text.get(problem.span.clone()).is_some(), "{problem:?} lies outside the text");
                }
            }
        }
    }
}
