//! Measured scores on conversations small enough to count by hand.

use serde_json::{Value, json};

use super::*;
use crate::governance::regulator::TurnStats;

/// A complete rollout with the messages `pairs` (persona, interlocutor); an empty text is a failed reply.
pub(crate) fn transcript(pairs: &[(&str, &str)]) -> Transcript {
    let said = |speaker: &str, text: &str| -> Value {
        let failure = text.is_empty().then(|| json!({"why": "the model gave an empty reply twice"}));
        json!({
            "speaker": speaker, "content": if text.is_empty() { "…" } else { text }, "fallbacks": [],
            "model": failure.is_none().then_some("scripted:talk.txt"), "failure": failure, "attempt": 0, "attempts": [],
            "usage": {"tokens_in": 9, "tokens_out": 3}, "tokens": {"count": 0},
            "regulator": {"reading": TurnStats::default(), "decisions": [{"decision": "continue"}]},
            "timing": {"seconds": 0.5, "tokens_cached": 0},
        })
    };
    let turns: Vec<Value> = pairs
        .iter()
        .enumerate()
        .map(|(index, (persona, interlocutor))| {
            json!({
                "index": index, "progress": 0.0, "intensities": [], "injected": [], "slides": [], "monitor_events": [],
                "prompt": {"injection": "none", "digest": "0".repeat(64), "template_version": 1, "dropped": []},
                "persona": said("persona", persona), "interlocutor": said("interlocutor", interlocutor),
                "timing": {"seconds": 1.0},
            })
        })
        .collect();
    let model = json!({
        "spec": "scripted:talk.txt",
        "info": {"name": "scripted:talk.txt", "logprobs": false, "delta": false}, "sampling": {},
    });
    serde_json::from_value(json!({
        "format": "loom-transcript", "version": 1, "loom": "0.1.0", "created_at": "2026-11-21T00:00:00Z",
        "config": {"source": "p.yaml", "digest": "0".repeat(64), "name": "Ana"},
        "run": {"seed": 1, "rollout": 0, "turns_planned": pairs.len(), "adversary": "none"},
        "models": {"persona": model, "interlocutor": model},
        "opening": {"first_speaker": "persona", "interlocutor_prompt": "", "placement": "append"},
        "turns": turns, "outcome": {"status": "complete"},
        "totals": {
            "turns": pairs.len(), "persona": {"tokens_in": 0, "tokens_out": 0},
            "interlocutor": {"tokens_in": 0, "tokens_out": 0}, "retries": 0, "monitor_events": 0, "failures": 0,
            "refusals": 0, "fallbacks": 0, "timing": {"seconds": 1.0},
        },
    }))
    .expect("the fixture is a transcript")
}

fn score(measured: &Measured, id: &str) -> MeasuredScore {
    measured.scores.iter().find(|score| score.id == id).unwrap_or_else(|| panic!("no {id}")).clone()
}

#[track_caller]
fn check(pairs: &[(&str, &str)], id: &str, expected: f64) {
    let score = score(&measure(&transcript(pairs)), id);
    let value = score.value.unwrap_or_else(|| panic!("{score:?}"));
    assert!((value - expected).abs() < 1e-12, "{id}: {value}, not {expected}");
    assert_eq!(score.missing, None);
}

#[test]
fn lexical_scores_match_hand_counts() {
    let pairs =
        [("I saw the grey van.", ""), ("You\u{2019}re right. I saw the grey van?", ""), ("Listen to the wire!", "")];
    // 5 + 7 + 4 words; i saw the grey van you're right listen to wire.
    check(&pairs, "words_per_message/1", 16.0 / 3.0);
    check(&pairs, "distinct_1/1", 10.0 / 16.0);
    // Of 2 + 4 + 1 four-grams, `i saw the grey` and `saw the grey van` stand in two messages.
    check(&pairs, "self_repetition_4/1", 4.0 / 7.0);
    check(&pairs, "opening_variety/1", 1.0);
    // Two end in "grey van", but one of them asks.
    check(&pairs, "ending_variety/1", 1.0);
    check(&pairs, "question_endings/1", 1.0 / 3.0);
    check(&pairs, "agreement/1", 1.0 / 3.0);
}

#[test]
fn compression_and_structural_diversity_match_references() {
    // In Python: len(zlib.compress(text, 6)) == 225; two compressors may differ by a few bytes.
    let lines: Vec<String> = (0..40).map(|i| format!("line {i} has {} commits and {} vans. ", i * i, i % 7)).collect();
    let text = lines.concat();
    let measured = measure(&transcript(&[(&text[..1001], "")]));
    let ratio = score(&measured, "compression_window_1000/1").value.unwrap();
    assert!((ratio / (1000.0 / 225.0) - 1.0).abs() < 0.03, "{ratio}");
    let short = score(&measure(&transcript(&[(&text[..900], "")])), "compression_window_1000/1");
    assert_eq!((short.value, short.missing.as_deref()), (None, Some("less than 1000 bytes of text")));
    // Statement, question | statement, question | statement: distances 0, 1/2 and 1/2.
    let pairs = [("It rains. Does it?", ""), ("The van left. Why?", ""), ("I sleep.", "")];
    check(&pairs, "structural_diversity/1", 1.0 / 3.0);
}

#[test]
fn initiative_counts_who_used_a_word_first() {
    let pairs = [("patterns commits", "sleep medication"), ("sleep hashes", "hashes"), ("hashes medication", "")];
    // Introduced: patterns, commits, hashes; picked up: sleep, medication.
    check(&pairs, "initiative/1", 3.0 / 5.0);
    // Both words of the second message are new, and one of two in the third.
    check(&pairs, "novelty/1", 0.75);
}

#[test]
fn convergence_compares_with_the_message_that_is_answered() {
    let measured = measure(&transcript(&[("red van", "blue door"), ("blue door", "green tree"), ("grey sea", "")]));
    let convergence: Vec<Option<f64>> = measured.turns.iter().map(|turn| turn.convergence).collect();
    assert_eq!(convergence.first(), Some(&None));
    assert!((convergence[1].unwrap() - 1.0).abs() < 1e-12);
    assert!(convergence[2].unwrap().abs() < 1e-12);
    check(&[("red van", "blue door"), ("blue door", "green tree"), ("grey sea", "")], "convergence/1", 0.5);
}

#[test]
fn a_loop_is_a_standstill_and_varied_messages_are_none() {
    let talk = ["grey van", "cold coffee", "three commits", "night shift", "old radio", "thin walls"]
        .map(|said| (said, "go on"));
    assert_eq!(measure(&transcript(&talk)).standstills, []);
    check(&talk, "standstill/1", 0.0);

    let mut looping = talk.to_vec();
    looping.extend([("log everything, bring results", "good"); 8]);
    let standstills = measure(&transcript(&looping)).standstills;
    // From turn 6 on every message is the same, so the window of turns 7–12 contains nothing new.
    assert_eq!(standstills.len(), 1);
    assert_eq!(standstills[0].last, 13);
    assert!(standstills[0].similarity > 0.99 && standstills[0].novelty == Some(0.0), "{standstills:?}");
}

#[test]
fn a_missing_value_has_a_reason() {
    let measured = measure(&transcript(&[("", "hello"), ("", "")]));
    assert!(measured.scores.iter().all(|score| score.value.is_none() && score.missing.is_some()), "{measured:#?}");
    assert!(measured.turns.is_empty());
    let short = measure(&transcript(&[("One.", "")]));
    assert_eq!(score(&short, "mattr_50/1").missing.as_deref(), Some("1 words: at least 50 are needed"));
    assert_eq!(score(&short, "opening_variety/1").value, None);
    assert_eq!(score(&short, "words_per_message/1").value, Some(1.0));
}

#[test]
fn every_score_is_defined_in_the_docs() {
    let docs = include_str!("../../../../docs/SCORES.md");
    let measured = measure(&transcript(&[("One.", "Two.")]));
    for score in measured.scores {
        assert!(docs.contains(&format!("`{}`", score.id)), "{} is not defined", score.id);
    }
}
