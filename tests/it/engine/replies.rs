//! Replies as a caller sees them: texts, ends, listeners, and helpful errors.

use loom_agent::foundation::chat::{
    Continuation, DeltaGains, Finish, Flow, LanguageModel, LayerGains, Message, PrefixReuse, Prompt, Request, Role,
    Sampling, TokenLogprob,
};
use loom_agent::inference::engine::{EngineOptions, LocalModel};

use super::{begun, bits, block_on, bundled, complete, request, score, tiny};

fn ask(text: &str, sampling: Sampling) -> Request {
    request(Prompt::Chat(vec![Message::user(text)]), sampling)
}

#[test]
fn a_reply_consists_of_its_tokens_and_a_listener_gets_each_once() {
    let model = bundled(1);
    let mut received: Vec<TokenLogprob> = Vec::new();
    let sink = |token: &TokenLogprob| {
        received.push(token.clone());
        Flow::Continue
    };
    let sampling = Sampling { temperature: 1.0, stop: vec!["zebra".into(), ". ".into()], ..Sampling::default() };
    let reply = block_on(model.complete(ask("Tell me about your day.", sampling), Some(Box::new(sink)))).unwrap();
    assert_eq!(received, reply.tokens);
    assert!(!received.is_empty());
    let joined: String = received.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(joined, reply.message.content);
    assert_eq!(reply.message.role, Role::Assistant);
    let ids: Vec<_> = received.iter().filter_map(|token| token.id).collect();
    assert_eq!(reply.message.ids.as_deref(), Some(ids.as_slice()));
    assert_eq!(reply.model, "bundled");
}

#[test]
fn a_listener_that_stops_gets_no_further_token() {
    let model = bundled(1);
    let whole = complete(&model, ask("Tell me about your day.", Sampling::greedy())).unwrap();
    assert!(whole.tokens.len() > 3, "{}", whole.message.content);
    for wanted in 1..=3 {
        let mut received = 0;
        let sink = |_: &TokenLogprob| {
            received += 1;
            if received == wanted { Flow::Stop } else { Flow::Continue }
        };
        let reply = block_on(model.complete(ask("Tell me about your day.", Sampling::greedy()), Some(Box::new(sink))));
        let reply = reply.unwrap();
        assert_eq!((received, reply.finish), (wanted, Finish::Cancelled));
        assert_eq!(reply.tokens, whole.tokens[..wanted]);
    }
}

#[test]
fn a_listener_may_stop_at_a_token_that_was_sent_only_at_the_end() {
    let model = bundled(1);
    let settings = || Sampling { temperature: 1.0, top_p: 1.0, ..Sampling::default() };
    let whole = complete(&model, ask("Tell me about your day.", settings())).unwrap();
    let text = &whole.message.content;
    assert!(whole.tokens.len() > 5, "{text}");
    // The reply is cut off inside a possible stop text: its last tokens are sent together, at the end.
    let cut: String = whole.tokens.iter().take(5).map(|token| token.text.as_str()).collect();
    let open: String = whole.tokens.iter().skip(2).take(3).map(|token| token.text.as_str()).collect();
    let sampling = Sampling { max_tokens: 5, stop: vec![format!("{open} and not like this")], ..settings() };
    let all = complete(&model, ask("Tell me about your day.", sampling.clone())).unwrap();
    assert_eq!((all.message.content.as_str(), all.finish), (cut.as_str(), Finish::Length));
    for wanted in 1..=5 {
        let mut received = 0;
        let sink = |_: &TokenLogprob| {
            received += 1;
            if received == wanted { Flow::Stop } else { Flow::Continue }
        };
        let request = ask("Tell me about your day.", sampling.clone());
        let reply = block_on(model.complete(request, Some(Box::new(sink)))).unwrap();
        assert_eq!((received, reply.tokens.len()), (wanted, wanted));
        assert_eq!(reply.finish, if wanted < 5 { Finish::Cancelled } else { Finish::Length });
        assert_eq!(reply.tokens, whole.tokens[..wanted]);
        // Continuing from there works.
        let messages = vec![Message::user("Tell me about your day."), reply.message, Message::user("Go on.")];
        let mut next = request_of(messages.clone());
        next.after = reply.snapshot;
        let continued = complete(&model, next).unwrap();
        assert_eq!(continued.prefix_reuse, PrefixReuse::Continued);
        assert_eq!(continued.tokens, complete(&model, request_of(messages)).unwrap().tokens);
    }
}

fn request_of(messages: Vec<Message>) -> Request {
    request(Prompt::Chat(messages), Sampling { max_tokens: 4, ..Sampling::greedy() })
}

#[test]
fn the_end_token_is_reported_separately_and_scores_equally() {
    let model = bundled(1);
    let reply = complete(&model, ask("Hi!", Sampling { max_tokens: 200, ..Sampling::greedy() })).unwrap();
    let end = reply.end.unwrap();
    assert_eq!((end.id, end.text.as_str(), reply.finish), (Some(4), "<|end|>", Finish::Stop));
    let ids: Vec<_> = reply.tokens.iter().chain([&end]).map(|token| token.id.unwrap()).collect();
    let scored = block_on(model.score(ask("Hi!", Sampling::greedy()), Continuation::Ids(ids))).unwrap();
    assert_eq!(scored.tokens.last(), Some(&end));
    let cut = complete(&model, ask("Hi!", Sampling { max_tokens: 1, ..Sampling::greedy() })).unwrap();
    assert_eq!(cut.end, None);
}

#[test]
fn after_a_stop_text_inside_a_token_the_ids_decode_to_the_content() {
    let model = bundled(1);
    let whole = complete(&model, ask("Tell me about your day.", Sampling::greedy())).unwrap().message.content;
    // Every two-character window of the reply: some are inside a token, some across two.
    for (at, _) in whole.char_indices().take(24) {
        let Some(stop) = whole.get(at..at + 2) else { continue };
        let sampling = Sampling { stop: vec![stop.to_owned()], ..Sampling::greedy() };
        let reply = complete(&model, ask("Tell me about your day.", sampling)).unwrap();
        let expected = whole.split(stop).next().unwrap();
        assert_eq!((reply.message.content.as_str(), reply.finish), (expected, Finish::Stop), "stop {stop:?}");
        let ids = reply.message.ids.clone().unwrap();
        assert_eq!(ids.len(), reply.tokens.len());
        // The ids decode to the content, and score as reported.
        if !ids.is_empty() {
            let mut again = ask("Tell me about your day.", Sampling::greedy());
            again.after.clone_from(&reply.before);
            let scored = block_on(model.score(again, Continuation::Ids(ids.to_vec()))).unwrap();
            assert_eq!(scored.tokens, reply.tokens);
            let text: String = scored.tokens.iter().map(|token| token.text.as_str()).collect();
            assert_eq!(text, expected);
        }
    }
}

#[test]
fn text_and_its_ids_score_equally() {
    let model = bundled(1);
    let score = |continuation| block_on(model.score(ask("Hi!", Sampling::greedy()), continuation)).unwrap();
    let text = score(Continuation::Text("I have two dogs.".into()));
    let ids = text.tokens.iter().map(|token| token.id.unwrap()).collect();
    assert_eq!(score(Continuation::Ids(ids)).tokens, text.tokens);
    let likely = text.logprob().unwrap();
    let unlikely = score(Continuation::Text("dogs two have I.".into())).logprob().unwrap();
    assert!(likely > unlikely, "{likely} > {unlikely}");
}

#[test]
fn without_keep_state_the_last_token_is_scored_but_not_read() {
    for model in ["plain", "qwen2", "mamba2"].map(tiny) {
        let (before, after) = ([5, 6, 7], [8, 9, 10, 11]);
        let base = || request(Prompt::Ids(before.to_vec()), Sampling::greedy());
        let whole = score(&model, base(), &after, 2);
        for len in 1..=after.len() {
            for start in [None, whole.before.clone()] {
                let mut short = base();
                (short.after, short.keep_state) = (start, false);
                let scored = score(&model, short, &after[..len], 2);
                assert_eq!(scored.tokens, whole.tokens[..len]);
                assert!(scored.snapshot.is_none());
                assert_eq!(scored.usage.tokens_in, (before.len() + len - 1) as u64);
            }
        }
        // Several scores from one snapshot share its row.
        let forks = after.map(|id| {
            let (mut fork, model) = (base(), &model);
            (fork.after, fork.keep_state) = (whole.before.clone(), false);
            async move { model.score(fork, Continuation::Ids(vec![id])).await.unwrap().tokens }
        });
        let together = block_on(futures_util::future::join_all(forks));
        for (id, tokens) in after.into_iter().zip(together) {
            assert_eq!(bits(&tokens), bits(&score(&model, base(), &[id], 0).tokens));
        }
    }
}

#[test]
fn greedy_takes_the_most_likely_token_and_reports_unpenalised_logprobs() {
    let model = bundled(1);
    let plain = complete(&model, ask("Hello!", Sampling::greedy())).unwrap();
    assert!(plain.tokens.iter().all(|token| token.rank == Some(0)));
    let sampling = Sampling { repetition_penalty: 1.8, max_tokens: 40, ..Sampling::greedy() };
    let penalised = complete(&model, ask("Hello!", sampling)).unwrap();
    let ids = penalised.message.ids.unwrap();
    let scored = block_on(model.score(ask("Hello!", Sampling::greedy()), Continuation::Ids(ids.to_vec()))).unwrap();
    assert_eq!(scored.tokens, penalised.tokens);
}

#[test]
fn dropping_a_call_removes_its_sequence() {
    let model = tiny("plain");
    let endless = Sampling { max_tokens: 4096, temperature: 5.0, ..Sampling::default() };
    for _ in 0..200 {
        // More than there are slots: if they were kept, the last call would wait for thousands of tokens of each.
        drop(block_on(begun(&model, &request(Prompt::Ids(vec![5]), endless.clone()))));
    }
    complete(&model, request(Prompt::Ids(vec![5]), Sampling { max_tokens: 1, ..Sampling::greedy() })).unwrap();
}

#[test]
fn invalid_requests_are_refused_with_the_reason() {
    let model = bundled(1);
    let check = |request: Request, why: &str| {
        let error = complete(&model, request).unwrap_err().to_string();
        assert!(error.starts_with("model `bundled` cannot do this: ") && error.contains(why), "{error}");
    };
    let greedy = Sampling::greedy;
    let ids = |ids: &[u32]| request(Prompt::Ids(ids.to_vec()), greedy());
    check(ids(&[]), "the prompt is empty: give it at least one token");
    check(request(Prompt::Text(String::new()), greedy()), "the prompt is empty");
    check(ids(&[1, 4096]), "token 4096 is outside its vocabulary of 4096");
    let gains = |gains| {
        let mut request = ids(&[1]);
        request.gains = Some(gains);
        request
    };
    check(
        gains(DeltaGains::PerLayer(vec![LayerGains::ONE; 5])),
        "given for 5 layers, but the model has 6: give one entry per layer",
    );
    check(gains(DeltaGains::Uniform(LayerGains { delta: -1.0, ..LayerGains::ONE })), "a finite number, 0 or more");
    let with = |sampling| request(Prompt::Ids(vec![1]), sampling);
    check(with(Sampling { temperature: -1.0, ..greedy() }), "`temperature` must be 0 (greedy) or a positive number");
    check(with(Sampling { top_p: 0.0, ..greedy() }), "`top_p` must be above 0");
    check(with(Sampling { max_tokens: 0, ..greedy() }), "`max_tokens` must be at least 1");
    check(
        with(Sampling { stop: vec![String::new()], ..greedy() }),
        "an empty stop text would end every reply immediately",
    );
    let nothing = block_on(model.score(ids(&[1]), Continuation::Ids(Vec::new()))).unwrap_err().to_string();
    assert!(nothing.contains("there is nothing to score"), "{nothing}");
}

#[test]
fn gains_that_overflow_are_reported() {
    let mut wild = request(Prompt::Ids(vec![5, 6, 7]), Sampling::greedy());
    wild.gains = Some(DeltaGains::Uniform(LayerGains { write: f32::MAX, ..LayerGains::ONE }));
    let error = complete(&bundled(1), wild).unwrap_err().to_string();
    assert!(
        error.contains("is not a probability distribution") && error.contains("gains on Δ are too large"),
        "{error}"
    );
}

#[test]
fn a_user_template_replaces_the_models_own() {
    let template = "{% for m in messages %}{{ m.content }} {% endfor %}".to_owned();
    let options = EngineOptions { chat_template: Some(template), ..EngineOptions::default() };
    let model = LocalModel::bundled(&options).unwrap();
    let messages = [Message::user("Hello"), Message::user("there")];
    assert_eq!(model.count(&messages), bundled(1).count(&messages).map(|with_marks| with_marks - 3));
    let broken = EngineOptions { chat_template: Some("{% for %}".to_owned()), ..EngineOptions::default() };
    let error = LocalModel::bundled(&broken).err().unwrap().to_string();
    assert!(error.contains("`chat template` is not usable: the chat template stops in line 1"), "{error}");
}

#[test]
fn the_bundled_model_describes_itself() {
    let model = bundled(1);
    let info = model.info();
    assert_eq!((info.layers, info.vocabulary, info.window_tokens), (Some(6), Some(4096), Some(2048)));
    assert!(info.logprobs && info.delta);
    assert!(info.digest.is_some() && info.prompt_tokens_max < info.window_tokens);
    assert!(info.sampling.as_ref().unwrap().stop.contains(&"<|user|>".to_owned()));
}
