//! Explores every control state of the hope chart breadth first: each event in each state, under every answer of the
//! tested guards, with every relevant counter full or zero. The chart's invariants are checked on every step.
//!
//! Two abstractions keep the space finite without loss: counter values are reset between steps, and histories that will be
//! overwritten before they are read are dropped.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use super::*;
use crate::foundation::config::Choice;
use crate::governance::statechart::{Configuration, CounterId, Denial, StateId, Step, Trigger, start, step};

/// A control state: the configuration, and what is agreed.
type Node = (Configuration, Agreement);

struct Exploration {
    chart: Chart<HopeVocabulary>,
    places: Places,
    numbers: HashMap<Node, usize>,
    nodes: Vec<Node>,
    /// From which node to which.
    edges: Vec<(usize, usize)>,
    steps: usize,
    taken: BTreeSet<usize>,
    entered: BTreeSet<StateId>,
}

/// The states that the invariants refer to.
struct Places {
    user_need: StateId,
    doing: StateId,
    place: StateId,
    stage: StateId,
    spot: StateId,
    consult: StateId,
    paused: StateId,
    completed: StateId,
    output: StateId,
    acknowledge: StateId,
}

impl Exploration {
    fn new() -> Self {
        let chart = chart().unwrap();
        let find = |path: &str| chart.find(&format!("session.work.{path}")).unwrap();
        let places = Places {
            user_need: find("user_need"),
            doing: find("doing"),
            place: find("doing.place"),
            stage: find("doing.stage"),
            spot: find("doing.stage.spot"),
            consult: find("doing.consult"),
            paused: find("paused"),
            completed: find("completed"),
            output: find("doing.stage.shape.output"),
            acknowledge: find("doing.stage.intent.acknowledge"),
        };
        let (numbers, nodes, edges) = (HashMap::new(), Vec::new(), Vec::new());
        Self { chart, places, numbers, nodes, edges, steps: 0, taken: BTreeSet::new(), entered: BTreeSet::new() }
    }

    fn run(&mut self) {
        let first = start(&self.chart, |_| false).configuration;
        self.entered.extend(first.active());
        self.number((first, Agreement::Nothing));
        let mut next = 0;
        while let Some(node) = self.nodes.get(next).cloned() {
            for (_, event) in Event::NAMES {
                for counters in self.counters(&node.0, *event) {
                    self.every_answer(next, &node, *event, &counters);
                }
            }
            next += 1;
        }
    }

    /// Every choice of counters that have run out, among those that the event could spend here.
    fn counters(&self, configuration: &Configuration, event: Event) -> Vec<Vec<CounterId>> {
        // The event that an audit raises may decrement counters too.
        let raised = if event == Event::Audited { Event::Interrupted } else { event };
        let events = [event, raised].map(Trigger::Event);
        let listening = self.chart.transitions().filter(|(_, transition)| {
            let is_meant = transition.triggers.iter().any(|trigger| events.contains(trigger));
            is_meant && configuration.active().contains(transition.source)
        });
        let spent: BTreeSet<_> = listening.filter_map(|(_, transition)| transition.spend).collect();
        spent.iter().fold(vec![Vec::new()], |subsets, counter| {
            let with = subsets.iter().map(|subset| [subset.as_slice(), &[*counter]].concat());
            subsets.iter().cloned().chain(with).collect()
        })
    }

    /// Processes the event under every answer of the tested guards.
    fn every_answer(&mut self, from: usize, node: &Node, event: Event, run_out: &[CounterId]) {
        let (mut configuration, held) = node.clone();
        for counter in run_out {
            configuration.set_left(*counter, 0);
        }
        let mut script: Vec<bool> = Vec::new();
        loop {
            let tested: RefCell<Vec<(Guard, bool)>> = RefCell::default();
            let taken = step(&self.chart, &configuration, event, |guard| {
                let mut tested = tested.borrow_mut();
                match guard {
                    Guard::IntentHeld => held >= Agreement::Intent,
                    Guard::ShapeHeld => held >= Agreement::Shape,
                    _ => {
                        let known = tested.iter().find(|(known, _)| *known == guard).map(|(_, answer)| *answer);
                        let next = script.get(tested.len()).copied().unwrap_or(false);
                        known.unwrap_or_else(|| {
                            tested.push((guard, next));
                            next
                        })
                    }
                }
            });
            self.take(from, node, event, run_out, &taken);
            // The next script counts up in binary, the last answer first.
            script = tested.into_inner().into_iter().map(|(_, answer)| answer).collect();
            while script.pop_if(|answer| *answer).is_some() {}
            match script.last_mut() {
                Some(last) => *last = true,
                None => return,
            }
        }
    }

    fn take(&mut self, from: usize, node: &Node, event: Event, run_out: &[CounterId], taken: &Step<HopeVocabulary>) {
        self.steps += 1;
        let mut facts = Facts { held: node.1, ..Facts::default() };
        taken.effects.iter().for_each(|action| facts.note(*action));
        self.promises(node, event, run_out, taken, facts.held);
        for micro in &taken.trace {
            self.taken.extend(micro.transitions.iter().map(|id| usize::from(id.0)));
            self.entered.extend(&micro.entered);
        }
        let to = self.number((taken.configuration.clone(), facts.held));
        self.edges.push((from, to));
    }

    /// Invariants of every step.
    fn promises(
        &self,
        (before, held): &Node,
        event: Event,
        run_out: &[CounterId],
        taken: &Step<HopeVocabulary>,
        after: Agreement,
    ) {
        let Places { doing, paused, completed, output, acknowledge, .. } = self.places;
        let at = || format!("{event:?} in {:?}, {held:?}", before.leaves(&self.chart));
        let was = |state| before.active().contains(state);
        let is = |state| taken.configuration.active().contains(state);
        let does = |action| taken.effects.contains(&action);
        let denial = taken.denial.as_ref();
        assert!(!matches!(denial, Some(Denial::Endless | Denial::OtherChart | Denial::Finished)), "{}", at());
        // Every handled event has a fallback.
        assert!(!matches!(denial, Some(Denial::Refused { .. })), "{}", at());
        // An agreed intent changes only by the user.
        if does(Action::AdoptIntent) && *held != Agreement::Nothing {
            assert!(matches!(event, Event::Yes | Event::Edits), "{}", at());
        }
        if after == Agreement::Nothing && *held != Agreement::Nothing {
            assert_eq!(event, Event::NewWork, "{}", at());
        }
        // A shape is agreed only after it was announced, and nothing runs without one.
        assert!(!does(Action::HoldShape) || was(output), "{}", at());
        assert!(
            !taken.trace.iter().any(|micro| micro.entered.contains(&output)) || does(Action::AnnounceShape),
            "{}",
            at()
        );
        assert!(!(does(Action::Decompose) || does(Action::RunWave)) || after == Agreement::Shape, "{}", at());
        match event {
            Event::MustNotBroken if was(doing) || was(paused) => {
                assert!(is(completed) && does(Action::ConcludeStopped), "{}", at());
            }
            Event::Cancel if was(doing) || was(paused) => {
                assert!(is(completed) && does(Action::ConcludeCancelled), "{}", at());
            }
            // The user can withdraw the intent at any stage.
            Event::IntentWithdrawn if (was(doing) || was(paused)) && run_out.is_empty() => {
                assert!(is(acknowledge), "{}", at());
            }
            // Every stage handles a stall, and ends the work when its counter is zero.
            Event::Stalled if was(doing) => {
                assert_eq!(is(completed) && does(Action::ConcludeStuck), !run_out.is_empty(), "{}", at());
            }
            Event::Pause if was(doing) && run_out.is_empty() => {
                assert!(is(paused), "{}", at());
                let resumed = step(&self.chart, &taken.configuration, Event::Resume, |_| false);
                assert_eq!(resumed.configuration.active(), before.active(), "{}", at());
            }
            _ => {}
        }
    }

    fn number(&mut self, (configuration, held): Node) -> usize {
        let node = (self.forget(configuration), held);
        if let Some(number) = self.numbers.get(&node) {
            return *number;
        }
        let number = self.nodes.len();
        self.nodes.push(node.clone());
        self.numbers.insert(node, number);
        number
    }

    fn forget(&self, mut configuration: Configuration) -> Configuration {
        let Places { place, stage, spot, consult, paused, .. } = self.places;
        let active = configuration.active();
        configuration.left = self.chart.counters().iter().map(|counter| counter.limit).collect();
        let consulted = configuration.remembered(place).intersects(self.chart.state(consult).inside);
        let reads_place = active.contains(paused);
        let reads_spot = active.contains(consult) || reads_place && consulted;
        assert!(!(active.contains(stage) && reads_spot));
        configuration.history.retain(|(history, _)| *history == place && reads_place || *history == spot && reads_spot);
        configuration
    }

    /// The nodes from which one that satisfies `is_end` can be reached.
    fn can_reach(&self, is_end: impl Fn(&Configuration) -> bool) -> usize {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        self.edges.iter().for_each(|(from, to)| before[*to].push(*from));
        let mut reached: Vec<bool> = self.nodes.iter().map(|(configuration, _)| is_end(configuration)).collect();
        let mut open: Vec<usize> = (0..self.nodes.len()).filter(|node| reached[*node]).collect();
        while let Some(node) = open.pop() {
            for earlier in &before[node] {
                if !std::mem::replace(&mut reached[*earlier], true) {
                    open.push(*earlier);
                }
            }
        }
        reached.into_iter().filter(|reached| *reached).count()
    }
}

#[test]
fn every_control_state_keeps_the_promises_of_the_chart() {
    let mut exploration = Exploration::new();
    exploration.run();
    let Exploration { chart, places, nodes, steps, taken, entered, .. } = &exploration;
    let works: BTreeSet<_> = nodes.iter().map(|(configuration, _)| configuration.leaves(chart)[0]).collect();
    let summary = format!("{} control states, {steps} steps, {} leaves of the work", nodes.len(), works.len());
    println!("{summary}");
    // From every state the work can end, and after its end the next need can begin.
    let ends = |state| move |configuration: &Configuration| configuration.active().contains(state);
    assert_eq!(exploration.can_reach(ends(places.completed)), nodes.len());
    assert_eq!(exploration.can_reach(ends(places.user_need)), nodes.len());
    // No transition or state is unused.
    let idle: Vec<_> = chart.transitions().filter(|(id, _)| !taken.contains(&usize::from(id.0))).collect();
    assert!(idle.is_empty(), "never taken: {idle:#?}");
    let mut states = chart
        .states()
        .filter(|(_, state)| !matches!(state.kind, crate::governance::statechart::StateKind::History { .. }));
    assert!(states.all(|(id, _)| entered.contains(&id)));
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/STATECHART.md")).unwrap();
    assert!(page.contains(&summary), "docs/STATECHART.md should say: {summary}");
}
