//! Every control state of the mood machine, found breadth first: each event in each of them, from every way to begin. What the
//! guards promise is checked on every step.
//!
//! Left out, because they add nothing to what moods do: the counters (between steps they are full again; that an empty one
//! halts is tried in every state), the texts of the registers, and the count of iterations without improvement, which ends
//! in the same fact as a verifier's failure.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use super::guards::{Counter, GUARDS, Kind};
use super::state::Ceiling;
use super::*;
use crate::foundation::gate::{Categories, Category, Power};

/// A control state, and beside it what the machine does not know: for which privilege a person gave a token that was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    mood: Mood,
    previous: Mood,
    facts: Facts,
    crossing: Option<Privilege>,
    ceiling: Option<Ceiling>,
    declined: bool,
    token: Option<Privilege>,
}

impl Node {
    fn state(self) -> MoodState {
        let mut state = MoodState::begin(self.mood);
        (state.previous, state.facts, state.crossing) = (self.previous, self.facts, self.crossing);
        (state.ceiling, state.declined) = (self.ceiling, self.declined);
        state
    }

    fn of(state: &MoodState, token: Option<Privilege>, powers: &Powers) -> Self {
        Self {
            mood: state.mood,
            // A mood that is returned to overwrites it when it is left.
            previous: if state.mood.is_returned_to() { state.mood } else { state.previous },
            facts: state.facts,
            crossing: state.crossing,
            ceiling: state.ceiling.map(|ceiling| powers.simplest(ceiling)),
            declined: state.declined,
            token,
        }
    }
}

/// What each set of moods has in common. Ceilings with the same power behave the same, so one stands for all.
struct Powers(Vec<Ceiling>);

impl Powers {
    fn new(profiles: &Profiles) -> Self {
        let mut seen: HashMap<Option<Power>, Ceiling> = HashMap::new();
        let simplest = |bits: u8| {
            let moods = Mood::ALL.into_iter().filter(|mood| bits & mood.bit() != 0);
            let power = moods.map(|mood| profiles.of(mood).rights().power()).reduce(Power::meet);
            *seen.entry(power).or_insert(Ceiling(bits))
        };
        Self((0..=u8::MAX).map(simplest).collect())
    }

    fn simplest(&self, ceiling: Ceiling) -> Ceiling {
        self.0[usize::from(ceiling.0)]
    }
}

fn events() -> Vec<Event> {
    use Regulation::{CostCap, ProceduralWarning, QualityDecline, RepeatedFailure, ScopeDrift};
    let mut events = vec![
        Event::Restarted,
        Event::HeartbeatStale,
        Event::Projected { consistent: true },
        Event::Projected { consistent: false },
        Event::Disclosed,
        Event::PreferenceMissing,
        Event::PreferenceSet,
        Event::TimedOut,
        Event::VerifiersFailed,
        Event::VerifiersPassed,
        Event::EvidenceConflicts,
        Event::SecurityTouched,
        Event::RiskGrew,
        Event::Ambiguous,
        Event::NextClear,
        Event::Mitigated,
        Event::Widen,
    ];
    events.extend([Suspicion::Injection, Suspicion::RewardHack, Suspicion::SelfSealing].map(Event::Suspected));
    for privilege in Privilege::ALL {
        events.extend([Event::Crossing, Event::Approved, Event::Denied, Event::Crossed].map(|event| event(privilege)));
    }
    events.extend([CostCap, QualityDecline, RepeatedFailure, ScopeDrift, ProceduralWarning].map(Event::Regulated));
    events
}

/// Whether the event brings a fact of risk.
fn is_risk(event: &Event) -> bool {
    matches!(
        event,
        Event::Restarted
            | Event::HeartbeatStale
            | Event::Suspected(_)
            | Event::PreferenceMissing
            | Event::Crossing(_)
            | Event::VerifiersFailed
            | Event::SecurityTouched
            | Event::RiskGrew
            | Event::Regulated(
                Regulation::CostCap | Regulation::QualityDecline | Regulation::RepeatedFailure | Regulation::ScopeDrift
            )
    )
}

struct Exploration {
    profiles: Profiles,
    powers: Powers,
    numbers: HashMap<Node, usize>,
    nodes: Vec<Node>,
    power: Vec<Power>,
    steps: usize,
    taken: HashSet<&'static str>,
    longest: usize,
}

impl Exploration {
    fn number(&mut self, state: &MoodState, token: Option<Privilege>) -> usize {
        let node = Node::of(state, token, &self.powers);
        if let Some(number) = self.numbers.get(&node) {
            return *number;
        }
        let state = node.state();
        let rights = state.rights(&self.profiles);
        self.promises_of_a_state(&state, &rights);
        let number = self.nodes.len();
        self.numbers.insert(node, number);
        self.nodes.push(node);
        self.power.push(rights.power());
        number
    }

    fn promises_of_a_state(&self, state: &MoodState, rights: &crate::foundation::gate::Rights) {
        let profile = self.profiles.of(state.mood);
        let privileged = rights.uses.meet(Categories::PRIVILEGED);
        let cleared = state.facts.holds(Fact::Cleared);
        // A privilege is among the rights only between its clearing and its crossing, in PARANOID, alone.
        assert_eq!(!privileged.is_empty(), cleared, "{state:?}");
        if cleared {
            assert_eq!(privileged, Categories::from(state.crossing.unwrap().category()));
            assert_eq!(state.mood, Mood::Paranoid);
        }
        assert!(rights.delegates.is_disjoint(Categories::PRIVILEGED));
        assert!(rights.uses.without(privileged).within(profile.rights().uses));
        assert!(rights.writes.within(profile.rights().writes) && rights.reads.within(profile.rights().reads));
        // It is at rest.
        let next = GUARDS.iter().find(|guard| guard.holds(state.mood, state.facts));
        assert!(next.is_none_or(|guard| guard.kind == Kind::Wait), "{state:?}");
        assert_eq!(state.crossing.is_some(), state.facts.holds(Fact::Crossing), "{state:?}");
        // An empty counter ends the run with nothing but a voice.
        let mut spent = state.clone();
        spent.left = [0; Counter::ALL.len()];
        for event in [Event::Restarted, Event::Ambiguous, Event::PreferenceSet] {
            let after = step(&spent, &event);
            if let Some(counter) = after.state.halted() {
                assert!(after.effects.contains(&Effect::Halted(counter)));
                assert_eq!(after.state.rights(&self.profiles).uses, Category::Ask.into());
            } else {
                assert_eq!(after.taken, Vec::<&str>::new());
            }
        }
    }

    fn take(&mut self, from: usize, event: &Event) {
        let node = self.nodes[from];
        let before = node.state();
        let after = step(&before, event);
        self.steps += 1;
        self.taken.extend(&after.taken);
        self.longest = self.longest.max(after.taken.len());
        let unique: HashSet<_> = after.taken.iter().collect();
        assert_eq!(unique.len(), after.taken.len(), "{event:?} in {before:?} goes round: {:?}", after.taken);
        let mut token = node.token;
        match event {
            Event::Approved(privilege) if node.crossing == Some(*privilege) => token = Some(*privilege),
            Event::Denied(privilege) | Event::Crossed(privilege) if token == Some(*privilege) => token = None,
            _ => {}
        }
        for effect in &after.effects {
            if let Effect::Cross(privilege) = effect {
                // Nothing is published, promoted or signed without a person's token for exactly that, used once.
                assert_eq!(token.take(), Some(*privilege), "{event:?} in {before:?}");
            }
        }
        let to = self.number(&after.state, token);
        if is_risk(event) {
            assert!(self.power[to].within(self.power[from]), "{event:?} in {before:?} enlarges {:?}", after.state);
        }
    }
}

#[test]
fn no_sequence_of_events_breaks_what_the_guards_promise() {
    let profiles = Profiles::shipped().unwrap();
    let powers = Powers::new(&profiles);
    let mut exploration = Exploration {
        profiles,
        powers,
        numbers: HashMap::new(),
        nodes: Vec::new(),
        power: Vec::new(),
        steps: 0,
        taken: HashSet::new(),
        longest: 0,
    };
    let facts = [Fact::Unaimed, Fact::Failing, Fact::Crashed, Fact::Exposed, Fact::Attacked, Fact::Undecided];
    for bits in 0..1 << facts.len() {
        let begun: Vec<_> = facts.into_iter().enumerate().filter(|(at, _)| bits & 1 << at != 0).collect();
        let begun = Facts::of(&begun.into_iter().map(|(_, fact)| fact).collect::<Vec<_>>());
        let entered = MoodState::enter(begun).state;
        let number = exploration.number(&entered, None);
        // A run that begins with one more risk does not begin with more power.
        for risk in Facts::RISK.iter().filter(|risk| facts.contains(risk)) {
            let riskier = MoodState::enter(begun.with(Facts::of(&[risk]))).state;
            let riskier = exploration.number(&riskier, None);
            assert!(exploration.power[riskier].within(exploration.power[number]), "{begun} and {risk:?}");
        }
    }
    for mood in Mood::ALL {
        // A child begins where it is put, whatever the table says next; its first event settles it.
        if GUARDS.iter().find(|guard| guard.holds(mood, Facts::NONE)).is_none_or(|guard| guard.kind == Kind::Wait) {
            exploration.number(&MoodState::begin(mood), None);
        }
    }
    let events = events();
    let mut next = 0;
    while next < exploration.nodes.len() {
        for event in &events {
            exploration.take(next, event);
        }
        // The aim is found: the registers got their demo and conjecture.
        let node = exploration.nodes[next];
        if node.facts.holds(Fact::Unaimed) {
            let mut state = node.state();
            state.facts = state.facts.without(Facts::of(&[Fact::Unaimed]));
            let settled = step(&state, &Event::Iterated { improved: true });
            exploration.number(&settled.state, node.token);
        }
        next += 1;
    }
    let told = format!(
        "{} control states, {} steps, at most {} changes of mood in answer to one event",
        exploration.nodes.len(),
        exploration.steps,
        exploration.longest
    );
    println!("{told}");
    // Nothing in the table is there for nothing.
    let idle: Vec<_> = GUARDS
        .iter()
        .filter(|guard| guard.kind != Kind::Wait && !exploration.taken.contains(guard.name))
        .map(|guard| guard.name)
        .collect();
    assert!(idle.is_empty(), "never taken: {idle:?}");
    let reached: HashSet<_> = exploration.nodes.iter().map(|node| node.mood).collect();
    assert_eq!(reached.len(), 8);
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/MOODS.md")).unwrap();
    assert!(page.contains(&told), "docs/MOODS.md should say: {told}");
}
