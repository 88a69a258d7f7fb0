//! Tests without a model, and of positions with the bundled one.

use super::*;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{Continuation, DeltaGains, LayerGains, Prompt, Request, Sampling};
use crate::inference::providers::{OpenOptions, open};
use crate::simulation::persona::parse;

#[test]
fn pressure_is_the_probability_of_any_of_them() {
    let phrase = |ps: &[f32]| PhraseLogprob { ids: vec![1; ps.len()], logprob: ps.iter().map(|p| p.ln()).collect() };
    let value = pressure(&[phrase(&[0.5, 0.5]), phrase(&[0.25])]).unwrap();
    assert!((value - 0.5_f64.ln()).abs() < 1e-6, "{value}");
    assert!(pressure(&[]).unwrap_err().contains("forbids no phrases"));
}

#[test]
fn every_score_is_defined_in_the_docs() {
    let docs = include_str!("../../../../docs/SCORES.md");
    let config = parse("anna.yaml", include_str!("../../../../tests/data/rollout/anna.yaml")).unwrap();
    for score in missing(&config, None, "no model", LikelihoodSet::Default) {
        assert!(docs.contains(&format!("`{}`", score.id)), "{} is not defined", score.id);
        assert_eq!(score.why.as_deref(), Some("no model"));
    }
}

fn bundled() -> Arc<dyn LanguageModel> {
    open(&"bundled".parse().unwrap(), &OpenOptions::default()).unwrap()
}

fn bits(tokens: &[TokenLogprob]) -> Vec<u32> {
    tokens.iter().map(|token| token.logprob.unwrap().to_bits()).collect()
}

fn request_with(prompt: Prompt, gains: Option<DeltaGains>) -> Request {
    let mut request = Request::new(prompt, Sampling::greedy(), RngStream::root(0));
    request.gains = gains;
    request
}

#[tokio::test]
async fn positions_give_the_same_logprobs_as_scoring_from_the_messages() {
    let model = bundled();
    let vocabulary = model.vocabulary().unwrap();
    let mut talk = vec![Message::system("Be Anna, who counts the alarms at night and trusts nobody in ward six.")];
    let (phrases, mut requests, mut positions) = (["You're right", "I agree"], Vec::new(), Vec::new());
    for (turn, said) in ["Short, short, long.", "They answer the door bell.", "…"].iter().enumerate() {
        if turn == 2 {
            // The instructions change: no state can be reused.
            talk[0] = Message::system("Be Anna, who counts the alarms at night and trusts Doctor Hansen by now.");
        }
        let replies = phrases.iter().chain([said]);
        let ids = replies.clone().map(|text| vocabulary.encode(text).unwrap());
        let replies = ids.map(|ids| CandidateReply { ids, gains: None }).collect();
        positions.push(Ok(ScorePosition { before: vocabulary.chat(&talk).unwrap(), replies, beginnings: None }));
        requests.push((talk.clone(), phrases.iter().chain([said]).map(|text| (*text).to_owned()).collect::<Vec<_>>()));
        talk.extend([Message::assistant(*said), Message::user("And then?")]);
    }
    positions.insert(1, Err("the template refuses".to_owned()));
    let mut read = positions::read(model.as_ref(), positions).await;
    assert_eq!(read.remove(1).unwrap_err(), "the template refuses");
    for (result, (messages, texts)) in read.into_iter().zip(requests) {
        for (logprobs, text) in result.unwrap().replies.into_iter().zip(texts) {
            let request = request_with(Prompt::Chat(messages.clone()), None);
            let alone = model.score(request, Continuation::Text(text.clone())).await.unwrap();
            assert_eq!(bits(&logprobs.unwrap()), bits(&alone.tokens), "{text}");
        }
    }
}

#[tokio::test]
async fn replies_are_read_under_the_gains_they_were_generated_with() {
    let model = bundled();
    let ids = |text: &str| model.vocabulary().unwrap().encode(text).unwrap();
    let gains = |write| Some(DeltaGains::Uniform(LayerGains { write, ..LayerGains::ONE }));
    let (first, said, more, next) = (ids("I hear it."), ids(" Every night"), ids(" Go on."), ids(" It rings"));
    let second = [&first[..], &said, &more].concat();
    let reply = |ids: &[TokenId], gains| CandidateReply { ids: ids.to_vec(), gains };
    let position =
        |before: &[TokenId], replies| Ok(ScorePosition { before: before.to_vec(), replies, beginnings: None });
    let positions = vec![
        position(&first, vec![reply(&next, gains(2.0)), reply(&said, gains(2.0))]),
        position(&second, vec![reply(&next, gains(0.5))]),
    ];
    let mut read = positions::read(model.as_ref(), positions).await;
    let logprobs = read.pop().unwrap().unwrap().replies.pop().unwrap().unwrap();

    let one = model.score(request_with(Prompt::Ids(first), gains(2.0)), Continuation::Ids(said)).await.unwrap();
    let mut request = request_with(Prompt::Ids(second), gains(0.5));
    let fresh = model.score(request.clone(), Continuation::Ids(next.clone())).await.unwrap();
    request.after = one.snapshot;
    let two = model.score(request, Continuation::Ids(next)).await.unwrap();
    assert_eq!(bits(&logprobs), bits(&two.tokens));
    assert_ne!(bits(&logprobs), bits(&fresh.tokens));
}
