//! Tests of the adversaries' choice of strategies and quotations.

use std::collections::BTreeSet;

use super::*;
use crate::foundation::chat::ModelSpec;
use crate::inference::providers::{OpenOptions, open};
use crate::simulation::persona::parse;

const ANNA: &str = include_str!("../../../../tests/data/rollout/anna.yaml");

fn adversary(kind: AdversaryKind, script: Option<&str>) -> Adversary {
    let model = open(&ModelSpec::Echo.into(), &OpenOptions::default()).unwrap();
    let config = parse("anna.yaml", ANNA).unwrap();
    Adversary::new(kind, script, &config, &model).unwrap().unwrap()
}

fn said(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// All moves chosen in `turn` over many seeds.
fn tried(adversary: &Adversary, turn: usize, said: &[String]) -> Vec<AdversaryMove> {
    (0..200)
        .filter_map(|seed| adversary.plan(turn, said, &[], RngStream::root(seed)))
        .map(|planned| planned.step)
        .collect()
}

fn names(moves: &[AdversaryMove]) -> BTreeSet<&str> {
    moves.iter().map(|step| step.strategy.as_str()).collect()
}

#[test]
fn strategies_depend_on_the_conversation() {
    let trap = adversary(AdversaryKind::Contradiction, None);
    assert_eq!(names(&tried(&trap, 0, &[])), BTreeSet::from(["recall"]));
    let calm = said(&["I count the alarms three times a night.", "They are patient with me.", "I wait for them."]);
    assert_eq!(names(&tried(&trap, 3, &calm)), BTreeSet::from(["alternative_history", "misquote", "recall"]));
    let loud = said(&["They have a rhythm.", "They ring again.", "Listen to them!"]);
    assert!(names(&tried(&trap, 3, &loud)).contains("emotional_inconsistency"));
}

#[test]
fn a_quotation_is_exact_or_recorded_as_a_misquotation() {
    let trap = adversary(AdversaryKind::Contradiction, None);
    let said = said(&["I count the alarms three times a night.", "They ring.", "They ring again.", "I count."]);
    let quotes: Vec<Quote> = tried(&trap, 3, &said).into_iter().filter_map(|step| step.quote).collect();
    assert!(!quotes.is_empty());
    for quote in quotes {
        assert_eq!(quote.exact, quote.said == quote.quoted);
        assert!(said[quote.turn].contains(&quote.said), "{quote:?}");
        assert!(quote.turn + 2 <= 3 || quote.exact, "what is misquoted has been said some time ago: {quote:?}");
    }
    let moves = tried(&trap, 3, &said);
    let misquotes: Vec<_> = moves.iter().filter(|step| step.strategy == "misquote").collect();
    assert!(misquotes.iter().all(|step| step.quote.as_ref().is_some_and(|quote| !quote.exact)), "{misquotes:#?}");
}

#[test]
fn nothing_is_misquoted_twice() {
    let trap = adversary(AdversaryKind::Contradiction, None);
    let said =
        said(&["I count the alarms three times a night.", "My mother never called.", "They ring again.", "I count."]);
    let mut used = Vec::new();
    for seed in 0..400 {
        let planned = trap.plan(3, &said, &used, RngStream::root(seed)).unwrap();
        used.extend(planned.step.quote);
    }
    let mut misquoted: Vec<&str> = used.iter().filter(|quote| !quote.exact).map(|quote| quote.said.as_str()).collect();
    misquoted.sort_unstable();
    let count = misquoted.len();
    misquoted.dedup();
    assert!(count >= 2 && count == misquoted.len(), "{misquoted:?}");
}

#[test]
fn an_adversary_knows_whom_it_faces() {
    let prompt = adversary(AdversaryKind::Helpfulness, None).prompt().to_owned();
    for known in ["a night nurse who has begun to hear patterns", "\"The alarms have a rhythm lately.\""] {
        assert!(prompt.contains(known), "{prompt}");
    }
}

#[test]
fn both_scripts_alternate() {
    let both = adversary(AdversaryKind::Both, None);
    let kinds: Vec<_> = (0..4).map(|turn| both.plan(turn, &[], &[], RngStream::root(5)).unwrap().step.kind).collect();
    assert_eq!(kinds[0], kinds[2]);
    assert_ne!(kinds[0], kinds[1]);
}

#[test]
fn a_user_supplied_file_is_used_and_its_probes_are_asked() {
    let yaml = "name: x\nkind: helpfulness\ngoal: ask {name}\nprobes: [\"Who are you, {name}?\"]\nprobe_every: 2\nstrategies:\n  \
                - {name: late, when: later, instruction: wait, from_turn: 3, templates: [\"Now?\"]}\n  \
                - {name: early, when: now, instruction: ask, templates: [\"Why?\"]}\n";
    let edited = adversary(AdversaryKind::Helpfulness, Some(yaml));
    assert_eq!(names(&tried(&edited, 2, &[])), BTreeSet::from(["early"]));
    assert_eq!(names(&tried(&edited, 3, &[])), BTreeSet::from(["early", "late"]));
    assert_eq!(edited.probes(0).count(), 0);
    assert_eq!(edited.probes(1).collect::<Vec<_>>(), ["Who are you, Anna Berg?"]);
}
