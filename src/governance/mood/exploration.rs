//! Breadth-first exploration of all control states of the mood machine, with every event in every state. The properties
//! of the guards are checked on every step.
//!
//! Not part of the control state, because they do not affect the mood: the counters (an exhausted counter is tested in
//! every state), the texts of the registers, and the count of iterations without improvement, which results in the same
//! fact as a verifier failure.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use super::guards::{GUARDS, GuardKind, TransitionCounter};
use super::state::Ceiling;
use super::*;
use crate::foundation::gate::{Categories, Category, Power};

/// A control state, and the privilege for which a person gave a token that is not used yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    mood: Mood,
    previous: Mood,
    facts: MoodFacts,
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
            // A mood that can be returned to overwrites `previous` when it is left.
            previous: if state.mood.is_returned_to() { state.mood } else { state.previous },
            facts: state.facts,
            crossing: state.crossing,
            ceiling: state.ceiling.map(|ceiling| powers.simplest(ceiling)),
            declined: state.declined,
            token,
        }
    }
}

/// The common power of each set of moods. Ceilings with the same power behave alike, so one represents all.
struct Powers(Vec<Ceiling>);

impl Powers {
    fn new(profiles: &MoodProfiles) -> Self {
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

fn events() -> Vec<MoodEvent> {
    use RegulatorSignal::{CostCap, ProceduralWarning, QualityDecline, RepeatedFailure, ScopeDrift};
    let mut events = vec![
        MoodEvent::Restarted,
        MoodEvent::HeartbeatStale,
        MoodEvent::Projected { consistent: true },
        MoodEvent::Projected { consistent: false },
        MoodEvent::Disclosed,
        MoodEvent::PreferenceMissing,
        MoodEvent::PreferenceSet,
        MoodEvent::TimedOut,
        MoodEvent::VerifiersFailed,
        MoodEvent::VerifiersPassed,
        MoodEvent::EvidenceConflicts,
        MoodEvent::SecurityTouched,
        MoodEvent::RiskGrew,
        MoodEvent::Ambiguous,
        MoodEvent::NextClear,
        MoodEvent::Mitigated,
        MoodEvent::Widen,
    ];
    events.extend([Suspicion::Injection, Suspicion::RewardHack, Suspicion::SelfSealing].map(MoodEvent::Suspected));
    for privilege in Privilege::ALL {
        events.extend(
            [MoodEvent::Crossing, MoodEvent::Approved, MoodEvent::Denied, MoodEvent::Crossed]
                .map(|event| event(privilege)),
        );
    }
    events.extend([CostCap, QualityDecline, RepeatedFailure, ScopeDrift, ProceduralWarning].map(MoodEvent::Regulated));
    events
}

/// Whether the event adds a risk fact.
fn is_risk(event: &MoodEvent) -> bool {
    matches!(
        event,
        MoodEvent::Restarted
            | MoodEvent::HeartbeatStale
            | MoodEvent::Suspected(_)
            | MoodEvent::PreferenceMissing
            | MoodEvent::Crossing(_)
            | MoodEvent::VerifiersFailed
            | MoodEvent::SecurityTouched
            | MoodEvent::RiskGrew
            | MoodEvent::Regulated(
                RegulatorSignal::CostCap
                    | RegulatorSignal::QualityDecline
                    | RegulatorSignal::RepeatedFailure
                    | RegulatorSignal::ScopeDrift
            )
    )
}

struct Exploration {
    profiles: MoodProfiles,
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
        let cleared = state.facts.holds(MoodFact::Cleared);
        // A privilege is among the rights only between clearing and crossing, in PARANOID.
        assert_eq!(!privileged.is_empty(), cleared, "{state:?}");
        if cleared {
            assert_eq!(privileged, Categories::from(state.crossing.unwrap().category()));
            assert_eq!(state.mood, Mood::Paranoid);
        }
        assert!(rights.delegates.is_disjoint(Categories::PRIVILEGED));
        assert!(rights.uses.without(privileged).within(profile.rights().uses));
        assert!(rights.writes.within(profile.rights().writes) && rights.reads.within(profile.rights().reads));
        // The state is stable.
        let next = GUARDS.iter().find(|guard| guard.holds(state.mood, state.facts));
        assert!(next.is_none_or(|guard| guard.kind == GuardKind::Wait), "{state:?}");
        assert_eq!(state.crossing.is_some(), state.facts.holds(MoodFact::Crossing), "{state:?}");
        // An exhausted counter ends the run; only questions to the user remain allowed.
        let mut spent = state.clone();
        spent.left = [0; TransitionCounter::ALL.len()];
        for event in [MoodEvent::Restarted, MoodEvent::Ambiguous, MoodEvent::PreferenceSet] {
            let after = step(&spent, &event);
            if let Some(counter) = after.state.halted() {
                assert!(after.effects.contains(&MoodEffect::Halted(counter)));
                assert_eq!(after.state.rights(&self.profiles).uses, Category::Ask.into());
            } else {
                assert_eq!(after.taken, Vec::<&str>::new());
            }
        }
    }

    fn take(&mut self, from: usize, event: &MoodEvent) {
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
            MoodEvent::Approved(privilege) if node.crossing == Some(*privilege) => token = Some(*privilege),
            MoodEvent::Denied(privilege) | MoodEvent::Crossed(privilege) if token == Some(*privilege) => token = None,
            _ => {}
        }
        for effect in &after.effects {
            if let MoodEffect::Cross(privilege) = effect {
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
fn every_reachable_state_satisfies_the_guards_properties() {
    let profiles = MoodProfiles::shipped().unwrap();
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
    let facts = [
        MoodFact::Unaimed,
        MoodFact::Failing,
        MoodFact::Crashed,
        MoodFact::Exposed,
        MoodFact::Attacked,
        MoodFact::Undecided,
    ];
    for bits in 0..1 << facts.len() {
        let begun: Vec<_> = facts.into_iter().enumerate().filter(|(at, _)| bits & 1 << at != 0).collect();
        let begun = MoodFacts::of(&begun.into_iter().map(|(_, fact)| fact).collect::<Vec<_>>());
        let entered = MoodState::enter(begun).state;
        let number = exploration.number(&entered, None);
        // A run that begins with one more risk does not begin with more power.
        for risk in MoodFacts::RISK.iter().filter(|risk| facts.contains(risk)) {
            let riskier = MoodState::enter(begun.with(MoodFacts::of(&[risk]))).state;
            let riskier = exploration.number(&riskier, None);
            assert!(exploration.power[riskier].within(exploration.power[number]), "{begun} and {risk:?}");
        }
    }
    for mood in Mood::ALL {
        // The initial state of a child is not settled; its first event settles it.
        if GUARDS
            .iter()
            .find(|guard| guard.holds(mood, MoodFacts::NONE))
            .is_none_or(|guard| guard.kind == GuardKind::Wait)
        {
            exploration.number(&MoodState::begin(mood), None);
        }
    }
    let events = events();
    let mut next = 0;
    while next < exploration.nodes.len() {
        for event in &events {
            exploration.take(next, event);
        }
        // The registers received their demo and conjecture.
        let node = exploration.nodes[next];
        if node.facts.holds(MoodFact::Unaimed) {
            let mut state = node.state();
            state.facts = state.facts.without(MoodFacts::of(&[MoodFact::Unaimed]));
            let settled = step(&state, &MoodEvent::Iterated { improved: true });
            exploration.number(&settled.state, node.token);
        }
        next += 1;
    }
    let summary = format!(
        "{} control states, {} steps, at most {} changes of mood in answer to one event",
        exploration.nodes.len(),
        exploration.steps,
        exploration.longest
    );
    println!("{summary}");
    // Every row of the table is used.
    let idle: Vec<_> = GUARDS
        .iter()
        .filter(|guard| guard.kind != GuardKind::Wait && !exploration.taken.contains(guard.name))
        .map(|guard| guard.name)
        .collect();
    assert!(idle.is_empty(), "never taken: {idle:?}");
    let reached: HashSet<_> = exploration.nodes.iter().map(|node| node.mood).collect();
    assert_eq!(reached.len(), 8);
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/MOODS.md")).unwrap();
    assert!(page.contains(&summary), "docs/MOODS.md should say: {summary}");
}
