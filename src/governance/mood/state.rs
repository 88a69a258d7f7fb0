//! The mood state of a run and its step function.

use serde::Serialize;

use super::event::{MoodEvent, Privilege, RegulatorSignal};
use super::facts::{MoodFact, MoodFacts};
use super::guards::{GUARDS, Guard, GuardKind, GuardTarget, TransitionCounter};
use super::name::Mood;
use super::profile::MoodProfiles;
use super::registers::{EntryText, MergeError, MergeOutcome, Registers};
use crate::foundation::gate::{Categories, Category, Power, Rights, Scopes};

/// The number of iterations without improvement that counts as failing.
const STALLS_MAX: u8 = 2;

/// The mood state of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoodState {
    pub(super) mood: Mood,
    /// The mood to return to after a recovery or a question.
    pub(super) previous: Mood,
    pub(super) facts: MoodFacts,
    pub(super) crossing: Option<Privilege>,
    /// The power before a risk changed the mood; `None` once the risk was answered.
    pub(super) ceiling: Option<Ceiling>,
    /// Quality declined once since the verifiers last passed.
    pub(super) declined: bool,
    pub(super) stalls: u8,
    /// The remaining value of each counter, in the order of [`TransitionCounter::ALL`].
    pub(super) left: [u16; TransitionCounter::ALL.len()],
    pub(super) halted: Option<TransitionCounter>,
    /// The registers.
    pub registers: Registers,
}

/// The moods whose power is an upper bound, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ceiling(pub(super) u8);

/// An effect for the runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MoodEffect {
    /// The mood changed: update the rights of the lease.
    Entered {
        /// The mood before.
        from: Mood,
        /// The mood after.
        to: Mood,
        /// The row of the table.
        guard: &'static str,
    },
    /// Ask the user for the missing preference.
    AskPreference,
    /// Ask the user for a policy token; without an answer it is denied.
    AskApproval(Privilege),
    /// The crossing may be made now, once, with a permit.
    Cross(Privilege),
    /// Propose a drive from earlier corrections by users.
    ProposeDrive,
    /// A register change was applied.
    Merged(MergeOutcome),
    /// A register change was rejected.
    Refused(MergeError),
    /// A counter is exhausted: the run ends.
    Halted(TransitionCounter),
}

/// A state with its effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoodStep {
    /// The new state.
    pub state: MoodState,
    /// The effects, in order.
    pub effects: Vec<MoodEffect>,
    /// The rows taken, in order.
    pub taken: Vec<&'static str>,
}

impl MoodState {
    /// The initial state (specification, §3.1): CURIOUS without an aim, else CALM. Risk facts are then added one by one, the
    /// most urgent last, so that a run that begins with an additional risk does not begin with more power.
    pub fn enter(facts: MoodFacts) -> MoodStep {
        use MoodFact::{Attacked, Crashed, Exposed, Failing, FailingAgain, Undecided};
        let mut state = Self::begin(if facts.holds(MoodFact::Unaimed) { Mood::Curious } else { Mood::Calm });
        state.facts = facts.without(MoodFacts::RISK);
        let mut begun = settle(state, Vec::new());
        for risk in [Failing, FailingAgain, Exposed, Undecided, Attacked, Crashed] {
            if facts.holds(risk) {
                begun.state.arise(risk);
                let next = settle(begun.state, begun.effects);
                begun = MoodStep { taken: [begun.taken, next.taken].concat(), ..next };
            }
        }
        // Questions are asked only if the initial mood is DEFERENTIAL.
        let asks = begun.state.mood == Mood::Deferential;
        begun
            .effects
            .retain(|effect| asks || !matches!(effect, MoodEffect::AskPreference | MoodEffect::AskApproval(_)));
        begun
    }

    /// The initial state with given registers, which determine whether it is aimed and exposed.
    pub fn of(registers: Registers, crashed: bool) -> MoodStep {
        let holds = |fact, yes: bool| if yes { MoodFacts::of(&[fact]) } else { MoodFacts::NONE };
        let facts = holds(MoodFact::Unaimed, !registers.is_aimed())
            .with(holds(MoodFact::Exposed, registers.is_exposed()))
            .with(holds(MoodFact::Crashed, crashed));
        let mut entered = Self::enter(facts);
        entered.state.registers = registers;
        entered
    }

    /// The initial state of a child in a fixed mood: a persona in CALM, an adversary in PETTY, a judge in SKEPTICAL.
    pub fn begin(mood: Mood) -> Self {
        Self {
            mood,
            previous: if mood.is_returned_to() { mood } else { Mood::Calm },
            facts: MoodFacts::NONE,
            crossing: None,
            ceiling: None,
            declined: false,
            stalls: 0,
            left: TransitionCounter::ALL.map(|(_, left)| left),
            halted: None,
            registers: Registers::default(),
        }
    }

    /// The state of a run in this mood with these facts.
    pub fn within(mood: Mood, facts: MoodFacts) -> MoodStep {
        let mut state = Self::begin(mood);
        state.facts = facts;
        settle(state, Vec::new())
    }

    /// The mood.
    pub const fn mood(&self) -> Mood {
        self.mood
    }

    /// The facts that hold.
    pub const fn facts(&self) -> MoodFacts {
        self.facts
    }

    /// The exhausted counter, if any: the run has ended.
    pub const fn halted(&self) -> Option<TransitionCounter> {
        self.halted
    }

    /// The remaining value of a counter.
    pub fn left(&self, counter: TransitionCounter) -> u16 {
        self.left.get(counter as usize).copied().unwrap_or(0)
    }

    /// The present rights: the mood's profile, limited by the ceiling, with the cleared privilege if any.
    pub fn rights(&self, profiles: &MoodProfiles) -> Rights {
        if self.halted.is_some() {
            let uses = Categories::of(&[Category::Ask]);
            return Rights { uses, reads: Scopes::NONE, ..Rights::NONE };
        }
        let profile = profiles.of(self.mood);
        let mut rights = profile.rights().clone();
        if let Some(ceiling) = self.ceiling {
            let moods = Mood::ALL.into_iter().filter(|mood| ceiling.0 & mood.bit() != 0);
            let power = moods.map(|mood| profiles.of(mood).rights().power()).reduce(Power::meet);
            rights = power.map_or(rights.clone(), |power| rights.under(power));
        }
        if self.facts.holds(MoodFact::Cleared)
            && let Some(privilege) = self.crossing
        {
            let cleared = Categories::from(privilege.category()).meet(profile.with_token());
            rights.uses = rights.uses.join(cleared);
        }
        rights
    }

    fn arise(&mut self, fact: MoodFact) {
        if MoodFacts::RISK.holds(fact) {
            self.facts = self.facts.without(MoodFacts::RELIEF);
        }
        self.facts = self.facts.with(MoodFacts::of(&[fact]));
    }

    /// Relief facts count only in the moods in which they are checked.
    fn relieve(&mut self, fact: MoodFact, asked_in: &[Mood]) -> bool {
        let counts = asked_in.contains(&self.mood);
        if counts {
            self.arise(fact);
        }
        counts
    }

    fn fall(&mut self, facts: &[MoodFact]) {
        self.facts = self.facts.without(MoodFacts::of(facts));
    }

    /// Quality declined; a second decline before the verifiers pass sets [`MoodFact::FailingAgain`].
    fn decline(&mut self) {
        self.arise(MoodFact::Failing);
        if std::mem::replace(&mut self.declined, true) {
            self.arise(MoodFact::FailingAgain);
        }
    }

    fn note(&mut self, event: &MoodEvent, effects: &mut Vec<MoodEffect>) {
        match event {
            MoodEvent::Restarted | MoodEvent::HeartbeatStale => self.arise(MoodFact::Crashed),
            MoodEvent::Projected { consistent } => {
                self.fall(&[MoodFact::Consistent, MoodFact::Inconsistent]);
                // Only CONTRITE needs a projection.
                if self.mood == Mood::Contrite {
                    self.arise(if *consistent { MoodFact::Consistent } else { MoodFact::Inconsistent });
                }
            }
            MoodEvent::Suspected(_) => self.arise(MoodFact::Attacked),
            MoodEvent::Disclosed => {
                self.relieve(MoodFact::Disclosed, &[Mood::Petty]);
            }
            MoodEvent::PreferenceMissing => self.arise(MoodFact::Undecided),
            MoodEvent::PreferenceSet => {
                self.fall(&[MoodFact::Undecided]);
                // Ask for the approval if the preference was asked first.
                if let (Mood::Deferential, Some(privilege), false) =
                    (self.mood, self.crossing, self.facts.holds(MoodFact::Approved))
                {
                    effects.push(MoodEffect::AskApproval(privilege));
                }
            }
            MoodEvent::TimedOut => {
                self.fall(&[MoodFact::Undecided]);
                if self.mood == Mood::Deferential && !self.facts.holds(MoodFact::Approved) {
                    self.withdraw();
                }
            }
            MoodEvent::Crossing(privilege) => {
                self.crossing = Some(*privilege);
                self.arise(MoodFact::Crossing);
            }
            MoodEvent::Approved(privilege) => {
                if self.crossing == Some(*privilege) && !self.facts.holds(MoodFact::Cleared) {
                    self.arise(MoodFact::Approved);
                }
            }
            MoodEvent::Denied(privilege) | MoodEvent::Crossed(privilege) => {
                if self.crossing == Some(*privilege) {
                    self.withdraw();
                }
            }
            MoodEvent::VerifiersFailed => self.arise(MoodFact::Failing),
            MoodEvent::VerifiersPassed => {
                self.stalls = 0;
                if self.relieve(MoodFact::Verified, &[Mood::Skeptical, Mood::Paranoid, Mood::Bold]) {
                    self.declined = false;
                }
            }
            MoodEvent::Iterated { improved: true } => self.stalls = 0,
            MoodEvent::Iterated { improved: false } => {
                self.stalls += 1;
                if self.stalls >= STALLS_MAX {
                    self.stalls = 0;
                    self.arise(MoodFact::Failing);
                }
            }
            MoodEvent::EvidenceConflicts => self.arise(MoodFact::Conflicting),
            MoodEvent::SecurityTouched | MoodEvent::RiskGrew => self.arise(MoodFact::Exposed),
            MoodEvent::Ambiguous => {
                self.arise(MoodFact::Ambiguous);
                self.fall(&[MoodFact::Clear]);
            }
            MoodEvent::NextClear => {
                self.relieve(MoodFact::Clear, &[Mood::Curious]);
            }
            MoodEvent::Mitigated => {
                self.relieve(MoodFact::Mitigated, &[Mood::Paranoid, Mood::Petty]);
            }
            MoodEvent::Widen => {
                self.relieve(MoodFact::Widening, &[Mood::Skeptical]);
            }
            MoodEvent::Regulated(regulation) => self.regulate(regulation, effects),
            MoodEvent::Changed(change) => {
                let may_promote = self.facts.holds(MoodFact::Cleared) && self.crossing == Some(Privilege::Promote);
                let (was_aimed, was_exposed) = (self.registers.is_aimed(), self.registers.is_exposed());
                match self.registers.merge(self.mood, change, may_promote) {
                    Ok(merge) => effects.push(MoodEffect::Merged(merge)),
                    Err(error) => effects.push(MoodEffect::Refused(error)),
                }
                if !was_aimed && self.registers.is_aimed() {
                    self.fall(&[MoodFact::Unaimed]);
                }
                if !was_exposed && self.registers.is_exposed() {
                    self.arise(MoodFact::Exposed);
                }
            }
        }
    }

    fn regulate(&mut self, regulation: &RegulatorSignal, effects: &mut Vec<MoodEffect>) {
        match regulation {
            RegulatorSignal::CostCap => self.arise(MoodFact::Undecided),
            RegulatorSignal::QualityDecline | RegulatorSignal::RepeatedFailure => self.decline(),
            RegulatorSignal::ScopeDrift => self.arise(MoodFact::Failing),
            RegulatorSignal::LowConfidence { claims } => {
                let known = |id: &&EntryText| self.registers.hypothesize.contains_key(*id);
                let doubted: Vec<_> = claims.iter().filter(known).cloned().collect();
                self.registers.doubted.extend(doubted);
            }
            RegulatorSignal::ProceduralWarning => effects.push(MoodEffect::ProposeDrive),
        }
    }

    fn withdraw(&mut self) {
        self.crossing = None;
        self.fall(&[MoodFact::Crossing, MoodFact::Approved, MoodFact::Cleared]);
    }

    /// Applies a row: counter, facts, ceiling, mood.
    fn take(&mut self, guard: &'static Guard, effects: &mut Vec<MoodEffect>) {
        let (from, kind) = (self.mood, guard.kind);
        let to = match guard.to {
            GuardTarget::To(mood) => mood,
            GuardTarget::Previous => self.previous,
            GuardTarget::Stay => from,
        };
        match self.left.get_mut(guard.spends as usize) {
            Some(left) if *left > 0 => *left -= 1,
            _ => {
                self.halted = Some(guard.spends);
                effects.push(MoodEffect::Halted(guard.spends));
                return;
            }
        }
        self.facts = self.facts.without(guard.drops).with(guard.sets);
        self.ceiling = match kind {
            GuardKind::Risk => Some(Ceiling(self.ceiling.map_or(0, |ceiling| ceiling.0) | from.bit())),
            GuardKind::Need | GuardKind::Relief | GuardKind::Wait => None,
        };
        if from.is_returned_to() && from != to {
            self.previous = from;
        }
        self.mood = to;
        if from != to {
            effects.push(MoodEffect::Entered { from, to, guard: guard.name });
        }
        match (to, self.crossing) {
            (Mood::Deferential, _) if self.facts.holds(MoodFact::Undecided) => effects.push(MoodEffect::AskPreference),
            (Mood::Deferential, Some(privilege)) => effects.push(MoodEffect::AskApproval(privilege)),
            (_, Some(privilege)) if guard.sets.holds(MoodFact::Cleared) => effects.push(MoodEffect::Cross(privilege)),
            _ => {}
        }
    }
}

/// Applies an event. Total: defined in every state.
pub fn step(state: &MoodState, event: &MoodEvent) -> MoodStep {
    let mut state = state.clone();
    let mut effects = Vec::new();
    if state.halted.is_some() {
        return MoodStep { state, effects, taken: Vec::new() };
    }
    state.note(event, &mut effects);
    settle(state, effects)
}

/// Applies rows until none holds, one waits, or a counter is exhausted. Terminates: every row decrements a counter.
fn settle(mut state: MoodState, mut effects: Vec<MoodEffect>) -> MoodStep {
    let mut taken = Vec::new();
    while state.halted.is_none()
        && let Some(guard) = GUARDS.iter().find(|guard| guard.holds(state.mood, state.facts))
        && guard.kind != GuardKind::Wait
    {
        state.take(guard, &mut effects);
        taken.push(guard.name);
    }
    MoodStep { state, effects, taken }
}
