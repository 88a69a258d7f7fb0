//! What a model says through the server is what it says beside it, number for number.

use std::sync::Arc;

use loom_agent::app::serve::http::HttpService;
use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{Continuation, LanguageModel, Message, Prompt, Request, Sampling, TokenLogprob};
use serde_json::{Value, json};

use super::{Server, service};
use crate::engine::bundled;
use crate::engine::texts::with_bos;

fn hello() -> Value {
    json!([{ "role": "system", "content": "I have two dogs." }, { "role": "user", "content": "Hi! Any pets?" }])
}

fn f64s(values: &Value) -> Vec<Option<f64>> {
    values.as_array().unwrap().iter().map(Value::as_f64).collect()
}

fn logprobs(tokens: &[TokenLogprob]) -> Vec<Option<f64>> {
    tokens.iter().map(|token| token.logprob.map(f64::from)).collect()
}

#[tokio::test]
async fn a_chat_reply_is_the_engines_reply() {
    let server = Server::bundled().await;
    let body = json!({
        "model": "bundled", "messages": hello(), "seed": 7, "temperature": 0.9, "top_p": 0.95, "max_tokens": 20, "n": 3,
        "logprobs": true, "top_logprobs": 3, "loom": { "readings": true },
    });
    let answer = server.ask("/v1/chat/completions", &body).await;
    let model = bundled(1);
    let messages = vec![Message::system("I have two dogs."), Message::user("Hi! Any pets?")];
    let own = model.info().sampling.clone().unwrap();
    let mut tokens_out = 0;
    for index in 0..3 {
        let sampling =
            Sampling { temperature: 0.9, top_p: 0.95, max_tokens: 20, top_logprobs: 3, stop: vec![], ..own.clone() };
        let stream = RngStream::root(7).child("choice", index);
        let reply = model.complete(Request::new(Prompt::Chat(messages.clone()), sampling, stream), None).await.unwrap();
        let choice = &answer["choices"][index as usize];
        assert_eq!(choice["message"]["content"], reply.message.content);
        let content = choice["logprobs"]["content"].as_array().unwrap();
        let told: Vec<_> = content.iter().map(|token| token["logprob"].as_f64()).collect();
        assert_eq!(told, logprobs(&reply.tokens));
        for (token, own) in content.iter().zip(&reply.tokens) {
            assert_eq!(token["bytes"], json!(own.text.as_bytes()));
            assert_eq!(token["top_logprobs"][0]["logprob"], json!(f64::from(own.top[0].1)));
        }
        for (reading, own) in choice["loom"]["tokens"].as_array().unwrap().iter().zip(&reply.tokens) {
            assert_eq!(reading["entropy"], json!(own.entropy.map(f64::from)));
            assert_eq!((&reading["id"], &reading["rank"]), (&json!(own.id), &json!(own.rank)));
        }
        tokens_out += reply.usage.tokens_out;
        assert_eq!(answer["usage"]["prompt_tokens"], json!(reply.usage.tokens_in));
    }
    assert_eq!(answer["usage"]["completion_tokens"], json!(tokens_out));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("bundled")));
    assert_eq!(answer["loom"]["seed"], 7);
}

#[tokio::test]
async fn a_stream_has_the_same_content() {
    let server = Server::bundled().await;
    for (path, prompt) in [
        ("/v1/chat/completions", json!({ "messages": hello() })),
        ("/v1/completions", json!({ "prompt": ["Hi 🦀", "I am"] })),
    ] {
        let mut body = json!({
            "model": "bundled", "seed": 3, "temperature": 1, "max_tokens": 12, "n": 2, "stop": ["zebra", ". "],
            "loom": { "readings": true },
        });
        body.as_object_mut().unwrap().extend(prompt.as_object().unwrap().clone());
        let chat = path.contains("chat");
        body["logprobs"] = if chat { json!(true) } else { json!(2) };
        body["echo"] = if chat { Value::Null } else { json!(true) };
        let whole = server.ask(path, &body).await;
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        let mut chunks = server.stream(path, &body).await;
        let last = chunks.pop().unwrap();
        assert_eq!(last["choices"], json!([]));
        // What was read once is not read again.
        for used in ["prompt_tokens", "completion_tokens"] {
            assert_eq!(last["usage"][used], whole["usage"][used]);
        }
        for choice in whole["choices"].as_array().unwrap() {
            let (mut text, mut told, mut offsets, mut readings) = (String::new(), vec![], vec![], vec![]);
            let mut finish = Value::Null;
            for piece in chunks.iter().map(|chunk| &chunk["choices"][0]).filter(|c| c["index"] == choice["index"]) {
                let part = if chat { &piece["delta"]["content"] } else { &piece["text"] };
                text.push_str(part.as_str().unwrap_or_default());
                let of = |list: &Value| list.as_array().cloned().unwrap_or_default();
                told.extend(of(&piece["logprobs"][if chat { "content" } else { "token_logprobs" }]));
                offsets.extend(of(&piece["logprobs"]["text_offset"]));
                readings.extend(of(&piece["loom"]["tokens"]));
                assert!(finish.is_null(), "nothing comes after the end");
                finish = piece["finish_reason"].clone();
            }
            assert_eq!(text, if chat { &choice["message"]["content"] } else { &choice["text"] }.as_str().unwrap());
            let whole_told = &choice["logprobs"][if chat { "content" } else { "token_logprobs" }];
            assert_eq!(&json!(told), whole_told);
            assert_eq!(json!(readings), choice["loom"]["tokens"]);
            assert_eq!(finish, choice["finish_reason"]);
            if !chat {
                assert_eq!(json!(offsets), choice["logprobs"]["text_offset"]);
            }
        }
    }
}

#[tokio::test]
async fn a_ragged_batch_is_echoed_with_the_engines_scores() {
    let server = Server::bundled().await;
    let model = bundled(1);
    let known = model.vocabulary().unwrap();
    // The second is answered by the end of the turn: a token all the same.
    let mut talk = vec![Message::user("Hi!")];
    let sampling = Sampling { max_tokens: 200, ..Sampling::greedy() };
    let reply =
        model.complete(Request::new(Prompt::Chat(talk.clone()), sampling, RngStream::root(0)), None).await.unwrap();
    assert_eq!(reply.end.as_ref().unwrap().id, Some(4));
    let mut ended = known.chat(&talk).unwrap();
    ended.extend(reply.message.ids.unwrap().iter());
    talk.clear();
    let prompts = vec![known.encode("I have two dogs and a cat.").unwrap(), ended, vec![7]];
    let mut body = json!({
        "model": "bundled", "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "echo": true, "seed": 1234,
        "repetition_penalty": 1,
    });
    let answer = server.ask("/v1/completions", &body).await;
    for (choice, ids) in answer["choices"].as_array().unwrap().iter().zip(&prompts) {
        let of = &choice["logprobs"];
        let told = f64s(&of["token_logprobs"]);
        assert_eq!(told.len(), ids.len() + 1, "exactly one generated token: {choice}");
        assert_eq!((told[0], &of["top_logprobs"][0]), (None, &Value::Null));
        let mut scored = Vec::new();
        if let Some((first, rest)) = ids.split_first().filter(|(_, rest)| !rest.is_empty()) {
            let request = Request::new(Prompt::Ids(vec![*first]), Sampling::greedy(), RngStream::root(0));
            scored = model.score(request, Continuation::Ids(rest.to_vec())).await.unwrap().tokens;
        }
        assert_eq!(told[1..ids.len()], logprobs(&scored));
        for (place, token) in scored.iter().enumerate() {
            let top = of["top_logprobs"][place + 1].as_object().unwrap();
            let best = top.values().map(|value| value.as_f64().unwrap()).fold(f64::NEG_INFINITY, f64::max);
            // As lm-evaluation-harness asks it: by equality.
            assert_eq!(
                token.rank == Some(0),
                best.to_bits() == f64::from(token.logprob.unwrap()).to_bits(),
                "{token:?} {top:?}"
            );
        }
        let texts: String =
            of["tokens"].as_array().unwrap()[..ids.len()].iter().map(|text| text.as_str().unwrap()).collect();
        assert_eq!(texts, known.decode(ids).unwrap());
        assert_eq!(of["text_offset"].as_array().unwrap().len(), told.len());
    }
    assert_eq!(answer["choices"][1]["logprobs"]["tokens"].as_array().unwrap().last().unwrap(), "<|end|>");
    assert_eq!(answer["choices"][1]["text"], known.decode(&prompts[1]).unwrap());
    assert_eq!(answer["usage"]["prompt_tokens"], json!(prompts.iter().map(Vec::len).sum::<usize>()));

    // Nothing but the prompts.
    body["max_tokens"] = json!(0);
    let scored = server.ask("/v1/completions", &body).await;
    for (index, ids) in prompts.iter().enumerate() {
        let (only, before) = (&scored["choices"][index]["logprobs"], &answer["choices"][index]["logprobs"]);
        assert_eq!(f64s(&only["token_logprobs"])[..], f64s(&before["token_logprobs"])[..ids.len()]);
        assert_eq!(scored["choices"][index]["finish_reason"], "length");
    }
    assert_eq!(scored["usage"]["completion_tokens"], 0);
}

#[tokio::test]
async fn gains_on_delta_are_applied() {
    let server = Server::bundled().await;
    let text = async |loom: Value| {
        let body = json!({
            "model": "bundled", "prompt": "I have two dogs and a cat.", "max_tokens": 0, "echo": true, "logprobs": 0,
            "loom": loom,
        });
        server.ask("/v1/completions", &body).await["choices"][0]["logprobs"]["token_logprobs"].clone()
    };
    let plain = text(Value::Null).await;
    assert_eq!(text(json!({ "delta": { "g_delta": 1 } })).await, plain);
    assert_eq!(text(json!({ "delta": { "g_delta": 0.5, "layers": [] } })).await, plain);
    let all = text(json!({ "delta": { "g_delta": 0.5 } })).await;
    let some = text(json!({ "delta": { "g_delta": 0.5, "layers": [0, 3] } })).await;
    let both = text(json!({ "delta": { "g_decay": 0.5, "g_write": 0.5 } })).await;
    assert!(all != plain && some != plain && some != all);
    assert_eq!(all, both);
}

#[tokio::test]
async fn tokenize_and_detokenize_are_inverse() {
    let server = Server::bundled().await;
    let text = "A crab 🦀 said: <|end|>";
    let tokens = server.ask("/tokenize", &json!({ "prompt": text, "add_special_tokens": false })).await;
    assert_eq!(json!(tokens["tokens"].as_array().unwrap().len()), tokens["count"]);
    let back = server.ask("/detokenize", &json!({ "tokens": tokens["tokens"] })).await;
    assert_eq!(back["prompt"], text);
    let chat = server.ask("/tokenize", &json!({ "messages": hello(), "return_token_strs": true })).await;
    let joined: String = chat["token_strs"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(joined, "<|system|>I have two dogs.<|end|><|user|>Hi! Any pets?<|end|><|assistant|>");
    let info: Value = server.get("/tokenizer_info").send().await.unwrap().json().await.unwrap();
    assert_eq!((&info["eos_token"], &info["vocab_size"]), (&json!("<|end|>"), &json!(4096)));
    assert!(info["chat_template"].as_str().unwrap().contains("add_generation_prompt"));
    let model: Value = server.get("/v1/models/bundled").send().await.unwrap().json().await.unwrap();
    assert_eq!((&model["id"], &model["loom"]["layers"]), (&json!("bundled"), &json!(6)));
}

#[tokio::test]
async fn a_text_is_tokenised_and_echoed_as_it_is_read() {
    let (_keep, model) = with_bos("{}");
    let server = Server::of(HttpService { model: Arc::new(model), name: "letters".to_owned(), ..service() }).await;
    let tokens = async |body: Value| server.ask("/tokenize", &body).await["tokens"].clone();
    assert_eq!(tokens(json!({ "prompt": "w5 w6" })).await, json!([0, 5, 6]));
    assert_eq!(tokens(json!({ "prompt": "w5 w6", "add_special_tokens": true })).await, json!([0, 5, 6]));
    assert_eq!(tokens(json!({ "prompt": "w5 w6", "add_special_tokens": false })).await, json!([5, 6]));
    let info: Value = server.get("/tokenizer_info").send().await.unwrap().json().await.unwrap();
    assert_eq!(info["add_bos_token"], json!(true));
    let echo = async |prompt: Value| {
        let body = json!({ "model": "letters", "prompt": prompt, "echo": true, "max_tokens": 3, "logprobs": 1,
            "temperature": 0 });
        let choice = server.ask("/v1/completions", &body).await["choices"][0].clone();
        (choice["text"].as_str().unwrap().to_owned(), choice["logprobs"].clone())
    };
    let (text, told) = echo(json!("w5 w6")).await;
    let (_, of_ids) = echo(json!([0, 5, 6])).await;
    assert_eq!(told["token_logprobs"], of_ids["token_logprobs"]);
    assert!(text.starts_with("w5 w6"), "{text}");
    // The added token is no part of the text.
    assert_eq!((&told["tokens"][0], &told["text_offset"][1]), (&json!(""), &json!(0)));
}

#[tokio::test]
async fn an_echoed_text_keeps_characters_split_over_tokens() {
    let server = Server::bundled().await;
    let text = "🦀 naïve 日本";
    let body = json!({ "model": "bundled", "prompt": text, "echo": true, "max_tokens": 0, "logprobs": 1 });
    let told = &server.ask("/v1/completions", &body).await["choices"][0]["logprobs"];
    let tokens: Vec<_> = told["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(tokens.concat(), text);
    assert_eq!(tokens[..4], ["", "", "", "🦀"]);
    assert_eq!(told["text_offset"].as_array().unwrap()[..5], [0, 0, 0, 0, 1].map(Value::from));
}

#[tokio::test]
async fn the_seed_is_returned() {
    let server = Server::bundled().await;
    let ask = async |seed: Value| {
        let body = json!({ "model": "bundled", "prompt": "Once", "seed": seed, "temperature": 1.0, "max_tokens": 8 });
        server.ask("/v1/completions", &body).await
    };
    let first = ask(json!(-1)).await;
    assert_eq!(first["loom"]["seed"], -1);
    let drawn = ask(Value::Null).await;
    for told in [first, drawn] {
        let again = ask(told["loom"]["seed"].clone()).await;
        assert_eq!(again["choices"], told["choices"]);
    }
}

#[tokio::test]
async fn a_prompt_beyond_the_window_is_refused_on_every_path() {
    let model = Arc::new(crate::engine::tiny("smollm"));
    let server = Server::of(HttpService { model, name: "small".to_owned(), ..service() }).await;
    let long = "w5 ".repeat(70);
    let ids = vec![5; 70];
    let chat = json!([{ "role": "user", "content": long }]);
    for stream in [false, true] {
        for (path, body) in [
            ("/v1/completions", json!({ "prompt": long })),
            ("/v1/completions", json!({ "prompt": ids })),
            ("/v1/completions", json!({ "prompt": ["w5", long] })),
            ("/v1/completions", json!({ "prompt": ids, "echo": true, "max_tokens": 0, "logprobs": 1 })),
            ("/v1/chat/completions", json!({ "messages": chat })),
        ] {
            let mut body = body;
            body["model"] = json!("small");
            body["stream"] = json!(stream);
            if stream && body["prompt"].is_array() && body["prompt"][0].is_string() {
                // The other prompt's chunks have gone out; the error is the last event.
                let text = server.post(path, &body).send().await.unwrap().text().await.unwrap();
                assert!(text.contains("64 tokens") && text.contains("invalid_request_error"), "{text}");
                continue;
            }
            let (status, refusal) = server.answer(path, &body).await;
            let why = refusal["error"]["message"].as_str().unwrap();
            assert_eq!((status, why.contains("64")), (reqwest::StatusCode::BAD_REQUEST, true), "{path} {refusal}");
        }
    }
    // What the window is, is told with a prompt's length.
    let told = server.ask("/tokenize", &json!({ "prompt": long })).await;
    assert_eq!((&told["count"], &told["max_model_len"]), (&json!(70), &json!(64)));
    // A prompt within it is answered up to its end, and the answer says that it was cut.
    let cut =
        server.ask("/v1/completions", &json!({ "model": "small", "prompt": vec![5; 60], "max_tokens": 30 })).await;
    assert_eq!(
        (&cut["choices"][0]["finish_reason"], &cut["usage"]["completion_tokens"]),
        (&json!("length"), &json!(4))
    );
}
