//! What guards a run: its gate, its leases, its mood, and the receipts beside its results.
//!
//! Each role's calls stand under a lease of their own, in a mood of its own: the persona and a plain target work in CALM, an
//! adversary in PETTY. No turn is played without permits for the calls of both roles; they are asked for together, in one
//! write, with what came of the turn before. A model that the run names is the grant for its host.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;
use serde_json::json;

use super::manifest::Manifest;
use super::run::RunError;
use super::transcript::{Transcript, Turn, Utterance};
use crate::foundation::base::limits::{REPLY_FAILURES_RETRIED_MAX, REPLY_TOKENS_MAX, RETRIES_MAX};
use crate::foundation::base::{Clock, Digest, SystemClock};
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{
    Budget, Categories, Category, Effect, Entry, Gate, Hosts, LeaseId, Permit, Principal, Request, Rights, Terms,
};
use crate::foundation::store::RealDisk;
use crate::foundation::store::receipts::{Key, ReceiptLog, SharedLog};
use crate::governance::mood::{Event, Fact, Facts, Mood, MoodState, Profiles, Regulation, replay, step, step_entry};
use crate::governance::regulator::{CircuitBreakReason, Decision};
use crate::inference::providers;
use crate::simulation::persona::AdversaryKind;

/// One visit of a mood is so many turns; then its budget begins anew within that of the lease.
const VISIT_TURNS: u64 = 10;
/// Calls for one message at most.
const ATTEMPTS: u64 = 1 + RETRIES_MAX as u64 + REPLY_FAILURES_RETRIED_MAX as u64;
const LASTS: SignedDuration = SignedDuration::from_hours(24 * 30);
const IDLE: SignedDuration = SignedDuration::from_hours(24);

/// That a turn may be played: the permits for the calls of both roles.
pub(super) struct Permitted {
    permits: [(Effect, Permit); 2],
}

impl Permitted {
    /// Uses them.
    pub(super) fn spend(self) -> Result<(), RunError> {
        for (effect, permit) in self.permits {
            permit.spend(&effect, SystemClock.now())?;
        }
        Ok(())
    }
}

pub(super) struct Steward {
    kept: Mutex<Kept>,
}

struct Kept {
    gate: Gate<SharedLog>,
    log: SharedLog,
    roles: [Role; 2],
    mood: MoodState,
    /// What came of the turns since the last write.
    came: Vec<Entry>,
    turns: u64,
}

struct Role {
    lease: LeaseId,
    mood: Mood,
    rights: Rights,
    host: Option<String>,
    spec: String,
}

impl Steward {
    /// The steward of the run in `folder`. Where the run was not handed over cleanly, it begins in CONTRITE, and goes on
    /// once its receipts are found whole.
    pub(super) fn open(folder: &Path, manifest: &Manifest) -> Result<Self, RunError> {
        let now = SystemClock.now();
        let key =
            Key::path().and_then(|path| Key::open(&path)).map_err(|error| RunError::Receipts(error.to_string()))?;
        let opened = ReceiptLog::open(Arc::new(RealDisk::new(folder)), Arc::new(key), now);
        let (log, opened) = opened.map_err(|error| RunError::Receipts(error.to_string()))?;
        let log = SharedLog::new(log);
        let profiles = Profiles::shipped()?;
        let entries = opened.receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry));
        let before = replay(entries).map_err(|error| RunError::Receipts(error.to_string()))?;
        let mut mood = if let Some(last) = before.into_iter().last() {
            last.state
        } else {
            // The config is the demo and the conjecture that CALM asks for.
            let entered = MoodState::enter(Facts::NONE);
            let begun = json!({"config": manifest.config.digest, "seed": manifest.seed, "rollouts": manifest.rollouts,
                "turns": manifest.turns, "loom": manifest.loom});
            let entries = [Entry::new("run.begun", begun), step_entry(None, Facts::NONE, &entered)];
            log.record(now, &entries)?;
            entered.state
        };
        let last = opened.receipts.iter().rev().find(|receipt| receipt.entry.kind != "log.opened");
        if last.is_some_and(|receipt| receipt.entry.kind != "run.handed_off") {
            let mut entries = Vec::new();
            for event in [Event::Restarted, Event::Projected { consistent: true }] {
                let after = step(&mood, &event);
                entries.push(step_entry(Some(&event), Facts::of(&[Fact::Crashed]), &after));
                mood = after.state;
            }
            log.record(now, &entries)?;
        }
        let turns = (manifest.rollouts * manifest.turns) as u64;
        let share =
            Budget { calls: turns * ATTEMPTS, tokens: turns * ATTEMPTS * REPLY_TOKENS_MAX as u64, ..Budget::NOTHING };
        let specs = [&manifest.models.persona.spec, &manifest.models.interlocutor.spec];
        let chains: Vec<ModelChain> = specs.iter().filter_map(|spec| spec.parse().ok()).collect();
        let hosts: Vec<String> = chains.iter().flat_map(ModelChain::specs).filter_map(providers::host).collect();
        let model = Categories::from(Category::Model);
        let rights =
            Rights { delegates: model, model_hosts: Hosts::only(&hosts), budget: share.plus(&share), ..Rights::NONE };
        let terms = |rights| Terms { rights, expires: now.saturating_add(LASTS).unwrap_or(now), idle: IDLE };
        let principal = Principal::new("run", "user", mood.mood().name());
        let (mut gate, root) = Gate::open(log.clone(), principal, terms(rights.clone()), now)?;
        let other = if manifest.adversary == AdversaryKind::None { Mood::Calm } else { Mood::Petty };
        let mut role = |who: &str, mood: Mood, spec: &str| -> Result<Role, RunError> {
            let own = Rights { uses: model, delegates: Categories::NONE, budget: share, ..rights.clone() };
            let lease = gate.lease(root, Principal::new(who, "user", mood.name()), terms(own), now)?;
            let chain: Option<ModelChain> = spec.parse().ok();
            let host = chain.as_ref().and_then(|chain| chain.specs().find_map(providers::host));
            Ok(Role { lease, mood, rights: profiles.of(mood).rights().clone(), host, spec: spec.to_owned() })
        };
        let roles = [
            role("persona", Mood::Calm, &manifest.models.persona.spec)?,
            role("interlocutor", other, &manifest.models.interlocutor.spec)?,
        ];
        Ok(Self { kept: Mutex::new(Kept { gate, log, roles, mood, came: Vec::new(), turns: 0 }) })
    }

    /// Asks for a turn's calls, with one write.
    pub(super) fn permit(&self, rollout: usize, turn: usize) -> Result<Permitted, RunError> {
        let mut kept = self.kept();
        let kept = &mut *kept;
        let now = SystemClock.now();
        let visits = kept.turns.is_multiple_of(VISIT_TURNS);
        kept.turns += 1;
        if !kept.came.is_empty() {
            kept.gate.carry(std::mem::take(&mut kept.came));
        }
        for role in kept.roles.iter().filter(|_| visits) {
            kept.gate.enter(role.lease, role.mood.name(), &role.rights, now)?;
        }
        let cost = Budget { calls: ATTEMPTS, tokens: ATTEMPTS * REPLY_TOKENS_MAX as u64, ..Budget::NOTHING };
        let effect = |role: &Role, who: &str| {
            let arguments = format!("{} as the {who}: rollout {rollout}, turn {turn}", role.spec);
            let effect = Effect::new(Category::Model, arguments).costing(cost);
            role.host.iter().fold(effect, Effect::reaching)
        };
        let [persona, other] = &kept.roles;
        let effects = [effect(persona, "persona"), effect(other, "interlocutor")];
        let [first, second] = &effects;
        let requests = [
            Request { lease: persona.lease, effect: first.clone() },
            Request { lease: other.lease, effect: second.clone() },
        ];
        let mut answers = kept.gate.ask_all(&requests, now).into_iter();
        let unheard = || RunError::Receipts("the gate gave no answer".to_owned());
        let mut next = || -> Result<Permit, RunError> { Ok(answers.next().ok_or_else(unheard)??) };
        let (one, two) = (next()?, next()?);
        let [first, second] = effects;
        Ok(Permitted { permits: [(first, one), (second, two)] })
    }

    /// Notes what came of a turn; it is written with the next one.
    pub(super) fn played(&self, rollout: usize, turn: &Turn) {
        let said = |utterance: &Utterance| {
            json!({
                "model": utterance.model, "attempts": utterance.attempts.len() + 1,
                "tokens_in": utterance.usage.tokens_in, "tokens_out": utterance.usage.tokens_out,
                "failure": utterance.failure.as_ref().map(|failure| &failure.why),
                "said": Digest::of(&utterance.content),
            })
        };
        let body = json!({
            "rollout": rollout, "turn": turn.index,
            "persona": said(&turn.persona), "interlocutor": said(&turn.interlocutor),
        });
        self.kept().came.push(Entry::new("run.turn", body));
    }

    /// A rollout is over: what the regulator saw in it becomes facts.
    pub(super) fn ended(&self, transcript: &Transcript) {
        let mut kept = self.kept();
        for regulation in regulations(transcript) {
            let event = Event::Regulated(regulation);
            let after = step(&kept.mood, &event);
            kept.came.push(step_entry(Some(&event), Facts::NONE, &after));
            kept.mood = after.state;
        }
    }

    /// The run ends here, finished or asked to stop: nothing is left to recover from.
    pub(super) fn hand_off(&self) -> Result<(), RunError> {
        let mut kept = self.kept();
        let mut entries = std::mem::take(&mut kept.came);
        entries.push(Entry::new("run.handed_off", json!({"turns": kept.turns})));
        kept.log.record(SystemClock.now(), &entries)?;
        kept.log.log().seal().map_err(|error| RunError::Receipts(error.to_string()))?;
        Ok(())
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the regulator's decisions in a rollout mean for the mood, each kind once.
pub fn regulations(transcript: &Transcript) -> Vec<Regulation> {
    let utterances = transcript.turns.iter().flat_map(|turn| [&turn.persona, &turn.interlocutor]);
    let mut found = Vec::new();
    for ruling in utterances.flat_map(|utterance| &utterance.regulator.decisions) {
        use CircuitBreakReason::{CostCapReached, QualityDeclineNoRecovery, QualityPersistentlyLow};
        let regulation = match &ruling.decision {
            Decision::CircuitBreak { reason: CostCapReached { .. }, .. } => Regulation::CostCap,
            Decision::CircuitBreak {
                reason: QualityDeclineNoRecovery { .. } | QualityPersistentlyLow { .. }, ..
            } => Regulation::QualityDecline,
            Decision::CircuitBreak { .. } | Decision::ToolLoop { .. } => Regulation::RepeatedFailure,
            Decision::ScopeDriftWarn { .. } => Regulation::ScopeDrift,
            Decision::ProceduralWarning { .. } => Regulation::ProceduralWarning,
            _ => continue,
        };
        if !found.contains(&regulation) {
            found.push(regulation);
        }
    }
    found
}
