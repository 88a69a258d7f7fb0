//! The permits of a run: the leases of its two roles, the permits of each turn, and the receipts stored with its results.
//!
//! Each role has a lease and a mood: the persona and a plain target run in CALM, an adversary in PETTY. A turn's permits are
//! requested together, in one write, with the outcome of the previous turn; they travel with every call of the turn, and
//! each call counts: drafts, redrafts, regenerations, retries, the readings of forbidden phrases, and probes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::SignedDuration;
use serde_json::json;

use super::adversary::scripts;
use super::monitors::Monitors;
use super::seal::written;
use super::transcript::{Transcript, Turn, Utterance};
use crate::foundation::base::limits::{REPLY_FAILURES_RETRIED_MAX, REPLY_TOKENS_MAX};
use crate::foundation::base::{Clock, Digest, SystemClock};
use crate::foundation::chat::ModelChain;
use crate::foundation::gate::{
    Budget, CallGuard, CallPermit, Categories, Category, CountedTokens, Hosts, LeaseId, LedgerEntry, Refusal,
    RefusalReason, Rights,
};
use crate::foundation::store::RealDisk;
use crate::foundation::store::receipts::{Head, Receipt, ReceiptKey, ReceiptLog, SharedLog};
use crate::governance::mood::{
    Mood, MoodEvent, MoodFact, MoodFacts, MoodProfiles, MoodState, RegulatorSignal, replay, step, step_entry,
};
use crate::governance::regulator::{CircuitBreakReason, Decision};
use crate::simulation::authorizer::{
    Authorizer, AuthorizerError, AuthorizerSetup, CallRequest, RootMood, call_effects,
};
use crate::simulation::persona::{AdversaryKind, ConfigErrors, PersonaConfig, RegulatorConfig, Speaker};
use crate::simulation::resampling::calls_max;

const LEASE_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 30);
const LEASE_IDLE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// Calls of each role in addition to those of its turns: replays of recorded turns on resuming, and downloads.
const EXTRA_CALLS: u64 = 1_024;

/// Readings of what was said before: in a turn whose instruction replaces an earlier one, and after a reply whose thought
/// is left out.
const REREADINGS: u64 = 2;

/// Upper bounds of the model calls of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallEstimate {
    /// Of one message of the persona.
    drafts: u64,
    /// Whether the forbidden phrases are scored at each message of the persona.
    scores_phrases: bool,
    /// Probes, and the interval in turns between them.
    probes: Vec<(usize, u64)>,
    /// Samples of a flagged message, with the comparisons of their meanings.
    samples: u64,
}

impl CallEstimate {
    /// The bounds for a configuration.
    ///
    /// # Errors
    /// If the adversary's `script` is invalid.
    pub(super) fn new(
        config: &PersonaConfig,
        regulator: &RegulatorConfig,
        adversary: AdversaryKind,
        script: Option<&str>,
    ) -> Result<Self, ConfigErrors> {
        let redrafts = Monitors::new(Some(config)).redrafts_max();
        let drafts = (1 + redrafts + regulator.regenerations_max + REPLY_FAILURES_RETRIED_MAX) as u64;
        let scores_phrases = !config.interaction.anti_capitulation.forbidden_phrases.is_empty();
        let scripts = scripts(adversary, script)?;
        let probes = scripts.iter().map(|script| (script.probe_every.max(1), script.probes.len() as u64)).collect();
        Ok(Self { drafts, scores_phrases, probes, samples: calls_max(regulator.samples as u64) })
    }

    /// Calls of the persona's model in turn `turn`, with the probes after it.
    pub(super) fn persona(&self, turn: usize) -> u64 {
        let due = self.probes.iter().filter(|(every, _)| (turn + 1).is_multiple_of(*every));
        REREADINGS
            + self.drafts
            + u64::from(self.scores_phrases)
            + self.samples
            + due.map(|(_, probes)| probes).sum::<u64>()
    }

    /// Calls of the interlocutor's model in a turn: it is the model under test, so its replies are never redrafted.
    #[expect(clippy::unused_self, reason = "the counterpart of `persona`")]
    pub(super) const fn interlocutor(&self) -> u64 {
        REREADINGS + 1 + REPLY_FAILURES_RETRIED_MAX as u64
    }

    /// Calls of both roles in a whole run.
    pub(super) fn of_run(&self, turns: usize, rollouts: usize) -> [u64; 2] {
        let persona = (0..turns).map(|turn| self.persona(turn)).sum::<u64>();
        [persona * rollouts as u64, self.interlocutor() * (turns * rollouts) as u64]
    }
}

/// What so many calls cost.
const fn cost(calls: u64) -> Budget {
    Budget { calls, tokens: calls * REPLY_TOKENS_MAX as u64, ..Budget::NOTHING }
}

/// The settings of a run that its permits depend on.
pub(super) struct PermitSettings<'a> {
    pub(super) config: Digest,
    pub(super) seed: u64,
    pub(super) rollouts: usize,
    pub(super) turns: usize,
    pub(super) loom: &'a str,
    pub(super) adversary: AdversaryKind,
    pub(super) persona: ModelChain,
    pub(super) interlocutor: ModelChain,
    pub(super) calls: CallEstimate,
}

/// The permits for one turn's calls of both roles.
pub(super) struct TurnPermits {
    pub(super) persona: CallPermit,
    pub(super) interlocutor: CallPermit,
}

/// Requests the permits of one run and writes its receipts.
pub(super) struct RunPermits {
    authorizer: Authorizer,
    persona: (LeaseId, ModelChain),
    interlocutor: (LeaseId, ModelChain),
    calls: CallEstimate,
    turns: AtomicU64,
}

impl RunPermits {
    /// Opens the leases of the run in `folder`. If the previous process did not end cleanly, the run starts in CONTRITE and
    /// leaves it once its receipts are verified.
    pub(super) fn open(folder: &Path, settings: PermitSettings<'_>) -> Result<Self, AuthorizerError> {
        let PermitSettings { config, seed, rollouts, turns, loom, adversary, persona, interlocutor, calls } = settings;
        let clock = Arc::new(SystemClock);
        let now = clock.now();
        let key = Arc::new(ReceiptKey::open(&ReceiptKey::path()?)?);
        let (log, opened) = ReceiptLog::open(Arc::new(RealDisk::new(folder)), key, now)?;
        let log = SharedLog::new(log);
        let entries = opened.receipts.iter().map(|receipt| (receipt.seq + 1, &receipt.entry));
        let mut mood = if let Some(last) = replay(entries)?.into_iter().last() {
            last.state
        } else {
            // The config serves as the demo and the conjecture that CALM requires.
            let entered = MoodState::enter(MoodFacts::NONE);
            let begun = json!({"config": config, "seed": seed, "rollouts": rollouts, "turns": turns, "loom": loom});
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
        let model = Categories::from(Category::Model);
        let of_run = calls.of_run(turns, rollouts);
        let role = |chain: &ModelChain, calls: u64| {
            let effects = call_effects(chain, "", cost(calls + EXTRA_CALLS));
            let budget = effects.iter().fold(Budget::NOTHING, |sum, effect| sum.plus(effect.cost()));
            let model_hosts = Hosts::only(effects.iter().filter_map(|effect| effect.host()));
            Rights { uses: model, delegates: Categories::NONE, model_hosts, budget, ..Rights::NONE }
        };
        let (of_persona, of_interlocutor) = (role(&persona, of_run[0]), role(&interlocutor, of_run[1]));
        let hosts = persona.specs().chain(interlocutor.specs()).filter_map(crate::inference::providers::host);
        let authorizer = Authorizer::open(AuthorizerSetup {
            work: "run",
            log: Some(log),
            profiles: MoodProfiles::shipped()?,
            mood,
            root_mood: RootMood::Delegates,
            rights: Rights {
                delegates: model,
                model_hosts: Hosts::only(hosts),
                budget: of_persona.budget.plus(&of_interlocutor.budget),
                ..Rights::NONE
            },
            lasts: LEASE_LIFETIME,
            idle: LEASE_IDLE_MAX,
            clock,
        })?;
        let other = if adversary == AdversaryKind::None { Mood::Calm } else { Mood::Petty };
        let persona = (authorizer.delegate("persona", Mood::Calm, of_persona)?, persona);
        let interlocutor = (authorizer.delegate("interlocutor", other, of_interlocutor)?, interlocutor);
        Ok(Self { authorizer, persona, interlocutor, calls, turns: AtomicU64::new(0) })
    }

    /// Authorises the calls of a role that belong to no turn.
    pub(super) fn guard(&self, role: Speaker) -> Arc<dyn CallGuard> {
        let (lease, _) = match role {
            Speaker::Persona => &self.persona,
            Speaker::Interlocutor => &self.interlocutor,
        };
        self.authorizer.guard(*lease)
    }

    /// Requests the permits of a turn, in one write.
    pub(super) fn permit_turn(&self, rollout: usize, turn: usize) -> Result<TurnPermits, Refusal> {
        self.turns.fetch_add(1, Ordering::Relaxed);
        let arguments = |chain: &ModelChain, who| format!("{chain} as the {who}: rollout {rollout}, turn {turn}");
        let of_persona = arguments(&self.persona.1, "persona");
        let of_interlocutor = arguments(&self.interlocutor.1, "interlocutor");
        let counted = CountedTokens::Generated;
        let (lease, chain) = &self.persona;
        let calls = cost(self.calls.persona(turn));
        let first = CallRequest { lease: *lease, chain, arguments: &of_persona, cost: calls, counted };
        let (lease, chain) = &self.interlocutor;
        let calls = cost(self.calls.interlocutor());
        let second = CallRequest { lease: *lease, chain, arguments: &of_interlocutor, cost: calls, counted };
        let mut permits = self.authorizer.permit_calls(&[first, second])?.into_iter();
        match (permits.next(), permits.next()) {
            (Some(persona), Some(interlocutor)) => Ok(TurnPermits { persona, interlocutor }),
            _ => Err(RefusalReason::Unrecorded { why: "the gate did not answer every request".to_owned() }.into()),
        }
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
        self.authorizer.queue(LedgerEntry::new("run.turn", body));
    }

    /// Records the end of a rollout: the regulator's decisions become mood events.
    pub(super) fn record_outcome(&self, transcript: &Transcript) {
        self.authorizer.queue_mood(regulator_outcomes(transcript).into_iter().map(MoodEvent::Regulated));
    }

    /// Records the digests of files before they are written.
    pub(super) fn record_written(&self, files: &BTreeMap<String, Digest>) -> Result<(), AuthorizerError> {
        self.authorizer.record(vec![written("run.wrote", files)])?;
        Ok(())
    }

    /// Records a clean end of the run, finished or stopped on request.
    pub(super) fn hand_off(&self) -> Result<Option<Head>, AuthorizerError> {
        let turns = self.turns.load(Ordering::Relaxed);
        let body = json!({"turns": turns, "models": self.authorizer.usage()});
        self.authorizer.hand_off(LedgerEntry::new("run.handed_off", body))
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
    fn a_turn_is_permitted_as_many_calls_as_it_can_make() {
        let config = crate::simulation::persona::examples()[1].yaml;
        let config = crate::simulation::persona::parse("a.yaml", config).unwrap();
        let script = include_str!("../../../configs/adversaries/contradiction.yaml").to_owned()
            + "\nprobes: [\"What is your name?\"]\nprobe_every: 3\n";
        let estimate = |adversary, script| CallEstimate::new(&config, &config.regulator, adversary, script).unwrap();
        let plain = estimate(AdversaryKind::None, None);
        let drafts = plain.drafts;
        assert!(drafts > 2 && plain.persona(0) == REREADINGS + drafts + u64::from(plain.scores_phrases), "{plain:?}");
        assert_eq!(plain.interlocutor(), REREADINGS + 1 + REPLY_FAILURES_RETRIED_MAX as u64);
        let sampling = RegulatorConfig { samples: 3, ..config.regulator };
        let sampling = CallEstimate::new(&config, &sampling, AdversaryKind::None, None).unwrap();
        assert_eq!(
            sampling.persona(0) - plain.persona(0),
            3 + 4 * 6,
            "each new meaning is compared with those before it"
        );
        // Probes follow some turns only.
        let probed = estimate(AdversaryKind::Contradiction, Some(&script));
        let calls: Vec<_> = (0..12).map(|turn| probed.persona(turn)).collect();
        let probes = |turn: usize| u64::from(turn % 3 == 2);
        assert!((0..12).all(|turn| calls[turn] == plain.persona(0) + probes(turn)), "{calls:?}");
        assert_eq!(probed.of_run(12, 2), [2 * calls.iter().sum::<u64>(), 24 * probed.interlocutor()]);
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
            signature: None,
        }
    }
}
