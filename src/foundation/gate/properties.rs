//! Property tests of the gate, and attempts to bypass it.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::foundation::base::Digest;

/// A ledger in memory that fails from a chosen entry on.
#[derive(Debug, Default)]
struct Counting {
    kinds: Vec<String>,
    fails_from: Option<usize>,
}

impl Ledger for Counting {
    fn record(&mut self, _: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
        if self.fails_from.is_some_and(|from| self.kinds.len() + entries.len() > from) {
            return Err(LedgerError("the disk is full".to_owned()));
        }
        self.kinds.extend(entries.iter().map(|entry| entry.kind.clone()));
        Ok(entries.iter().map(|entry| Digest::of(&entry.kind)).collect())
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn figures(each: u64) -> Budget {
    Budget { money_micros: each, tokens: each, wall_ms: each, calls: each, files: each, diff_lines: each }
}

fn terms(rights: Rights) -> LeaseTerms {
    LeaseTerms { rights, expires: at(1_000), idle: SignedDuration::from_secs(100) }
}

fn everything(budget: u64) -> Rights {
    Rights {
        uses: Categories::of(Category::ALL),
        delegates: Categories::of(Category::ALL),
        reads: Scopes::of(Scope::ALL),
        writes: Scopes::of(Scope::ALL),
        hosts: Hosts::Granted,
        model_hosts: Hosts::Granted,
        budget: figures(budget),
    }
}

fn who() -> Principal {
    Principal::new("run", "ann", "calm")
}

fn gate(rights: Rights) -> (Gate<Counting>, LeaseId) {
    Gate::open(Counting::default(), who(), terms(rights), at(0)).unwrap()
}

#[test]
fn an_approval_covers_exact_arguments_once_until_it_expires() {
    let (mut gate, lease) = gate(everything(10));
    let publish = |text: &str| Effect::new(Category::Publish, text).reaching("example.org");
    let ask = |gate: &mut Gate<Counting>, text: &str, second| {
        gate.ask(&EffectRequest { lease, effect: publish(text) }, at(second))
            .map(|_| ())
            .map_err(|refusal| refusal.reason)
    };
    let no = Err(RefusalReason::NotApproved { category: Category::Publish });
    assert_eq!(ask(&mut gate, "the report", 1), no);
    gate.approve(lease, (Category::Publish, publish("the report").arguments()), "ann", at(10), at(1)).unwrap();
    assert_eq!(ask(&mut gate, "the report, and the transcript", 2), no);
    assert_eq!(ask(&mut gate, "the report", 3), Ok(()));
    assert_eq!(ask(&mut gate, "the report", 4), no);
    gate.approve(lease, (Category::Publish, publish("the report").arguments()), "ann", at(10), at(5)).unwrap();
    assert_eq!(ask(&mut gate, "the report", 10), no);
}

#[test]
fn after_a_ledger_failure_everything_is_denied() {
    let ledger = Counting { fails_from: Some(2), ..Counting::default() };
    let (mut gate, lease) = Gate::open(ledger, who(), terms(everything(10)), at(0)).unwrap();
    let effect = Effect::new(Category::Score, "");
    let request = EffectRequest { lease, effect };
    assert!(gate.ask(&request, at(1)).is_ok());
    for second in 2..4 {
        let refusal = gate.ask(&request, at(second)).unwrap_err();
        assert_eq!(refusal.reason, RefusalReason::Unrecorded { why: "the disk is full".to_owned() });
        gate.ledger().fails_from = None;
    }
}

#[test]
fn a_lease_ends_with_its_parent_and_a_clock_set_back_extends_nothing() {
    let (mut gate, root) = gate(everything(10));
    let child = gate.lease(root, who(), terms(everything(5)), at(1)).unwrap();
    let effect = Effect::new(Category::Score, "");
    assert_eq!(gate.check(child, &effect, at(50)), Ok(()));
    assert_eq!(gate.check(child, &effect, at(150)), Err(RefusalReason::Idle { lease: child }));
    let score = EffectRequest { lease: child, effect: effect.clone() };
    assert!(gate.ask(&score, at(90)).is_ok());
    assert_eq!(gate.check(child, &effect, at(150)), Ok(()));
    assert!(gate.ask(&score, at(400)).is_err());
    assert!(matches!(gate.ask(&score, at(90)).unwrap_err().reason, RefusalReason::Idle { .. }));
    assert_eq!(gate.check(root, &effect, at(90)), Err(RefusalReason::Idle { lease: root }));
    let (mut gate, root) = self::gate(everything(10));
    let child = gate.lease(root, who(), terms(everything(5)), at(1)).unwrap();
    gate.revoke(root, "the user ended it", at(2)).unwrap();
    assert_eq!(gate.check(child, &effect, at(3)), Err(RefusalReason::Revoked { lease: root }));
}

fn categories() -> impl Strategy<Value = Categories> {
    prop::collection::vec(prop::sample::select(Category::ALL), 0..12).prop_map(Categories::from_iter)
}

fn scopes() -> impl Strategy<Value = Scopes> {
    prop::collection::vec(prop::sample::select(Scope::ALL), 0..12).prop_map(Scopes::from_iter)
}

fn hosts() -> impl Strategy<Value = Hosts> {
    prop_oneof![
        Just(Hosts::None),
        Just(Hosts::Granted),
        prop::sample::subsequence(vec!["a.org", "b.org", "c.org"], 1..3).prop_map(Hosts::only),
    ]
}

fn rights() -> impl Strategy<Value = Rights> {
    (categories(), categories(), scopes(), scopes(), hosts(), hosts(), 0..30_u64).prop_map(
        |(uses, delegates, reads, writes, hosts, model_hosts, budget)| Rights {
            uses,
            delegates,
            reads,
            writes,
            hosts,
            model_hosts,
            budget: figures(budget),
        },
    )
}

fn effect() -> impl Strategy<Value = Effect> {
    let host = prop::option::of(prop::sample::select(vec!["a.org", "B.org", "d.org"]));
    (prop::sample::select(Category::ALL), scopes(), scopes(), host, 0..6_u64, 0..3_u8).prop_map(
        |(category, reads, writes, host, cost, arguments)| {
            let mut effect = Effect::new(category, [arguments]).costing(figures(cost));
            effect = reads.iter().fold(effect, Effect::reading);
            effect = writes.iter().fold(effect, Effect::writing);
            match host {
                Some(host) => effect.reaching(host),
                None => effect,
            }
        },
    )
}

#[derive(Debug, Clone)]
enum Act {
    Lease(usize, Rights),
    Enter(usize, Rights),
    Revoke(usize),
    Approve(usize, Effect),
    Ask(usize, Effect),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..6_usize, rights()).prop_map(|(at, rights)| Act::Lease(at, rights)),
        1 => (0..6_usize, rights()).prop_map(|(at, rights)| Act::Enter(at, rights)),
        1 => (0..12_usize).prop_map(Act::Revoke),
        2 => (0..6_usize, effect()).prop_map(|(at, effect)| Act::Approve(at, effect)),
        8 => (0..6_usize, effect()).prop_map(|(at, effect)| Act::Ask(at, effect)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_intersection_of_rights_is_within_both_and_within_is_transitive(a in rights(), b in rights(), c in rights()) {
        let both = a.meet(&b);
        prop_assert!(both.within(&a) && both.within(&b));
        prop_assert_eq!(&a.meet(&a).uses, &a.uses);
        prop_assert!(!(a.within(&b) && b.within(&c)) || a.within(&c));
        prop_assert!(a.under(b.power()).within(&a));
        prop_assert!(a.under(b.power()).power().within(b.power()));
    }

    #[test]
    fn leases_only_narrow_budgets_only_shrink_and_every_decision_has_one_receipt(
        session in rights(), acts in prop::collection::vec(act(), 1..40),
    ) {
        let (mut gate, root) = gate(session);
        let mut leases = vec![root];
        let mut entries = 1;
        for (second, act) in (1..).zip(acts) {
            let now = at(second);
            let before: Vec<_> = leases.iter().map(|id| *gate.get(*id).unwrap().remaining()).collect();
            let nth = |at: usize| leases[at % leases.len()];
            entries += 1;
            match act {
                Act::Lease(parent, rights) => {
                    let parent = nth(parent);
                    if let Ok(child) = gate.lease(parent, who(), terms(rights), now) {
                        let (held, given) = (gate.get(parent).unwrap(), gate.get(child).unwrap());
                        prop_assert!(given.terms().rights.uses.within(held.terms().rights.delegates));
                        prop_assert!(given.terms().rights.delegates.within(held.terms().rights.delegates));
                        prop_assert!(given.terms().rights.reads.within(held.terms().rights.reads));
                        prop_assert!(given.terms().rights.writes.within(held.terms().rights.writes));
                        prop_assert!(given.remaining().within(held.remaining()));
                        leases.push(child);
                    }
                }
                Act::Enter(id, rights) => gate.enter(nth(id), "bold", &rights, now).unwrap(),
                Act::Revoke(id) => {
                    let id = nth(id);
                    if id == root { entries -= 1 } else { gate.revoke(id, "", now).unwrap() }
                }
                Act::Approve(id, effect) => {
                    if gate.approve(nth(id), (effect.category(), effect.arguments()), "ann", at(900), now).is_err() {
                        entries -= 1;
                    }
                }
                Act::Ask(id, effect) => {
                    let id = nth(id);
                    let looked = gate.check(id, &effect, now);
                    // The fast path and the full check agree.
                    let examined = gate.examine(id, &effect, now);
                    prop_assert_eq!(&looked, &examined);
                    prop_assert_eq!(gate.is_plain(id, &effect, now), examined.is_ok() && effect.is_plain());
                    let allowed = gate.get(id).unwrap().effective();
                    match gate.ask(&EffectRequest { lease: id, effect: effect.clone() }, now) {
                        Ok(permit) => {
                            prop_assert_eq!(looked, Ok(()));
                            prop_assert!(allowed.uses.contains(effect.category()));
                            prop_assert!(effect.reads().within(allowed.reads) && effect.writes().within(allowed.writes));
                            prop_assert!(effect.cost().within(&allowed.budget));
                            prop_assert!(permit.spend(&effect, now).is_ok());
                        }
                        Err(refusal) => {
                            prop_assert_eq!(looked, Err(refusal.reason));
                        }
                    }
                }
            }
            for (id, before) in leases.iter().zip(before) {
                prop_assert!(gate.get(*id).unwrap().remaining().within(&before));
            }
            prop_assert_eq!(gate.ledger().kinds.len(), entries);
        }
    }

    #[test]
    fn a_permit_is_valid_only_for_its_own_effect(requested in effect(), done in effect()) {
        let (mut gate, lease) = gate(everything(10));
        gate.approve(lease, (requested.category(), requested.arguments()), "ann", at(900), at(0)).unwrap();
        if let Ok(permit) = gate.ask(&EffectRequest { lease, effect: requested.clone() }, at(1)) {
            prop_assert_eq!(permit.spend(&done, at(2)).is_ok(), requested == done);
        }
    }
}
