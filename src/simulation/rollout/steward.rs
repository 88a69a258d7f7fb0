//! What guards a run: its gate, its leases, its mood, and the receipts beside its results.
//!
//! Each role's calls stand under a lease of their own, in a mood of its own: the persona and a plain target work in CALM, an
//! adversary in PETTY. No turn is played without permits for the calls of both roles; they are asked for together, in one
//! write, with what came of the turn before. A model that the run names is the grant for its host; where a chain has several
//! hosts, a turn's permits name each of them.

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
use crate::foundation::store::receipts::{Key, Receipt, ReceiptLog, SharedLog};
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
    permits: Vec<(Effect, Permit)>,
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
    /// Where the models of its chain stand, each place once; `None` is this machine.
    places: Vec<Option<String>>,
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
        if !handed_off(&opened.receipts) {
            let mut entries = Vec::new();
            for event in [Event::Restarted, Event::Projected { consistent: true }] {
                let after = step(&mood, &event);
                entries.push(step_entry(Some(&event), Facts::of(&[Fact::Crashed]), &after));
                mood = after.state;
            }
            log.record(now, &entries)?;
        }
        let of_persona = places(&manifest.models.persona.spec);
        let of_other = places(&manifest.models.interlocutor.spec);
        let share = |places: &[Option<String>]| {
            let asked = (manifest.rollouts * manifest.turns * places.len()) as u64 * ATTEMPTS;
            Budget { calls: asked, tokens: asked * REPLY_TOKENS_MAX as u64, ..Budget::NOTHING }
        };
        let hosts = of_persona.iter().chain(&of_other).flatten();
        let model = Categories::from(Category::Model);
        let budget = share(&of_persona).plus(&share(&of_other));
        let rights = Rights { delegates: model, model_hosts: Hosts::only(hosts), budget, ..Rights::NONE };
        let terms = |rights| Terms { rights, expires: now.saturating_add(LASTS).unwrap_or(now), idle: IDLE };
        let principal = Principal::new("run", "user", mood.mood().name());
        let (mut gate, root) = Gate::open(log.clone(), principal, terms(rights.clone()), now)?;
        let other = if manifest.adversary == AdversaryKind::None { Mood::Calm } else { Mood::Petty };
        let mut role = |who: &str, mood: Mood, spec: &str, places: Vec<Option<String>>| -> Result<Role, RunError> {
            let model_hosts = Hosts::only(places.iter().flatten());
            let budget = share(&places);
            let own = Rights { uses: model, delegates: Categories::NONE, model_hosts, budget, ..Rights::NONE };
            let lease = gate.lease(root, Principal::new(who, "user", mood.name()), terms(own), now)?;
            Ok(Role { lease, mood, rights: profiles.of(mood).rights().clone(), places, spec: spec.to_owned() })
        };
        let roles = [
            role("persona", Mood::Calm, &manifest.models.persona.spec, of_persona)?,
            role("interlocutor", other, &manifest.models.interlocutor.spec, of_other)?,
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
        let mut requests = Vec::new();
        for (role, who) in kept.roles.iter().zip(["persona", "interlocutor"]) {
            let arguments = format!("{} as the {who}: rollout {rollout}, turn {turn}", role.spec);
            requests.extend(role.places.iter().map(|host| {
                let effect = Effect::new(Category::Model, &arguments).costing(cost);
                Request { lease: role.lease, effect: host.iter().fold(effect, Effect::reaching) }
            }));
        }
        let answers = kept.gate.ask_all(&requests, now);
        if answers.len() != requests.len() {
            return Err(RunError::Receipts("the gate gave no answer".to_owned()));
        }
        let permitted = requests.into_iter().zip(answers).map(|(request, answer)| Ok((request.effect, answer?)));
        Ok(Permitted { permits: permitted.collect::<Result<_, RunError>>()? })
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

/// Whether the last who played here ended as it should. What a command did beside the results is no part of the run.
fn handed_off(receipts: &[Receipt]) -> bool {
    let opened = |receipt: &Receipt| receipt.entry.kind == "log.opened";
    let processes = receipts.chunk_by(|_, next| !opened(next));
    let mut played = processes.filter(|own| !own.iter().any(|receipt| receipt.entry.kind == "command.begun"));
    // Neither opening the log nor erasing a text is playing.
    let plays = |receipt: &&Receipt| !opened(receipt) && receipt.entry.kind != "content.erased";
    let last = played.rfind(|own| own.iter().any(|receipt| plays(&receipt)));
    last.is_none_or(|own| own.iter().rfind(plays).is_some_and(|receipt| receipt.entry.kind == "run.handed_off"))
}

/// Where the models of a chain stand, each place once. No turn goes without a permit: what names no model is asked for as
/// one of this machine.
fn places(spec: &str) -> Vec<Option<String>> {
    let mut places = Vec::new();
    if let Ok(chain) = spec.parse::<ModelChain>() {
        for place in chain.specs().map(providers::host) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    if places.is_empty() { vec![None] } else { places }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_each_of_its_places_once() {
        let check = |spec: &str, expected: &[Option<&str>]| {
            let found = places(spec);
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
    fn what_a_command_did_beside_a_run_is_no_crash_of_it() {
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
        // Erasing a text is no play either.
        check(&["log.opened", "run.begun", "run.handed_off", "log.opened", "content.erased"], true);
        // A process that died before it said anything leaves what was before it.
        check(&["log.opened", "run.begun", "run.turn", "log.opened"], false);
        // Taken up again and killed in its first turn.
        check(&["log.opened", "run.begun", "run.handed_off", "log.opened", "gate.leased", "gate.granted"], false);
    }

    fn receipt(kind: &str) -> Receipt {
        Receipt {
            seq: 0,
            at: jiff::Timestamp::UNIX_EPOCH,
            entry: Entry::new(kind, serde_json::Value::Null),
            prev: Digest::of(""),
            digest: Digest::of(""),
        }
    }
}
