//! The same against servers that nobody here wrote: `scripts/check-hosted.sh` starts them.

use std::sync::Arc;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{Continuation, Finish, LanguageModel, Prompt, Request, Sampling};
use loom_agent::inference::providers::open;

use super::{compatible, hears, impatient, named, options, request};

fn server() -> Arc<dyn LanguageModel> {
    let variable = |name: &str| std::env::var(name).expect("scripts/check-hosted.sh sets it");
    let spec = format!("openai-compatible:{}#{}", variable("LOOM_HOSTED_URL"), variable("LOOM_HOSTED_NAME"));
    named(&spec, impatient())
}

#[tokio::test]
#[ignore = "needs a server: scripts/check-hosted.sh starts one"]
async fn a_reply_has_log_probabilities_and_a_listener_ends_it() {
    let model = server();
    let mut asked = request(3);
    asked.sampling.top_logprobs = 3;
    let mut heard = Vec::new();
    let reply = model.complete(asked.clone(), Some(hears(1000, &mut heard))).await.unwrap();
    println!("{:?} {:?} {:?}", reply.message.content, reply.usage, reply.hosted);
    assert_eq!(heard.concat(), reply.message.content);
    assert!(matches!(reply.finish, Finish::Stop | Finish::Length));
    for token in &reply.tokens {
        println!("{:?} {:?} {:?} {:?}", token.text, token.logprob, token.rank, token.top_texts);
        assert!(token.logprob.is_some_and(|logprob| logprob <= 0.0));
        // llama-cpp-python tells them by their texts, of which bytes that make no character yet all have the empty
        // one, and adds the token itself.
        assert!((1..=4).contains(&token.top_texts.len()));
    }
    let mut heard = Vec::new();
    let ended = model.complete(asked, Some(hears(2, &mut heard))).await.unwrap();
    assert_eq!((ended.finish, ended.tokens.len(), heard.len()), (Finish::Cancelled, 2, 2));
}

#[tokio::test]
#[ignore = "needs a server: scripts/check-hosted.sh starts one"]
async fn a_text_is_scored_token_by_token() {
    let model = server();
    let score = |prompt: &str, more: &str| {
        let request = Request::new(Prompt::Text(prompt.to_owned()), Sampling::greedy(), RngStream::root(0));
        model.score(request, Continuation::Text(more.to_owned()))
    };
    let whole = match score("The sun", " is over the hill").await {
        Ok(whole) => whole,
        // llama.cpp's own server does not echo; what is started for this test does.
        Err(error) if std::env::var_os("LOOM_HOSTED_ECHOES").is_none() => {
            println!("{error}");
            assert!(error.to_string().contains("does not echo log-probabilities"), "{error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let texts: String = whole.tokens.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(texts, " is over the hill");
    // The chain rule: a text in two pieces is as likely as in one.
    let first = score("The sun", " is over").await.unwrap().logprob().unwrap();
    let second = score("The sun is over", " the hill").await.unwrap().logprob().unwrap();
    let sum = whole.logprob().unwrap();
    println!("{sum} = {first} + {second}");
    assert!((first + second - sum).abs() < 1e-3 * sum.abs());
}

#[tokio::test]
#[ignore = "needs a server: scripts/check-hosted.sh starts one"]
async fn litellm_speaks_as_anthropic_does() {
    let model = open(&"anthropic/behind-litellm".parse().unwrap(), &options(impatient())).unwrap();
    let mut heard = Vec::new();
    let reply = model.complete(request(3), Some(hears(1000, &mut heard))).await.unwrap();
    println!("{:?} {:?} {:?}", reply.message.content, reply.usage, reply.hosted);
    assert_eq!(heard.concat(), reply.message.content);
    assert!(!reply.tokens.is_empty() && reply.tokens.iter().all(|token| token.logprob.is_none()));
    let missing = open(&"anthropic/not-there".parse().unwrap(), &options(impatient())).unwrap();
    let error = missing.complete(request(3), None).await.unwrap_err().to_string();
    println!("{error}");
    let nobody =
        compatible("http://127.0.0.1:9/v1", impatient()).complete(request(3), None).await.unwrap_err().to_string();
    assert!(nobody.contains("cannot be reached"), "{nobody}");
}
