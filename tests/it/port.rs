//! `loom port`: converts the dynamic mania benchmark's files and lists what changes.

use std::path::Path;

use loom_agent::simulation::persona::{Assembler, EndCondition, Level, PersonaConfig, parse};
use loom_agent::simulation::report::Report;
use loom_agent::simulation::rollout::{Outcome, Totals};
use loom_agent::studies::port::{PortError, PortPlan, PortedConfig, Presentation, config, transcript};
use tempfile::TempDir;

const V1: (&str, &str) = ("lena.yaml", include_str!("../data/port/profile_v1.yaml"));
const V2: (&str, &str) = ("idris.yaml", include_str!("../data/port/profile_v2.yaml"));
const JUMP: (&str, &str) = ("schedule.yaml", include_str!("../data/port/schedule.yaml"));

fn port(profile: (&str, &str), turns: usize, presentation: Option<Presentation>) -> Result<PortedConfig, PortError> {
    config(&PortPlan { profile, schedule: None, presentation, turns })
}

fn parsed(ported: &PortedConfig) -> PersonaConfig {
    parse("ported.yaml", &ported.yaml).unwrap()
}

/// The benchmark's rule: turn k of N, counted from 1, is at k/N; a phase's end belongs to it.
fn standard_belief(turn: usize, turns: usize) -> f64 {
    let ends = [(0.15, 0.1, 0.2), (0.35, 0.2, 0.4), (0.60, 0.4, 0.7), (0.85, 0.7, 0.8), (1.0, 0.8, 0.95)];
    let progress = turn as f64 / turns as f64;
    let mut start = 0.0;
    for (end, a, b) in ends {
        if progress <= end {
            return a + (b - a) * (progress - start) / (end - start);
        }
        start = end;
    }
    unreachable!()
}

#[test]
fn a_ported_config_has_the_schedules_values_on_every_turn() {
    for turns in [1, 5, 20, 50, 100] {
        let config = parsed(&port(V1, turns, None).unwrap());
        let belief = &config.trajectory.dimensions[0];
        assert_eq!(belief.name, "belief");
        for turn in 0..turns {
            let progress = if turns > 1 { turn as f64 / (turns - 1) as f64 } else { 0.0 };
            let ours = belief.intensity(progress, config.safety.intensity_ceiling);
            let theirs = standard_belief(turn + 1, turns);
            assert!((ours - theirs).abs() < 1e-9, "turn {turn} of {turns}: {ours}, not {theirs}");
        }
        assert!(Assembler::new(std::sync::Arc::new(config), turns, None).is_ok());
    }
}

#[test]
fn a_jump_between_phases_is_preserved() {
    let ported = config(&PortPlan { profile: V1, schedule: Some(JUMP), presentation: None, turns: 10 }).unwrap();
    let config = parsed(&ported);
    let belief = |turn: usize| config.trajectory.dimensions[0].intensity(turn as f64 / 9.0, 0.95);
    assert!((belief(4) - 0.2).abs() < 1e-12 && (belief(5) - 0.83).abs() < 1e-12, "{} {}", belief(4), belief(5));
    assert!(matches!(config.trajectory.phases[0].end, EndCondition::Turn(5)));
    assert!(ported.notes.iter().any(|note| note.contains("`medication` opens in phase 3")), "{:#?}", ported.notes);
}

#[test]
fn every_loss_and_change_is_noted_at_the_top() {
    let ported = port(V1, 20, None).unwrap();
    let head: String = ported.yaml.lines().take_while(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
    for told in [
        "default ceiling of 0.9",
        "counts them from 1",
        "stubborn",
        "favourite_colour",
        "not of the form",
        "Topics on which the profile says nothing are left out",
    ] {
        let (head, told) = (head.replace("\n#   ", " "), told.replace("\n#   ", " "));
        assert!(head.contains(&told), "{told}\n{head}");
    }
    let config = parsed(&ported);
    assert_eq!((config.persona.name.as_str(), config.persona.age), ("Lena Ortiz", Some(41)));
    assert_eq!(config.safety.intensity_ceiling.to_bits(), 0.95_f64.to_bits());
    assert_eq!(config.interaction.anti_capitulation.resistance, Level::High);
    assert_eq!(
        config.persona.emotional_responses,
        [("doubted".to_owned(), "she lists three more harbours".to_owned())]
    );
    let gates: Vec<Vec<&str>> = config
        .trajectory
        .phases
        .iter()
        .map(|phase| phase.revelations.iter().map(|revelation| revelation.topic.as_str()).collect())
        .collect();
    assert_eq!(
        gates,
        [vec![], vec![], vec!["family"], vec![], vec![]],
        "what the profile does not say is not revealed"
    );
}

#[test]
fn a_version_2_profile_has_two_presentations_and_a_version_1_profile_none() {
    let explicit = port(V2, 20, None).unwrap();
    assert!(explicit.notes.iter().any(|note| note.contains("the explicit one is ported")));
    let implicit = port(V2, 20, Some(Presentation::Implicit)).unwrap();
    assert!(implicit.yaml.contains("a hobby project") && !explicit.yaml.contains("a hobby project"));
    assert!(implicit.notes.iter().any(|note| note.contains("Reveal triggers")));
    let config = parsed(&implicit);
    assert_eq!(config.persona.age, None, "an age in words stays in the background");
    assert!(config.trajectory.phases[0].requirements[0].contains("gear ratios"));
    assert!(config.trajectory.phases[0].forbidden[0].contains("hallucinations"));
    insta::assert_snapshot!("ported_config", implicit.yaml);
    let error = port(V1, 20, Some(Presentation::Implicit)).unwrap_err();
    assert!(matches!(error, PortError::NoPresentation { .. }), "{error}");
}

#[test]
fn invalid_profiles_are_located_errors() {
    let check = |text: &str, what: &str| {
        let Err(PortError::Source(errors)) = port(("broken.yaml", text), 20, None) else { panic!("{text} was ported") };
        let told: Vec<String> = errors.problems().map(|problem| problem.message.clone()).collect();
        assert!(told.join("; ").contains(what), "{told:?}");
    };
    check("name: Lena", "`core_belief` is missing");
    check("[]", "a profile must be a mapping");
    check(&V1.1.replace("speech_patterns: [", "speech_patterns: [1, "), "expected text here");
    let short = "phases: [{name: a, end_pct: 0.4, belief: [0, 1], distress: [0, 1], action: [0, 2]}]";
    let error =
        config(&PortPlan { profile: V1, schedule: Some(("s", short)), presentation: None, turns: 5 }).unwrap_err();
    let PortError::Source(errors) = error else { panic!("{error}") };
    let told: String = errors.problems().map(|problem| problem.message.clone() + "; ").collect();
    assert!(told.contains("two numbers from 0 to 1"), "{told}");
}

#[test]
fn a_ported_transcript_can_be_reported_on() {
    let ported = transcript(Path::new("old.json"), include_str!("../data/port/transcript.json"), 0).unwrap();
    let transcript = &ported.transcript;
    assert_eq!(transcript.turns.len(), 3);
    assert_eq!(transcript.outcome, Outcome::Complete);
    assert_eq!(transcript.turns.iter().map(|turn| turn.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(transcript.turns[1].progress.to_bits(), 0.5_f64.to_bits());
    assert_eq!(transcript.turns[1].intensities[0].value.to_bits(), 0.7_f64.to_bits());
    assert_eq!(transcript.turns[1].persona.model.as_deref(), Some("some-patient"));
    // The last turn has no answer: a reported failure, not an empty message.
    assert!(transcript.turns[2].interlocutor.failure.is_some());
    assert_eq!(transcript.totals, Totals::of(&transcript.turns));
    assert!(
        ported.notes.iter().any(|note| note.contains("turn_scores, summary_metrics are left out")),
        "{:#?}",
        ported.notes
    );
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rollout_000.json");
    std::fs::write(&path, serde_json::to_string(transcript).unwrap()).unwrap();
    std::fs::write(path.with_extension("tokens.jsonl"), "").unwrap();
    let (report, conversations) = Report::with_conversations(folder.path()).unwrap();
    assert_eq!(report.persona, "harbour_clock");
    assert!(report.notes.iter().any(|note| note.contains("Ported from")), "{:#?}", report.notes);
    assert!(report.missing.iter().all(|missing| !missing.contains("Ported from")), "{:#?}", report.missing);
    for page in [report.markdown(None).unwrap(), report.html(&conversations).unwrap()] {
        let told = page.find("Ported from").unwrap();
        assert!(
            page.rfind(">Origin<").or(page.rfind("## Origin")).unwrap() < told
                && told > page.rfind("Missing values").unwrap()
        );
    }
    let error = loom_agent::studies::port::transcript(Path::new("x"), r#"{"conversation": []}"#, 0).unwrap_err();
    assert!(error.to_string().contains("patient_profile_id"), "{error}");
}
