//! Authorizes the model calls of a run: its gate, leases, mood, and the receipts stored with its results.
//!
//! Each role has a lease and a mood: the persona and a plain target run in CALM, an adversary in PETTY. Every turn needs
//! permits for the calls of both roles; they are requested together, in one write, with the outcome of the previous turn.
//! Naming a model for the run grants access to its host; if a chain has several hosts, a turn's permits name each of them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;
use serde_json::json;

use super::error::RunError;
use super::manifest::Manifest;
use super::transcript::{Transcript, Turn, Utterance};
use crate::foundation::base::limits::{REPLY_FAILURES_RETRIED_MAX, REPLY_TOKENS_MAX, RETRIES_MAX};
use crate::foundation::base::{Clock, Digest, SystemClock};
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{
    Budget, Categories, Category, Effect, EffectRequest, Gate, Hosts, LeaseId, LeaseTerms, LedgerEntry, Permit,
    Principal, Rights,
};
use crate::foundation::store::RealDisk;
use crate::foundation::store::receipts::{Receipt, ReceiptKey, ReceiptLog, SharedLog};
use crate::governance::mood::{
    Mood, MoodEvent, MoodFact, MoodFacts, MoodProfiles, MoodState, RegulatorSignal, replay, step, step_entry,
};
use crate::governance::regulator::{CircuitBreakReason, Decision};
use crate::inference::providers;
use crate::simulation::persona::AdversaryKind;

/// After this many turns a mood is entered again, which resets its budget within that of the lease.
const VISIT_TURNS: u64 = 10;
/// The most model calls for one message.
const CALLS_PER_MESSAGE_MAX: u64 = 1 + RETRIES_MAX as u64 + REPLY_FAILURES_RETRIED_MAX as u64;
const LEASE_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 30);
const LEASE_IDLE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// The permits for one turn's calls of both roles.
pub(super) struct TurnPermits {
    permits: Vec<(Effect, Permit)>,
}

impl TurnPermits {
    /// Spends the permits.
    pub(super) fn spend(self) -> Result<(), RunError> {
        for (effect, permit) in self.permits {
            permit.spend(&effect, SystemClock.now())?;
        }
        Ok(())
    }
}

/// Requests permits and writes receipts for one run.
pub(super) struct RunAuthorizer {
    inner: Mutex<Inner>,
}

struct Inner {
    gate: Gate<SharedLog>,
    log: SharedLog,
    roles: [Role; 2],
    mood: MoodState,
    /// Entries since the last write.
    pending: Vec<LedgerEntry>,
    turns: u64,
}

struct Role {
    lease: LeaseId,
    mood: Mood,
    rights: Rights,
    /// The hosts of its chain's models without duplicates; `None` is this machine.
    hosts_of_chain: Vec<Option<String>>,
    spec: String,
}

impl RunAuthorizer {
    /// The authorizer of the run in `folder`. If the previous process did not end cleanly, the run starts in CONTRITE and
    /// leaves it once its receipts are verified.
    pub(super) fn open(folder: &Path, manifest: &Manifest) -> Result<Self, RunError> {
        let now = SystemClock.now();
        let key = ReceiptKey::path()
            .and_then(|path| ReceiptKey::open(&path))
            .map_err(|error| RunError::Receipts(error.to_string()))?;
        let opened = ReceiptLog::open(Arc::new(RealDisk::new(folder)), Arc::new(key), now);
        let (log, opened) = opened.map_err(|error| RunError::Receipts(error.to_string()))?;
        let log = SharedLog::new(log);
        let profiles = MoodProfiles::shipped()?;
        let entries = opened.receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry));
        let before = replay(entries).map_err(|error| RunError::Receipts(error.to_string()))?;
        let mut mood = if let Some(last) = before.into_iter().last() {
            last.state
        } else {
            // The config serves as the demo and the conjecture that CALM requires.
            let entered = MoodState::enter(MoodFacts::NONE);
            let begun = json!({"config": manifest.config.digest, "seed": manifest.seed, "rollouts": manifest.rollouts,
                "turns": manifest.turns, "loom": manifest.loom});
            let entries = [LedgerEntry::new("run.begun", begun), step_entry(None, MoodFacts::NONE, &entered)];
            log.record(now, &entries)?;
            entered.state
        };
        if !handed_off(&opened.receipts) {
            let mut entries = Vec::new();
            for event in [MoodEvent::Restarted, MoodEvent::Projected { consistent: true }] {
                let after = step(&mood, &event);
                entries.push(step_entry(Some(&event), MoodFacts::of(&[MoodFact::Crashed]), &after));
                mood = after.state;
            }
            log.record(now, &entries)?;
        }
        let of_persona = hosts_of_chain(&manifest.models.persona.spec);
        let of_other = hosts_of_chain(&manifest.models.interlocutor.spec);
        let share = |hosts_of_chain: &[Option<String>]| {
            let asked = (manifest.rollouts * manifest.turns * hosts_of_chain.len()) as u64 * CALLS_PER_MESSAGE_MAX;
            Budget { calls: asked, tokens: asked * REPLY_TOKENS_MAX as u64, ..Budget::NOTHING }
        };
        let hosts = of_persona.iter().chain(&of_other).flatten();
        let model = Categories::from(Category::Model);
        let budget = share(&of_persona).plus(&share(&of_other));
        let rights = Rights { delegates: model, model_hosts: Hosts::only(hosts), budget, ..Rights::NONE };
        let terms = |rights| LeaseTerms {
            rights,
            expires: now.saturating_add(LEASE_LIFETIME).unwrap_or(now),
            idle: LEASE_IDLE_MAX,
        };
        let principal = Principal::new("run", "user", mood.mood().name());
        let (mut gate, root) = Gate::open(log.clone(), principal, terms(rights.clone()), now)?;
        let other = if manifest.adversary == AdversaryKind::None { Mood::Calm } else { Mood::Petty };
        let mut role = |who: &str,
                        mood: Mood,
                        spec: &str,
                        hosts_of_chain: Vec<Option<String>>|
         -> Result<Role, RunError> {
            let model_hosts = Hosts::only(hosts_of_chain.iter().flatten());
            let budget = share(&hosts_of_chain);
            let own = Rights { uses: model, delegates: Categories::NONE, model_hosts, budget, ..Rights::NONE };
            let lease = gate.lease(root, Principal::new(who, "user", mood.name()), terms(own), now)?;
            Ok(Role { lease, mood, rights: profiles.of(mood).rights().clone(), hosts_of_chain, spec: spec.to_owned() })
        };
        let roles = [
            role("persona", Mood::Calm, &manifest.models.persona.spec, of_persona)?,
            role("interlocutor", other, &manifest.models.interlocutor.spec, of_other)?,
        ];
        Ok(Self { inner: Mutex::new(Inner { gate, log, roles, mood, pending: Vec::new(), turns: 0 }) })
    }

    /// Requests the permits of a turn, in one write.
    pub(super) fn authorize_turn(&self, rollout: usize, turn: usize) -> Result<TurnPermits, RunError> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let now = SystemClock.now();
        let visits = inner.turns.is_multiple_of(VISIT_TURNS);
        inner.turns += 1;
        if !inner.pending.is_empty() {
            inner.gate.carry(std::mem::take(&mut inner.pending));
        }
        for role in inner.roles.iter().filter(|_| visits) {
            inner.gate.enter(role.lease, role.mood.name(), &role.rights, now)?;
        }
        let cost = Budget {
            calls: CALLS_PER_MESSAGE_MAX,
            tokens: CALLS_PER_MESSAGE_MAX * REPLY_TOKENS_MAX as u64,
            ..Budget::NOTHING
        };
        let mut requests = Vec::new();
        for (role, who) in inner.roles.iter().zip(["persona", "interlocutor"]) {
            let arguments = format!("{} as the {who}: rollout {rollout}, turn {turn}", role.spec);
            requests.extend(role.hosts_of_chain.iter().map(|host| {
                let effect = Effect::new(Category::Model, &arguments).costing(cost);
                EffectRequest { lease: role.lease, effect: host.iter().fold(effect, Effect::reaching) }
            }));
        }
        let answers = inner.gate.ask_all(&requests, now);
        if answers.len() != requests.len() {
            return Err(RunError::Receipts("the gate did not answer every request".to_owned()));
        }
        let permitted = requests.into_iter().zip(answers).map(|(request, answer)| Ok((request.effect, answer?)));
        Ok(TurnPermits { permits: permitted.collect::<Result<_, RunError>>()? })
    }

    /// Records the outcome of a turn; it is written with the next request.
    pub(super) fn record_turn(&self, rollout: usize, turn: &Turn) {
        let record = |utterance: &Utterance| {
            json!({
                "model": utterance.model, "attempts": utterance.attempts.len() + 1,
                "tokens_in": utterance.usage.tokens_in, "tokens_out": utterance.usage.tokens_out,
                "failure": utterance.failure.as_ref().map(|failure| &failure.why),
                "said": Digest::of(&utterance.content),
            })
        };
        let body = json!({
            "rollout": rollout, "turn": turn.index,
            "persona": record(&turn.persona), "interlocutor": record(&turn.interlocutor),
        });
        self.lock().pending.push(LedgerEntry::new("run.turn", body));
    }

    /// Records the end of a rollout: the regulator's decisions become mood events.
    pub(super) fn record_outcome(&self, transcript: &Transcript) {
        let mut inner = self.lock();
        for regulation in regulator_outcomes(transcript) {
            let event = MoodEvent::Regulated(regulation);
            let after = step(&inner.mood, &event);
            inner.pending.push(step_entry(Some(&event), MoodFacts::NONE, &after));
            inner.mood = after.state;
        }
    }

    /// Records a clean end of the run, finished or stopped on request.
    pub(super) fn hand_off(&self) -> Result<(), RunError> {
        let mut inner = self.lock();
        let mut entries = std::mem::take(&mut inner.pending);
        entries.push(LedgerEntry::new("run.handed_off", json!({"turns": inner.turns})));
        inner.log.record(SystemClock.now(), &entries)?;
        inner.log.log().seal().map_err(|error| RunError::Receipts(error.to_string()))?;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the last process that ran turns ended cleanly. Receipts of other commands in the same folder are ignored.
fn handed_off(receipts: &[Receipt]) -> bool {
    let opened = |receipt: &Receipt| receipt.entry.kind == "log.opened";
    let processes = receipts.chunk_by(|_, next| !opened(next));
    let mut played = processes.filter(|own| !own.iter().any(|receipt| receipt.entry.kind == "command.begun"));
    // Opening the log or erasing a text does not count as running turns.
    let plays = |receipt: &&Receipt| !opened(receipt) && receipt.entry.kind != "content.erased";
    let last = played.rfind(|own| own.iter().any(|receipt| plays(&receipt)));
    last.is_none_or(|own| own.iter().rfind(plays).is_some_and(|receipt| receipt.entry.kind == "run.handed_off"))
}

/// The hosts of a chain's models without duplicates. A chain without a host is authorized as a model of this machine.
fn hosts_of_chain(spec: &str) -> Vec<Option<String>> {
    let mut hosts_of_chain = Vec::new();
    if let Ok(chain) = spec.parse::<ModelChain>() {
        for host in chain.specs().map(providers::host) {
            if !hosts_of_chain.contains(&host) {
                hosts_of_chain.push(host);
            }
        }
    }
    if hosts_of_chain.is_empty() { vec![None] } else { hosts_of_chain }
}

/// The mood events that follow from the regulator's decisions in a rollout, each kind once.
pub fn regulator_outcomes(transcript: &Transcript) -> Vec<RegulatorSignal> {
    let utterances = transcript.turns.iter().flat_map(|turn| [&turn.persona, &turn.interlocutor]);
    let mut found = Vec::new();
    for ruling in utterances.flat_map(|utterance| &utterance.regulator.decisions) {
        use CircuitBreakReason::{CostCapReached, QualityDeclineNoRecovery, QualityPersistentlyLow};
        let regulation = match &ruling.decision {
            Decision::CircuitBreak { reason: CostCapReached { .. }, .. } => RegulatorSignal::CostCap,
            Decision::CircuitBreak {
                reason: QualityDeclineNoRecovery { .. } | QualityPersistentlyLow { .. }, ..
            } => RegulatorSignal::QualityDecline,
            Decision::CircuitBreak { .. } | Decision::ToolLoop { .. } => RegulatorSignal::RepeatedFailure,
            Decision::ScopeDriftWarn { .. } => RegulatorSignal::ScopeDrift,
            Decision::ProceduralWarning { .. } => RegulatorSignal::ProceduralWarning,
            _ => continue,
        };
        if !found.contains(&regulation) {
            found.push(regulation);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_lists_each_host_once() {
        let check = |spec: &str, expected: &[Option<&str>]| {
            let found = hosts_of_chain(spec);
            assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{spec}");
        };
        check("bundled", &[None]);
        check(
            "openai-compatible:http://a.example/v1#x,openai-compatible:https://b.example#y,bundled,echo",
            &[Some("a.example"), Some("b.example"), None],
        );
        check("openai-compatible:http://a.example#x,openai-compatible:http://A.example#y", &[Some("a.example")]);
    }

    #[test]
    fn receipts_of_other_commands_are_no_crash_of_the_run() {
        let check = |kinds: &[&str], expected: bool| {
            let receipts: Vec<_> = kinds.iter().map(|kind| receipt(kind)).collect();
            assert_eq!(handed_off(&receipts), expected, "{kinds:?}");
        };
        check(&[], true);
        check(&["log.opened"], true);
        check(&["log.opened", "run.begun", "gate.granted"], false);
        check(&["log.opened", "run.begun", "run.handed_off"], true);
        let scored = ["log.opened", "command.begun", "gate.granted"];
        check(&[&["log.opened", "run.begun", "run.handed_off"], scored.as_slice()].concat(), true);
        check(&[&["log.opened", "run.begun", "run.turn"], scored.as_slice()].concat(), false);
        // Nor does erasing a text.
        check(&["log.opened", "run.begun", "run.handed_off", "log.opened", "content.erased"], true);
        // A process that died before its first entry leaves the earlier state.
        check(&["log.opened", "run.begun", "run.turn", "log.opened"], false);
        // Resumed and killed in its first turn.
        check(&["log.opened", "run.begun", "run.handed_off", "log.opened", "gate.leased", "gate.granted"], false);
    }

    fn receipt(kind: &str) -> Receipt {
        Receipt {
            seq: 0,
            at: jiff::Timestamp::UNIX_EPOCH,
            entry: LedgerEntry::new(kind, serde_json::Value::Null),
            prev: Digest::of(""),
            digest: Digest::of(""),
        }
    }
}
