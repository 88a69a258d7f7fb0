//! Accepted and refused configs, each one edit away from a small valid config.

use std::fmt::Write as _;

use crate::governance::regulator::DeltaSettings;
use crate::simulation::persona::{
    Curve, DeltaPolicy, EndCondition, Pattern, PersonaConfig, QualityFeedback, RegulatorConfig, RegulatorPolicy,
    TrajectoryMode, parse,
};

const SOUND: &str = r#"schema_version: "0.1.0"
persona:
  identity:
    name: Ada
    background: A clockmaker.
trajectory:
  mode: fixed_length
  expected_turns: 20
  dimensions:
    mood:
      description: how she feels
      curve: linear
      start_value: 0.1
      end_value: 0.8
  phases:
    - name: first
      end_condition: {type: pct, value: 0.5}
      revelations:
        - topic: secret
          dimension: mood
          variants: {subtle: "hm"}
    - name: last
      end_condition: {type: pct, value: 1.0}
interaction:
  injection: {frequency: 5}
"#;

fn edited(from: &str, to: &str) -> String {
    assert!(SOUND.contains(from), "nothing to edit: {from}");
    SOUND.replacen(from, to, 1)
}

fn accepted(from: &str, to: &str) -> PersonaConfig {
    parse("test.yaml", &edited(from, to)).unwrap_or_else(|errors| {
        panic!("{to}: {:?}", errors.problems().collect::<Vec<_>>());
    })
}

/// The edit is refused with exactly these problems, each as `underlined text: message`.
fn refused(from: &str, to: &str, expected: &[&str]) {
    let yaml = edited(from, to);
    let errors = parse("test.yaml", &yaml).err().unwrap_or_else(|| panic!("accepted: {to}"));
    let told: Vec<_> =
        errors.problems().map(|problem| format!("{}: {}", &yaml[problem.span.clone()], problem.message)).collect();
    assert_eq!(told, expected, "{to}");
    assert!(errors.problems().all(|problem| problem.help.is_some()), "{to}: a problem without help");
}

#[test]
fn both_notations_of_a_curve_mean_the_same() {
    let flat = "curve: sigmoid\n      midpoint_pct: 0.4\n      start_value: 0.1\n      end_value: 0.8\n";
    let from = "curve: linear\n      start_value: 0.1\n      end_value: 0.8\n";
    let nested = "curve: {type: sigmoid, midpoint_pct: .4, start_value: 0.1, end_value: 0.8}\n";
    let mixed =
        "curve:\n        type: sigmoid\n        midpoint_pct: 0.4\n      start_value: 0.1\n      end_value: 0.8\n";
    for notation in [flat, nested, mixed] {
        let config = accepted(from, notation);
        let expected = Curve::Sigmoid { start: 0.1, end: 0.8, midpoint: 0.4 };
        assert_eq!(config.trajectory.dimensions[0].curve, expected, "{notation}");
    }
    let points = accepted(from, "curve: [{at: 0, value: 0.2}, {at: 1.0, value: .5}]\n");
    assert_eq!(points.trajectory.dimensions[0].curve, Curve::Points(vec![(0.0, 0.2), (1.0, 0.5)]));
    let step = accepted(from, "curve: step\n      start_value: 0.1\n      thresholds: [{at: 0.5, value: 0.6}]\n");
    assert_eq!(step.trajectory.dimensions[0].curve, Curve::Step { start: 0.1, thresholds: vec![(0.5, 0.6)] });
    let ramp = accepted("curve: linear", "curve: delayed_ramp\n      delay_pct: 0.0");
    let expected = Curve::DelayedRamp { start: 0.1, end: 0.8, delay: 0.0 };
    assert_eq!(ramp.trajectory.dimensions[0].curve, expected, "a delay of 0 is a value, not absence");
}

#[test]
fn the_upper_bound_follows_a_lower_ceiling() {
    let bound = |config: &PersonaConfig| config.trajectory.dimensions[0].max.to_string();
    assert_eq!(bound(&accepted("injection", "judge_window: 3\n  injection")), "0.9");
    assert_eq!(bound(&accepted("interaction:", "safety: {intensity_ceiling: 0.8}\ninteraction:")), "0.8");
    assert_eq!(bound(&accepted("interaction:", "safety: {intensity_ceiling: 1}\ninteraction:")), "0.9");
}

#[test]
fn a_banned_pattern_is_a_phrase_unless_it_says_otherwise() {
    let list = "repetition_detection: {banned_patterns: ['I see', '/a+b/', {regex: 'c+'}, '/']}\n  injection";
    let config = accepted("injection", list);
    let kinds = config.interaction.repetition.unwrap().banned.into_iter().map(|pattern| match pattern {
        Pattern::Phrase(phrase) => format!("phrase {phrase}"),
        Pattern::Regex(regex) => format!("regex {regex}"),
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["phrase I see", "regex a+b", "regex c+", "phrase /"]);
}

#[test]
fn modes_and_end_conditions_fit_together() {
    let open = accepted("mode: fixed_length\n  expected_turns: 20", "mode: open_ended");
    assert_eq!(open.trajectory.mode, TrajectoryMode::OpenEnded);
    let turns = SOUND
        .replace("{type: pct, value: 0.5}", "{type: turn, value: 8}")
        .replace("{type: pct, value: 1.0}", "{type: trigger, regex: 'bye|farewell', window: 2, max_turns: 9}");
    let gated = parse("test.yaml", &turns.replace("fixed_length", "phase_gated")).unwrap();
    let ends: Vec<_> = gated.trajectory.phases.into_iter().map(|phase| phase.end).collect();
    assert!(matches!(ends[0], EndCondition::Turn(8)));
    assert!(matches!(
        &ends[1],
        EndCondition::Trigger { pattern: Pattern::Regex(_), window: 2, max_turns: Some(9), .. }
    ));
}

#[test]
fn the_regulators_policy_is_read() {
    let quiet = accepted("interaction:", "interaction:").regulator;
    assert_eq!(quiet, RegulatorConfig::default());
    let text = "regulator: {policy: enforce, max_regenerations: 2, tokens_max: 5000, money_max: 0.25, seconds_max: 90, samples: 5, quality: off}\ninteraction:";
    let expected = RegulatorConfig {
        policy: RegulatorPolicy::Enforce,
        regenerations_max: 2,
        tokens_max: Some(5_000),
        money_micros_max: Some(250_000),
        wallclock_ms_max: Some(90_000),
        samples: 5,
        quality: QualityFeedback::Off,
    };
    assert_eq!(accepted("interaction:", text).regulator, expected);
}

#[test]
fn a_delta_policy_is_read() {
    let fixed = accepted("interaction:", "delta: {policy: fixed, gains: {decay: 1.5}}\ninteraction:");
    assert!(matches!(fixed.delta, DeltaPolicy::Fixed(_)));
    let moving =
        "delta: {policy: trajectory, dimension: mood, low: {}, high: {write: 2}, layers: [0, 3]}\ninteraction:";
    assert!(matches!(accepted("interaction:", moving).delta, DeltaPolicy::Trajectory { .. }));
    assert_eq!(accepted("interaction:", "delta: {policy: off}\ninteraction:").delta, DeltaPolicy::Off);
    let regulator = accepted("interaction:", "delta: {policy: regulator}\ninteraction:").delta;
    assert_eq!(regulator, DeltaPolicy::Regulator(DeltaSettings::default()));
    let tuned = "delta: {policy: regulator, strengths: {doubt_decay: -0.5}, bounds: {max: 2}}\ninteraction:";
    let expected = DeltaSettings { doubt_decay: -0.5, max: 2.0, ..DeltaSettings::default() };
    assert_eq!(accepted("interaction:", tuned).delta, DeltaPolicy::Regulator(expected));
    let fitted = accepted("interaction:", "delta: {policy: fixed, file: fits/anna.yaml}\ninteraction:").delta;
    assert_eq!(fitted, DeltaPolicy::Fitted("fits/anna.yaml".into()));
    let idle = "delta: {policy: regulator, gains: {decay: 1.5}}\ninteraction:";
    refused("interaction:", idle, &["gains: `gains` has no effect with `policy: regulator`"]);
    let both = "delta: {policy: fixed, gains: {decay: 1.5}, file: fit.yaml}\ninteraction:";
    refused("interaction:", both, &["gains: `gains` has no effect with `file`"]);
    let wild = "delta: {policy: regulator, strengths: {budget_write: 4}, bounds: {min: 1.5}}\ninteraction:";
    let told = ["4: `budget_write` is 4, outside [-3, 3]", "1.5: `min` is 1.5, outside [0, 1]"];
    refused("interaction:", wild, &told);
    let idle = "delta: {policy: off, strengths: {budget_write: 1}}\ninteraction:";
    refused("interaction:", idle, &["strengths: `strengths` has no effect with `policy: off`"]);
}

#[test]
fn line_endings_marks_aliases_and_other_scripts_are_accepted() {
    assert!(parse("test.yaml", &format!("\u{feff}{}", SOUND.replace('\n', "\r\n"))).is_ok());
    assert_eq!(accepted("name: Ada", "name: Ägir 陈 🌊").persona.name, "Ägir 陈 🌊");
    let aliased = accepted("{subtle: \"hm\"}", "{subtle: &hm \"hm\", direct: *hm}");
    assert_eq!(aliased.trajectory.phases[0].revelations[0].variants.len(), 2);
}

#[test]
fn structure_is_checked() {
    refused("name: Ada", "nmae: Ada", &["nmae: `nmae` is not a known key"]);
    refused("    name: Ada\n", "", &["identity: `name` is missing"]);
    refused("name: Ada", "name:", &["name: `name` has no value"]);
    refused("name: Ada", "name: 7", &["7: expected text here, found a number"]);
    refused("name: Ada", "name: \"\"", &["\"\": the text is empty"]);
    refused("name: Ada", "name: Ada\n    age: -3", &["-3: `-3` is not a whole number of at least 0"]);
    refused("name: Ada", "name: Ada\n    name: Eva", &["name: `name` is given twice"]);
    refused("mode: fixed_length", "mode: fixedlength", &["fixedlength: `fixedlength` is not a valid value here"]);
    refused("\"0.1.0\"", "\"9\"", &["\"9\": schema version `9` is not known"]);
    refused("0.8", ".nan", &[".nan: `.nan` is not a finite number"]);
    refused("0.8", "-.inf", &["-.inf: `-.inf` is not a finite number"]);
    refused("0.8", "high", &["high: expected a number here, found text"]);
}

#[test]
fn values_are_checked() {
    refused("0.8", "0.95", &["0.95: `end_value` is 0.95, outside the dimension's range [0, 0.9]"]);
    refused(
        "curve: linear",
        "max_value: 0.95\n      curve: linear",
        &["0.95: `max_value` is 0.95, above the safety ceiling of 0.9"],
    );
    refused(
        "curve: linear",
        "min_value: 0.9\n      curve: linear",
        &["0.9: `min_value` (0.9) is not below `max_value` (0.9)"],
    );
    refused("curve: linear", "curve: sigmoid\n      midpoint_pct: 1", &["1: `midpoint_pct` is 1, outside (0, 1)"]);
    refused(
        "curve: linear",
        "curve: linear\n      delay_pct: 0.2",
        &["0.2: `delay_pct` has no effect with a linear curve"],
    );
    refused("      end_value: 0.8\n", "", &["linear: a linear curve needs `end_value`"]);
    let linear = "curve: linear\n      start_value: 0.1\n      end_value: 0.8\n";
    refused(
        linear,
        "curve: [{at: 0.5, value: 0.2}, {at: 0.5, value: 0.3}]\n",
        &["0.5: the point at 0.5 does not come after the one at 0.5"],
    );
    refused(
        linear,
        "curve: [{at: 1.5, value: 0.95}]\n",
        &["1.5: `at` is 1.5, outside [0, 1]", "0.95: `value` is 0.95, outside the dimension's range [0, 0.9]"],
    );
    refused(linear, "curve: []\n", &["curve: `curve` has no points"]);
    refused(
        "mood:",
        "turn:",
        &["turn: `turn` is a reserved placeholder name in templates", "mood: there is no dimension called `mood`"],
    );
    refused("{frequency: 5}", "{frequency: 0}", &["0: `frequency` is 0, less than 1"]);
    refused(
        "{frequency: 5}",
        "{frequency: 5, reminder_frequency: 10}",
        &["10: a reminder every 10 turns is never given"],
    );
    refused(
        "interaction:",
        "safety: {intensity_ceiling: 0}\ninteraction:",
        &["0: `intensity_ceiling` is 0, outside (0, 1]"],
    );
    refused(
        "interaction:",
        "evaluation: {scoring: {fidelity: {sample_rate: 30}}}\ninteraction:",
        &["30: `sample_rate` is 30, outside (0, 1]"],
    );
    refused(
        "interaction:",
        "evaluation: {adversary: {model: gpt-4}}\ninteraction:",
        &["gpt-4: `gpt-4` is not a model spec"],
    );
    refused(
        "interaction:",
        "delta: {policy: fixed, layers: [1]}\ninteraction:",
        &["delta: `policy: fixed` needs `gains`", "layers: `layers` has no effect with `policy: fixed`"],
    );
}

#[test]
fn phases_are_checked() {
    refused("value: 1.0", "value: 0.9", &["0.9: the phases end at 0.9 of the conversation, not at 1.0"]);
    refused("value: 0.5", "value: 1.0", &["1.0: this phase ends at 1, not after the one before it (1)"]);
    refused("value: 0.5", "value: 50", &["50: `value` is 50, outside (0, 1]"]);
    refused(
        "type: pct, value: 0.5",
        "type: turn, value: 9",
        &["end_condition: `type: turn` and `type: pct` cannot be mixed"],
    );
    refused("name: last", "name: first", &["first: there are two phases called `first`"]);
    refused("dimension: mood", "dimension: mod", &["mod: there is no dimension called `mod`"]);
    refused("{subtle: \"hm\"}", "{}", &["variants: this revelation has no variants"]);
    refused("  expected_turns: 20\n", "", &["fixed_length: `fixed_length` needs `expected_turns`"]);
    refused("mode: fixed_length", "mode: open_ended", &["20: `expected_turns` has no effect with `mode: open_ended`"]);
    refused(
        "mode: fixed_length",
        "mode: phase_gated",
        &[
            "end_condition: `type: pct` does not work with `mode: phase_gated`",
            "end_condition: `type: pct` does not work with `mode: phase_gated`",
        ],
    );
    refused(
        "{type: pct, value: 0.5}",
        "{type: trigger, regex: '(', window: 0}",
        &["(: this is not a regular expression: unclosed group", "0: `window` is 0, less than 1"],
    );
    refused(
        "{type: pct, value: 0.5}",
        "{type: trigger, regex: 'a{900}{900}'}",
        &["a{900}{900}: this regular expression needs more than 1048576 bytes when compiled (REGEX_BYTES_MAX)"],
    );
    refused(
        "{type: pct, value: 0.5}",
        "{type: trigger, regex: 'a*'}",
        &["a*: this regular expression matches every text, the empty one too"],
    );
    refused(
        "injection",
        "response_length: {by_phase: {fist: 9 words}}\n  injection",
        &["fist: there is no phase called `fist`"],
    );
}

#[test]
fn templates_are_checked() {
    for (template, expected) in [
        ("{name} {turn} {mood:.2f} {mood:.0%} {mood} {{x}} {current_phase} {next_unused_revelation}", None),
        ("{nam}", Some("{nam}: `{nam}` is not a known placeholder")),
        ("{mood:.2g}", Some("{mood:.2g}: `:.2g` is not a known number format")),
        ("{name:.2f}", Some("{name:.2f}: `name` takes no number format")),
        ("{mood", Some("'{mood': a `{` in this template is unmatched")),
        ("mood}", Some("'mood}': a `}` in this template is unmatched")),
    ] {
        let edit = format!("{{frequency: 5, reminder_template: '{template}'}}");
        match expected {
            None => drop(accepted("{frequency: 5}", &edit)),
            Some(told) => refused("{frequency: 5}", &edit, &[told]),
        }
    }
}

#[test]
fn invalid_or_oversized_yaml_is_refused() {
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (before, name) in ('a'..='g').zip('b'..='h') {
        let aliases = vec![format!("*{before}"); 10].join(", ");
        writeln!(bomb, "{name}: &{name} [{aliases}]").unwrap();
    }
    for yaml in
        ["", "# nothing\n", "- a\n", "a: [\n", "a: 'x\n", "\ta: 1\n", "a: *b\n", "a: 1\n---\nb: 2\n", &deep, &bomb]
    {
        let errors = parse("test.yaml", yaml).err().unwrap_or_else(|| panic!("accepted: {yaml}"));
        assert!(errors.problems().count() > 0);
    }
    let errors = parse("test.yaml", &"#".repeat(2 << 20)).unwrap_err();
    assert!(errors.problems().next().unwrap().message.contains("CONFIG_BYTES_MAX"));
}
