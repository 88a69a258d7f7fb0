//! SCXML's rules as small charts: the active states after each event, and the effects.

use std::fmt::Write as _;

use super::chart::{Chart, Vocabulary};
use super::step::{Denial, Step, start, step};
use crate::foundation::config::ConfigErrors;

/// A vocabulary for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Small;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Event {
    A,
    B,
    C,
    D,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Guard {
    Yes,
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Action {
    X,
    Y,
    Z,
    W,
}

crate::config_choices! {
    Event { "a" => A, "b" => B, "c" => C, "d" => D }
    Guard { "yes" => Yes, "no" => No }
    Action { "x" => X, "y" => Y, "z" => Z, "w" => W }
}

impl Vocabulary for Small {
    type Event = Event;
    type Guard = Guard;
    type Action = Action;
}

fn holds(guard: Guard) -> bool {
    guard == Guard::Yes
}

fn chart(body: &str) -> Chart<Small> {
    Chart::read("test", &format!("chart test\n{body}"))
        .unwrap_or_else(|errors| panic!("{errors}: {:?}", errors.problems().next()))
}

/// Runs events, written as letters; returns the leaves and effects after the start and after each event.
fn play(body: &str, events: &str) -> String {
    let chart = chart(body);
    let tell = |step: &Step<Small>| {
        let done: String = step.effects.iter().map(|action| super::word(*action)).collect();
        let leaves = step.configuration.leaves(&chart).join("+");
        match &step.denial {
            Some(Denial::Unexpected(_)) => "-".to_owned(),
            Some(Denial::Refused { .. }) => "!".to_owned(),
            Some(denial) => denial.to_string(),
            None if done.is_empty() => leaves,
            None => format!("{leaves}/{done}"),
        }
    };
    let mut last = start(&chart, holds);
    let mut report = vec![tell(&last)];
    for letter in events.chars() {
        let event = match letter {
            'a' => Event::A,
            'b' => Event::B,
            'c' => Event::C,
            _ => Event::D,
        };
        last = step(&chart, &last.configuration, event, holds);
        report.push(tell(&last));
    }
    report.join(" ")
}

#[track_caller]
fn check(body: &str, events: &str, expected: &str) {
    assert_eq!(play(body, events), expected, "{body}");
}

#[test]
fn the_first_state_inside_is_entered_unless_initial_names_another() {
    check("state s\n  state t\n  state u\n", "", "s.t");
    check("state s\n  initial u.v / x\n  entry y\n  state t\n  state u\n    entry z\n    state v\n", "", "s.u.v/yxz");
}

#[test]
fn the_innermost_transition_wins_and_the_first_of_a_state() {
    let body = "
state s
  on a / x
  on b / y
  state t
    on a / z
    on a / w
";
    check(body, "abc", "s.t s.t/z s.t/y -");
}

#[test]
fn exits_run_inside_out_then_the_acts_then_entries_outside_in() {
    let body = "
state s
  exit y
  state t
    exit x
    on a / z -> u.v
state u
  entry w
  state v
    entry x
";
    check(body, "a", "s.t u.v/xyzwx");
}

#[test]
fn an_external_transition_leaves_its_source_and_an_internal_one_does_not() {
    let body = |arrow: &str| {
        format!(
            "
state s
  entry x
  exit y
  on a {arrow} u
  state t
  state u
"
        )
    };
    check(&body("->"), "a", "s.t/x s.u/yx");
    check(&body("~>"), "a", "s.t/x s.u");
    // Without a target nothing is left at all.
    check("state s\n  entry x\n  on a / z\n  state t\n    entry y\n", "a", "s.t/xy s.t/z");
}

#[test]
fn regions_move_together() {
    let body = "
parallel p
  state l
    state l1
      on a -> l2
    state l2
  state r
    state r1
      on a -> r2
    state r2
      on b -> l.l1
";
    check(body, "a", "p.l.l1+p.r.r1 p.l.l2+p.r.r2");
    // A transition across regions leaves both and enters the other's default.
    check(body, "ab", "p.l.l1+p.r.r1 p.l.l2+p.r.r2 p.l.l1+p.r.r1");
}

#[test]
fn of_conflicting_transitions_the_deeper_or_earlier_is_taken() {
    let body = "
parallel p
  state l
    state l1
      on a / x -> out
  state r
    state r1
      on a / y -> r2
    state r2
state out
";
    check(body, "a", "p.l.l1+p.r.r1 out/x");
    // The earlier region stays inside itself, so the later one that leaves the parallel state is preempted.
    let body = "
parallel p
  state l
    state l1
      on a / x -> l2
    state l2
  state r
    state r1
      on a / y -> out
state out
";
    check(body, "aa", "p.l.l1+p.r.r1 p.l.l2+p.r.r1/x out/y");
    // A child's transition preempts its ancestor's, even where the ancestor's was found first in another region.
    let body = "
parallel p
  on a / x -> out
  state l
  state r
    state r1
      on a / y -> r2
    state r2
state out
";
    check(body, "aa", "p.l+p.r.r1 p.l+p.r.r2/y out/x");
}

#[test]
fn a_shallow_history_restores_the_child_and_a_deep_one_the_leaf() {
    let body = |depth: &str| {
        format!(
            "
state s
  history h {depth} -> t / z
  on a -> away
  state t
  state u
    state u1
    state u2
  on b -> u.u2
state away
  on a -> s.h
"
        )
    };
    check(&body("deep"), "baa", "s.t s.u.u2 away s.u.u2");
    check(&body("shallow"), "baa", "s.t s.u.u2 away s.u.u1");
    // Before there was anything, a history leads to its default, and only then are its acts done.
    let fresh = "state away\n  on a -> s.h\nstate s\n  on a -> away\n  history h deep -> u / z\n  entry x\n  state t\n  state u\n    entry y\n";
    check(fresh, "aaa", "away s.u/xzy away s.u/xy");
}

#[test]
fn a_deep_history_of_a_parallel_state_restores_every_region() {
    let body = "
parallel p
  history h deep -> l
  on d -> away
  state l
    state l1
      on a -> l2
    state l2
  state r
    state r1
      on b -> r2
    state r2
state away
  on d -> p.h
";
    check(body, "abdd", "p.l.l1+p.r.r1 p.l.l2+p.r.r1 p.l.l2+p.r.r2 away p.l.l2+p.r.r2");
}

#[test]
fn transitions_without_an_event_come_before_raised_events_and_those_before_the_next() {
    let body = "
state s
  on a / raise b, raise c -> t
state t
  always / x -> u
state u
  on b / y
  on c / z -> v
state v
";
    check(body, "a", "s v/xyz");
}

#[test]
fn raised_events_without_a_transition_are_dropped() {
    check("state s\n  on a / raise d -> t\nstate t\n  on b -> s\n", "ab", "s t s");
}

#[test]
fn the_end_of_a_state_is_an_event() {
    let body = "
state s
  on done / x -> after
  state t
    on a -> end
  final end
    entry y
state after
";
    check(body, "a", "s.t after/yx");
    let body = "
parallel p
  on done / z -> after
  state l
    on done / x
    state l1
      on a -> end
    final end
  state r
    on done / y
    state r1
      on b -> end
    final end
state after
";
    check(body, "ab", "p.l.l1+p.r.r1 p.l.end+p.r.r1/x after/yz");
}

#[test]
fn a_top_level_final_state_ends_the_chart_and_exits_every_state() {
    let body = "state s\n  on a -> end\nfinal end\n  entry x\n  exit y\n";
    check(body, "aa", "s end/xy the chart has finished: start it again");
}

#[test]
fn conditions_test_guards_and_active_states() {
    let body = "
parallel p
  state l
    on a [no] / x
    on a [yes, not in p.r.r2] / y
    on a / z
  state r
    state r1
      on b -> r2
    state r2
";
    check(body, "aba", "p.l+p.r.r1 p.l+p.r.r1/y p.l+p.r.r2 p.l+p.r.r2/z");
    check("state s\n  on a [no] / x\n  on a [not yes] / y\n", "a", "s !");
}

#[test]
fn a_counter_reaches_zero_and_is_refilled_by_a_higher_one() {
    let body = "
counter big 1
counter little 2
state s
  on a spend little / x
  on a / y
  on b spend big refill little / z
  on b / w
";
    check(body, "aaabaaab", "s s/x s/x s/y s/z s/x s/x s/y s/w");
}

#[test]
fn an_endless_step_is_denied_without_any_effect() {
    check(
        "state s\n  on a -> t\nstate t\n  always / x -> u\nstate u\n  always -> t\n",
        "ab",
        "s the step did not end within the limit of microsteps -",
    );
}

#[test]
fn a_refusal_names_the_failed_condition_of_each_transition() {
    let chart = chart("counter n 1\nstate s\n  on a [yes, no] / x\n  on a spend n / y\n");
    let first = step(&chart, &start(&chart, holds).configuration, Event::A, holds);
    let second = step(&chart, &first.configuration, Event::A, holds);
    let Some(Denial::Refused { by, .. }) = second.denial else { panic!("refused") };
    let report: Vec<_> = by.iter().map(|(id, refusal)| (chart.transition(*id).acts.len(), *refusal)).collect();
    let (condition, spent) = (super::Refusal::Condition(1), super::Refusal::Spent(super::CounterId(0)));
    assert_eq!(report, [(1, condition), (1, spent)]);
}

#[test]
fn a_configuration_of_another_chart_is_refused() {
    let (one, other) = (chart("state s\n  on a -> t\nstate t\n"), chart("state s\n  on a -> u\nstate u\n"));
    let foreign = step(&one, &start(&other, holds).configuration, Event::A, holds);
    assert_eq!(foreign.denial, Some(Denial::OtherChart));
}

#[test]
fn problems_are_reported_with_their_positions() {
    let mut report = String::new();
    for (name, text) in
        include_str!("../../../tests/data/bad_charts.txt").split("=== ").filter_map(|part| part.split_once('\n'))
    {
        let errors: ConfigErrors = Chart::<Small>::load(name, text).expect_err(name);
        writeln!(report, "=== {name}").unwrap();
        for problem in errors.problems() {
            let (line, column) = errors.line_column(problem.span.start);
            let under = text.get(problem.span.clone()).unwrap_or_default();
            let help = problem.help.as_deref().unwrap_or("-");
            writeln!(report, "{line}:{column} `{under}`: {}\n    help: {help}", problem.message).unwrap();
        }
    }
    insta::assert_snapshot!(report);
}
