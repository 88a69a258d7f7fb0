//! Properties of the machine, the registers and the profiles.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::guards::guard_table;
use super::register_access::matrix_table;
use super::*;
use crate::foundation::base::Digest;
use crate::foundation::gate::{Categories, Category, LedgerEntry};

fn text(text: &str) -> EntryText {
    text.try_into().unwrap()
}

fn hypothesis(claim: &str, impact: ImpactLevel) -> Hypothesis {
    Hypothesis {
        claim: text(claim),
        scope: text("the bundled model"),
        test: text("fifty turns, scored twice"),
        budget: TestBudget { calls: 100.try_into().unwrap(), tokens: 10_000 },
        promotion_rule: text("both scores agree"),
        impact,
    }
}

fn assertion(id: &str, atom: Digest, independent: bool) -> RegisterChange {
    let attestation =
        Attestation { verifier: text("score"), version: text("1"), receipt: Digest::of("r"), independent };
    let evidence = EvidencePointer { atom, start_byte: 0, end_byte: 9 };
    RegisterChange::Assert { id: text(id), evidence, more_evidence: Vec::new(), attestation }
}

/// Registers with a hypothesis `h` and a promoted atom.
fn ready(impact: ImpactLevel) -> (Registers, Digest) {
    let atom = Digest::of("a transcript");
    let mut registers = Registers::default();
    let mut merge = |change: RegisterChange, token| registers.merge(Mood::Curious, &change, token).unwrap();
    merge(RegisterChange::Hypothesize(text("h"), hypothesis("Marcus holds", impact)), false);
    for event in [AtomEvent::Quarantine, AtomEvent::Propose] {
        merge(RegisterChange::Atom(atom, event), false);
    }
    merge(RegisterChange::Atom(atom, AtomEvent::Promote), true);
    (registers, atom)
}

#[test]
fn an_assertion_needs_skeptical_a_promoted_atom_and_for_high_impact_an_independent_verifier() {
    let (registers, atom) = ready(ImpactLevel::Low);
    let tried = |mood, change: &RegisterChange| registers.clone().merge(mood, change, false);
    assert!(tried(Mood::Skeptical, &assertion("h", atom, false)).is_ok());
    for mood in Mood::ALL.into_iter().filter(|mood| *mood != Mood::Skeptical) {
        let refused = tried(mood, &assertion("h", atom, true));
        assert!(matches!(refused, Err(MergeError::NotInThisMood { register: Register::Assert, .. })), "{mood}");
    }
    let other = Digest::of("rumour");
    assert_eq!(tried(Mood::Skeptical, &assertion("h", other, true)), Err(MergeError::NotPromoted { atom: other }));
    let (high, _) = ready(ImpactLevel::High);
    let refused = high.clone().merge(Mood::Skeptical, &assertion("h", atom, false), false);
    assert_eq!(refused, Err(MergeError::NotIndependent { id: text("h") }));
    assert!(high.clone().merge(Mood::Skeptical, &assertion("h", atom, true), false).is_ok());
    let promote = RegisterChange::Atom(other, AtomEvent::Promote);
    assert_eq!(registers.clone().merge(Mood::Skeptical, &promote, false), Err(MergeError::NoToken));
}

#[test]
fn a_retraction_demotes_citing_assertions_and_a_challenge_quarantines_a_pending_atom() {
    let (mut registers, atom) = ready(ImpactLevel::Low);
    registers.merge(Mood::Skeptical, &assertion("h", atom, true), false).unwrap();
    assert!(registers.hypothesize.is_empty());
    let merged = registers.merge(Mood::Calm, &RegisterChange::Atom(atom, AtomEvent::Retract), false).unwrap();
    assert_eq!(merged.demoted, [text("h")]);
    assert!(registers.assert.is_empty());
    assert_eq!(registers.hypothesize[&text("h")], hypothesis("Marcus holds", ImpactLevel::Low));
    let pending = Digest::of("pending");
    for event in [AtomEvent::Quarantine, AtomEvent::Propose] {
        registers.merge(Mood::Calm, &RegisterChange::Atom(pending, event), false).unwrap();
    }
    let evidence = EvidencePointer { atom, start_byte: 0, end_byte: 1 };
    let challenge =
        Challenge { atom: pending, grounds: text("it is forged"), evidence, settled_by: text("the original") };
    registers.merge(Mood::Skeptical, &RegisterChange::Challenge(text("c"), challenge), false).unwrap();
    assert_eq!(registers.atoms[&pending].state, AtomState::Quarantined);
}

#[test]
fn a_claim_based_on_unlikely_words_needs_an_independent_check() {
    let (registers, atom) = ready(ImpactLevel::Low);
    let mut state = MoodState::begin(Mood::Skeptical);
    state.registers = registers;
    let doubt = MoodEvent::Regulated(RegulatorSignal::LowConfidence { claims: vec![text("h"), text("unknown")] });
    let doubted = step(&state, &doubt).state;
    let refused = step(&doubted, &MoodEvent::Changed(assertion("h", atom, false)));
    assert_eq!(refused.effects, [MoodEffect::Refused(MergeError::Doubted { id: text("h") })]);
    let merged = step(&doubted, &MoodEvent::Changed(assertion("h", atom, true)));
    assert!(merged.state.registers.assert.contains_key(&text("h")));
}

#[test]
fn a_hypothesis_without_test_or_budget_is_rejected() {
    let good = serde_json::to_value(hypothesis("it holds", ImpactLevel::Low)).unwrap();
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
fn drives_are_versioned_and_a_severe_blind_spot_leads_to_paranoid() {
    let drive = |version| {
        RegisterChange::Drive(
            text("d"),
            Drive { priority: text("truth"), trade_off: text("speed"), anti_drive: text("praise"), version },
        )
    };
    let mut registers = Registers::default();
    assert!(registers.merge(Mood::Deferential, &drive(1), false).is_ok());
    assert_eq!(registers.merge(Mood::Deferential, &drive(3), false), Err(MergeError::Version { at: 1 }));
    assert!(registers.merge(Mood::Skeptical, &drive(2), false).is_err());
    let spot = |impact, bound: Option<&str>| BlindSpot {
        blind_spot: text("who reads the transcripts"),
        why: BlindSpotCause::Permission,
        risk: text("they leak"),
        impact,
        bound: bound.map(text),
    };
    assert!(spot(ImpactLevel::High, None).is_severe());
    assert!(
        !spot(ImpactLevel::High, Some("they never leave this machine")).is_severe()
            && !spot(ImpactLevel::Medium, None).is_severe()
    );
    let calm = MoodState::begin(Mood::Calm);
    let change = RegisterChange::BlindSpot(text("s"), spot(ImpactLevel::High, None));
    assert_eq!(step(&calm, &MoodEvent::Changed(change)).state.mood(), Mood::Paranoid);
}

#[test]
fn regulator_decisions_become_facts() {
    let check = |moods: &[Mood], regulation: &RegulatorSignal| {
        let mut state = MoodState::begin(Mood::Calm);
        for mood in moods {
            state = step(&state, &MoodEvent::Regulated(regulation.clone())).state;
            assert_eq!(state.mood(), *mood, "{regulation:?}");
        }
    };
    check(&[Mood::Deferential], &RegulatorSignal::CostCap);
    check(&[Mood::Skeptical, Mood::Curious], &RegulatorSignal::QualityDecline);
    check(&[Mood::Skeptical, Mood::Curious], &RegulatorSignal::RepeatedFailure);
    check(&[Mood::Skeptical, Mood::Skeptical], &RegulatorSignal::ScopeDrift);
    check(&[Mood::Calm], &RegulatorSignal::ProceduralWarning);
}

#[test]
fn a_heartbeat_that_is_overdue_or_from_the_future_is_stale() {
    use jiff::{SignedDuration, Timestamp};
    let at = |second| Timestamp::from_second(second).unwrap();
    let heartbeat = Heartbeat { last: at(100), every: SignedDuration::from_secs(30) };
    assert_eq!([99, 100, 130, 131].map(|now| heartbeat.is_stale(at(now))), [true, false, false, true]);
    let calm = MoodState::begin(Mood::Calm);
    let recovering = step(&calm, &MoodEvent::HeartbeatStale).state;
    assert_eq!(recovering.mood(), Mood::Contrite);
    assert_eq!(step(&recovering, &MoodEvent::Projected { consistent: true }).state.mood(), Mood::Calm);
    assert_eq!(step(&recovering, &MoodEvent::Projected { consistent: false }).state.mood(), Mood::Curious);
}

#[test]
fn the_shipped_profiles_match_the_specification() {
    let profiles = MoodProfiles::shipped().unwrap();
    let uses = |mood: Mood, category| profiles.of(mood).rights().uses.contains(category);
    for mood in Mood::ALL {
        let profile = profiles.of(mood);
        assert!(profile.rights().uses.is_disjoint(Categories::PRIVILEGED));
        // Only PARANOID accepts policy tokens; only CURIOUS and BOLD use the network.
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
fn a_profile_may_only_narrow_and_problems_are_located() {
    let calm = SHIPPED_PROFILES[0].1;
    let shipped = MoodProfiles::shipped().unwrap();
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
fn the_tables_in_the_docs_match_the_code() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/MOODS.md")).unwrap();
    for table in [guard_table(), matrix_table()] {
        assert!(page.contains(&table), "docs/MOODS.md should have:\n{table}");
    }
}

fn event() -> impl Strategy<Value = MoodEvent> {
    let id = prop::sample::select(vec!["a", "b"]).prop_map(text);
    let impact = prop::sample::select(vec![ImpactLevel::Low, ImpactLevel::High]);
    let privilege = || prop::sample::select(Privilege::ALL.to_vec());
    prop_oneof![
        Just(MoodEvent::Restarted),
        Just(MoodEvent::Projected { consistent: true }),
        Just(MoodEvent::Projected { consistent: false }),
        Just(MoodEvent::Suspected(Suspicion::Injection)),
        Just(MoodEvent::Disclosed),
        Just(MoodEvent::PreferenceMissing),
        Just(MoodEvent::PreferenceSet),
        Just(MoodEvent::TimedOut),
        privilege().prop_map(MoodEvent::Crossing),
        privilege().prop_map(MoodEvent::Approved),
        privilege().prop_map(MoodEvent::Crossed),
        Just(MoodEvent::VerifiersFailed),
        Just(MoodEvent::VerifiersPassed),
        any::<bool>().prop_map(|improved| MoodEvent::Iterated { improved }),
        Just(MoodEvent::EvidenceConflicts),
        Just(MoodEvent::RiskGrew),
        Just(MoodEvent::Ambiguous),
        Just(MoodEvent::NextClear),
        Just(MoodEvent::Mitigated),
        Just(MoodEvent::Widen),
        Just(MoodEvent::Regulated(RegulatorSignal::QualityDecline)),
        (id.clone(), impact)
            .prop_map(|(id, impact)| MoodEvent::Changed(RegisterChange::Hypothesize(id, hypothesis("x", impact)))),
        (id, any::<bool>()).prop_map(|(id, alone)| MoodEvent::Changed(assertion(id.as_str(), Digest::of("x"), alone))),
        prop::sample::select(AtomEvent::ALL.to_vec())
            .prop_map(|event| MoodEvent::Changed(RegisterChange::Atom(Digest::of("x"), event))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// A log of steps replays to the same states, and an altered one does not.
    #[test]
    fn replay_equals_live(events in prop::collection::vec(event(), 0..60), unaimed in any::<bool>(), cut in any::<prop::sample::Index>()) {
        let begun = if unaimed { MoodFacts::of(&[MoodFact::Unaimed]) } else { MoodFacts::NONE };
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
        entries[at].1 = LedgerEntry::new(entries[at].1.kind.clone(), {
            let mut body = entries[at].1.body.clone();
            body["facts"] = "made up".into();
            body
        });
        prop_assert!(replay(entries.iter().map(|(line, entry)| (*line, entry))).is_err());
    }

    /// Counters never grow, so sequences of mood changes end.
    #[test]
    fn counters_never_grow(events in prop::collection::vec(event(), 1..200)) {
        let mut state = MoodState::begin(Mood::Calm);
        for event in &events {
            let after = step(&state, event);
            let before: u32 = TransitionCounter::ALL.iter().map(|(counter, _)| u32::from(state.left(*counter))).sum();
            let left: u32 = TransitionCounter::ALL.iter().map(|(counter, _)| u32::from(after.state.left(*counter))).sum();
            prop_assert_eq!(before - left, after.taken.len() as u32 - u32::from(after.state.halted() != state.halted()));
            state = after.state;
        }
    }

    /// The content of a text changes no mood.
    #[test]
    fn texts_with_the_same_facts_lead_to_the_same_transitions(
        events in prop::collection::vec(event(), 0..30), one in "[a-z ]{0,30}x", other in "\\PC{0,30}x",
    ) {
        let transitions = |words: &str| {
            let mut state = MoodState::begin(Mood::Curious);
            let change = RegisterChange::Hypothesize(text("t"), hypothesis(words, ImpactLevel::Low));
            let demo = RegisterChange::Demo(text(words));
            let mut moods = Vec::new();
            for event in [MoodEvent::Changed(change), MoodEvent::Changed(demo)].iter().chain(&events) {
                let after = step(&state, event);
                moods.push((after.state.mood(), after.state.facts(), after.taken));
                state = after.state;
            }
            moods
        };
        prop_assert_eq!(transitions(&one), transitions(&other));
    }
}
