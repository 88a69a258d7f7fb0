//! The gate: leases, approvals, and decisions on requests.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::{
    Categories, Category, Effect, EffectRequest, Lease, LeaseId, LeaseTerms, Ledger, LedgerEntry, LedgerError, Permit,
    Principal, Refusal, RefusalReason, Rights, Scopes, lease::as_text,
};
use crate::foundation::base::{Digest, limits};

/// A person's approval of one effect with exact arguments, for one use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Approval {
    lease: LeaseId,
    category: Category,
    arguments: Digest,
    #[serde(serialize_with = "as_text")]
    until: Timestamp,
    by: String,
}

/// Issues permits. It owns the ledger; after one failure to write to it, the gate denies everything.
#[derive(Debug)]
pub struct Gate<L> {
    ledger: L,
    leases: Vec<Lease>,
    approvals: Vec<Approval>,
    /// The latest time passed in, so that a clock set back does not extend leases.
    latest: Timestamp,
    /// The ledger's error, after which everything is denied.
    failed: Option<String>,
    /// Entries from callers that are written before the gate's next entry.
    queued: Vec<LedgerEntry>,
}

impl<L: Ledger> Gate<L> {
    /// Opens a gate with the root lease. No other lease can exceed it.
    ///
    /// # Errors
    /// If the ledger cannot write.
    pub fn open(
        ledger: L,
        principal: Principal,
        terms: LeaseTerms,
        now: Timestamp,
    ) -> Result<(Self, LeaseId), Refusal> {
        let (leases, approvals) = (Vec::new(), Vec::new());
        let mut gate = Self { ledger, leases, approvals, latest: now, failed: None, queued: Vec::new() };
        let id = gate.grant_lease(None, principal, terms, now)?;
        Ok((gate, id))
    }

    /// Delegates part of a lease to a child lease.
    ///
    /// # Errors
    /// If the parent has ended or may not delegate these rights.
    pub fn lease(
        &mut self,
        parent: LeaseId,
        principal: Principal,
        terms: LeaseTerms,
        now: Timestamp,
    ) -> Result<LeaseId, Refusal> {
        let now = self.tick(now);
        let refused = self.standing(parent, now).and_then(|holder| {
            let mut beyond = terms.rights.beyond_delegation(&holder.terms.rights, &self.left(parent));
            if terms.expires > holder.terms.expires {
                beyond.push("lasts longer".to_owned());
            }
            if beyond.is_empty() { Ok(()) } else { Err(RefusalReason::TooWide { beyond }) }
        });
        if let Err(reason) = refused {
            let body = json!({"parent": parent, "principal": principal, "terms": terms, "refusal": &reason});
            return Err(self.refuse(reason, LedgerEntry::new("gate.lease_refused", body), now));
        }
        self.grant_lease(Some(parent), principal, terms, now)
    }

    fn grant_lease(
        &mut self,
        parent: Option<LeaseId>,
        principal: Principal,
        terms: LeaseTerms,
        now: Timestamp,
    ) -> Result<LeaseId, Refusal> {
        let id = LeaseId(self.leases.len() as u32);
        if self.leases.len() >= limits::LEASES_MAX {
            let why = format!("a session gives at most {} leases (LEASES_MAX)", limits::LEASES_MAX);
            return Err(RefusalReason::Unrecorded { why }.into());
        }
        let body = json!({"lease": id, "parent": parent, "principal": principal, "terms": terms});
        self.write(&[LedgerEntry::new("gate.leased", body)], now)?;
        self.leases.push(Lease::new(parent, principal, terms, now));
        Ok(id)
    }

    /// Puts the holder of a lease into a mood. The effective rights are the intersection of lease and mood; the mood's budget
    /// starts anew, bounded by what is left of the lease's.
    ///
    /// # Errors
    /// If there is no such lease or the ledger cannot write; the lease then permits nothing more.
    pub fn enter(&mut self, id: LeaseId, mood: &str, rights: &Rights, now: Timestamp) -> Result<(), Refusal> {
        let now = self.tick(now);
        let Some(lease) = self.leases.get_mut(id.0 as usize) else {
            return Err(RefusalReason::UnknownLease { lease: id }.into());
        };
        let from = std::mem::replace(&mut lease.principal.mood, mood.into());
        lease.enter(rights);
        let body = json!({"lease": id, "from": from, "to": mood, "rights": lease.effective()});
        self.write(&[LedgerEntry::new("gate.mood", body)], now).map(|_| ())
    }

    /// Revokes a lease and all leases delegated from it.
    ///
    /// # Errors
    /// If there is no such lease or the ledger cannot write; the lease is revoked even then.
    pub fn revoke(&mut self, id: LeaseId, why: &str, now: Timestamp) -> Result<(), Refusal> {
        let now = self.tick(now);
        let Some(lease) = self.leases.get_mut(id.0 as usize) else {
            return Err(RefusalReason::UnknownLease { lease: id }.into());
        };
        lease.revoked = true;
        self.write(&[LedgerEntry::new("gate.revoked", json!({"lease": id, "why": why}))], now).map(|_| ())
    }

    /// Records a person's approval of one effect with exactly these arguments, for one use before `until`.
    ///
    /// # Errors
    /// If there is no such lease or the ledger cannot write.
    pub fn approve(
        &mut self,
        lease: LeaseId,
        (category, arguments): (Category, Digest),
        by: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let now = self.tick(now);
        self.standing(lease, now)?;
        let approval = Approval { lease, category, arguments, until, by: by.to_owned() };
        self.write(&[LedgerEntry::new("gate.approved", json!({ "approval": approval }))], now)?;
        self.approvals.push(approval);
        Ok(())
    }

    /// Whether [`ask`](Self::ask) would permit an effect now. Changes and writes nothing.
    ///
    /// # Errors
    /// The reason of the denial.
    #[inline]
    pub fn check(&self, id: LeaseId, effect: &Effect, now: Timestamp) -> Result<(), RefusalReason> {
        if self.is_plain(id, effect, now) { Ok(()) } else { self.examine(id, effect, now) }
    }

    /// Fast path: true if the effect is permitted and involves neither an approval nor a host. False decides nothing.
    #[inline]
    pub(super) fn is_plain(&self, id: LeaseId, effect: &Effect, now: Timestamp) -> bool {
        let now = now.max(self.latest);
        let Some(lease) = self.leases.get(id.0 as usize) else { return false };
        let mut plain = effect.is_plain()
            && lease.effective.uses.contains(effect.category())
            && effect.reads().within(lease.effective.reads)
            && effect.writes().within(lease.effective.writes)
            && !lease.revoked
            && now < lease.ends
            && lease.left().covers(effect.cost());
        let mut at = lease.parent;
        while let Some(lease) = at.and_then(|id| self.leases.get(id.0 as usize)) {
            plain = plain && !lease.revoked && now < lease.ends && lease.remaining().covers(effect.cost());
            at = lease.parent;
        }
        plain
    }

    /// The full check, with the reason of a denial.
    pub(super) fn examine(&self, id: LeaseId, effect: &Effect, now: Timestamp) -> Result<(), RefusalReason> {
        let lease = self.standing(id, now)?;
        may(&lease.effective, effect)?;
        let mut at = Some(id);
        while let Some(lease) = at.and_then(|id| self.leases.get(id.0 as usize)) {
            // A parent is bounded by its lease's budget, not by that of its mood.
            let left = if at == Some(id) { lease.left() } else { lease.remaining() };
            if let Some(resource) = left.short_of(effect.cost()) {
                return Err(RefusalReason::Exhausted { resource });
            }
            at = lease.parent;
        }
        if Categories::PRIVILEGED.contains(effect.category()) && self.approval(id, effect, now).is_none() {
            return Err(RefusalReason::NotApproved { category: effect.category() });
        }
        Ok(())
    }

    /// Requests a permit for one effect.
    ///
    /// # Errors
    /// The reason of the denial, with a safer alternative.
    pub fn ask(&mut self, request: &EffectRequest, now: Timestamp) -> Result<Permit, Refusal> {
        let no_decision = || Err(RefusalReason::Unrecorded { why: "the gate made no decision".to_owned() }.into());
        self.ask_all(std::slice::from_ref(request), now).pop().unwrap_or_else(no_decision)
    }

    /// Requests permits for several effects in order, with one write to the ledger. Returns one decision per request.
    pub fn ask_all(&mut self, requests: &[EffectRequest], now: Timestamp) -> Vec<Result<Permit, Refusal>> {
        let now = self.tick(now);
        let answers: Vec<_> = requests.iter().map(|request| self.decide(request, now)).collect();
        let entries: Vec<_> =
            requests.iter().zip(&answers).map(|(request, answer)| entry(request, answer.as_ref().err())).collect();
        match self.write(&entries, now) {
            Ok(receipts) => answers
                .into_iter()
                .zip(requests)
                .zip(receipts)
                .map(|((answer, request), receipt)| {
                    let until = answer?;
                    Ok(Permit::new(request.lease, request.effect.digest(), receipt, until))
                })
                .collect(),
            Err(refusal) => requests.iter().map(|_| Err(refusal.clone())).collect(),
        }
    }

    /// Decides a request, charges its cost if permitted, and returns when the permit expires.
    fn decide(
        &mut self,
        EffectRequest { lease: id, effect }: &EffectRequest,
        now: Timestamp,
    ) -> Result<Timestamp, RefusalReason> {
        self.check(*id, effect, now)?;
        if Categories::PRIVILEGED.contains(effect.category())
            && let Some(index) = self.approval(*id, effect, now)
        {
            self.approvals.swap_remove(index);
        }
        let mut until = Timestamp::MAX;
        let mut at = Some(*id);
        while let Some(lease) = at.and_then(|id| self.leases.get_mut(id.0 as usize)) {
            lease.charge(effect.cost(), at == Some(*id), now);
            until = until.min(lease.ends);
            at = lease.parent;
        }
        Ok(until)
    }

    /// A valid lease whose ancestors are all valid.
    fn standing(&self, id: LeaseId, now: Timestamp) -> Result<&Lease, RefusalReason> {
        let now = now.max(self.latest);
        let held = self.leases.get(id.0 as usize).ok_or(RefusalReason::UnknownLease { lease: id })?;
        let mut at = Some(id);
        while let Some((id, lease)) = at.and_then(|id| Some((id, self.leases.get(id.0 as usize)?))) {
            if lease.revoked {
                return Err(RefusalReason::Revoked { lease: id });
            }
            if now >= lease.terms.expires {
                return Err(RefusalReason::Expired { lease: id });
            }
            if now >= lease.idle_at {
                return Err(RefusalReason::Idle { lease: id });
            }
            at = lease.parent;
        }
        Ok(held)
    }

    fn approval(&self, lease: LeaseId, effect: &Effect, now: Timestamp) -> Option<usize> {
        let meant = |approval: &Approval| {
            approval.lease == lease
                && approval.category == effect.category()
                && approval.arguments == effect.arguments()
                && now < approval.until
        };
        self.approvals.iter().position(meant)
    }

    /// The largest budget of a child: the minimum left in the lease and its ancestors.
    fn left(&self, id: LeaseId) -> super::Budget {
        let mut at = Some(id);
        let mut left: Option<super::Budget> = None;
        while let Some(lease) = at.and_then(|id| self.leases.get(id.0 as usize)) {
            left = Some(left.map_or(*lease.remaining(), |left| left.meet(lease.remaining())));
            at = lease.parent;
        }
        left.unwrap_or_default()
    }

    /// A lease.
    pub fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(id.0 as usize)
    }

    /// Whether what is left of a lease in its current mood covers a cost.
    pub fn covers(&self, id: LeaseId, cost: &super::Budget) -> bool {
        self.get(id).is_some_and(|lease| lease.left().covers(cost))
    }

    /// The ledger, for entries of callers.
    pub const fn ledger(&mut self) -> &mut L {
        &mut self.ledger
    }

    /// Queues entries of a caller, to be written together with the gate's next entry.
    pub fn carry(&mut self, entries: impl IntoIterator<Item = LedgerEntry>) {
        self.queued.extend(entries);
    }

    fn tick(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn refuse(&mut self, reason: RefusalReason, entry: LedgerEntry, now: Timestamp) -> Refusal {
        self.write(&[entry], now).err().unwrap_or_else(|| reason.into())
    }

    fn record(&mut self, entries: &[LedgerEntry], now: Timestamp) -> Result<Vec<Digest>, LedgerError> {
        if self.queued.is_empty() {
            return self.ledger.record(now, entries);
        }
        let mut all = std::mem::take(&mut self.queued);
        let queued = all.len();
        all.extend_from_slice(entries);
        self.ledger.record(now, &all).map(|mut receipts| receipts.split_off(queued.min(receipts.len())))
    }

    /// Writes entries; after one failure everything is denied.
    fn write(&mut self, entries: &[LedgerEntry], now: Timestamp) -> Result<Vec<Digest>, Refusal> {
        let why = match &self.failed {
            Some(why) => why.clone(),
            None => match self.record(entries, now) {
                Ok(receipts) if receipts.len() == entries.len() => return Ok(receipts),
                Ok(_) => "the ledger lost an entry".to_owned(),
                Err(error) => error.0,
            },
        };
        self.failed = Some(why.clone());
        Err(RefusalReason::Unrecorded { why }.into())
    }
}

/// Whether the rights allow the effect, without regard to budgets and approvals.
#[inline]
fn may(rights: &Rights, effect: &Effect) -> Result<(), RefusalReason> {
    let category = effect.category();
    if !rights.uses.contains(category) {
        return Err(RefusalReason::NotAllowed { category });
    }
    if !effect.reads().within(rights.reads) {
        return Err(RefusalReason::MayNotRead { scopes: effect.reads().without(rights.reads) });
    }
    if !effect.writes().within(rights.writes) {
        return Err(RefusalReason::MayNotWrite { scopes: effect.writes().without(rights.writes) });
    }
    let lacks = match category {
        Category::Read if effect.reads() == Scopes::NONE => Some("what it reads"),
        Category::Write if effect.writes() == Scopes::NONE => Some("what it writes"),
        Category::Network | Category::Publish if effect.host().is_none() => Some("which host it reaches"),
        _ => None,
    };
    if let Some(lacks) = lacks {
        return Err(RefusalReason::Unclear { category, lacks });
    }
    match effect.host() {
        None => Ok(()),
        Some(host) => {
            let hosts = if category == Category::Model { &rights.model_hosts } else { &rights.hosts };
            if hosts.contains(host) { Ok(()) } else { Err(RefusalReason::MayNotReach { host: host.to_owned() }) }
        }
    }
}

fn entry(request: &EffectRequest, refusal: Option<&RefusalReason>) -> LedgerEntry {
    let digest = request.effect.digest();
    match refusal {
        None => LedgerEntry::new("gate.granted", json!({"request": request, "effect_digest": digest})),
        Some(reason) => LedgerEntry::new(
            "gate.refused",
            json!({"request": request, "refusal": reason, "alternative": reason.alternative()}),
        ),
    }
}
