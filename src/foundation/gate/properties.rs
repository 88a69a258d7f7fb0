//! What holds of a gate whatever is asked of it, and fifteen attempts to get around it one after the other.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::foundation::base::Digest;

/// A ledger in memory that counts, and fails from a chosen entry on.
#[derive(Debug, Default)]
struct Counting {
    kinds: Vec<String>,
    fails_from: Option<usize>,
}

impl Ledger for Counting {
    fn record(&mut self, _: Timestamp, entries: &[Entry]) -> Result<Vec<Digest>, LedgerError> {
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

fn terms(rights: Rights) -> Terms {
    Terms { rights, expires: at(1_000), idle: SignedDuration::from_secs(100) }
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
fn an_approval_is_for_exact_arguments_once_and_for_a_time() {
    let (mut gate, lease) = gate(everything(10));
    let publish = |text: &str| Effect::new(Category::Publish, text).reaching("example.org");
    let ask = |gate: &mut Gate<Counting>, text: &str, second| {
        gate.ask(&Request { lease, effect: publish(text) }, at(second)).map(|_| ()).map_err(|refusal| refusal.reason)
    };
    let no = Err(Reason::NotApproved { category: Category::Publish });
    assert_eq!(ask(&mut gate, "the report", 1), no);
    gate.approve(lease, (Category::Publish, publish("the report").arguments()), "ann", at(10), at(1)).unwrap();
    assert_eq!(ask(&mut gate, "the report, and the transcript", 2), no);
    assert_eq!(ask(&mut gate, "the report", 3), Ok(()));
    assert_eq!(ask(&mut gate, "the report", 4), no);
    gate.approve(lease, (Category::Publish, publish("the report").arguments()), "ann", at(10), at(5)).unwrap();
    assert_eq!(ask(&mut gate, "the report", 10), no);
}

#[test]
fn what_cannot_be_written_down_does_not_happen_and_the_gate_stays_shut() {
    let ledger = Counting { fails_from: Some(2), ..Counting::default() };
    let (mut gate, lease) = Gate::open(ledger, who(), terms(everything(10)), at(0)).unwrap();
    let effect = Effect::new(Category::Score, "");
    let request = Request { lease, effect };
    assert!(gate.ask(&request, at(1)).is_ok());
    for second in 2..4 {
        let refusal = gate.ask(&request, at(second)).unwrap_err();
        assert_eq!(refusal.reason, Reason::Unrecorded { why: "the disk is full".to_owned() });
        gate.ledger().fails_from = None;
    }
}

#[test]
fn a_lease_ends_with_its_parent_and_a_clock_that_is_set_back_prolongs_nothing() {
    let (mut gate, root) = gate(everything(10));
    let child = gate.lease(root, who(), terms(everything(5)), at(1)).unwrap();
    let effect = Effect::new(Category::Score, "");
    assert_eq!(gate.check(child, &effect, at(50)), Ok(()));
    assert_eq!(gate.check(child, &effect, at(150)), Err(Reason::Idle { lease: child }));
    let score = Request { lease: child, effect: effect.clone() };
    assert!(gate.ask(&score, at(90)).is_ok());
    assert_eq!(gate.check(child, &effect, at(150)), Ok(()));
    assert!(gate.ask(&score, at(400)).is_err());
    assert!(matches!(gate.ask(&score, at(90)).unwrap_err().reason, Reason::Idle { .. }));
    assert_eq!(gate.check(root, &effect, at(90)), Err(Reason::Idle { lease: root }));
    let (mut gate, root) = self::gate(everything(10));
    let child = gate.lease(root, who(), terms(everything(5)), at(1)).unwrap();
    gate.revoke(root, "the user ended it", at(2)).unwrap();
    assert_eq!(gate.check(child, &effect, at(3)), Err(Reason::Revoked { lease: root }));
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
    fn a_meet_is_within_both_and_order_is_an_order(a in rights(), b in rights(), c in rights()) {
        let both = a.meet(&b);
        prop_assert!(both.within(&a) && both.within(&b));
        prop_assert_eq!(&a.meet(&a).uses, &a.uses);
        prop_assert!(!(a.within(&b) && b.within(&c)) || a.within(&c));
        prop_assert!(a.under(b.power()).within(&a));
        prop_assert!(a.under(b.power()).power().within(b.power()));
    }

    #[test]
    fn whatever_is_asked_leases_narrow_budgets_shrink_and_every_answer_has_one_receipt(
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
                    // The one pass and the whole answer are of one mind.
                    let examined = gate.examine(id, &effect, now);
                    prop_assert_eq!(&looked, &examined);
                    prop_assert_eq!(gate.is_plain(id, &effect, now), examined.is_ok() && effect.is_plain());
                    let allowed = gate.get(id).unwrap().effective();
                    match gate.ask(&Request { lease: id, effect: effect.clone() }, now) {
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

    /// A permit serves the effect that it was given for, and no other.
    #[test]
    fn a_permit_serves_no_other_effect(asked in effect(), done in effect()) {
        let (mut gate, lease) = gate(everything(10));
        gate.approve(lease, (asked.category(), asked.arguments()), "ann", at(900), at(0)).unwrap();
        if let Ok(permit) = gate.ask(&Request { lease, effect: asked.clone() }, at(1)) {
            prop_assert_eq!(permit.spend(&done, at(2)).is_ok(), asked == done);
        }
    }
}
