//! The gate itself: leases, approvals, and the answer to a request.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::{
    Categories, Category, Effect, Entry, Lease, LeaseId, Ledger, LedgerError, Permit, Principal, Reason, Refusal,
    Request, Rights, Scopes, Terms, lease::told,
};
use crate::foundation::base::{Digest, limits};

/// A person's word that one effect with these exact arguments may happen once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Approval {
    lease: LeaseId,
    category: Category,
    arguments: Digest,
    #[serde(serialize_with = "told")]
    until: Timestamp,
    by: String,
}

/// The one place where permits are made. It owns the ledger; when that fails once, the gate stays shut.
#[derive(Debug)]
pub struct Gate<L> {
    ledger: L,
    leases: Vec<Lease>,
    approvals: Vec<Approval>,
    /// The latest time that it was told: a clock that is set back prolongs nothing.
    latest: Timestamp,
    shut: Option<String>,
    /// Entries that are not the gate's own; they are written with its next answer, before it.
    carried: Vec<Entry>,
}

impl<L: Ledger> Gate<L> {
    /// A gate whose first lease is the session's own: no other can go beyond it.
    ///
    /// # Errors
    /// When the ledger cannot write.
    pub fn open(ledger: L, principal: Principal, terms: Terms, now: Timestamp) -> Result<(Self, LeaseId), Refusal> {
        let (leases, approvals) = (Vec::new(), Vec::new());
        let mut gate = Self { ledger, leases, approvals, latest: now, shut: None, carried: Vec::new() };
        let id = gate.grant_lease(None, principal, terms, now)?;
        Ok((gate, id))
    }

    /// A lease drawn from another, for somebody who works beside its holder.
    ///
    /// # Errors
    /// When the parent has ended or may not pass on so much.
    pub fn lease(
        &mut self,
        parent: LeaseId,
        principal: Principal,
        terms: Terms,
        now: Timestamp,
    ) -> Result<LeaseId, Refusal> {
        let now = self.tick(now);
        let refused = self.standing(parent, now).and_then(|holder| {
            let mut beyond = terms.rights.beyond_delegation(&holder.terms.rights, &self.left(parent));
            if terms.expires > holder.terms.expires {
                beyond.push("lasts longer".to_owned());
            }
            if beyond.is_empty() { Ok(()) } else { Err(Reason::TooWide { beyond }) }
        });
        if let Err(reason) = refused {
            let body = json!({"parent": parent, "principal": principal, "terms": terms, "refusal": &reason});
            return Err(self.refuse(reason, Entry::new("gate.lease_refused", body), now));
        }
        self.grant_lease(Some(parent), principal, terms, now)
    }

    fn grant_lease(
        &mut self,
        parent: Option<LeaseId>,
        principal: Principal,
        terms: Terms,
        now: Timestamp,
    ) -> Result<LeaseId, Refusal> {
        let id = LeaseId(self.leases.len() as u32);
        if self.leases.len() >= limits::LEASES_MAX {
            let why = format!("a session gives at most {} leases (LEASES_MAX)", limits::LEASES_MAX);
            return Err(Reason::Unrecorded { why }.into());
        }
        let body = json!({"lease": id, "parent": parent, "principal": principal, "terms": terms});
        self.write(&[Entry::new("gate.leased", body)], now)?;
        self.leases.push(Lease::new(parent, principal, terms, now));
        Ok(id)
    }

    /// The holder of a lease is in another mood: what it may do is what both allow, and the mood's budget begins anew within
    /// what the lease has left.
    ///
    /// # Errors
    /// When there is no such lease or the ledger cannot write; the lease then allows nothing more.
    pub fn enter(&mut self, id: LeaseId, mood: &str, rights: &Rights, now: Timestamp) -> Result<(), Refusal> {
        let now = self.tick(now);
        let Some(lease) = self.leases.get_mut(id.0 as usize) else {
            return Err(Reason::UnknownLease { lease: id }.into());
        };
        let from = std::mem::replace(&mut lease.principal.mood, mood.into());
        lease.enter(rights);
        let body = json!({"lease": id, "from": from, "to": mood, "rights": lease.effective()});
        self.write(&[Entry::new("gate.mood", body)], now).map(|_| ())
    }

    /// Takes a lease back, and with it every one that was drawn from it.
    ///
    /// # Errors
    /// When there is no such lease or the ledger cannot write; it is revoked all the same.
    pub fn revoke(&mut self, id: LeaseId, why: &str, now: Timestamp) -> Result<(), Refusal> {
        let now = self.tick(now);
        let Some(lease) = self.leases.get_mut(id.0 as usize) else {
            return Err(Reason::UnknownLease { lease: id }.into());
        };
        lease.revoked = true;
        self.write(&[Entry::new("gate.revoked", json!({"lease": id, "why": why}))], now).map(|_| ())
    }

    /// A person approves one effect with exactly these arguments, once, until then.
    ///
    /// # Errors
    /// When there is no such lease or the ledger cannot write.
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
        self.write(&[Entry::new("gate.approved", json!({ "approval": approval }))], now)?;
        self.approvals.push(approval);
        Ok(())
    }

    /// Whether an effect may happen now. Changes and writes nothing: this is the quick look, [`ask`](Self::ask) gives permits.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn check(&self, id: LeaseId, effect: &Effect, now: Timestamp) -> Result<(), Reason> {
        if self.is_plain(id, effect, now) { Ok(()) } else { self.examine(id, effect, now) }
    }

    /// Whether the answer is yes, for effects that no approval and no host stands in the way of; a no says nothing.
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

    /// The whole answer, with the reason where it is no.
    pub(super) fn examine(&self, id: LeaseId, effect: &Effect, now: Timestamp) -> Result<(), Reason> {
        let lease = self.standing(id, now)?;
        may(&lease.effective, effect)?;
        let mut at = Some(id);
        while let Some(lease) = at.and_then(|id| self.leases.get(id.0 as usize)) {
            // Of a parent, what the lease itself has left counts, not what its mood would do.
            let left = if at == Some(id) { lease.left() } else { lease.remaining() };
            if let Some(resource) = left.short_of(effect.cost()) {
                return Err(Reason::Spent { resource });
            }
            at = lease.parent;
        }
        if Categories::PRIVILEGED.contains(effect.category()) && self.approval(id, effect, now).is_none() {
            return Err(Reason::NotApproved { category: effect.category() });
        }
        Ok(())
    }

    /// Asks for one effect.
    ///
    /// # Errors
    /// Why not, with a safer way.
    pub fn ask(&mut self, request: &Request, now: Timestamp) -> Result<Permit, Refusal> {
        let unheard = || Err(Reason::Unrecorded { why: "the gate gave no answer".to_owned() }.into());
        self.ask_all(std::slice::from_ref(request), now).pop().unwrap_or_else(unheard)
    }

    /// Asks for several effects, in order, with one write of the ledger: an answer for each.
    pub fn ask_all(&mut self, requests: &[Request], now: Timestamp) -> Vec<Result<Permit, Refusal>> {
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

    /// The answer, and until when it holds; what a yes costs is spent.
    fn decide(&mut self, Request { lease: id, effect }: &Request, now: Timestamp) -> Result<Timestamp, Reason> {
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

    /// A lease that stands, as do all that it stands on.
    fn standing(&self, id: LeaseId, now: Timestamp) -> Result<&Lease, Reason> {
        let now = now.max(self.latest);
        let held = self.leases.get(id.0 as usize).ok_or(Reason::UnknownLease { lease: id })?;
        let mut at = Some(id);
        while let Some((id, lease)) = at.and_then(|id| Some((id, self.leases.get(id.0 as usize)?))) {
            if lease.revoked {
                return Err(Reason::Revoked { lease: id });
            }
            if now >= lease.terms.expires {
                return Err(Reason::Expired { lease: id });
            }
            if now >= lease.idle_at {
                return Err(Reason::Idle { lease: id });
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

    /// What a child's budget may be at most: the least that is left along the line.
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

    /// The ledger, for entries that are not the gate's own.
    pub const fn ledger(&mut self) -> &mut L {
        &mut self.ledger
    }

    /// Has these entries, which are not the gate's own, written with its next answer: one write for both.
    pub fn carry(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.carried.extend(entries);
    }

    fn tick(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn refuse(&mut self, reason: Reason, entry: Entry, now: Timestamp) -> Refusal {
        self.write(&[entry], now).err().unwrap_or_else(|| reason.into())
    }

    fn record(&mut self, entries: &[Entry], now: Timestamp) -> Result<Vec<Digest>, LedgerError> {
        if self.carried.is_empty() {
            return self.ledger.record(now, entries);
        }
        let mut all = std::mem::take(&mut self.carried);
        let carried = all.len();
        all.extend_from_slice(entries);
        self.ledger.record(now, &all).map(|mut receipts| receipts.split_off(carried.min(receipts.len())))
    }

    /// Writes entries down; after one failure the gate stays shut.
    fn write(&mut self, entries: &[Entry], now: Timestamp) -> Result<Vec<Digest>, Refusal> {
        let why = match &self.shut {
            Some(why) => why.clone(),
            None => match self.record(entries, now) {
                Ok(receipts) if receipts.len() == entries.len() => return Ok(receipts),
                Ok(_) => "the ledger lost an entry".to_owned(),
                Err(error) => error.0,
            },
        };
        self.shut = Some(why.clone());
        Err(Reason::Unrecorded { why }.into())
    }
}

/// Whether the rights allow the effect, budgets and approvals aside.
#[inline]
fn may(rights: &Rights, effect: &Effect) -> Result<(), Reason> {
    let category = effect.category();
    if !rights.uses.contains(category) {
        return Err(Reason::NotAllowed { category });
    }
    if !effect.reads().within(rights.reads) {
        return Err(Reason::MayNotRead { scopes: effect.reads().without(rights.reads) });
    }
    if !effect.writes().within(rights.writes) {
        return Err(Reason::MayNotWrite { scopes: effect.writes().without(rights.writes) });
    }
    let lacks = match category {
        Category::Read if effect.reads() == Scopes::NONE => Some("what it reads"),
        Category::Write if effect.writes() == Scopes::NONE => Some("what it writes"),
        Category::Network | Category::Publish if effect.host().is_none() => Some("which host it reaches"),
        _ => None,
    };
    if let Some(lacks) = lacks {
        return Err(Reason::Unclear { category, lacks });
    }
    match effect.host() {
        None => Ok(()),
        Some(host) => {
            let hosts = if category == Category::Model { &rights.model_hosts } else { &rights.hosts };
            if hosts.contains(host) { Ok(()) } else { Err(Reason::MayNotReach { host: host.to_owned() }) }
        }
    }
}

fn entry(request: &Request, refusal: Option<&Reason>) -> Entry {
    let digest = request.effect.digest();
    match refusal {
        None => Entry::new("gate.granted", json!({"request": request, "effect_digest": digest})),
        Some(reason) => Entry::new(
            "gate.refused",
            json!({"request": request, "refusal": reason, "alternative": reason.alternative()}),
        ),
    }
}
