//! Golden prompts: the prompts of a persona's model, turn by turn, in the full form and within the bundled model's budget.

use std::fmt::Write as _;
use std::sync::Arc;

use loom_agent::simulation::persona::{Assembler, PersonaConfig, PromptBudget, TurnInput, examples, parse};
use tokenizers::Tokenizer;

fn config(name: &str) -> Arc<PersonaConfig> {
    let example = examples().iter().find(|example| example.name == name).unwrap();
    Arc::new(parse(example.path, example.yaml).unwrap())
}

fn bundled_budget(tokens_max: usize) -> PromptBudget {
    let tokenizer = Tokenizer::from_bytes(include_bytes!("../../models/bundled/tokenizer.json")).unwrap();
    PromptBudget { tokens_max, count: Arc::new(move |text| tokenizer.encode(text, false).unwrap().len()) }
}

/// The opening of a run, what is given at its turns, what was left out, and a redraft's instruction at the last.
fn golden(name: &str, turns: usize, budget: Option<PromptBudget>, shown: &[usize]) -> String {
    let assembler = Assembler::new(config(name), turns, budget).unwrap();
    let mut out = String::new();
    for &turn in shown {
        let situation = TurnInput::new(turn, &[]);
        let plan = assembler.plan(&situation);
        let phase = plan.phase.as_deref().unwrap_or("none");
        if turn == 0 {
            writeln!(out, "======== opening\n{}\n", plan.opening).unwrap();
        }
        writeln!(out, "======== turn {turn} of {turns}, phase {phase}, {:?}", plan.injection).unwrap();
        writeln!(out, "{}\n", plan.message.as_deref().unwrap_or("(nothing)")).unwrap();
        // All of them once; they differ little from turn to turn.
        if turn == 0 {
            for dropped in &plan.dropped {
                writeln!(out, "-------- left out of {:?}: {} ({})", dropped.section, dropped.item, dropped.reason)
                    .unwrap();
            }
        }
        if Some(&turn) == shown.last() {
            let redraft = assembler.redraft(&situation, &["", "Say only what you would say aloud."]);
            writeln!(out, "-------- redraft\n{redraft}").unwrap();
        }
    }
    out
}

#[test]
fn the_mania_patient_in_full() {
    insta::assert_snapshot!(golden("mania_patient", 50, None, &[0, 2, 5, 10, 20, 35, 49]));
}

#[test]
fn the_mania_patient_within_the_bundled_models_budget() {
    insta::assert_snapshot!(golden("mania_patient", 50, Some(bundled_budget(1472)), &[0, 2, 5, 10, 20, 35, 49]));
}

#[test]
fn the_depressed_patient() {
    insta::assert_snapshot!(golden("depressed_patient", 40, None, &[0, 24]));
    insta::assert_snapshot!(golden("depressed_patient", 40, Some(bundled_budget(1472)), &[0, 12, 24, 39]));
}

#[test]
fn the_student() {
    insta::assert_snapshot!(golden("student", 30, None, &[0, 15]));
    insta::assert_snapshot!(golden("student", 30, Some(bundled_budget(1472)), &[0, 15, 29]));
}

#[test]
fn the_open_ended_persona() {
    insta::assert_snapshot!(golden("open_ended", 12, None, &[0, 4]));
    insta::assert_snapshot!(golden("open_ended", 12, Some(bundled_budget(1472)), &[0, 4]));
}
