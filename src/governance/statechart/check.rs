//! Whether a chart is whole, as far as its text tells: nothing in it is out of reach, nothing that it listens to goes without
//! an answer, and it cannot go round without end.

use super::chart::{Chart, Kind, StateId, Transition, Trigger, Vocabulary, word};
use super::set::StateSet;
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
        if state.kind == Kind::Parallel {
            open.extend(state.children);
        }
        open.extend(state.transitions.iter().flat_map(|id| chart.transition(*id).targets.iter().copied()));
    }
    for (id, state) in chart.states() {
        // Where a parent is out of reach, so is all inside it; one line says it.
        if !reached.contains(id) && state.parent.is_none_or(|parent| reached.contains(parent)) {
            let problem = Problem::new(state.span.clone(), format!("`{}` can never be reached", state.path));
            problems.add(problem.help("add a transition that leads to it, or remove it"));
        }
    }
}

/// Whatever the facts are, an event that a state listens to is taken.
fn answered<V: Vocabulary>(chart: &Chart<V>, problems: &mut Problems<'_>) {
    for (id, state) in chart.states() {
        let own: Vec<_> = state.transitions.iter().map(|id| chart.transition(*id)).collect();
        for (index, transition) in own.iter().enumerate() {
            let mut certain = own.iter().take(index).filter(|earlier| !earlier.is_conditional());
            let covers = |earlier: &&Transition<V>| transition.triggers.iter().all(|t| earlier.triggers.contains(t));
            if !transition.triggers.is_empty() && certain.any(covers) {
                let problem = Problem::new(transition.span.clone(), "this transition is never taken");
                problems.add(problem.help("one above it takes the same event without a condition; put this one first"));
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

/// Every cycle spends a counter. Since a counter is refilled only by spending one of higher rank, the counters fall like the
/// digits of one number, and no cycle is gone round for ever.
///
/// A transition on an event that leaves no state is not a cycle: it goes on only as long as events come.
fn ending<V: Vocabulary>(chart: &Chart<V>, problems: &mut Problems<'_>) {
    let free = || chart.transitions().map(|(_, transition)| transition).filter(|transition| transition.spend.is_none());
    for transition in free().filter(|transition| transition.triggers.is_empty() && transition.targets.is_empty()) {
        let problem = Problem::new(
            transition.span.clone(),
            "this is taken again and again: it needs no event and changes no state",
        );
        problems.add(problem.help("give it an event, a target, or `spend COUNTER`"));
    }
    let edges = |transition: &Transition<V>| {
        let to = transition.targets.iter().fold(StateSet::EMPTY, |to, target| to.or(landing(chart, *target)));
        (chart.leaves(transition.source), to)
    };
    // `after` one: the leaves that can be active after it, by transitions without a counter.
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
        from.and(on_a_cycle).meets(back)
    });
    if let Some(transition) = closing {
        let paths: Vec<_> = on_a_cycle.iter().map(|leaf| chart.state(leaf).path.as_str()).collect();
        let message = format!("a cycle without a counter leads through here: {}", paths.join(", "));
        let help = "let one of its transitions `spend COUNTER`, and say what happens when the counter has run out";
        problems.add(Problem::new(transition.span.clone(), message).help(help));
    }
}

/// The leaves that can be active when `target` is entered.
fn landing<V: Vocabulary>(chart: &Chart<V>, target: StateId) -> StateSet {
    let state = chart.state(target);
    let all = |ids: &mut dyn Iterator<Item = StateId>| ids.fold(StateSet::EMPTY, |to, id| to.or(landing(chart, id)));
    match state.kind {
        Kind::Atomic | Kind::Final => StateSet::EMPTY.with(target),
        Kind::Compound => all(&mut state.initial.iter().flat_map(|initial| initial.targets.iter().copied())),
        Kind::Parallel => all(&mut state.children.iter()),
        Kind::History { .. } => chart.leaves(state.parent.unwrap_or(StateId::ROOT)),
    }
}

/// Every counter and every amendment is used.
fn used<V: Vocabulary>(chart: &Chart<V>, problems: &mut Problems<'_>) {
    for (index, counter) in chart.counters().iter().enumerate() {
        if !chart.transitions().any(|(_, transition)| transition.spend.is_some_and(|id| usize::from(id.0) == index)) {
            let problem = Problem::new(counter.span.clone(), format!("nothing spends the counter `{}`", counter.name));
            problems.add(problem.help("remove it"));
        }
    }
    for amendment in chart.amendments() {
        let marked = Some(amendment.number);
        let in_states = chart.states().any(|(_, state)| state.amendment == marked);
        if !in_states && !chart.transitions().any(|(_, transition)| transition.amendment == marked) {
            let message = format!("nothing is marked with the amendment {}", amendment.number);
            problems
                .add(Problem::new(amendment.span.clone(), message).help("mark what it adds with `@…`, or remove it"));
        }
    }
}
