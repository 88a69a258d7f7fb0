//! The authorizer of a command, a run or a session: it owns the gate with its leases, the moods that limit them, and the
//! receipts.
//!
//! Its lifecycle is the same everywhere: [`open`](Authorizer::open), request permits, record outcomes,
//! [`hand_off`](Authorizer::hand_off). A permit for model calls travels with each request ([`CallPermit`]); calls of
//! requests without one are authorised by the [`guard`](Authorizer::guard) of a lease, which requests permits for
//! [`CALLS`] of them at a time, because each permit costs a receipt and a sync. Naming a model grants access to its host
//! and to no other.

mod command;

pub use command::{approval_key, workspace_identity};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::foundation::base::{Clock, Digest, limits};
use crate::foundation::chat::{Embedder, LanguageModel, ModelChain, ModelError, ModelSpec};
use crate::foundation::config::ConfigErrors;
use crate::foundation::gate::{
    Budget, CallGuard, CallPermit, CallUsage, Categories, Category, CountedTokens, Effect, EffectRequest,
    EphemeralLedger, Gate, LeaseId, LeaseTerms, Ledger, LedgerEntry, LedgerError, ModelCall, Permit, Principal,
    Refusal, Rights,
};
use crate::foundation::store::receipts::{Head, KeyError, LogError, SharedLog};
use crate::governance::memory::approval::Approval;
use crate::governance::mood::{
    Mood, MoodEffect, MoodEvent, MoodFact, MoodFacts, MoodProfile, MoodProfiles, MoodState, ReplayError, step,
    step_entry,
};
use crate::inference::providers::{self, OpenOptions};

/// Model calls per permit of a [`guard`](Authorizer::guard).
const CALLS: u64 = 64;
/// Tokens that they may read and generate; a single call that needs more gets its own permit.
const TOKENS: u64 = CALLS * limits::REPLY_TOKENS_MAX as u64;
/// Validity of a person's approval.
const APPROVAL_DURATION: SignedDuration = SignedDuration::from_mins(1);

/// Why work cannot be authorised or recorded. Every message says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum AuthorizerError {
    /// The gate denied an effect.
    #[error("{0}")]
    Denied(Refusal),
    /// Another process is writing receipts there.
    #[error("another loom process is using {0}: wait until it has finished")]
    Busy(String),
    /// The receipts are damaged or cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A receipt could not be written.
    #[error("the receipts could not be written: {0}; free some space and start again")]
    Ledger(#[from] LedgerError),
    /// The signing key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The profile of a mood.
    #[error(transparent)]
    Profile(#[from] ConfigErrors),
    /// The moods in the receipts cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The folder of the receipts.
    #[error("cannot create the folder {0}: {1}")]
    Folder(String, std::io::Error),
}

impl AuthorizerError {
    /// Whether a file could not be read or written; otherwise the receipts, the key or a profile is not what it should be.
    pub fn is_io(&self) -> bool {
        match self {
            Self::Log(error) => matches!(error, LogError::Io { .. } | LogError::Poisoned),
            Self::Key(error) => matches!(error, KeyError::Io { .. }),
            Self::Ledger(_) | Self::Folder(..) => true,
            Self::Denied(_) | Self::Busy(_) | Self::Profile(_) | Self::Replay(_) => false,
        }
    }
}

impl From<Refusal> for AuthorizerError {
    fn from(refusal: Refusal) -> Self {
        Self::Denied(refusal)
    }
}

/// How a mood limits the root lease.
#[derive(Debug, Clone)]
pub enum RootMood {
    /// It has the rights of the current mood, and enters each new one.
    Followed,
    /// It stays in a mood with these rights. The mood's budget applies to one visit: if it is exhausted and the lease's is
    /// not, the mood is entered again.
    Renewed(Rights),
    /// It only delegates.
    Delegates,
}

/// What an authorizer is opened with.
pub struct AuthorizerSetup {
    /// The name of the work in receipts.
    pub work: &'static str,
    /// The log of the receipts. Without one they are chained in memory until the work ends.
    pub log: Option<SharedLog>,
    /// The moods' profiles.
    pub profiles: MoodProfiles,
    /// The mood and its registers.
    pub mood: MoodState,
    /// How the mood limits the root lease.
    pub root_mood: RootMood,
    /// The rights of the root lease. No other lease exceeds them.
    pub rights: Rights,
    /// Duration of the root lease.
    pub lasts: SignedDuration,
    /// A lease ends if it is not used for this long.
    pub idle: SignedDuration,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Calls of one model chain, for which a permit is requested.
pub struct CallRequest<'a> {
    /// The lease.
    pub lease: LeaseId,
    /// The models.
    pub chain: &'a ModelChain,
    /// What identifies the calls.
    pub arguments: &'a str,
    /// The most that they cost if the first model of the chain replies.
    pub cost: Budget,
    /// Which tokens the cost includes.
    pub counted: CountedTokens,
}

/// Authorises effects and writes receipts; see the [module](self). Clones share one gate.
#[derive(Clone)]
pub struct Authorizer {
    work: &'static str,
    root: LeaseId,
    clock: Arc<dyn Clock>,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    gate: Gate<Box<dyn Ledger + Send>>,
    log: Option<SharedLog>,
    profiles: MoodProfiles,
    mood: MoodState,
    follows_mood: bool,
    /// The leases whose moods are entered again when their budget is exhausted.
    renewed: BTreeMap<LeaseId, (Arc<str>, Rights)>,
    /// What is left of calls permitted by guards, by lease, model and host.
    left: BTreeMap<(LeaseId, String, Option<String>), Budget>,
    usage: BTreeMap<String, CallUsage>,
    /// Entries to be written with the next ones.
    queued: Vec<LedgerEntry>,
}

/// The guard of one lease.
struct LeaseGuard {
    lease: LeaseId,
    authorizer: Authorizer,
}

impl Authorizer {
    /// Opens a gate with the root lease.
    ///
    /// # Errors
    /// If the receipts cannot be written.
    pub fn open(setup: AuthorizerSetup) -> Result<Self, AuthorizerError> {
        let AuthorizerSetup { work, log, profiles, mood, root_mood, rights, lasts, idle, clock } = setup;
        let ledger: Box<dyn Ledger + Send> = match &log {
            Some(log) => Box::new(log.clone()),
            None => Box::new(EphemeralLedger::default()),
        };
        let now = clock.now();
        let name = mood.mood().name();
        let terms = LeaseTerms { rights, expires: now.saturating_add(lasts).unwrap_or(Timestamp::MAX), idle };
        let (gate, root) = Gate::open(ledger, Principal::new(work, "user", name), terms, now)?;
        let mut inner = Inner {
            gate,
            log,
            profiles,
            mood,
            follows_mood: matches!(root_mood, RootMood::Followed),
            renewed: BTreeMap::new(),
            left: BTreeMap::new(),
            usage: BTreeMap::new(),
            queued: Vec::new(),
        };
        match root_mood {
            RootMood::Followed => inner.follow_mood(root, now)?,
            RootMood::Renewed(rights) => inner.renew_in(root, name, rights, now)?,
            RootMood::Delegates => {}
        }
        Ok(Self { work, root, clock, inner: Arc::new(Mutex::new(inner)) })
    }

    /// The root lease.
    pub const fn root(&self) -> LeaseId {
        self.root
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The mood with its registers.
    pub fn mood(&self) -> MoodState {
        self.lock().mood.clone()
    }

    /// The profile of the current mood.
    pub fn profile(&self) -> MoodProfile {
        let inner = self.lock();
        inner.profiles.of(inner.mood.mood()).clone()
    }

    /// Delegates `rights` to a worker that stays in `mood`, whose budget is renewed while the lease's lasts.
    ///
    /// # Errors
    /// If the root lease may not delegate them.
    pub fn delegate(&self, who: &str, mood: Mood, rights: Rights) -> Result<LeaseId, Refusal> {
        let now = self.now();
        let mut inner = self.lock();
        let lease = inner.delegate(self.root, who, mood, rights, now)?;
        let rights = inner.profiles.of(mood).rights().clone();
        inner.renew_in(lease, mood.name(), rights, now)?;
        Ok(lease)
    }

    /// Delegates everything that the root lease may delegate and `mood` allows, within one visit of that mood.
    ///
    /// # Errors
    /// If the root lease has ended.
    pub fn delegate_all(&self, who: &str, mood: Mood) -> Result<LeaseId, Refusal> {
        let now = self.now();
        let mut inner = self.lock();
        let rights = inner.gate.get(self.root).map_or(Rights::NONE, |root| {
            let all = &root.terms().rights;
            let rights = all.meet(inner.profiles.of(mood).rights());
            let (uses, budget) = (rights.uses.meet(all.delegates), rights.budget.meet(root.remaining()));
            Rights { uses, delegates: Categories::NONE, budget, ..rights }
        });
        inner.delegate(self.root, who, mood, rights, now)
    }

    /// Revokes a delegated lease.
    ///
    /// # Errors
    /// If that cannot be recorded.
    pub fn revoke(&self, lease: LeaseId) -> Result<(), Refusal> {
        self.lock().gate.revoke(lease, "its work is over", self.now())
    }

    /// Requests a permit for an effect.
    ///
    /// # Errors
    /// The refusal.
    pub fn permit(&self, effect: &Effect) -> Result<Permit, Refusal> {
        let now = self.now();
        let mut inner = self.lock();
        inner.prepare(self.root, effect.cost(), now)?;
        inner.gate.ask(&EffectRequest { lease: self.root, effect: effect.clone() }, now)
    }

    /// Requests and uses a permit for an effect; the caller may then perform it once.
    ///
    /// # Errors
    /// The refusal.
    pub fn allow(&self, effect: &Effect) -> Result<(), Refusal> {
        self.permit(effect)?.spend(effect, self.now()).map(drop)
    }

    /// Requests a permit with a person's approval, described by `by`, that is valid for this effect only.
    ///
    /// # Errors
    /// The refusal.
    pub fn permit_approved(&self, by: &str, effect: &Effect) -> Result<Permit, Refusal> {
        let now = self.now();
        let until = now.saturating_add(APPROVAL_DURATION).unwrap_or(Timestamp::MAX);
        let of = (effect.category(), effect.arguments());
        self.lock().gate.approve(self.root, of, by, until, now)?;
        self.permit(effect)
    }

    /// Requests a permit for a change of the memory that a person or the person's policy approved.
    ///
    /// # Errors
    /// The refusal.
    pub fn permit_memory_change(&self, approval: &Approval, effect: &Effect) -> Result<Permit, Refusal> {
        self.permit_approved(approval.by(), effect)
    }

    /// Requests permits for calls of models, in one write. Each permit travels with the requests of its calls.
    ///
    /// # Errors
    /// The first refusal; nothing may be called then.
    pub fn permit_calls(&self, requests: &[CallRequest<'_>]) -> Result<Vec<CallPermit>, Refusal> {
        let now = self.now();
        let mut inner = self.lock();
        let effects: Vec<Vec<Effect>> =
            requests.iter().map(|request| call_effects(request.chain, request.arguments, request.cost)).collect();
        for (request, effects) in requests.iter().zip(&effects) {
            let sum = effects.iter().fold(Budget::NOTHING, |sum, effect| sum.plus(effect.cost()));
            inner.prepare(request.lease, &sum, now)?;
        }
        let each = requests.iter().zip(&effects);
        let all: Vec<_> = each
            .flat_map(|(request, effects)| effects.iter().map(|effect| (request.lease, effect.clone())))
            .map(|(lease, effect)| EffectRequest { lease, effect })
            .collect();
        let mut answers = inner.gate.ask_all(&all, now).into_iter();
        let mut permits = Vec::with_capacity(requests.len());
        for (request, effects) in requests.iter().zip(effects) {
            let granted: Result<Vec<_>, Refusal> =
                effects.into_iter().zip(answers.by_ref()).map(|(effect, answer)| Ok((effect, answer?))).collect();
            permits.push(CallPermit::new(granted?, request.counted, now)?);
        }
        Ok(permits)
    }

    /// The guard of a lease, for models whose requests carry no permit.
    pub fn guard(&self, lease: LeaseId) -> Arc<dyn CallGuard> {
        Arc::new(LeaseGuard { lease, authorizer: self.clone() })
    }

    /// These options with the guard of the root lease.
    #[must_use]
    pub fn guarded_options(&self, options: OpenOptions) -> OpenOptions {
        options.with_guard(self.guard(self.root))
    }

    /// Opens a model whose calls are authorised under the root lease.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_model(&self, chain: &ModelChain, options: &OpenOptions) -> Result<Arc<dyn LanguageModel>, ModelError> {
        providers::open(chain, &self.guarded_options(options.clone()))
    }

    /// Opens a sentence embedder whose calls are authorised under the root lease.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_embedder(&self, spec: &ModelSpec, options: &OpenOptions) -> Result<Arc<dyn Embedder>, ModelError> {
        providers::open_embedder(spec, &self.guarded_options(options.clone()))
    }

    /// Writes entries, after the queued ones.
    ///
    /// # Errors
    /// If they may not be durable.
    pub fn record(&self, entries: Vec<LedgerEntry>) -> Result<Vec<Digest>, LedgerError> {
        self.lock().record(entries, self.now())
    }

    /// Queues an entry, to be written with the next permit or entry.
    pub fn queue(&self, entry: LedgerEntry) {
        self.lock().queued.push(entry);
    }

    /// Lets the mood take events and queues their receipts.
    pub fn queue_mood(&self, events: impl IntoIterator<Item = MoodEvent>) {
        let mut inner = self.lock();
        for event in events {
            let (entry, _) = inner.take(&event);
            inner.queued.push(entry);
        }
    }

    /// Lets the mood take events and writes their receipts, followed by `entries`, in one write. Returns the effects of the
    /// mood, and the receipts of all in order.
    ///
    /// # Errors
    /// If they may not be durable.
    pub fn record_mood(
        &self,
        events: &[MoodEvent],
        entries: Vec<LedgerEntry>,
    ) -> Result<(Vec<MoodEffect>, Vec<Digest>), AuthorizerError> {
        let now = self.now();
        let mut inner = self.lock();
        let before = inner.mood_rights();
        let (mut all, mut effects) = (Vec::new(), Vec::new());
        for event in events {
            let (entry, of_event) = inner.take(event);
            all.push(entry);
            effects.extend(of_event);
        }
        all.extend(entries);
        let receipts = inner.record(all, now)?;
        if inner.follows_mood && inner.mood_rights() != before {
            inner.follow_mood(self.root, now)?;
        }
        Ok((effects, receipts))
    }

    /// Usage of all calls, by model.
    pub fn usage(&self) -> BTreeMap<String, CallUsage> {
        self.lock().usage.clone()
    }

    /// Ends the work, or a part of it: writes the last entry and signs the receipts. Returns the head of their log.
    ///
    /// # Errors
    /// If they may not be durable.
    pub fn hand_off(&self, entry: LedgerEntry) -> Result<Option<Head>, AuthorizerError> {
        let mut inner = self.lock();
        inner.record(vec![entry], self.now())?;
        Ok(inner.log.as_ref().map(|log| log.log().seal()).transpose()?)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Before a request: queued entries go with it, and an exhausted mood that is renewed is entered again.
    fn prepare(&mut self, lease: LeaseId, cost: &Budget, now: Timestamp) -> Result<(), Refusal> {
        self.gate.carry(std::mem::take(&mut self.queued));
        if let Some((mood, rights)) = self.renewed.get(&lease)
            && !self.gate.covers(lease, cost)
        {
            self.gate.enter(lease, mood, rights, now)?;
        }
        Ok(())
    }

    fn delegate(
        &mut self,
        root: LeaseId,
        who: &str,
        mood: Mood,
        rights: Rights,
        now: Timestamp,
    ) -> Result<LeaseId, Refusal> {
        let (expires, idle) =
            self.gate.get(root).map_or((now, SignedDuration::ZERO), |root| (root.terms().expires, root.terms().idle));
        let terms = LeaseTerms { rights, expires, idle };
        self.gate.lease(root, Principal::new(who, "user", mood.name()), terms, now)
    }

    fn renew_in(&mut self, lease: LeaseId, mood: &str, rights: Rights, now: Timestamp) -> Result<(), Refusal> {
        self.gate.enter(lease, mood, &rights, now)?;
        self.renewed.insert(lease, (mood.into(), rights));
        Ok(())
    }

    /// What decides the rights of the mood: a cleared crossing adds one.
    fn mood_rights(&self) -> (Mood, bool) {
        (self.mood.mood(), self.mood.facts().holds(MoodFact::Cleared))
    }

    fn follow_mood(&mut self, root: LeaseId, now: Timestamp) -> Result<(), Refusal> {
        let rights = self.mood.rights(&self.profiles);
        self.gate.enter(root, self.mood.mood().name(), &rights, now)
    }

    fn take(&mut self, event: &MoodEvent) -> (LedgerEntry, Vec<MoodEffect>) {
        let after = step(&self.mood, event);
        let entry = step_entry(Some(event), MoodFacts::NONE, &after);
        self.mood = after.state;
        (entry, after.effects)
    }

    fn record(&mut self, entries: Vec<LedgerEntry>, now: Timestamp) -> Result<Vec<Digest>, LedgerError> {
        let queued = self.queued.len();
        let mut all = std::mem::take(&mut self.queued);
        all.extend(entries);
        let mut receipts = self.gate.ledger().record(now, &all)?;
        Ok(receipts.split_off(queued.min(receipts.len())))
    }
}

impl CallGuard for LeaseGuard {
    fn permit_call(&self, call: &ModelCall<'_>) -> Result<(), Refusal> {
        let now = self.authorizer.now();
        let tokens = call.reads.saturating_add(call.generates);
        let one = Budget { calls: 1, tokens, ..Budget::NOTHING };
        let mut inner = self.authorizer.lock();
        let key = (self.lease, call.model.to_owned(), call.host.map(str::to_owned));
        let left = inner.left.get(&key).copied().unwrap_or_default();
        if one.within(&left) {
            inner.left.insert(key, left.minus(&one));
            return Ok(());
        }
        let some = Budget { calls: CALLS, tokens: TOKENS.max(tokens), ..Budget::NOTHING };
        let effect = Effect::new(Category::Model, format!("calls of {}", call.model)).costing(some);
        let effect = call.host.into_iter().fold(effect, Effect::reaching);
        inner.prepare(self.lease, &some, now)?;
        let permit = inner.gate.ask(&EffectRequest { lease: self.lease, effect: effect.clone() }, now)?;
        permit.spend(&effect, now)?;
        inner.left.insert(key, some.minus(&one));
        Ok(())
    }

    fn record_call(&self, model: &str, usage: CallUsage) {
        let mut inner = self.authorizer.lock();
        let sum = inner.usage.entry(model.to_owned()).or_default();
        *sum = sum.plus(usage);
    }
}

/// The effects of calling the models of a chain, one per host; each costs as much as all models at that host together.
pub fn call_effects(chain: &ModelChain, arguments: &str, cost: Budget) -> Vec<Effect> {
    let mut hosts: Vec<(Option<String>, Budget)> = Vec::new();
    for host in chain.specs().map(providers::host) {
        match hosts.iter_mut().find(|(known, _)| *known == host) {
            Some((_, sum)) => *sum = sum.plus(&cost),
            None => hosts.push((host, cost)),
        }
    }
    let effect = |(host, cost): (Option<String>, Budget)| {
        let effect = Effect::new(Category::Model, arguments).costing(cost);
        host.into_iter().fold(effect, Effect::reaching)
    };
    hosts.into_iter().map(effect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::base::FixedClock;
    use crate::foundation::gate::{Hosts, RefusalReason, Resource};

    fn authorizer(calls: u64, hosts: &[&str]) -> Authorizer {
        let budget = Budget { calls, tokens: 10_000_000, ..Budget::NOTHING };
        let rights = Rights { uses: Category::Model.into(), model_hosts: Hosts::only(hosts), budget, ..Rights::NONE };
        // One visit of the mood allows two permits of a guard.
        let visit = Rights { budget: Budget { calls: 2 * CALLS, ..budget }, ..rights.clone() };
        Authorizer::open(AuthorizerSetup {
            work: "a command",
            log: None,
            profiles: MoodProfiles::shipped().unwrap(),
            mood: MoodState::begin(Mood::Calm),
            root_mood: RootMood::Renewed(visit),
            rights,
            lasts: SignedDuration::from_hours(1),
            idle: SignedDuration::from_hours(1),
            clock: Arc::new(FixedClock(Timestamp::UNIX_EPOCH)),
        })
        .unwrap()
    }

    fn call(host: Option<&str>, reads: u64) -> ModelCall<'_> {
        ModelCall { model: "m", host, reads, generates: 0 }
    }

    #[test]
    fn many_calls_of_a_guard_share_one_permit_and_are_bounded_by_the_lease() {
        let authorizer = authorizer(4 * CALLS, &[]);
        let guard = authorizer.guard(authorizer.root());
        let remaining = || authorizer.lock().gate.get(authorizer.root()).unwrap().remaining().calls;
        for _ in 0..CALLS {
            guard.permit_call(&call(None, 100)).unwrap();
        }
        assert_eq!(remaining(), 3 * CALLS);
        // The mood's budget of one visit is exhausted on the way, and the mood entered again.
        for _ in 0..3 * CALLS {
            guard.permit_call(&call(None, 100)).unwrap();
        }
        let refusal = guard.permit_call(&call(None, 100)).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::Exhausted { resource: Resource::Calls });
    }

    #[test]
    fn permits_of_a_guard_are_per_host_and_a_long_call_gets_its_own() {
        let authorizer = authorizer(1_000, &["api.example"]);
        let guard = authorizer.guard(authorizer.root());
        guard.permit_call(&call(Some("api.example"), 10)).unwrap();
        let refusal = guard.permit_call(&call(Some("evil.example"), 10)).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::MayNotReach { host: "evil.example".to_owned() });
        guard.permit_call(&call(Some("api.example"), TOKENS + 1)).unwrap();
        assert!(guard.permit_call(&call(Some("api.example"), 10_000_001)).is_err());
    }

    #[test]
    fn permits_of_calls_are_bounded_and_renewed_within_the_lease() {
        let authorizer = authorizer(4 * CALLS, &[]);
        let chain = "bundled".parse().unwrap();
        let request = |calls| {
            let cost = Budget { calls, ..Budget::NOTHING };
            let (lease, counted) = (authorizer.root(), CountedTokens::Generated);
            authorizer.permit_calls(&[CallRequest { lease, chain: &chain, arguments: "a turn", cost, counted }])
        };
        for _ in 0..2 {
            let permit = request(2 * CALLS).unwrap().remove(0);
            for _ in 0..2 * CALLS {
                permit.count(&call(None, 1_000_000)).unwrap();
            }
            assert!(permit.count(&call(None, 0)).is_err());
        }
        assert!(request(1).is_err());
    }

    #[test]
    fn a_chain_has_one_effect_per_host() {
        let check = |spec: &str, expected: &[(Option<&str>, u64)]| {
            let cost = Budget { calls: 3, ..Budget::NOTHING };
            let effects = call_effects(&spec.parse().unwrap(), "a", cost);
            let found: Vec<_> = effects.iter().map(|effect| (effect.host(), effect.cost().calls)).collect();
            assert_eq!(found, expected, "{spec}");
        };
        check("bundled", &[(None, 3)]);
        check(
            "openai-compatible:http://a.example/v1#x,openai-compatible:https://b.example#y,bundled",
            &[(Some("a.example"), 3), (Some("b.example"), 3), (None, 3)],
        );
        // Either model may be called as often.
        check("openai-compatible:http://a.example#x,openai-compatible:http://A.example#y", &[(Some("a.example"), 6)]);
    }
}
