//! Golden prompts: what a persona model is told, turn by turn, in the full form and in the bundled model's.

use std::sync::Arc;

use loom_agent::simulation::persona::{Assembler, PersonaConfig, PromptBudget, Situation, parse};
use tokenizers::Tokenizer;

fn mania_patient() -> Arc<PersonaConfig> {
    let yaml = include_str!("../../configs/personas/mania_patient.yaml");
    Arc::new(parse("mania_patient.yaml", yaml).unwrap())
}

/// The prompts of a run's turns, one after the other, with what a budget left out.
fn golden(config: &Arc<PersonaConfig>, turns: usize, budget: Option<PromptBudget>, shown: &[usize]) -> String {
    let assembler = Assembler::new(Arc::clone(config), turns, budget).unwrap();
    let mut out = String::new();
    for &turn in shown {
        let plan = assembler.plan(&Situation { turn, persona_messages: &[] });
        let phase = plan.phase.as_deref().unwrap_or("-");
        out.push_str(&format!(
            "======== turn {turn} of {turns}, phase {phase}, {:?}\n{}\n",
            plan.injection, plan.prompt
        ));
        for dropped in &plan.dropped {
            out.push_str(&format!("-- dropped from {:?}: {} ({})\n", dropped.section, dropped.item, dropped.reason));
        }
        out.push('\n');
    }
    out
}

fn bundled_budget(tokens_max: usize) -> PromptBudget {
    let tokenizer = Tokenizer::from_bytes(include_bytes!("../../models/bundled/tokenizer.json")).unwrap();
    PromptBudget { tokens_max, count: Arc::new(move |text| tokenizer.encode(text, false).unwrap().len()) }
}

#[test]
fn the_mania_patient_in_full() {
    insta::assert_snapshot!(golden(&mania_patient(), 50, None, &[0, 5, 10, 20, 35, 49]));
}

#[test]
fn the_mania_patient_within_the_bundled_models_budget() {
    insta::assert_snapshot!(golden(&mania_patient(), 50, Some(bundled_budget(112)), &[0, 5, 10, 20, 35, 49]));
}
