//! Attention has a window, which is reported; a recurrent model has none.

use loom_agent::foundation::chat::{Finish, LanguageModel, Prompt, Sampling};

use super::{bits, complete, request, score, tiny};

fn ids(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| i * 7 % 40).collect()
}

#[test]
fn a_reply_ends_at_the_end_of_the_window() {
    let model = tiny("smollm");
    assert_eq!(model.info().window_tokens, Some(64));
    let write = |len: usize| complete(&model, request(Prompt::Ids(ids(len)), Sampling::greedy()));
    let reply = write(60).unwrap();
    assert_eq!((reply.tokens.len(), reply.finish), (4, Finish::Length));
    assert_eq!(write(63).unwrap().tokens.len(), 1);
    let error = write(64).unwrap_err().to_string();
    assert!(
        error.contains("a prompt of 64 tokens and 1 more exceed the window of 64 tokens: shorten the prompt"),
        "{error}"
    );
}

#[test]
fn a_score_must_fit_into_the_window() {
    let model = tiny("smollm");
    let all = ids(64);
    let inside = score(&model, request(Prompt::Ids(all[..4].to_vec()), Sampling::greedy()), &all[4..], 0);
    assert_eq!(bits(&inside.tokens).len(), 60);
    let long = request(Prompt::Ids(all), Sampling::greedy());
    let outside = super::block_on(model.score(long, loom_agent::foundation::chat::Continuation::Ids(vec![1])));
    assert!(outside.unwrap_err().to_string().contains("exceed the window of 64"));
}

#[test]
fn a_recurrent_model_has_no_window() {
    let model = tiny("mamba2");
    assert_eq!(model.info().window_tokens, None);
    let sampling = Sampling { max_tokens: 2, ..Sampling::greedy() };
    assert_eq!(complete(&model, request(Prompt::Ids(ids(900)), sampling)).unwrap().tokens.len(), 2);
}
