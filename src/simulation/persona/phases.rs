//! Which phase a turn is in, and its progress: computed from what was said before it alone, so that a resumed run needs no
//! stored phase state.
//!
//! Conventions. A phase lasts until its end condition is met: a `pct` phase while progress over the run is *below* its end, a
//! `turn` phase before that turn, a `trigger` phase until its pattern, value or finding is there or `max_turns` are over. The
//! last phase lasts to the end of the run, whatever its own end condition. A phase whose end condition is already met when it
//! would begin is skipped. A pattern is searched for in the last `window` messages joined by line breaks, and the window
//! never reaches back before the phase began: a match that ended one phase does not end the next.

use super::intensity::progress;
use super::{Dimension, EndCondition, Phase, Trajectory, TriggerSpeaker};

/// What happened before a turn, one entry per finished turn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Past<'a> {
    /// The persona's messages.
    pub persona: &'a [String],
    /// The other side's.
    pub interlocutor: &'a [String],
    /// The monitors with findings.
    pub findings: &'a [Vec<String>],
}

/// The position of a turn in its trajectory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TurnPosition {
    /// Index of the phase; `None` when there are no phases.
    pub phase: Option<usize>,
    /// Progress over the run, in `[0, 1]`.
    pub progress: f64,
    /// Progress within the phase, in `[0, 1]`; over the run when there are no phases.
    pub phase_progress: f64,
}

impl Dimension {
    /// The prescribed value at a position, never above `ceiling`.
    pub(super) fn value_at(&self, position: &TurnPosition, ceiling: f64) -> f64 {
        self.intensity(if self.restarts { position.phase_progress } else { position.progress }, ceiling)
    }
}

/// The position of `turn` in a run of `turns`, given what happened before it.
pub(super) fn position_at(
    trajectory: &Trajectory,
    ceiling: f64,
    turns: usize,
    turn: usize,
    past: Past<'_>,
) -> TurnPosition {
    let phases = &trajectory.phases;
    let overall = progress(turn, turns);
    let Some(last) = phases.len().checked_sub(1) else {
        return TurnPosition { phase: None, progress: overall, phase_progress: overall };
    };
    let at = |now: usize, phase: usize, began: usize| TurnPosition {
        phase: Some(phase),
        progress: progress(now, turns),
        phase_progress: progress(now - began, expected_length(phases, phase, began, turns)),
    };
    let (mut current, mut began) = (0, 0);
    for now in 0..=turn {
        while current < last
            && phases.get(current).is_some_and(|phase| {
                let value = |name: &str| {
                    let dimension = trajectory.dimensions.iter().find(|dimension| dimension.name == name)?;
                    Some(dimension.value_at(&at(now, current, began), ceiling))
                };
                is_over(phase, now, began, turns, past, value)
            })
        {
            current += 1;
            began = now;
        }
    }
    at(turn, current, began)
}

/// Whether a phase that began at turn `began` is over at turn `now`, at which the dimensions have these values.
fn is_over(
    phase: &Phase,
    now: usize,
    began: usize,
    turns: usize,
    past: Past<'_>,
    value: impl Fn(&str) -> Option<f64>,
) -> bool {
    let lasted = |max_turns: &Option<usize>| max_turns.is_some_and(|most| now - began >= most);
    match &phase.end {
        EndCondition::Pct(end) => progress(now, turns) >= *end,
        EndCondition::Turn(end) => now >= *end,
        EndCondition::Trigger { pattern, speaker, window, max_turns } => {
            let first = now.saturating_sub(*window).max(began);
            let of = |messages: &[String]| messages.get(first..now.min(messages.len())).unwrap_or_default().join("\n");
            let matches = |messages: &[String]| {
                let text = of(messages);
                !text.is_empty() && pattern.is_match(&text)
            };
            lasted(max_turns)
                || match speaker {
                    TriggerSpeaker::Persona => matches(past.persona),
                    TriggerSpeaker::Interlocutor => matches(past.interlocutor),
                    TriggerSpeaker::Either => matches(past.persona) || matches(past.interlocutor),
                }
        }
        EndCondition::Intensity { dimension, bound, max_turns } => {
            lasted(max_turns) || value(dimension).is_some_and(|value| bound.is_reached(value))
        }
        EndCondition::Monitor { monitor, max_turns } => {
            let findings = past.findings.get(began..now.min(past.findings.len())).unwrap_or_default();
            lasted(max_turns) || findings.iter().flatten().any(|name| name == monitor)
        }
    }
}

/// How many turns a phase is expected to last, at least one: known for `pct` and `turn`; for a trigger `max_turns`, and
/// without it an equal share of the turns left among the phases left. A phase that outlasts this stays at progress 1.
fn expected_length(phases: &[Phase], phase: usize, began: usize, turns: usize) -> usize {
    let left = turns.saturating_sub(began);
    let length = if phase + 1 == phases.len() {
        left
    } else {
        match phases.get(phase).map(|phase| &phase.end) {
            Some(EndCondition::Pct(end)) => (began..turns).take_while(|now| progress(*now, turns) < *end).count(),
            Some(EndCondition::Turn(end)) => end.saturating_sub(began).min(left),
            Some(
                EndCondition::Trigger { max_turns: Some(most), .. }
                | EndCondition::Intensity { max_turns: Some(most), .. }
                | EndCondition::Monitor { max_turns: Some(most), .. },
            ) => *most,
            Some(EndCondition::Trigger { .. } | EndCondition::Intensity { .. } | EndCondition::Monitor { .. })
            | None => left / (phases.len() - phase),
        }
    };
    length.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::persona::{IntensityBound, Pattern, TrajectoryMode};

    fn position(trajectory: &Trajectory, turns: usize, turn: usize, persona: &[String]) -> TurnPosition {
        position_at(trajectory, 1.0, turns, turn, Past { persona, ..Past::default() })
    }

    fn phases(ends: Vec<EndCondition>) -> Vec<Phase> {
        let names = ["a", "b", "c", "d", "e"];
        names
            .iter()
            .zip(ends)
            .map(|(name, end)| Phase {
                name: (*name).into(),
                end,
                requirements: vec![],
                forbidden: vec![],
                revelations: vec![],
            })
            .collect()
    }

    fn trigger(phrase: &str, window: usize, max_turns: Option<usize>) -> EndCondition {
        EndCondition::Trigger {
            pattern: Pattern::Phrase(phrase.into()),
            speaker: TriggerSpeaker::Persona,
            window,
            max_turns,
        }
    }

    fn trajectory(mode: TrajectoryMode, ends: Vec<EndCondition>) -> Trajectory {
        Trajectory { mode, dimensions: vec![], phases: phases(ends) }
    }

    /// The phases of a run, one letter a turn; `said` is what the persona says, turn by turn.
    fn check(ends: Vec<EndCondition>, turns: usize, said: &[&str], expected: &str) {
        let trajectory = trajectory(TrajectoryMode::FixedLength { turns }, ends);
        let said: Vec<String> = said.iter().map(ToString::to_string).collect();
        let drawn: String = (0..turns)
            .map(|turn| position(&trajectory, turns, turn, &said[..turn.min(said.len())]).phase)
            .map(|phase| char::from(b'a' + u8::try_from(phase.unwrap()).unwrap()))
            .collect();
        assert_eq!(drawn, expected);
    }

    use EndCondition::{Pct, Turn};

    #[test]
    fn a_pct_phase_holds_while_progress_is_below_its_end() {
        // Eleven turns: progress 0, .1, …, 1. Turn 5 is exactly at .5 and belongs to the second phase.
        check(vec![Pct(0.5), Pct(1.0)], 11, &[], "aaaaabbbbbb");
        check(vec![Pct(0.15), Pct(0.35), Pct(0.65), Pct(0.85), Pct(1.0)], 21, &[], "aaabbbbccccccddddeeee");
    }

    #[test]
    fn the_last_phase_holds_to_the_end() {
        check(vec![Pct(0.2), Pct(0.4)], 6, &[], "abbbbb");
        check(vec![Turn(2)], 5, &[], "aaaaa");
        check(vec![Pct(0.5), Pct(1.0)], 1, &[], "a");
    }

    #[test]
    fn a_turn_phase_ends_before_its_turn() {
        check(vec![Turn(2), Turn(5), Pct(1.0)], 7, &[], "aabbbcc");
    }

    #[test]
    fn a_phase_too_short_for_a_turn_is_skipped() {
        check(vec![Pct(0.3), Pct(0.31), Pct(1.0)], 5, &[], "aaccc");
    }

    #[test]
    fn a_trigger_ends_its_phase_on_the_turn_after_the_words() {
        check(
            vec![trigger("you don't believe me", 2, None), Pct(1.0)],
            6,
            &["Hi.", "Hm.", "So you don’t believe me.", "x", "y"],
            "aaabbb",
        );
    }

    #[test]
    fn a_trigger_phase_ends_after_max_turns() {
        check(
            vec![trigger("never said", 1, Some(3)), trigger("nor this", 1, Some(2)), Pct(1.0)],
            7,
            &["x"; 7],
            "aaabbcc",
        );
    }

    #[test]
    fn a_match_that_ended_one_phase_does_not_end_the_next() {
        check(
            vec![trigger("enough", 3, None), trigger("enough", 3, None), Pct(1.0)],
            6,
            &["x", "Enough!", "x", "x", "enough."],
            "aabbbc",
        );
    }

    #[test]
    fn a_pattern_may_span_the_messages_of_its_window() {
        let both = |window| EndCondition::Trigger {
            pattern: Pattern::Regex(regex::Regex::new("(?is)tired.*job").unwrap()),
            speaker: TriggerSpeaker::Persona,
            window,
            max_turns: None,
        };
        let said = ["I am tired.", "It is the job.", "x", "x"];
        check(vec![both(2), Pct(1.0)], 4, &said, "aabb");
        check(vec![both(1), Pct(1.0)], 4, &said, "aaaa");
    }

    #[test]
    fn a_dimension_follows_the_conversation_or_restarts_in_each_phase() {
        let ends = vec![Turn(3), trigger("go", 1, Some(3)), trigger("stop", 1, None), Pct(1.0)];
        let trajectory = trajectory(TrajectoryMode::PhaseGated { turns: None }, ends);
        // Three turns; a trigger of three; no limit, so half of the six turns left; then the last three.
        let expected = [0.0, 0.5, 1.0, 0.0, 0.5, 1.0, 0.0, 0.5, 1.0, 1.0, 1.0];
        let said = vec!["x".to_owned(); 12];
        for (turn, expected) in expected.into_iter().enumerate() {
            let position = position(&trajectory, 12, turn, &said[..turn]);
            assert_eq!(position.phase_progress.to_bits(), f64::to_bits(expected), "turn {turn}: {position:?}");
            assert_eq!(position.progress.to_bits(), (turn as f64 / 11.0).to_bits(), "turn {turn}");
            let dimension = |restarts| Dimension { restarts, ..rising() };
            assert_eq!(dimension(true).value_at(&position, 1.0).to_bits(), expected.to_bits());
            assert_eq!(dimension(false).value_at(&position, 1.0).to_bits(), position.progress.to_bits());
        }
    }

    /// A dimension whose value is its progress.
    fn rising() -> Dimension {
        Dimension {
            name: "belief".into(),
            description: String::new(),
            levels: std::collections::BTreeMap::new(),
            curve: crate::simulation::persona::Curve::Linear { start: 0.0, end: 1.0 },
            min: 0.0,
            max: 1.0,
            restarts: false,
        }
    }

    #[test]
    fn a_trigger_may_look_at_the_other_side_a_value_or_a_monitor() {
        let other = EndCondition::Trigger {
            pattern: Pattern::Phrase("calm down".into()),
            speaker: TriggerSpeaker::Interlocutor,
            window: 1,
            max_turns: None,
        };
        let value = EndCondition::Intensity {
            dimension: "belief".into(),
            bound: IntensityBound::AtLeast(0.6),
            max_turns: None,
        };
        let monitor = EndCondition::Monitor { monitor: "stagnation".into(), max_turns: None };
        let mut trajectory = trajectory(TrajectoryMode::OpenEnded, vec![other, value, monitor, Pct(1.0)]);
        trajectory.dimensions = vec![rising()];
        let texts = |texts: [&str; 11]| texts.map(str::to_owned).to_vec();
        let persona = texts(["Calm down."; 11]);
        let mut interlocutor = texts(["Why?"; 11]);
        interlocutor[2] = "Please calm down.".to_owned();
        let mut findings = vec![Vec::new(); 11];
        findings[1] = vec!["stagnation".to_owned()];
        findings[8] = vec!["repetition".to_owned(), "stagnation".to_owned()];
        let drawn: String = (0..11)
            .map(|turn| {
                let past = Past {
                    persona: &persona[..turn],
                    interlocutor: &interlocutor[..turn],
                    findings: &findings[..turn],
                };
                let phase = position_at(&trajectory, 1.0, 11, turn, past).phase.unwrap();
                char::from(b'a' + u8::try_from(phase).unwrap())
            })
            .collect();
        // Progress is .6 at turn 6; the finding of turn 1 was before its phase.
        assert_eq!(drawn, "aaabbbcccdd");
    }

    #[test]
    fn without_phases_progress_runs_over_the_run() {
        let trajectory = trajectory(TrajectoryMode::PhaseGated { turns: None }, vec![]);
        let position = position(&trajectory, 5, 2, &[]);
        assert_eq!((position.phase, position.progress, position.phase_progress), (None, 0.5, 0.5));
    }

    fn any_end() -> impl Strategy<Value = EndCondition> {
        prop_oneof![
            (0.01..=1.0f64).prop_map(Pct),
            (1..40usize).prop_map(Turn),
            (1..4usize, prop::option::of(1..9usize)).prop_map(|(window, most)| trigger("now", window, most)),
        ]
    }

    proptest! {
        #[test]
        fn phases_never_go_back_and_progress_stays_in_bounds(
            ends in prop::collection::vec(any_end(), 1..5),
            gated in any::<bool>(),
            said in prop::collection::vec(prop_oneof![Just("now".to_owned()), Just("later".to_owned())], 30),
        ) {
            let mode = if gated { TrajectoryMode::PhaseGated { turns: None } } else { TrajectoryMode::OpenEnded };
            let trajectory = trajectory(mode, ends);
            let mut before = 0;
            for turn in 0..30 {
                let here = position(&trajectory, 30, turn, &said[..turn]);
                let phase = here.phase.unwrap();
                prop_assert!(phase >= before);
                prop_assert!((0.0..=1.0).contains(&here.progress));
                before = phase;
            }
        }

        #[test]
        fn later_messages_change_nothing(turn in 0..20usize, ends in prop::collection::vec(any_end(), 1..5)) {
            let trajectory = trajectory(TrajectoryMode::OpenEnded, ends);
            let said = vec!["now".to_owned(); 30];
            prop_assert_eq!(position(&trajectory, 30, turn, &said[..turn]), position(&trajectory, 30, turn, &said));
        }
    }
}
