//! Fifteen attempts to exceed a mood's rights, each with the gate's refusal; the table is part of `docs/MOODS.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::foundation::base::Digest;
use crate::foundation::gate::{
    Budget, Categories, Category, Effect, EffectRequest, Gate, Hosts, LeaseId, LeaseTerms, Ledger, LedgerEntry,
    LedgerError, Principal, Refusal, Rights, Scope, Scopes,
};

struct Paper;

impl Ledger for Paper {
    fn record(&mut self, _: Timestamp, entries: &[LedgerEntry]) -> Result<Vec<Digest>, LedgerError> {
        Ok(entries.iter().map(|entry| Digest::of(&entry.kind)).collect())
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A session with the rights of all moods combined and one named host.
fn session(mood: Mood) -> (Gate<Paper>, LeaseId, MoodProfiles) {
    let profiles = MoodProfiles::shipped().unwrap();
    let all = Rights {
        uses: Categories::of(Category::ALL),
        delegates: Categories::of(&[Category::Read, Category::Model, Category::Score]),
        reads: Scopes::of(Scope::ALL),
        writes: Scopes::of(Scope::ALL),
        hosts: Hosts::only(["docs.example"]),
        model_hosts: Hosts::only(["models.example"]),
        budget: Budget { money_micros: 1_000, tokens: 50_000, wall_ms: 60_000, calls: 100, files: 3, diff_lines: 100 },
    };
    let terms = LeaseTerms { rights: all, expires: at(3_600), idle: SignedDuration::from_mins(10) };
    let (mut gate, lease) = Gate::open(Paper, Principal::new("run", "ann", mood.name()), terms, at(0)).unwrap();
    gate.enter(lease, mood.name(), profiles.of(mood).rights(), at(0)).unwrap();
    (gate, lease, profiles)
}

fn request(mood: Mood, effect: Effect) -> Result<(), Refusal> {
    let (mut gate, lease, _) = session(mood);
    gate.ask(&EffectRequest { lease, effect }, at(1)).map(|_| ())
}

#[test]
fn fifteen_attempts_to_exceed_a_moods_rights_are_denied() {
    let write = |scope| Effect::new(Category::Write, "src/lib.rs").writing(scope);
    let mut attempts: Vec<(&str, Result<(), Refusal>)> = vec![
        ("CALM fetches a page", request(Mood::Calm, Effect::new(Category::Network, "GET /").reaching("docs.example"))),
        ("CURIOUS changes the code", request(Mood::Curious, write(Scope::Workspace))),
        ("CURIOUS runs a command", request(Mood::Curious, Effect::new(Category::Exec, "make"))),
        (
            "CURIOUS fetches from a host that nobody named",
            request(Mood::Curious, Effect::new(Category::Network, "GET /").reaching("evil.example")),
        ),
        ("SKEPTICAL lets personas talk", request(Mood::Skeptical, Effect::new(Category::Rollout, "50 turns"))),
        (
            "PARANOID changes the code by a command",
            request(Mood::Paranoid, Effect::new(Category::Exec, "sed -i s/a/b/ x")),
        ),
        ("PARANOID publishes without a token", {
            request(Mood::Paranoid, Effect::new(Category::Publish, "report").reaching("docs.example"))
        }),
        (
            "CONTRITE calls a hosted model",
            request(Mood::Contrite, Effect::new(Category::Model, "prompt").reaching("models.example")),
        ),
        ("PETTY writes outside the tests", request(Mood::Petty, write(Scope::Workspace))),
        (
            "DEFERENTIAL reads the workspace",
            request(Mood::Deferential, Effect::new(Category::Read, "x").reading(Scope::Workspace)),
        ),
        (
            "BOLD spends more than the session has",
            request(
                Mood::Bold,
                Effect::new(Category::Model, "x").costing(Budget { money_micros: 1_001, ..Budget::NOTHING }),
            ),
        ),
    ];
    let (mut gate, lease, profiles) = session(Mood::Calm);
    let child = |rights| LeaseTerms { rights, expires: at(3_600), idle: SignedDuration::from_mins(10) };
    let wide = Rights { uses: Category::Exec.into(), ..Rights::NONE };
    attempts.push((
        "CALM gives a child the right to run commands",
        gate.lease(lease, Principal::new("run", "ann", "petty"), child(wide), at(1)).map(|_| ()),
    ));
    let read = Effect::new(Category::Read, "README.md").reading(Scope::Workspace);
    let permit = gate.ask(&EffectRequest { lease, effect: read }, at(1)).unwrap();
    let other = Effect::new(Category::Read, "/etc/passwd").reading(Scope::Workspace);
    attempts.push(("CALM uses a permit for another file", permit.spend(&other, at(1)).map(|_| ())));

    // A token for one text is used for another.
    let mut state = MoodState::begin(Mood::Paranoid);
    state = step(&state, &MoodEvent::Crossing(Privilege::Publish)).state;
    state = step(&state, &MoodEvent::Approved(Privilege::Publish)).state;
    let crossed = step(&state, &MoodEvent::VerifiersPassed);
    assert_eq!(crossed.effects, [super::MoodEffect::Cross(Privilege::Publish)]);
    gate.enter(lease, "paranoid", &crossed.state.rights(&profiles), at(2)).unwrap();
    let publish = |text: &str| Effect::new(Category::Publish, text).reaching("docs.example");
    gate.approve(lease, (Category::Publish, publish("the report").arguments()), "ann", at(100), at(2)).unwrap();
    let mut ask = |effect| gate.ask(&EffectRequest { lease, effect }, at(3)).map(|_| ());
    attempts.push(("PARANOID publishes another text than was approved", ask(publish("the report and the key"))));
    assert_eq!(ask(publish("the report")), Ok(()));
    attempts.push(("PARANOID publishes the approved text twice", ask(publish("the report"))));

    assert_eq!(attempts.len(), 15);
    let mut table = String::from("| # | Attempt | Refusal |\n|---|---|---|\n");
    for (number, (attempt, answer)) in (1..).zip(&attempts) {
        let refusal = answer.as_ref().expect_err(attempt);
        writeln!(table, "| {number} | {attempt} | {refusal} |").unwrap();
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/MOODS.md")).unwrap();
    assert!(page.contains(&table), "docs/MOODS.md should have:\n{table}");
}
