//! Which phase a turn is in, and its progress: computed from the persona's messages alone, so that a resumed run needs no
//! stored phase state.
//!
//! Conventions. A phase lasts until its end condition is met: a `pct` phase while progress over the run is *below* its end, a
//! `turn` phase before that turn, a `trigger` phase until its pattern is found or `max_turns` are over. The last phase
//! lasts to the end of the run, whatever its own end condition. A phase whose end condition is already met when it would
//! begin is skipped. A trigger is searched for in the persona's last `window` messages joined by line breaks, and the window
//! never reaches back before the phase began: a match that ended one phase does not end the next.

use super::intensity::progress;
use super::{EndCondition, Phase, Trajectory, TrajectoryMode};

/// The position of a turn in its trajectory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TurnPosition {
    /// Index of the phase; `None` when there are no phases.
    pub phase: Option<usize>,
    /// In `[0, 1]`: over the run, or within the phase when the trajectory is phase-gated.
    pub progress: f64,
}

/// The position of `turn` in a run of `turns`, given the persona's messages of the turns before it.
pub(super) fn position_at(trajectory: &Trajectory, turns: usize, turn: usize, messages: &[String]) -> TurnPosition {
    let phases = &trajectory.phases;
    let Some(last) = phases.len().checked_sub(1) else {
        return TurnPosition { phase: None, progress: progress(turn, turns) };
    };
    let (mut current, mut began) = (0, 0);
    for now in 0..=turn {
        while current < last && phases.get(current).is_some_and(|phase| is_over(phase, now, began, turns, messages)) {
            current += 1;
            began = now;
        }
    }
    let progress = match trajectory.mode {
        TrajectoryMode::FixedLength { .. } | TrajectoryMode::OpenEnded => progress(turn, turns),
        TrajectoryMode::PhaseGated { .. } => progress(turn - began, expected_length(phases, current, began, turns)),
    };
    TurnPosition { phase: Some(current), progress }
}

/// Whether a phase that began at turn `began` is over at turn `now`.
fn is_over(phase: &Phase, now: usize, began: usize, turns: usize, messages: &[String]) -> bool {
    match &phase.end {
        EndCondition::Pct(end) => progress(now, turns) >= *end,
        EndCondition::Turn(end) => now >= *end,
        EndCondition::Trigger { pattern, window, max_turns } => {
            let said =
                messages.get(now.saturating_sub(*window).max(began)..now.min(messages.len())).unwrap_or_default();
            max_turns.is_some_and(|most| now - began >= most)
                || match said {
                    [] => false,
                    [only] => pattern.is_match(only),
                    several => pattern.is_match(&several.join("\n")),
                }
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
            Some(EndCondition::Trigger { max_turns: Some(most), .. }) => *most,
            Some(EndCondition::Trigger { max_turns: None, .. }) | None => left / (phases.len() - phase),
        }
    };
    length.max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::persona::Pattern;

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
        EndCondition::Trigger { pattern: Pattern::Phrase(phrase.into()), window, max_turns }
    }

    fn trajectory(mode: TrajectoryMode, ends: Vec<EndCondition>) -> Trajectory {
        Trajectory { mode, dimensions: vec![], phases: phases(ends) }
    }

    /// The phases of a run, one letter a turn; `said` is what the persona says, turn by turn.
    fn check(ends: Vec<EndCondition>, turns: usize, said: &[&str], expected: &str) {
        let trajectory = trajectory(TrajectoryMode::FixedLength { turns }, ends);
        let said: Vec<String> = said.iter().map(ToString::to_string).collect();
        let drawn: String = (0..turns)
            .map(|turn| position_at(&trajectory, turns, turn, &said[..turn.min(said.len())]).phase)
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
            window,
            max_turns: None,
        };
        let said = ["I am tired.", "It is the job.", "x", "x"];
        check(vec![both(2), Pct(1.0)], 4, &said, "aabb");
        check(vec![both(1), Pct(1.0)], 4, &said, "aaaa");
    }

    #[test]
    fn phase_gated_progress_runs_within_each_phase() {
        let ends = vec![Turn(3), trigger("go", 1, Some(3)), trigger("stop", 1, None), Pct(1.0)];
        let trajectory = trajectory(TrajectoryMode::PhaseGated { turns: None }, ends);
        // Three turns; a trigger of three; no limit, so half of the six turns left; then the last three.
        let expected = [0.0, 0.5, 1.0, 0.0, 0.5, 1.0, 0.0, 0.5, 1.0, 1.0, 1.0];
        let said = vec!["x".to_owned(); 12];
        for (turn, expected) in expected.into_iter().enumerate() {
            let position = position_at(&trajectory, 12, turn, &said[..turn]);
            assert_eq!(position.progress.to_bits(), f64::to_bits(expected), "turn {turn}: {position:?}");
        }
    }

    #[test]
    fn without_phases_progress_runs_over_the_run() {
        let trajectory = trajectory(TrajectoryMode::PhaseGated { turns: None }, vec![]);
        assert_eq!(position_at(&trajectory, 5, 2, &[]), TurnPosition { phase: None, progress: 0.5 });
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
                let here = position_at(&trajectory, 30, turn, &said[..turn]);
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
            prop_assert_eq!(position_at(&trajectory, 30, turn, &said[..turn]), position_at(&trajectory, 30, turn, &said));
        }
    }
}
