//! What needs no model, and shadows of the bundled one.

use super::*;
use crate::foundation::base::Stream;
use crate::foundation::chat::{Continuation, DeltaGains, LayerGains, Prompt, Request, Sampling};
use crate::inference::providers::{OpenOptions, open};
use crate::simulation::persona::parse;

#[test]
fn pressure_is_the_probability_of_any_of_them() {
    let phrase = |ps: &[f32]| Beginning { ids: vec![1; ps.len()], logprob: ps.iter().map(|p| p.ln()).collect() };
    let value = pressure(&[phrase(&[0.5, 0.5]), phrase(&[0.25])]).unwrap();
    assert!((value - 0.5_f64.ln()).abs() < 1e-6, "{value}");
    assert!(pressure(&[]).unwrap_err().contains("forbids no phrases"));
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

fn bundled() -> Arc<dyn LanguageModel> {
    open(&"bundled".parse().unwrap(), &OpenOptions::default()).unwrap()
}

fn bits(tokens: &[TokenLogprob]) -> Vec<u32> {
    tokens.iter().map(|token| token.logprob.unwrap().to_bits()).collect()
}

fn asked(prompt: Prompt, gains: Option<DeltaGains>) -> Request {
    let mut request = Request::new(prompt, Sampling::greedy(), Stream::root(0));
    request.gains = gains;
    request
}

#[tokio::test]
async fn shadows_read_what_the_model_itself_would_from_the_messages() {
    let model = bundled();
    let vocabulary = model.vocabulary().unwrap();
    let mut talk = vec![Message::system("Be Anna, who counts the alarms at night and trusts nobody in ward six.")];
    let (phrases, mut asked_of, mut places) = (["You're right", "I agree"], Vec::new(), Vec::new());
    for (turn, said) in ["Short, short, long.", "They answer the door bell.", "…"].iter().enumerate() {
        if turn == 2 {
            // The instructions are written anew: nothing that was read helps.
            talk[0] = Message::system("Be Anna, who counts the alarms at night and trusts Doctor Hansen by now.");
        }
        let replies = phrases.iter().chain([said]);
        let ids = replies.clone().map(|text| vocabulary.encode(text).unwrap());
        let replies = ids.map(|ids| Reply { ids, gains: None }).collect();
        places.push(Ok(Place { before: vocabulary.chat(&talk).unwrap(), replies, beginnings: None }));
        asked_of.push((talk.clone(), phrases.iter().chain([said]).map(|text| (*text).to_owned()).collect::<Vec<_>>()));
        talk.extend([Message::assistant(*said), Message::user("And then?")]);
    }
    places.insert(1, Err("the template refuses".to_owned()));
    let mut read = shadow::read(model.as_ref(), places).await;
    assert_eq!(read.remove(1).unwrap_err(), "the template refuses");
    for (likely, (messages, texts)) in read.into_iter().zip(asked_of) {
        for (likely, text) in likely.unwrap().replies.into_iter().zip(texts) {
            let request = asked(Prompt::Chat(messages.clone()), None);
            let alone = model.score(request, Continuation::Text(text.clone())).await.unwrap();
            assert_eq!(bits(&likely.unwrap()), bits(&alone.tokens), "{text}");
        }
    }
}

#[tokio::test]
async fn what_was_said_under_other_gains_is_read_under_them() {
    let model = bundled();
    let ids = |text: &str| model.vocabulary().unwrap().encode(text).unwrap();
    let gains = |write| Some(DeltaGains::Uniform(LayerGains { write, ..LayerGains::ONE }));
    let (first, said, more, next) = (ids("I hear it."), ids(" Every night"), ids(" Go on."), ids(" It rings"));
    let second = [&first[..], &said, &more].concat();
    let reply = |ids: &[TokenId], gains| Reply { ids: ids.to_vec(), gains };
    let place = |before: &[TokenId], replies| Ok(Place { before: before.to_vec(), replies, beginnings: None });
    let places = vec![
        place(&first, vec![reply(&next, gains(2.0)), reply(&said, gains(2.0))]),
        place(&second, vec![reply(&next, gains(0.5))]),
    ];
    let mut read = shadow::read(model.as_ref(), places).await;
    let likely = read.pop().unwrap().unwrap().replies.pop().unwrap().unwrap();

    let one = model.score(asked(Prompt::Ids(first), gains(2.0)), Continuation::Ids(said)).await.unwrap();
    let mut request = asked(Prompt::Ids(second), gains(0.5));
    let fresh = model.score(request.clone(), Continuation::Ids(next.clone())).await.unwrap();
    request.after = one.snapshot;
    let two = model.score(request, Continuation::Ids(next)).await.unwrap();
    assert_eq!(bits(&likely), bits(&two.tokens));
    assert_ne!(bits(&likely), bits(&fresh.tokens));
}
