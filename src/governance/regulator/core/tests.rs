//! The regulator as a whole, in short sessions.

use super::*;
use crate::foundation::chat::Basis;
use crate::governance::regulator::{BreakAction, CircuitBreakReason};

fn token(token: &str, logprob: f32) -> LlmEvent<'_> {
    LlmEvent::Token { token, logprob: Some(logprob), index: 0, entropy: None, top: &[] }
}

fn kinds(regulator: &Regulator) -> Vec<&'static str> {
    for ranked in regulator.decide() {
        assert_eq!(serde_json::to_value(ranked).unwrap()["decision"], ranked.decision.kind());
    }
    regulator.decide().iter().map(|ranked| ranked.decision.kind()).collect()
}

#[test]
fn it_can_move_between_threads_and_be_shared() {
    fn check<T: Send + Sync + Clone + 'static>() {}
    check::<Regulator>();
}

#[test]
fn a_new_regulator_decides_continue() {
    let regulator = Regulator::for_user("u");
    assert_eq!(kinds(&regulator), ["continue"]);
    assert_eq!(regulator.turn_stats(), TurnStats::default());
}

#[test]
fn statistics_cover_one_turn_and_reset_at_the_next() {
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart { user_message: "Greet." });
    for (text, logprob) in [("Good", -0.5), (" day", -1.5)] {
        regulator.on_event(token(text, logprob));
    }
    regulator.on_event(LlmEvent::TurnComplete { full_response: "Good day", finish: None });
    let reading = regulator.turn_stats();
    assert_eq!((reading.turn, reading.complete, reading.tokens), (1, true, 2));
    assert_eq!((reading.mean_logprob, reading.min_logprob), (Some(-1.0), Some(-1.5)));
    assert_eq!(reading.confidence, Some(libm::exp(-1.0)));
    assert_eq!(reading.confidence_basis, Some(ConfidenceBasis::Uncalibrated));
    assert_eq!(reading.cost.tokens_out, 2);
    let json = serde_json::to_string(&reading).unwrap();
    assert_eq!(serde_json::from_str::<TurnStats>(&json).unwrap(), reading);

    regulator.on_event(LlmEvent::TurnStart { user_message: "Again." });
    let reading = regulator.turn_stats();
    assert_eq!((reading.turn, reading.complete, reading.tokens, reading.confidence), (2, false, 0, None));
    assert_eq!((reading.cost.tokens_out, reading.cost_session.tokens_out), (0, 2));
}

#[test]
fn without_logprobs_confidence_is_structural_and_says_so() {
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart { user_message: "Greet." });
    regulator.on_event(LlmEvent::Text { text: "Good day." });
    assert_eq!(regulator.turn_stats().confidence, None);
    regulator.on_event(LlmEvent::TurnComplete { full_response: "Good day.", finish: None });
    assert_eq!(regulator.turn_stats().confidence_basis, Some(ConfidenceBasis::Structural));
}

#[test]
fn the_local_path_and_the_event_path_agree() {
    let (mut by_event, mut by_token) = (Regulator::default(), Regulator::default());
    let top = [-0.2f32, -1.9];
    let mut full = TokenLogprob::unknown(Some(7), "x");
    full.logprob = Some(top[0]);
    full.basis = Basis::Raw;
    full.top = vec![(7, top[0]), (8, top[1])];
    assert_eq!(by_token.on_token(&full), Flow::Continue);
    by_event.on_event(LlmEvent::Token { token: "x", logprob: Some(top[0]), index: 0, entropy: None, top: &top });
    assert_eq!(by_event.turn_stats(), by_token.turn_stats());
}

#[test]
fn a_hopeless_reply_is_stopped_in_mid_stream_and_the_next_one_is_not() {
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart { user_message: "Greet." });
    let stopped = (0..100).find(|_| {
        regulator.on_event(token(" zq", -10.5));
        regulator.should_stop()
    });
    assert_eq!(stopped, Some(31), "once the first group of 32 is full");
    assert_eq!(kinds(&regulator), ["stop_early"]);
    regulator.on_event(LlmEvent::TurnStart { user_message: "Again." });
    assert_eq!((kinds(&regulator), regulator.should_stop()), (vec!["continue"], false));
}

#[test]
fn a_hard_cap_stops_the_reply_at_the_token_that_meets_it() {
    let mut settings = Settings::default();
    settings.cost.hard.tokens_out = Some(5);
    settings.cost.hard_action = BreakAction::PauseAndAsk;
    let mut regulator = Regulator::new(settings);
    let mut tokens = 0;
    while regulator.on_token(&TokenLogprob::unknown(None, "x")) == Flow::Continue {
        tokens += 1;
    }
    assert_eq!(tokens, 4);
    assert!(matches!(
        regulator.decide(),
        [RankedDecision {
            decision: Decision::CircuitBreak {
                reason: CircuitBreakReason::CostCapReached { spent: 5, cap: 5, .. },
                action: BreakAction::PauseAndAsk,
                ..
            },
            ..
        }]
    ));
}

#[test]
fn every_decision_that_applies_is_listed_by_urgency() {
    let mut settings = Settings::default();
    settings.cost.hard.tokens = Some(10);
    settings.cost.soft.tokens = Some(5);
    let mut regulator = Regulator::new(settings);
    for quality in [0.9, 0.6, 0.3, 0.0] {
        regulator.on_event(LlmEvent::TurnStart { user_message: "Go on." });
        regulator.on_event(LlmEvent::QualityFeedback { quality });
    }
    regulator.on_event(LlmEvent::Cost {
        call_id: None,
        model: None,
        tokens_in: 20,
        tokens_out: 0,
        tokens_cached: 0,
        money_micros: 0,
        wallclock_ms: 0,
        provider: None,
    });
    let found: Vec<_> = regulator
        .decide()
        .iter()
        .map(|ranked| match &ranked.decision {
            Decision::CircuitBreak { reason: CircuitBreakReason::CostCapReached { cap, .. }, .. } => cap.to_string(),
            Decision::CircuitBreak { reason: CircuitBreakReason::QualityDeclineNoRecovery { .. }, .. } => {
                "decline".into()
            }
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(found, ["10", "decline", "5"]);
    assert!(regulator.decide().iter().all(|ranked| !ranked.evidence.is_empty()));
    let json = serde_json::to_string(regulator.decide()).unwrap();
    assert_eq!(serde_json::from_str::<Vec<RankedDecision>>(&json).unwrap(), regulator.decide());
}

#[test]
fn a_calibration_is_used_only_for_its_model_and_template() {
    use crate::governance::regulator::calibration::tests::{fitted, scope};
    let mut regulator = Regulator::default();
    regulator.calibrate(fitted("m"));
    regulator.on_event(LlmEvent::TurnStart { user_message: "?" });
    regulator.on_event(token("x", -0.1));
    let basis = |regulator: &Regulator| regulator.turn_stats().confidence_basis;
    assert_eq!(basis(&regulator), Some(ConfidenceBasis::Uncalibrated), "unknown model");
    regulator.set_model_scope(Some(scope("another")));
    assert_eq!(basis(&regulator), Some(ConfidenceBasis::Uncalibrated), "another model");
    regulator.set_model_scope(Some(scope("m")));
    let reading = regulator.turn_stats();
    assert!(reading.calibrated() && (reading.confidence.unwrap() - 0.9).abs() < 1e-9);
}

/// One turn of a user who corrects the reply.
fn corrected(regulator: &mut Regulator, task: &str, correction: &str) {
    regulator.on_event(LlmEvent::TurnStart { user_message: task });
    regulator.on_event(LlmEvent::TurnComplete { full_response: "Here it is.", finish: None });
    regulator.on_event(LlmEvent::UserCorrection { correction_message: correction, corrects_last: true });
}

#[test]
fn a_rule_corrected_three_times_warns_before_the_next_reply_in_the_next_session() {
    let mut regulator = Regulator::for_user("ann");
    corrected(&mut regulator, "Refactor the loader function.", "Don't add docstrings to refactored output.");
    corrected(&mut regulator, "Please refactor this class.", "Stop adding docstrings when you refactor!");
    corrected(&mut regulator, "Refactor the retry helper.", "I told you before: no docstrings.");
    let json = regulator.export().to_json().unwrap();
    let state = RegulatorState::from_json(&json).unwrap();
    assert_eq!(state, regulator.export(), "JSON loses nothing");

    let mut next = Regulator::import(Settings::default(), state.clone());
    assert_eq!(next.export(), state, "and neither does a session in which nothing happens");
    next.on_event(LlmEvent::TurnStart { user_message: "Refactor the parser module." });
    assert_eq!(kinds(&next), ["procedural_warning"]);
    assert!(next.signals().strategy.unwrap().contains("docstrings"));
    // Counts continue.
    next.on_event(LlmEvent::UserCorrection { correction_message: "Docstrings, again!", corrects_last: true });
    assert_eq!(next.patterns()[0].learned_from_turns, 4);
    // Another user's session gets no warning.
    let mut other = Regulator::for_user("bob");
    other.on_event(LlmEvent::TurnStart { user_message: "Refactor the parser module." });
    assert_eq!(kinds(&other), ["continue"]);
}

/// A session of messages, each with a reply; the kinds of decisions after each.
fn session(settings: Settings, messages: &[&str]) -> (Regulator, Vec<Vec<&'static str>>) {
    let mut regulator = Regulator::new(settings);
    let mut decided = Vec::new();
    for message in messages {
        regulator.on_event(LlmEvent::TurnStart { user_message: message });
        regulator.on_event(LlmEvent::TurnComplete { full_response: "Here it is.", finish: None });
        decided.push(kinds(&regulator));
    }
    (regulator, decided)
}

#[test]
fn a_repeated_request_is_a_correction_only_with_a_complaint() {
    let quality = |messages: &[&str]| session(Settings::default(), messages).0.signals().recent_quality;
    assert_eq!(quality(&["Refactor the invoice parser.", "What does the invoice parser do about errors?"]), None);
    assert_eq!(quality(&["Refactor the invoice parser.", "Please refactor the invoice parser."]), None);
    assert_eq!(quality(&["Refactor the invoice parser.", "No! Refactor the invoice parser."]), Some(CORRECTED));
    assert_eq!(quality(&["Refactor the invoice parser.", "You forgot the second page."]), Some(CORRECTED));
    assert_eq!(quality(&["Go on.", "Go on."]), None, "says too little");
    let mut off = Settings::default();
    (off.corrections.infer_from_repeats, off.corrections.infer_from_complaints) = (false, false);
    let messages = ["Refactor the invoice parser.", "No! Refactor the invoice parser.", "You forgot the second page."];
    assert_eq!(session(off, &messages).0.signals().recent_quality, None, "every implicit signal has a switch");
}

#[test]
fn routines_do_not_break_the_circuit() {
    let routine = ["Check the inbox for new invoices and file them."; 12];
    let reviews: Vec<String> =
        (0..30).map(|i| format!("Write a reply to the review: 'The lamp number {i} is fine, but slow.'")).collect();
    let reviews: Vec<&str> = reviews.iter().map(String::as_str).collect();
    let tests = ["Run the tests again."; 20];
    for messages in [&routine[..], &reviews, &tests] {
        let (_, decided) = session(Settings::default(), messages);
        assert!(decided.iter().all(|kinds| *kinds == ["continue"]), "{decided:?}");
    }
}

#[test]
fn complaints_break_the_circuit_and_the_break_ends_with_them() {
    let complaints = [
        "Parse the scanned invoice into a table.",
        "That's wrong, the sums are off.",
        "Still not right: the dates are missing.",
        "You forgot the tax again.",
        "No, that is wrong too.",
        "Nope.",
    ];
    let unrelated = ["Book a table for two.", "What is on my calendar tomorrow?", "Thanks!"];
    let (_, decided) = session(Settings::default(), &[&complaints[..], &unrelated[..]].concat());
    assert!(decided[..4].iter().all(|kinds| *kinds == ["continue"]), "{decided:?}");
    assert!(decided[4..6].iter().all(|kinds| kinds.contains(&"circuit_break")), "{decided:?}");
    assert!(decided[6..].iter().all(|kinds| *kinds == ["continue"]), "{decided:?}");
}

#[test]
fn a_decision_to_stop_asks_for_a_stop() {
    let mut regulator = Regulator::default();
    for quality in [0.9, 0.6, 0.3, 0.0] {
        regulator.on_event(LlmEvent::TurnStart { user_message: "Go on." });
        assert!(!regulator.stop_requested());
        regulator.on_event(LlmEvent::QualityFeedback { quality });
    }
    assert!(regulator.stop_requested() && !regulator.should_stop(), "the next call, not this reply");
}

#[test]
fn a_topic_that_fails_again_and_again_breaks_the_circuit() {
    let mut regulator = Regulator::default();
    for _ in 0..4 {
        regulator.on_event(LlmEvent::TurnStart { user_message: "Parse the scanned invoice." });
        regulator.on_event(LlmEvent::QualityFeedback { quality: 0.2 });
    }
    assert!(regulator.decide().iter().any(|ranked| matches!(
        &ranked.decision,
        Decision::CircuitBreak { reason: CircuitBreakReason::RepeatedFailurePattern { failure_count: 4, cluster }, .. }
            if cluster.contains("invoice")
    )));
    assert!(!regulator.should_stop(), "the next reply may still be tried");
}

#[test]
fn drift_is_measured_on_the_complete_reply_and_a_standing_task_replaces_the_message() {
    let bread = "Mix the flour with two eggs and sugar. Knead the dough until it is smooth. Bake it for forty minutes in a hot oven.";
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart {
        user_message: "Refactor the parser module of the invoice importer to be async.",
    });
    regulator.on_event(LlmEvent::TurnComplete { full_response: bread, finish: None });
    assert_eq!(kinds(&regulator), ["scope_drift_warn"]);
    assert!(regulator.turn_stats().drift_score.unwrap() > 0.9);
    regulator.on_event(LlmEvent::Task { text: "Explain how to bake bread from flour, eggs and sugar." });
    regulator.on_event(LlmEvent::TurnStart { user_message: "Refactor the parser module to be async." });
    regulator.on_event(LlmEvent::TurnComplete { full_response: bread, finish: None });
    assert_eq!(kinds(&regulator), ["continue"]);
}

#[test]
fn unlikely_words_are_pointed_out_when_the_reply_is_complete() {
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart { user_message: "Capital of Tanzania?" });
    for (text, logprob) in [("It", -0.1), (" is", -0.1), (" Zan", -6.0), ("zibar", -5.0), (".", -0.1)] {
        regulator.on_event(token(text, logprob));
    }
    assert_eq!(kinds(&regulator), ["continue"]);
    regulator.on_event(LlmEvent::TurnComplete { full_response: "It is Zanzibar.", finish: None });
    let [RankedDecision { decision: Decision::LowConfidenceSpans { spans }, .. }] = regulator.decide() else {
        panic!()
    };
    assert_eq!((spans[0].text.as_str(), spans[0].span.start_char, spans.len()), ("Zanzibar", 6, 1));
}

#[test]
fn invalid_numbers_are_counted_and_excluded() {
    let mut regulator = Regulator::default();
    regulator.on_event(LlmEvent::TurnStart { user_message: "" });
    for quality in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
        regulator.on_event(LlmEvent::QualityFeedback { quality });
    }
    regulator.on_event(token("x", f32::NAN));
    let reading = regulator.turn_stats();
    assert_eq!((reading.unusable, reading.signals.recent_quality, reading.confidence), (5, None, None));
}
