//! What needs no model.

use super::*;
use crate::simulation::persona::parse;

#[test]
fn phrases_that_begin_a_reply_exclude_each_other() {
    let phrases = |texts: &[&str]| openings(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(phrases(&["you're right", "you're right about"]), ["You're right"]);
    assert_eq!(phrases(&["I agree ", ""]), ["I agree"]);
}

#[test]
fn pressure_is_the_probability_of_any_of_them() {
    let phrase = |ps: &[f32]| {
        let token = |p: &f32| {
            let mut token = TokenLogprob::unknown(None, "x");
            token.logprob = Some(p.ln());
            token
        };
        Ok(ps.iter().map(token).collect::<Vec<_>>())
    };
    let value = pressure(vec![phrase(&[0.5, 0.5]), phrase(&[0.25])]).unwrap();
    assert!((value - 0.5_f64.ln()).abs() < 1e-6, "{value}");
    assert!(pressure(Vec::new()).unwrap_err().contains("forbids no phrases"));
    assert_eq!(pressure(vec![phrase(&[0.5]), Err("gone".to_owned())]), Err("gone".to_owned()));
}

#[test]
fn every_score_is_defined_in_the_docs() {
    let docs = include_str!("../../../../docs/SCORES.md");
    let config = parse("anna.yaml", include_str!("../../../../tests/data/rollout/anna.yaml")).unwrap();
    for score in missing(&config, None, "no model", Extent::Default) {
        assert!(docs.contains(&format!("`{}`", score.id)), "{} is not defined", score.id);
        assert_eq!(score.why.as_deref(), Some("no model"));
    }
}
