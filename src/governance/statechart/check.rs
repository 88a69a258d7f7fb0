//! Static checks of a chart: every state is reachable, every handled event has an unconditional fallback, and every cycle
//! is limited by a counter.

use super::chart::{Chart, StateKind, Transition, Trigger, Vocabulary, word};
use super::set::{StateId, StateSet};
use crate::foundation::config::{Problem, Problems};

pub(super) fn check<V: Vocabulary>(chart: &Chart<V>, problems: &mut Problems<'_>) {
    reachable(chart, problems);
    answered(chart, problems);
    ending(chart, problems);
    used(chart, problems);
}

/// Every state can be reached from the start.
fn reachable<V: Vocabulary>(chart: &Chart<V>, problems: &mut Problems<'_>) {
    let mut reached = StateSet::EMPTY;
    let mut open = vec![StateId::ROOT];
    while let Some(id) = open.pop() {
        if reached.contains(id) {
            continue;
        }
        reached.insert(id);
        let state = chart.state(id);
        open.extend(state.parent);
        open.extend(state.initial.iter().flat_map(|initial| initial.targets.iter().copied()));
        if state.kind == StateKind::Parallel {
            open.extend(state.children);
        }
        open.extend(state.transitions.iter().flat_map(|id| chart.transition(*id).targets.iter().copied()));
    }
    for (id, state) in chart.states() {
        // Report only the outermost unreachable state.
        if !reached.contains(id) && state.parent.is_none_or(|parent| reached.contains(parent)) {
            let problem = Problem::new(state.span.clone(), format!("`{}` is unreachable", state.path));
            problems.add(problem.help("add a transition that leads to it, or remove it"));
        }
    }
}

/// An event that a state handles is taken whatever the facts are.
fn answered<V: Vocabulary>(chart: &Chart<V>, problems: &mut Problems<'_>) {
    for (id, state) in chart.states() {
        let own: Vec<_> = state.transitions.iter().map(|id| chart.transition(*id)).collect();
        for (index, transition) in own.iter().enumerate() {
            let mut certain = own.iter().take(index).filter(|earlier| !earlier.is_conditional());
            let covers = |earlier: &&Transition<V>| transition.triggers.iter().all(|t| earlier.triggers.contains(t));
            if !transition.triggers.is_empty() && certain.any(covers) {
                let problem = Problem::new(transition.span.clone(), "this transition is never taken");
                problems.add(
                    problem.help("a transition above it takes the same event without a condition; move this one up"),
                );
            }
            for trigger in transition.triggers.iter().filter(|_| transition.is_conditional()) {
                let is_last = !own.iter().skip(index + 1).any(|later| later.triggers.contains(trigger));
                if is_last && !has_answer(chart, id, *trigger) {
                    let name = trigger_name(chart, *trigger);
                    let message = format!("what happens on `{name}` when this is not taken?");
                    let help =
                        format!("add `on {name} …` without condition or counter after it, or in a state around it");
                    problems.add(Problem::new(transition.span.clone(), message).help(help));
                }
            }
        }
    }
}

fn has_answer<V: Vocabulary>(chart: &Chart<V>, id: StateId, trigger: Trigger<V>) -> bool {
    std::iter::once(id).chain(chart.ancestors(id)).flat_map(|state| &chart.state(state).transitions).any(|transition| {
        let transition = chart.transition(*transition);
        !transition.is_conditional() && transition.triggers.contains(&trigger)
    })
}

pub(super) fn trigger_name<V: Vocabulary>(chart: &Chart<V>, trigger: Trigger<V>) -> String {
    match trigger {
        Trigger::Event(event) => word(event).to_owned(),
        Trigger::Done(state) => format!("done({})", chart.state(state).path),
    }
}

/// Every cycle decrements a counter. Since a counter is reset only when one of higher rank is decremented, the counters
/// decrease lexicographically, and no cycle runs forever.
///
/// A targetless transition on an event is not a cycle: it runs once per event.
fn ending<V: Vocabulary>(chart: &Chart<V>, problems: &mut Problems<'_>) {
    let free = || chart.transitions().map(|(_, transition)| transition).filter(|transition| transition.spend.is_none());
    for transition in free().filter(|transition| transition.triggers.is_empty() && transition.targets.is_empty()) {
        let problem = Problem::new(
            transition.span.clone(),
            "this transition never stops: it needs no event and changes no state",
        );
        problems.add(problem.help("give it an event, a target, or `spend COUNTER`"));
    }
    let edges = |transition: &Transition<V>| {
        let to = transition.targets.iter().fold(StateSet::EMPTY, |to, target| to.or(landing(chart, *target)));
        (chart.leaves(transition.source), to)
    };
    // For each leaf, the leaves that can be active after it by transitions without a counter.
    let leaves: Vec<StateId> = chart.leaves(StateId::ROOT).into_iter().collect();
    let mut after: Vec<(StateId, StateSet)> = leaves.iter().map(|leaf| (*leaf, StateSet::EMPTY)).collect();
    for (from, to) in free().map(edges) {
        after.iter_mut().filter(|(leaf, _)| from.contains(*leaf)).for_each(|(_, after)| *after = after.or(to));
    }
    for middle in leaves {
        let Some((_, beyond)) = after.iter().find(|(leaf, _)| *leaf == middle).copied() else { continue };
        after.iter_mut().filter(|(_, after)| after.contains(middle)).for_each(|(_, after)| *after = after.or(beyond));
    }
    let on_a_cycle: StateSet =
        after.iter().filter(|(leaf, after)| after.contains(*leaf)).map(|(leaf, _)| *leaf).collect();
    let closing = free().find(|transition| {
        let (from, to) = edges(transition);
        let back = after.iter().filter(|(leaf, _)| to.contains(*leaf)).fold(to, |back, (_, after)| back.or(*after));
        from.and(on_a_cycle).intersects(back)
    });
    if let Some(transition) = closing {
        let paths: Vec<_> = on_a_cycle.iter().map(|leaf| chart.state(leaf).path.as_str()).collect();
        let message = format!("this transition is part of a cycle without a counter: {}", paths.join(", "));
        let help = "add `spend COUNTER` to one of its transitions, and a transition for when the counter is zero";
        problems.add(Problem::new(transition.span.clone(), message).help(help));
    }
}

/// The leaves that can be active when `target` is entered.
fn landing<V: Vocabulary>(chart: &Chart<V>, target: StateId) -> StateSet {
    let state = chart.state(target);
    let all = |ids: &mut dyn Iterator<Item = StateId>| ids.fold(StateSet::EMPTY, |to, id| to.or(landing(chart, id)));
    match state.kind {
        StateKind::Atomic | StateKind::Final => StateSet::EMPTY.with(target),
        StateKind::Compound => all(&mut state.initial.iter().flat_map(|initial| initial.targets.iter().copied())),
        StateKind::Parallel => all(&mut state.children.iter()),
        StateKind::History { .. } => chart.leaves(state.parent.unwrap_or(StateId::ROOT)),
    }
}

/// Every counter and every amendment is used.
fn used<V: Vocabulary>(chart: &Chart<V>, problems: &mut Problems<'_>) {
    for (index, counter) in chart.counters().iter().enumerate() {
        if !chart.transitions().any(|(_, transition)| transition.spend.is_some_and(|id| usize::from(id.0) == index)) {
            let problem =
                Problem::new(counter.span.clone(), format!("no transition spends the counter `{}`", counter.name));
            problems.add(problem.help("remove it"));
        }
    }
    for amendment in chart.amendments() {
        let marked = Some(amendment.number);
        let in_states = chart.states().any(|(_, state)| state.amendment == marked);
        if !in_states && !chart.transitions().any(|(_, transition)| transition.amendment == marked) {
            let message = format!("no state or transition is marked with amendment {}", amendment.number);
            problems.add(
                Problem::new(amendment.span.clone(), message)
                    .help("mark its states or transitions with `@…`, or remove it"),
            );
        }
    }
}
