//! Replies that drift and replies that do not.

use super::*;

fn judge(task: &str, reply: &str) -> Option<Drift> {
    let mut scope = ScopeTracker::new(ScopeSettings::default());
    scope.set_of_turn(task);
    scope.judge(reply)
}

/// The drifting parts of a reply, and what was forbidden there.
fn check(task: &str, reply: &str, expected: &[(&str, Option<&str>)]) -> Vec<String> {
    let drift = judge(task, reply).expect("enough to judge");
    let Some(RankedDecision { decision: Decision::ScopeDriftWarn { spans, drift_tokens, drift_score, .. }, .. }) =
        drift.ranked
    else {
        assert_eq!(expected, [], "no warning at {}", drift.score);
        return Vec::new();
    };
    assert!((0.5..=1.0).contains(&drift_score));
    let found: Vec<_> = spans
        .iter()
        .map(|part| (&reply[part.span.start_byte..part.span.end_byte], part.forbidden.as_deref()))
        .collect();
    assert_eq!(found, expected, "score {drift_score}");
    for part in &spans {
        let TextSpan { start_byte, end_byte, start_char, end_char } = part.span;
        assert_eq!((reply[..start_byte].chars().count(), reply[..end_byte].chars().count()), (start_char, end_char));
    }
    drift_tokens
}

#[test]
fn a_reply_to_the_point_is_no_drift() {
    check(
        "Refactor this function to be async.",
        "Here is the function, refactored to be async: `async fn load()`. Callers of the function now await it.",
        &[],
    );
}

#[test]
fn unrequested_additions_are_reported_with_their_words() {
    let named = check(
        "Refactor this function to be async.",
        "I refactored the function to be async. I also added structured logging with tracing. I also added telemetry \
         and retry policies.",
        &[("I also added structured logging with tracing. I also added telemetry and retry policies.", None)],
    );
    check(
        "Rename x to y. Nothing else.",
        "Renamed. I also added a cache for the user table.",
        &[("Renamed. I also added a cache for the user table.", None)],
    );
    for word in ["logging", "telemetry"] {
        assert!(named.contains(&word.to_owned()), "{named:?}");
    }
    assert!(!named.contains(&"function".to_owned()));
}

#[test]
fn a_forbidden_thing_is_drift_although_the_task_names_it() {
    let named = check(
        "Refactor the parser to be async. Do not add logging.",
        "The parser is async now. Each step of the parser writes to the logging facade.",
        &[("Each step of the parser writes to the logging facade.", Some("logging"))],
    );
    assert_eq!(named.first().map(String::as_str), Some("logging"));
    check(
        "Refactor the parser to be async. Do not add logging.",
        "The parser is async now, and as you asked there is no logging in the parser.",
        &[],
    );
}

#[test]
fn another_subject_is_drift_and_its_part_is_found() {
    let task = "Describe how a lighthouse keeper spends a stormy night on the island.";
    let bread = "Mix the flour with two eggs and sugar. Knead the dough until it is smooth. Bake it for forty minutes in a hot oven.";
    assert!(judge(task, bread).unwrap().score > 0.9);
    let keeper = "The lighthouse keeper climbs the stairs as the storm begins. The keeper lights the lighthouse lamp. The \
        stormy wind howls around the island all night.";
    check(task, &format!("{keeper} {bread}"), &[(bread, None)]);
    check(task, keeper, &[]);
}

#[test]
fn scripts_without_spaces_are_compared_too() {
    let task = "请把解析器模块重构成异步代码";
    assert!(judge(task, "解析器模块已经重构成异步代码，调用方需要等待结果。").unwrap().ranked.is_none());
    assert!(judge(task, "今天的天气很好，我们去公园散步，然后吃了冰淇淋。").unwrap().ranked.is_some());
}

#[test]
fn too_little_text_is_not_judged() {
    assert_eq!(judge("Go on.", "The storm begins and the keeper climbs the stairs again."), None);
    assert_eq!(judge("Refactor the parser to be async.", "Done."), None);
    assert_eq!(judge("", ""), None);
}

#[test]
fn an_embedder_is_used_in_addition_to_words() {
    struct Same;
    impl SentenceEmbedder for Same {
        fn embed(&self, _: &str) -> Option<Vec<f32>> {
            Some(vec![1.0, 0.0])
        }
    }
    let mut scope = ScopeTracker::new(ScopeSettings::default());
    scope
        .set_of_turn("Name the capital city of Australia and say when the federal parliament moved its library there.");
    let reply = "Canberra it is, halfway between Sydney and Melbourne. It was founded as a compromise, on a plain with sheep and \
        eucalyptus, and designed by an architect from Chicago.";
    assert!(scope.judge(reply).unwrap().ranked.is_some());
    scope.set_embedder(Some(Arc::new(Same)));
    assert!(scope.judge(reply).unwrap().ranked.is_none());
}

#[test]
fn paraphrases_translations_and_poems_are_no_drift() {
    for (task, reply) in [
        (
            "Make fetch_user async.",
            "It no longer blocks: callers await the future it returns, and the worker threads stay free meanwhile.",
        ),
        (
            "Translate the notice to French: The office is closed on Monday and Tuesday.",
            "Le bureau est fermé lundi et mardi. Nous vous remercions de votre compréhension et vous souhaitons une excellente semaine à tous et à toutes.",
        ),
        (
            "Write a haiku about the end of summer at the lake.",
            "Boats turned upside down\none towel still on the fence\nforgets whose it was",
        ),
        (
            "Fasse den Vertrag mit dem Stromversorger kurz zusammen.",
            "Two years, renewed unless cancelled three months ahead; prices may rise with inflation, and liability is capped at the annual fee paid by the customer.",
        ),
        // Three content words: a right answer may well share none with the question.
        (
            "Name the capital of Australia.",
            "Canberra it is, halfway between Sydney and Melbourne. It was founded as a compromise, on a plain with sheep and eucalyptus, and designed by an architect from Chicago.",
        ),
    ] {
        check(task, reply, &[]);
    }
}

#[test]
fn a_reply_that_takes_up_the_conversation_is_no_drift() {
    let task = "What does the third invoice from the paper supplier in Lyon say about late payment?";
    let reply = "Flour and eggs were delivered late. Sugar is missing altogether, and the oven gloves came in the wrong size. Knead troughs \
        follow in May with the next lorry.";
    let mut scope = ScopeTracker::new(ScopeSettings::default());
    scope.set_of_turn(task);
    assert!(scope.judge(reply).unwrap().ranked.is_some());
    scope.add_context("Delivery note: flour, eggs, sugar, oven gloves size L, knead trough");
    assert!(scope.judge(reply).unwrap().ranked.is_none());
}

#[test]
fn a_likelihood_decides_before_words_and_the_basis_is_named() {
    struct Gain(f64);
    impl AnswerLikelihood for Gain {
        fn gain(&self, _: &str, _: &str) -> Option<f64> {
            Some(self.0)
        }
    }
    let mut scope = ScopeTracker::new(ScopeSettings::default());
    scope.set_of_turn("Make the upload function async, please.");
    let basis = |scope: &mut ScopeTracker, reply| match scope.judge(reply).unwrap().ranked {
        Some(RankedDecision { decision: Decision::ScopeDriftWarn { basis, spans, .. }, .. }) => {
            assert!(!spans.is_empty(), "every warning has its spans");
            Some(basis)
        }
        _ => None,
    };
    let paraphrase = "It no longer blocks: callers await the future that it returns.";
    assert_eq!(basis(&mut scope, paraphrase), None, "too short for words alone");
    scope.set_likelihood(Some(Arc::new(Gain(0.4))));
    assert_eq!(basis(&mut scope, paraphrase), None);
    scope.set_likelihood(Some(Arc::new(Gain(-0.1))));
    assert_eq!(basis(&mut scope, paraphrase), Some(DriftBasis::Likelihood));
    scope.set_of_turn("Make the upload function async. No logging.");
    assert_eq!(
        basis(&mut scope, "The upload function now logs every call that it makes."),
        Some(DriftBasis::Prohibition)
    );
}
