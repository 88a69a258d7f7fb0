//! Measures how well the regulator separates drifting replies from good ones.
//!
//! ```text
//! cargo run --release --no-default-features --example regulator_drift -- PAIRS [PAIRS…]
//! ```
//!
//! PAIRS is a text file of pairs `Instruction: …`, `Response: …`, separated by blank lines. Every reply with at least five
//! sentences is used in two trials, reported separately for the half of the pairs on which the thresholds were chosen
//! (SHA-256 of the instruction begins with an even byte) and the held-out half:
//!
//! - *swap*: the reply against another pair's instruction;
//! - *splice*: three consecutive sentences of another reply inserted at a random position.
//!
//! It prints the false positive rate at 95 % recall and the area under the ROC curve, both of the score, and the rates at the
//! default threshold.

use std::process::ExitCode;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::stats::auroc;
use loom_agent::governance::regulator::{Decision, LlmEvent, Regulator};
use sha2::{Digest as _, Sha256};

/// Number of swaps per instruction and of splices per reply.
const SWAPS: u64 = 4;
const SPLICES: u64 = 2;

struct Pair {
    instruction: String,
    sentences: Vec<String>,
}

fn pairs(text: &str) -> Vec<Pair> {
    text.split("\n\n")
        .filter_map(|block| {
            let (instruction, response) = block.strip_prefix("Instruction: ")?.split_once("\nResponse: ")?;
            let sentences: Vec<_> = sentences(response);
            (sentences.len() >= 5).then(|| Pair { instruction: instruction.to_owned(), sentences })
        })
        .collect()
}

fn sentences(text: &str) -> Vec<String> {
    text.split_inclusive(['.', '!', '?', '\n'])
        .map(str::trim)
        .filter(|sentence| sentence.len() > 2)
        .map(str::to_owned)
        .collect()
}

/// The score of a reply and whether it raises a warning; `None` if it is not judged.
fn judge(instruction: &str, reply: &str) -> Option<(f64, bool)> {
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart { user_message: instruction });
    regulator.on_event(LlmEvent::TurnComplete { full_response: reply, finish: None });
    let warned = regulator.decide().iter().any(|ruling| matches!(ruling.decision, Decision::ScopeDriftWarn { .. }));
    Some((regulator.turn_stats().drift_score?, warned))
}

fn report(name: &str, good: &[(f64, bool)], drifting: &[(f64, bool)]) {
    let mut scores: Vec<_> = drifting.iter().map(|(score, _)| *score).collect();
    scores.sort_by(f64::total_cmp);
    let level = scores.get(scores.len() / 20).copied().unwrap_or(1.0);
    let share = |part: usize, all: usize| 100.0 * part as f64 / all.max(1) as f64;
    let false_warnings = share(good.iter().filter(|(score, _)| *score >= level).count(), good.len());
    let warned = |of: &[(f64, bool)]| share(of.iter().filter(|(_, warned)| *warned).count(), of.len());
    let labelled =
        good.iter().map(|(score, _)| (*score, false)).chain(drifting.iter().map(|(score, _)| (*score, true)));
    println!(
        "{name}: {} good, {} drifting; AUROC {:.3}; false warnings at 95 % detection {false_warnings:.1} %; as shipped: {:.1} % \
         of the good and {:.1} % of the drifting are warned of",
        good.len(),
        drifting.len(),
        auroc(labelled).unwrap_or(f64::NAN),
        warned(good),
        warned(drifting),
    );
}

/// Whether the pair is in the half on which the thresholds were chosen.
fn chosen_on(pair: &Pair) -> bool {
    Sha256::digest(&pair.instruction).first().is_some_and(|byte| byte % 2 == 0)
}

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let mut text = String::new();
    for file in &files {
        match std::fs::read_to_string(file) {
            Ok(more) => text = text + &more + "\n\n",
            Err(error) => {
                eprintln!("{file}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let pairs = pairs(&text);
    if pairs.len() < 2 {
        eprintln!("at least two pairs are needed: regulator_drift PAIRS, a file of `Instruction: …` and `Response: …`");
        return ExitCode::FAILURE;
    }
    let (chosen, held_back): (Vec<_>, Vec<_>) = pairs.into_iter().partition(chosen_on);
    for (half, pairs) in [("chosen on", chosen), ("held back", held_back)] {
        trials(half, &pairs);
    }
    ExitCode::SUCCESS
}

fn trials(half: &str, pairs: &[Pair]) {
    let stream = RngStream::root(1);
    let (mut good, mut swapped, mut spliced) = (Vec::new(), Vec::new(), Vec::new());
    for (pair, at) in pairs.iter().zip(0u64..) {
        good.extend(judge(&pair.instruction, &pair.sentences.join(" ")));
        for draw in 0..SWAPS {
            let draws = stream.child("swap", at).child("draw", draw);
            let Some(other) = other(pairs, at, &draws) else { continue };
            swapped.extend(judge(&pair.instruction, &other.sentences.join(" ")));
        }
        for draw in 0..SPLICES {
            let draws = stream.child("splice", at).child("draw", draw);
            let Some(other) = other(pairs, at, &draws) else { continue };
            let place = draws.child("place", 0);
            let from = place.index(0, other.sentences.len() - 2);
            let to = place.index(1, pair.sentences.len() + 1);
            let foreign = other.sentences.iter().skip(from).take(3);
            let reply: Vec<_> =
                pair.sentences.iter().take(to).chain(foreign).chain(pair.sentences.iter().skip(to)).cloned().collect();
            spliced.extend(judge(&pair.instruction, &reply.join(" ")));
        }
    }
    report(&format!("{half}: swap"), &good, &swapped);
    report(&format!("{half}: splice"), &good, &spliced);
}

/// A random pair other than the one at `at`.
fn other<'a>(pairs: &'a [Pair], at: u64, draws: &RngStream) -> Option<&'a Pair> {
    let step = 1 + draws.index(0, pairs.len() - 1);
    pairs.iter().cycle().nth(at as usize + step)
}
