//! Prompt prefixes are read once, without changing any bit, within the budget, and independently of cancelled readers.

use std::sync::OnceLock;

use futures_util::future::{join, join_all};
use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{
    Completion, Continuation, DeltaGains, LanguageModel, LayerGains, Message, PrefixReuse, Prompt, Request, Sampling,
};
use loom_agent::inference::engine::{Budget, EngineOptions, LocalModel};
use proptest::prelude::*;

use super::{begun, bits, block_on, complete, finished};

fn with(budget: Budget) -> LocalModel {
    LocalModel::bundled(&EngineOptions { threads: Some(1), budget, ..EngineOptions::default() }).unwrap()
}

fn sharing() -> LocalModel {
    with(Budget::default())
}

/// The same model without sharing.
fn alone() -> &'static LocalModel {
    static ALONE: OnceLock<LocalModel> = OnceLock::new();
    ALONE.get_or_init(|| with(Budget { prefix_bytes: 0, ..Budget::default() }))
}

fn persona() -> Vec<Message> {
    vec![
        Message::system("I have two dogs and a cat. I love hiking in the hills, and I bake bread on Sundays."),
        Message::user("Hi! Do you have any pets?"),
    ]
}

fn write(prompt: Prompt, seed: u64) -> Request {
    let sampling = Sampling { max_tokens: 6, temperature: 1.0, top_logprobs: 2, ..Sampling::default() };
    Request::new(prompt, sampling, RngStream::root(seed))
}

/// Runs all requests at once while the engine is busy.
fn together(model: &LocalModel, requests: &[Request]) -> Vec<Completion> {
    block_on(async {
        let busy = model.complete(write(Prompt::Ids((1000..1250).collect()), 0), None);
        let calls = join_all(requests.iter().map(|request| model.complete(request.clone(), None)));
        let (_, replies) = join(busy, calls).await;
        replies.into_iter().map(Result::unwrap).collect()
    })
}

fn same(replies: &[Completion], requests: &[Request]) {
    for (reply, request) in replies.iter().zip(requests) {
        let lone = complete(alone(), request.clone()).unwrap();
        assert_eq!(reply.message, lone.message);
        assert_eq!(bits(&reply.tokens), bits(&lone.tokens));
        assert_eq!((reply.finish, reply.prefix_reuse), (lone.finish, PrefixReuse::Fresh));
        assert_eq!((reply.usage.tokens_in, lone.usage.tokens_cached), (lone.usage.tokens_in, 0));
    }
}

#[test]
fn the_third_request_with_a_prefix_reads_only_its_own_part() {
    let model = sharing();
    let opening = "I have two dogs and a cat, and I love hiking in the hills with all of them";
    let shared = model.vocabulary().unwrap().encode(opening).unwrap().len() as u64;
    let cached = ["? No.", "! Yes.", ". Why?"].map(|ending| {
        let request = write(Prompt::Text(format!("{opening}{ending}")), 1);
        let reply = complete(&model, request.clone()).unwrap();
        let cached = reply.usage.tokens_cached;
        same(&[reply], &[request]);
        cached
    });
    assert_eq!(cached, [0, 0, shared]);
}

#[test]
fn when_a_reader_is_cancelled_waiting_requests_continue() {
    let model = sharing();
    let requests: Vec<_> = (0..3).map(|seed| write(Prompt::Chat(persona()), seed)).collect();
    let replies = block_on(async {
        let first = begun(&model, &requests[0]).await;
        let rest = [begun(&model, &requests[1]).await, begun(&model, &requests[2]).await];
        drop(first);
        join_all(rest.map(finished)).await
    });
    same(&replies, &requests[1..]);
}

#[test]
fn a_budget_for_one_state_caches_the_last_and_zero_caches_nothing() {
    let one = with(Budget { prefix_bytes: 200 << 10, ..Budget::default() });
    let cached = |model: &LocalModel, text: &str| {
        let text = format!("{text} is a fine thing to do on a long and rainy afternoon in the middle of the week");
        let request = write(Prompt::Text(text), 1);
        let reply = complete(model, request.clone()).unwrap();
        let usage = reply.usage;
        same(&[reply], &[request]);
        usage.tokens_cached == usage.tokens_in
    };
    assert_eq!(["Baking", "Baking", "Hiking", "Baking"].map(|text| cached(&one, text)), [false, true, false, false]);
    let none = with(Budget { prefix_bytes: 0, ..Budget::default() });
    assert_eq!(["Baking", "Baking"].map(|text| cached(&none, text)), [false, false]);
}

#[test]
fn a_state_read_under_other_gains_is_not_adopted() {
    let model = sharing();
    let mut weak = write(Prompt::Chat(persona()), 1);
    weak.gains = Some(DeltaGains::Uniform(LayerGains { delta: 0.7, ..LayerGains::ONE }));
    let requests = [write(Prompt::Chat(persona()), 1), weak.clone(), weak];
    let replies: Vec<_> = requests.iter().map(|request| complete(&model, request.clone()).unwrap()).collect();
    same(&replies, &requests);
    assert_eq!(replies[1].usage.tokens_cached, 0);
    assert!(replies[2].usage.tokens_cached > 0);
}

#[test]
fn callers_cancelled_under_load_leave_nothing_behind() {
    let model = sharing();
    let mut requests: Vec<_> = (0..10).map(|seed| write(Prompt::Chat(persona()), seed)).collect();
    for request in &mut requests {
        request.sampling.max_tokens = 40;
    }
    let replies = block_on(async {
        let mut replies = Vec::new();
        for round in 0..20 {
            let mut calls = Vec::new();
            for request in &requests {
                calls.push(begun(&model, request).await);
            }
            // One is awaited while others come and go.
            let stays = calls.swap_remove(round % 10);
            drop(calls);
            replies.push(finished(stays).await);
        }
        replies
    });
    same(&replies[..10], &requests);
    same(&replies[10..], &requests);
}

#[test]
fn requests_beyond_the_budget_wait_and_impossible_ones_are_refused() {
    // Two states of 171 KiB each per request: memory for three requests at once.
    let model = with(Budget { state_bytes: 1 << 20, ..Budget::default() });
    let requests: Vec<_> = (0..12).map(|seed| write(Prompt::Chat(persona()), seed)).collect();
    same(&together(&model, &requests), &requests);
    let mut long = write(Prompt::Text("Once".to_owned()), 1);
    long.sampling.max_tokens = 100_000;
    let error = complete(&model, long).unwrap_err().to_string();
    assert!(error.starts_with("model `bundled` cannot do this: 10000"), "{error}");
    assert!(
        error.contains("(2 states of 0.2 MiB") && error.contains("the budget for all requests is 1.0 MiB"),
        "{error}"
    );
    // It does not block others.
    same(&[complete(&model, requests[0].clone()).unwrap()], &requests[..1]);
}

#[test]
fn texts_that_do_not_fit_together_are_scored_in_groups() {
    // Memory for three at once, of which a group takes half.
    let narrow = with(Budget { state_bytes: 1 << 20, ..Budget::default() });
    let texts = ["Two dogs.", "Two", "I have a cat and two dogs, all of them old.", "No.", "Yes!"];
    let scored = |model: &LocalModel| {
        let request = Request::new(Prompt::Chat(persona()), Sampling::greedy(), RngStream::root(0));
        let each = texts.iter().map(|text| Continuation::Text((*text).to_owned())).collect();
        block_on(model.score_each(request, each)).unwrap()
    };
    let (together, apart) = (scored(&sharing()), scored(&narrow));
    for (together, apart) in together.iter().zip(&apart) {
        assert_eq!(bits(&together.tokens), bits(&apart.tokens));
        assert_eq!(together.usage, apart.usage);
    }
    assert_eq!((together.len(), apart.len()), (texts.len(), texts.len()));
    let nothing = Request::new(Prompt::Chat(persona()), Sampling::greedy(), RngStream::root(0));
    assert!(block_on(narrow.score_each(nothing, Vec::new())).unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn any_common_prefix(
        stem in prop::collection::vec(0..4096u32, 1..120),
        cuts in prop::collection::vec((0..120usize, prop::collection::vec(0..4096u32, 1..30), any::<bool>()), 2..7),
    ) {
        let model = sharing();
        let requests: Vec<_> = cuts.into_iter().map(|(cut, own, weak)| {
            let ids = [&stem[..cut.min(stem.len())], &own].concat();
            let mut request = write(Prompt::Ids(ids), 3);
            request.gains = weak.then_some(DeltaGains::Uniform(LayerGains { write: 0.8, ..LayerGains::ONE }));
            request
        }).collect();
        same(&together(&model, &requests), &requests);
        same(&together(&model, &requests), &requests);
    }
}
