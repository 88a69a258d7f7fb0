//! What holds of the machine, the registers and the profiles whatever comes.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::guards::guard_table;
use super::matrix::matrix_table;
use super::*;
use crate::foundation::base::Digest;
use crate::foundation::gate::{Categories, Category, Entry};

fn text(text: &str) -> Text {
    text.try_into().unwrap()
}

fn hypothesis(claim: &str, impact: Impact) -> Hypothesis {
    Hypothesis {
        claim: text(claim),
        scope: text("the bundled model"),
        test: text("fifty turns, scored twice"),
        budget: TestBudget { calls: 100.try_into().unwrap(), tokens: 10_000 },
        promotion_rule: text("both scores agree"),
        impact,
    }
}

fn assertion(id: &str, atom: Digest, independent: bool) -> Change {
    let attestation =
        Attestation { verifier: text("score"), version: text("1"), receipt: Digest::of("r"), independent };
    let evidence = Pointer { atom, start_byte: 0, end_byte: 9 };
    Change::Assert { id: text(id), evidence, more_evidence: Vec::new(), attestation }
}

/// Registers with a hypothesis `h` and a promoted atom.
fn ready(impact: Impact) -> (Registers, Digest) {
    let atom = Digest::of("a transcript");
    let mut registers = Registers::default();
    let mut merge = |change: Change, token| registers.merge(Mood::Curious, &change, token).unwrap();
    merge(Change::Hypothesize(text("h"), hypothesis("Marcus holds", impact)), false);
    for event in [AtomEvent::Quarantine, AtomEvent::Propose] {
        merge(Change::Atom(atom, event), false);
    }
    merge(Change::Atom(atom, AtomEvent::Promote), true);
    (registers, atom)
}

#[test]
fn an_assertion_needs_its_mood_a_promoted_atom_and_where_much_depends_on_it_an_independent_verifier() {
    let (registers, atom) = ready(Impact::Low);
    let tried = |mood, change: &Change| registers.clone().merge(mood, change, false);
    assert!(tried(Mood::Skeptical, &assertion("h", atom, false)).is_ok());
    for mood in Mood::ALL.into_iter().filter(|mood| *mood != Mood::Skeptical) {
        let refused = tried(mood, &assertion("h", atom, true));
        assert!(matches!(refused, Err(MergeError::NotInThisMood { register: Register::Assert, .. })), "{mood}");
    }
    let other = Digest::of("rumour");
    assert_eq!(tried(Mood::Skeptical, &assertion("h", other, true)), Err(MergeError::NotPromoted { atom: other }));
    let (high, _) = ready(Impact::High);
    let refused = high.clone().merge(Mood::Skeptical, &assertion("h", atom, false), false);
    assert_eq!(refused, Err(MergeError::NotIndependent { id: text("h") }));
    assert!(high.clone().merge(Mood::Skeptical, &assertion("h", atom, true), false).is_ok());
    let promote = Change::Atom(other, AtomEvent::Promote);
    assert_eq!(registers.clone().merge(Mood::Skeptical, &promote, false), Err(MergeError::NoToken));
}

#[test]
fn a_retraction_demotes_what_cites_the_atom_and_a_challenge_sends_a_pending_one_back() {
    let (mut registers, atom) = ready(Impact::Low);
    registers.merge(Mood::Skeptical, &assertion("h", atom, true), false).unwrap();
    assert!(registers.hypothesize.is_empty());
    let merged = registers.merge(Mood::Calm, &Change::Atom(atom, AtomEvent::Retract), false).unwrap();
    assert_eq!(merged.demoted, [text("h")]);
    assert!(registers.assert.is_empty());
    assert_eq!(registers.hypothesize[&text("h")], hypothesis("Marcus holds", Impact::Low));
    let pending = Digest::of("pending");
    for event in [AtomEvent::Quarantine, AtomEvent::Propose] {
        registers.merge(Mood::Calm, &Change::Atom(pending, event), false).unwrap();
    }
    let evidence = Pointer { atom, start_byte: 0, end_byte: 1 };
    let challenge =
        Challenge { atom: pending, grounds: text("it is forged"), evidence, settled_by: text("the original") };
    registers.merge(Mood::Skeptical, &Change::Challenge(text("c"), challenge), false).unwrap();
    assert_eq!(registers.atoms[&pending].state, AtomState::Quarantined);
}

#[test]
fn a_claim_that_rests_on_unlikely_words_is_not_asserted_without_an_independent_check() {
    let (registers, atom) = ready(Impact::Low);
    let mut state = MoodState::begin(Mood::Skeptical);
    state.registers = registers;
    let doubt = Event::Regulated(Regulation::LowConfidence { claims: vec![text("h"), text("unknown")] });
    let doubted = step(&state, &doubt).state;
    let refused = step(&doubted, &Event::Changed(assertion("h", atom, false)));
    assert_eq!(refused.effects, [Effect::Refused(MergeError::Doubted { id: text("h") })]);
    let merged = step(&doubted, &Event::Changed(assertion("h", atom, true)));
    assert!(merged.state.registers.assert.contains_key(&text("h")));
}

#[test]
fn a_hypothesis_without_test_or_budget_cannot_be_read() {
    let good = serde_json::to_value(hypothesis("it holds", Impact::Low)).unwrap();
    let read = |value: serde_json::Value| serde_json::from_value::<Hypothesis>(value).is_ok();
    assert!(read(good.clone()));
    for (field, worse) in [("test", serde_json::json!(" ")), ("budget", serde_json::json!({"calls": 0, "tokens": 1}))] {
        let mut bad = good.clone();
        bad[field] = worse;
        assert!(!read(bad.clone()), "{field}");
        bad.as_object_mut().unwrap().remove(field);
        assert!(!read(bad), "{field}");
    }
}

#[test]
fn a_drive_is_versioned_and_a_severe_blind_spot_hardens_the_run() {
    let drive = |version| {
        Change::Drive(
            text("d"),
            Drive { priority: text("truth"), trade_off: text("speed"), anti_drive: text("praise"), version },
        )
    };
    let mut registers = Registers::default();
    assert!(registers.merge(Mood::Deferential, &drive(1), false).is_ok());
    assert_eq!(registers.merge(Mood::Deferential, &drive(3), false), Err(MergeError::Version { at: 1 }));
    assert!(registers.merge(Mood::Skeptical, &drive(2), false).is_err());
    let spot = |impact, bound: Option<&str>| Hyperthesis {
        blind_spot: text("who reads the transcripts"),
        why: Invisible::Permission,
        risk: text("they leak"),
        impact,
        bound: bound.map(text),
    };
    assert!(spot(Impact::High, None).is_severe());
    assert!(
        !spot(Impact::High, Some("they never leave this machine")).is_severe()
            && !spot(Impact::Medium, None).is_severe()
    );
    let calm = MoodState::begin(Mood::Calm);
    let change = Change::Hyperthesis(text("s"), spot(Impact::High, None));
    assert_eq!(step(&calm, &Event::Changed(change)).state.mood(), Mood::Paranoid);
}

#[test]
fn regulator_decisions_become_facts() {
    let check = |moods: &[Mood], regulation: &Regulation| {
        let mut state = MoodState::begin(Mood::Calm);
        for mood in moods {
            state = step(&state, &Event::Regulated(regulation.clone())).state;
            assert_eq!(state.mood(), *mood, "{regulation:?}");
        }
    };
    check(&[Mood::Deferential], &Regulation::CostCap);
    check(&[Mood::Skeptical, Mood::Curious], &Regulation::QualityDecline);
    check(&[Mood::Skeptical, Mood::Curious], &Regulation::RepeatedFailure);
    check(&[Mood::Skeptical, Mood::Skeptical], &Regulation::ScopeDrift);
    check(&[Mood::Calm], &Regulation::ProceduralWarning);
}

#[test]
fn a_heartbeat_that_is_overdue_or_from_the_future_is_stale() {
    use jiff::{SignedDuration, Timestamp};
    let at = |second| Timestamp::from_second(second).unwrap();
    let heartbeat = Heartbeat { last: at(100), every: SignedDuration::from_secs(30) };
    assert_eq!([99, 100, 130, 131].map(|now| heartbeat.is_stale(at(now))), [true, false, false, true]);
    let calm = MoodState::begin(Mood::Calm);
    let recovering = step(&calm, &Event::HeartbeatStale).state;
    assert_eq!(recovering.mood(), Mood::Contrite);
    assert_eq!(step(&recovering, &Event::Projected { consistent: true }).state.mood(), Mood::Calm);
    assert_eq!(step(&recovering, &Event::Projected { consistent: false }).state.mood(), Mood::Curious);
}

#[test]
fn the_shipped_profiles_are_what_the_spec_says() {
    let profiles = Profiles::shipped().unwrap();
    let uses = |mood: Mood, category| profiles.of(mood).rights().uses.contains(category);
    for mood in Mood::ALL {
        let profile = profiles.of(mood);
        assert!(profile.rights().uses.is_disjoint(Categories::PRIVILEGED));
        // Only PARANOID guards the way out; the network is CURIOUS's and BOLD's.
        assert_eq!(profile.with_token().is_empty(), mood != Mood::Paranoid);
        assert_eq!(uses(mood, Category::Network), matches!(mood, Mood::Curious | Mood::Bold), "{mood}");
        assert!(!uses(mood, Category::Ask) || profile.questions_max > 0, "{mood}");
    }
    assert!(profiles.of(Mood::Deferential).rights().writes.is_empty());
    assert!(profiles.of(Mood::Calm).rights().budget.within(&profiles.of(Mood::Bold).rights().budget));
    assert_eq!(profiles.of(Mood::Calm).tier_after(0), ModelTier::Small);
    assert_eq!(profiles.of(Mood::Calm).tier_after(9), ModelTier::Mid);
    assert_eq!(profiles.of(Mood::Paranoid).tier_after(9), ModelTier::Small);
}

#[test]
fn a_profile_may_narrow_and_not_widen_and_every_problem_has_its_place() {
    let calm = SHIPPED[0].1;
    let shipped = Profiles::shipped().unwrap();
    let narrow = calm.replace("uses: [read, write, exec,", "uses: [read,").replace("tokens: 2000000", "tokens: 1000");
    let narrowed = shipped.clone().narrowed("mine.yaml", &narrow).unwrap();
    assert!(!narrowed.of(Mood::Calm).rights().uses.contains(Category::Exec));
    let check = |from: &str, to: &str, message: &str, line: usize| {
        let changed = calm.replacen(from, to, 1);
        assert_ne!(changed, calm, "{from}");
        let errors = shipped.clone().narrowed("mine.yaml", &changed).unwrap_err();
        let problem = errors.problems().next().unwrap();
        assert!(problem.message.contains(message), "{}: {message}", problem.message);
        assert_eq!(errors.line_column(problem.span.start).0, line, "{message}");
    };
    check("uses: [read,", "uses: [network, read,", "goes beyond the CALM", 6);
    check("uses: [read,", "uses: [publish, read,", "never a mood's to use", 6);
    check("with_token: []", "with_token: [publish]", "goes beyond the CALM", 8);
    check("network: none", "network: granted", "goes beyond the CALM", 13);
    check("writes: [", "writes: [secrets, ", "goes beyond the CALM", 12);
    check("tokens: 2000000", "tokens: 2000001", "goes beyond the CALM", 30);
    check("no_copy: true", "no_copy: false", "goes beyond the CALM", 25);
    check("patch_receipt]", "]", "must leave the receipt `patch_receipt`", 42);
    check("purpose:", "purpos:", "`purpos` is not a known key", 4);
}

#[test]
fn the_tables_in_the_docs_are_the_tables_in_the_code() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/MOODS.md")).unwrap();
    for table in [guard_table(), matrix_table()] {
        assert!(page.contains(&table), "docs/MOODS.md should have:\n{table}");
    }
}

fn event() -> impl Strategy<Value = Event> {
    let id = prop::sample::select(vec!["a", "b"]).prop_map(text);
    let impact = prop::sample::select(vec![Impact::Low, Impact::High]);
    let privilege = || prop::sample::select(Privilege::ALL.to_vec());
    prop_oneof![
        Just(Event::Restarted),
        Just(Event::Projected { consistent: true }),
        Just(Event::Projected { consistent: false }),
        Just(Event::Suspected(Suspicion::Injection)),
        Just(Event::Disclosed),
        Just(Event::PreferenceMissing),
        Just(Event::PreferenceSet),
        Just(Event::TimedOut),
        privilege().prop_map(Event::Crossing),
        privilege().prop_map(Event::Approved),
        privilege().prop_map(Event::Crossed),
        Just(Event::VerifiersFailed),
        Just(Event::VerifiersPassed),
        any::<bool>().prop_map(|improved| Event::Iterated { improved }),
        Just(Event::EvidenceConflicts),
        Just(Event::RiskGrew),
        Just(Event::Ambiguous),
        Just(Event::NextClear),
        Just(Event::Mitigated),
        Just(Event::Widen),
        Just(Event::Regulated(Regulation::QualityDecline)),
        (id.clone(), impact).prop_map(|(id, impact)| Event::Changed(Change::Hypothesize(id, hypothesis("x", impact)))),
        (id, any::<bool>()).prop_map(|(id, alone)| Event::Changed(assertion(id.as_str(), Digest::of("x"), alone))),
        prop::sample::select(AtomEvent::ALL.to_vec())
            .prop_map(|event| Event::Changed(Change::Atom(Digest::of("x"), event))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A log of steps replays to the same states, and a changed one does not.
    #[test]
    fn replay_equals_live(events in prop::collection::vec(event(), 0..60), unaimed in any::<bool>(), cut in any::<prop::sample::Index>()) {
        let begun = if unaimed { Facts::of(&[Fact::Unaimed]) } else { Facts::NONE };
        let entered = MoodState::enter(begun);
        let mut entries = vec![(1, step_entry(None, begun, &entered))];
        let mut live = vec![entered.state];
        for (line, event) in (2..).zip(&events) {
            let after = step(live.last().unwrap(), event);
            entries.push((line, step_entry(Some(event), begun, &after)));
            live.push(after.state);
        }
        let replayed = replay(entries.iter().map(|(line, entry)| (*line, entry))).unwrap();
        let states: Vec<_> = replayed.into_iter().map(|step| step.state).collect();
        prop_assert_eq!(states, live);
        let at = cut.index(entries.len());
        entries[at].1 = Entry::new(entries[at].1.kind.clone(), {
            let mut body = entries[at].1.body.clone();
            body["facts"] = "made up".into();
            body
        });
        prop_assert!(replay(entries.iter().map(|(line, entry)| (*line, entry))).is_err());
    }

    /// Counters only shrink, and a run of changes of mood comes to its end.
    #[test]
    fn counters_never_grow(events in prop::collection::vec(event(), 1..200)) {
        let mut state = MoodState::begin(Mood::Calm);
        for event in &events {
            let after = step(&state, event);
            let before: u32 = Counter::ALL.iter().map(|(counter, _)| u32::from(state.left(*counter))).sum();
            let left: u32 = Counter::ALL.iter().map(|(counter, _)| u32::from(after.state.left(*counter))).sum();
            prop_assert_eq!(before - left, after.taken.len() as u32 - u32::from(after.state.halted() != state.halted()));
            state = after.state;
        }
    }

    /// What a text says changes no mood: only that there is one.
    #[test]
    fn another_text_with_the_same_facts_changes_no_transition(
        events in prop::collection::vec(event(), 0..30), one in "[a-z ]{0,30}x", other in "\\PC{0,30}x",
    ) {
        let said = |words: &str| {
            let mut state = MoodState::begin(Mood::Curious);
            let change = Change::Hypothesize(text("t"), hypothesis(words, Impact::Low));
            let demo = Change::Demo(text(words));
            let mut moods = Vec::new();
            for event in [Event::Changed(change), Event::Changed(demo)].iter().chain(&events) {
                let after = step(&state, event);
                moods.push((after.state.mood(), after.state.facts(), after.taken));
                state = after.state;
            }
            moods
        };
        prop_assert_eq!(said(&one), said(&other));
    }
}
