//! The state of a run's mood and its one step.

use serde::Serialize;

use super::event::{Event, Privilege, Regulation};
use super::facts::{Fact, Facts};
use super::guards::{Counter, GUARDS, Guard, Kind, Target};
use super::name::Mood;
use super::profile::Profiles;
use super::registers::{Merge, MergeError, Registers, Text};
use crate::foundation::gate::{Categories, Category, Power, Rights, Scopes};

/// So many iterations without improvement count as failing.
const STALLS_MAX: u8 = 2;

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoodState {
    pub(super) mood: Mood,
    /// The mood that a recovery or a question returns to.
    pub(super) previous: Mood,
    pub(super) facts: Facts,
    pub(super) crossing: Option<Privilege>,
    /// Since a risk moved the mood: the power that there was before. `None` when the risk was answered.
    pub(super) ceiling: Option<Ceiling>,
    /// Quality fell once already since the verifiers last passed.
    pub(super) declined: bool,
    pub(super) stalls: u8,
    /// What is left of each counter, in the order of [`Counter::ALL`].
    pub(super) left: [u16; Counter::ALL.len()],
    pub(super) halted: Option<Counter>,
    /// What is asserted, guessed, wanted and believed.
    pub registers: Registers,
}

/// The moods whose power bounds what may be done: one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ceiling(pub(super) u8);

/// What the runner has to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The mood changed: give the lease its rights anew.
    Entered {
        /// From.
        from: Mood,
        /// To.
        to: Mood,
        /// By which row of the table.
        guard: &'static str,
    },
    /// Ask the user for the missing preference.
    AskPreference,
    /// Ask the user for a policy token; without an answer it is denied.
    AskApproval(Privilege),
    /// The crossing may happen now, once, under a permit.
    Cross(Privilege),
    /// Propose a drive from what users corrected before.
    ProposeDrive,
    /// A change was merged.
    Merged(Merge),
    /// A change was refused.
    Refused(MergeError),
    /// A counter ran out: the run is over.
    Halted(Counter),
}

/// A state and what is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The state after.
    pub state: MoodState,
    /// What the runner has to do, in order.
    pub effects: Vec<Effect>,
    /// The rows that were taken, in order.
    pub taken: Vec<&'static str>,
}

impl MoodState {
    /// The state in which a run begins (spec §3.1): CURIOUS without an aim, else CALM; then the risks arise, the most urgent
    /// last, so that a run which begins with one more of them does not begin with more power.
    pub fn enter(facts: Facts) -> Step {
        use Fact::{Attacked, Crashed, Exposed, Failing, FailingAgain, Undecided};
        let mut state = Self::begin(if facts.holds(Fact::Unaimed) { Mood::Curious } else { Mood::Calm });
        state.facts = facts.without(Facts::RISK);
        let mut begun = settle(state, Vec::new());
        for risk in [Failing, FailingAgain, Exposed, Undecided, Attacked, Crashed] {
            if facts.holds(risk) {
                begun.state.arise(risk);
                let next = settle(begun.state, begun.effects);
                begun = Step { taken: [begun.taken, next.taken].concat(), ..next };
            }
        }
        // What was to be asked on the way is asked when its turn comes.
        let asks = begun.state.mood == Mood::Deferential;
        begun.effects.retain(|effect| asks || !matches!(effect, Effect::AskPreference | Effect::AskApproval(_)));
        begun
    }

    /// The state of a run whose registers are known: it is aimed and exposed as they say.
    pub fn of(registers: Registers, crashed: bool) -> Step {
        let holds = |fact, yes: bool| if yes { Facts::of(&[fact]) } else { Facts::NONE };
        let facts = holds(Fact::Unaimed, !registers.is_aimed())
            .with(holds(Fact::Exposed, registers.is_exposed()))
            .with(holds(Fact::Crashed, crashed));
        let mut entered = Self::enter(facts);
        entered.state.registers = registers;
        entered
    }

    /// The state of a child that works in a mood of its own: a persona in CALM, an adversary in PETTY, a judge in SKEPTICAL.
    pub fn begin(mood: Mood) -> Self {
        Self {
            mood,
            previous: if mood.is_returned_to() { mood } else { Mood::Calm },
            facts: Facts::NONE,
            crossing: None,
            ceiling: None,
            declined: false,
            stalls: 0,
            left: Counter::ALL.map(|(_, left)| left),
            halted: None,
            registers: Registers::default(),
        }
    }

    /// What a run that is in this mood makes of these facts.
    pub fn within(mood: Mood, facts: Facts) -> Step {
        let mut state = Self::begin(mood);
        state.facts = facts;
        settle(state, Vec::new())
    }

    /// The mood.
    pub const fn mood(&self) -> Mood {
        self.mood
    }

    /// The facts that hold.
    pub const fn facts(&self) -> Facts {
        self.facts
    }

    /// The counter that ran out, if one did: nothing happens any more.
    pub const fn halted(&self) -> Option<Counter> {
        self.halted
    }

    /// What is left of a counter.
    pub fn left(&self, counter: Counter) -> u16 {
        self.left.get(counter as usize).copied().unwrap_or(0)
    }

    /// What may be done now: the mood's profile, within the power from before a risk, with the one privilege that is cleared.
    pub fn rights(&self, profiles: &Profiles) -> Rights {
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
        if self.facts.holds(Fact::Cleared)
            && let Some(privilege) = self.crossing
        {
            let cleared = Categories::from(privilege.category()).meet(profile.with_token());
            rights.uses = rights.uses.join(cleared);
        }
        rights
    }

    fn arise(&mut self, fact: Fact) {
        if Facts::RISK.holds(fact) {
            self.facts = self.facts.without(Facts::RELIEF);
        }
        self.facts = self.facts.with(Facts::of(&[fact]));
    }

    /// Relief counts only in the moods that ask for it: elsewhere nobody looked for what it answers.
    fn relieve(&mut self, fact: Fact, asked_in: &[Mood]) -> bool {
        let asked = asked_in.contains(&self.mood);
        if asked {
            self.arise(fact);
        }
        asked
    }

    fn fall(&mut self, facts: &[Fact]) {
        self.facts = self.facts.without(Facts::of(facts));
    }

    /// Quality fell: the second time before the verifiers pass counts as another thing.
    fn decline(&mut self) {
        self.arise(Fact::Failing);
        if std::mem::replace(&mut self.declined, true) {
            self.arise(Fact::FailingAgain);
        }
    }

    fn note(&mut self, event: &Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Restarted | Event::HeartbeatStale => self.arise(Fact::Crashed),
            Event::Projected { consistent } => {
                self.fall(&[Fact::Consistent, Fact::Inconsistent]);
                // What nobody is recovering from needs no projection.
                if self.mood == Mood::Contrite {
                    self.arise(if *consistent { Fact::Consistent } else { Fact::Inconsistent });
                }
            }
            Event::Suspected(_) => self.arise(Fact::Attacked),
            Event::Disclosed => {
                self.relieve(Fact::Disclosed, &[Mood::Petty]);
            }
            Event::PreferenceMissing => self.arise(Fact::Undecided),
            Event::PreferenceSet => {
                self.fall(&[Fact::Undecided]);
                // The next question, where the first stood before it.
                if let (Mood::Deferential, Some(privilege), false) =
                    (self.mood, self.crossing, self.facts.holds(Fact::Approved))
                {
                    effects.push(Effect::AskApproval(privilege));
                }
            }
            Event::TimedOut => {
                self.fall(&[Fact::Undecided]);
                if self.mood == Mood::Deferential && !self.facts.holds(Fact::Approved) {
                    self.withdraw();
                }
            }
            Event::Crossing(privilege) => {
                self.crossing = Some(*privilege);
                self.arise(Fact::Crossing);
            }
            Event::Approved(privilege) => {
                if self.crossing == Some(*privilege) && !self.facts.holds(Fact::Cleared) {
                    self.arise(Fact::Approved);
                }
            }
            Event::Denied(privilege) | Event::Crossed(privilege) => {
                if self.crossing == Some(*privilege) {
                    self.withdraw();
                }
            }
            Event::VerifiersFailed => self.arise(Fact::Failing),
            Event::VerifiersPassed => {
                self.stalls = 0;
                if self.relieve(Fact::Verified, &[Mood::Skeptical, Mood::Paranoid, Mood::Bold]) {
                    self.declined = false;
                }
            }
            Event::Iterated { improved: true } => self.stalls = 0,
            Event::Iterated { improved: false } => {
                self.stalls += 1;
                if self.stalls >= STALLS_MAX {
                    self.stalls = 0;
                    self.arise(Fact::Failing);
                }
            }
            Event::EvidenceConflicts => self.arise(Fact::Conflicting),
            Event::SecurityTouched | Event::RiskGrew => self.arise(Fact::Exposed),
            Event::Ambiguous => {
                self.arise(Fact::Ambiguous);
                self.fall(&[Fact::Clear]);
            }
            Event::NextClear => {
                self.relieve(Fact::Clear, &[Mood::Curious]);
            }
            Event::Mitigated => {
                self.relieve(Fact::Mitigated, &[Mood::Paranoid, Mood::Petty]);
            }
            Event::Widen => {
                self.relieve(Fact::Widening, &[Mood::Skeptical]);
            }
            Event::Regulated(regulation) => self.regulate(regulation, effects),
            Event::Changed(change) => {
                let may_promote = self.facts.holds(Fact::Cleared) && self.crossing == Some(Privilege::Promote);
                let (was_aimed, was_exposed) = (self.registers.is_aimed(), self.registers.is_exposed());
                match self.registers.merge(self.mood, change, may_promote) {
                    Ok(merge) => effects.push(Effect::Merged(merge)),
                    Err(error) => effects.push(Effect::Refused(error)),
                }
                if !was_aimed && self.registers.is_aimed() {
                    self.fall(&[Fact::Unaimed]);
                }
                if !was_exposed && self.registers.is_exposed() {
                    self.arise(Fact::Exposed);
                }
            }
        }
    }

    fn regulate(&mut self, regulation: &Regulation, effects: &mut Vec<Effect>) {
        match regulation {
            Regulation::CostCap => self.arise(Fact::Undecided),
            Regulation::QualityDecline | Regulation::RepeatedFailure => self.decline(),
            Regulation::ScopeDrift => self.arise(Fact::Failing),
            Regulation::LowConfidence { claims } => {
                let known = |id: &&Text| self.registers.hypothesize.contains_key(*id);
                let doubted: Vec<_> = claims.iter().filter(known).cloned().collect();
                self.registers.doubted.extend(doubted);
            }
            Regulation::ProceduralWarning => effects.push(Effect::ProposeDrive),
        }
    }

    fn withdraw(&mut self) {
        self.crossing = None;
        self.fall(&[Fact::Crossing, Fact::Approved, Fact::Cleared]);
    }

    /// Takes a row: the counter, the facts, the ceiling, the mood.
    fn take(&mut self, guard: &'static Guard, effects: &mut Vec<Effect>) {
        let (from, kind) = (self.mood, guard.kind);
        let to = match guard.to {
            Target::To(mood) => mood,
            Target::Previous => self.previous,
            Target::Stay => from,
        };
        match self.left.get_mut(guard.spends as usize) {
            Some(left) if *left > 0 => *left -= 1,
            _ => {
                self.halted = Some(guard.spends);
                effects.push(Effect::Halted(guard.spends));
                return;
            }
        }
        self.facts = self.facts.without(guard.drops).with(guard.sets);
        self.ceiling = match kind {
            Kind::Risk => Some(Ceiling(self.ceiling.map_or(0, |ceiling| ceiling.0) | from.bit())),
            Kind::Need | Kind::Relief | Kind::Wait => None,
        };
        if from.is_returned_to() && from != to {
            self.previous = from;
        }
        self.mood = to;
        if from != to {
            effects.push(Effect::Entered { from, to, guard: guard.name });
        }
        match (to, self.crossing) {
            (Mood::Deferential, _) if self.facts.holds(Fact::Undecided) => effects.push(Effect::AskPreference),
            (Mood::Deferential, Some(privilege)) => effects.push(Effect::AskApproval(privilege)),
            (_, Some(privilege)) if guard.sets.holds(Fact::Cleared) => effects.push(Effect::Cross(privilege)),
            _ => {}
        }
    }
}

/// Takes an event. Total: there is an answer in every state.
pub fn step(state: &MoodState, event: &Event) -> Step {
    let mut state = state.clone();
    let mut effects = Vec::new();
    if state.halted.is_some() {
        return Step { state, effects, taken: Vec::new() };
    }
    state.note(event, &mut effects);
    settle(state, effects)
}

/// Takes rows until none holds, one says wait, or a counter runs out. That ends: every row spends.
fn settle(mut state: MoodState, mut effects: Vec<Effect>) -> Step {
    let mut taken = Vec::new();
    while state.halted.is_none()
        && let Some(guard) = GUARDS.iter().find(|guard| guard.holds(state.mood, state.facts))
        && guard.kind != Kind::Wait
    {
        state.take(guard, &mut effects);
        taken.push(guard.name);
    }
    Step { state, effects, taken }
}
