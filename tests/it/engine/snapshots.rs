//! State is a value: continue, retry, branch, resume.

use loom_agent::foundation::chat::{
    Completion, DeltaGains, Finish, LayerGains, Message, PrefixReuse, Prompt, Request, Sampling, Snapshot,
};

use super::{bits, bundled, complete, request, tiny};

fn persona() -> Vec<Message> {
    vec![Message::system("I have two dogs. I love hiking."), Message::user("Hi! Do you have any pets?")]
}

fn chat(messages: &[Message], after: Option<Snapshot>) -> Request {
    let sampling = Sampling { temperature: 1.0, max_tokens: 30, top_logprobs: 2, ..Sampling::default() };
    let mut request = request(Prompt::Chat(messages.to_vec()), sampling);
    request.after = after;
    request
}

fn same(a: &Completion, b: &Completion) {
    assert_eq!(a.message, b.message);
    assert_eq!(bits(&a.tokens), bits(&b.tokens));
    assert_eq!(a.finish, b.finish);
}

#[test]
fn continuing_a_conversation_equals_reading_it_afresh() {
    let model = bundled(1);
    let mut messages = persona();
    let mut after = None;
    for (turn, answer) in ["Really? Tell me more.", "I see 🦀. And you?", ""].into_iter().enumerate() {
        let grown = complete(&model, chat(&messages, after)).unwrap();
        let fresh = complete(&model, chat(&messages, None)).unwrap();
        same(&grown, &fresh);
        assert_eq!(grown.prefix_reuse, if turn == 0 { PrefixReuse::Fresh } else { PrefixReuse::Continued });
        assert_eq!(grown.usage.tokens_in, fresh.usage.tokens_in);
        after = grown.snapshot;
        messages.extend([grown.message, Message::user(answer)]);
    }
}

#[test]
fn a_retry_does_not_read_the_history_again() {
    let model = bundled(1);
    let first = complete(&model, chat(&persona(), None)).unwrap();
    let retry = complete(&model, chat(&persona(), first.before.clone())).unwrap();
    same(&first, &retry);
    assert_eq!(retry.prefix_reuse, PrefixReuse::Continued);
    // Only the beginning of the model's own turn.
    assert_eq!(retry.usage.tokens_in - retry.usage.tokens_cached, 1);
    // A redraft with another instruction continues from the same state.
    let mut instructed = persona();
    instructed.push(Message::system("Answer in one word."));
    let redraft = complete(&model, chat(&instructed, first.before)).unwrap();
    assert_eq!(redraft.prefix_reuse, PrefixReuse::Continued);
    same(&redraft, &complete(&model, chat(&instructed, None)).unwrap());
}

#[test]
fn an_unrelated_snapshot_is_not_used() {
    let model = bundled(1);
    let first = complete(&model, chat(&persona(), None)).unwrap();
    let other = [Message::user("Something else.")];
    let reread = complete(&model, chat(&other, first.snapshot.clone())).unwrap();
    assert_eq!(reread.prefix_reuse, PrefixReuse::Reread);
    same(&reread, &complete(&model, chat(&other, None)).unwrap());
    // A snapshot of another model, or of another type, is not used either.
    let stranger = tiny("plain");
    let mut ids = request(Prompt::Ids(vec![2, 3]), Sampling { max_tokens: 2, ..Sampling::greedy() });
    let own = complete(&stranger, ids.clone()).unwrap();
    for foreign in [first.snapshot.unwrap(), Snapshot::new("something", 2)] {
        ids.after = Some(foreign);
        assert_eq!(complete(&stranger, ids.clone()).unwrap().prefix_reuse, PrefixReuse::Reread);
    }
    ids.after = own.before;
    assert_eq!(complete(&stranger, ids).unwrap().prefix_reuse, PrefixReuse::Continued);
}

#[test]
fn every_reply_can_be_continued() {
    let model = bundled(1);
    for max_tokens in [1, 3, 30] {
        let mut first = chat(&persona(), None);
        first.sampling.max_tokens = max_tokens;
        let reply = complete(&model, first).unwrap();
        assert!(matches!(reply.finish, Finish::Length | Finish::Stop));
        let mut messages = persona();
        messages.extend([reply.message, Message::user("Why?")]);
        let next = complete(&model, chat(&messages, reply.snapshot)).unwrap();
        assert_eq!(next.prefix_reuse, PrefixReuse::Continued);
        same(&next, &complete(&model, chat(&messages, None)).unwrap());
    }
}

#[test]
fn gains_apply_to_one_request_and_their_effect_stays_in_the_state() {
    let model = bundled(1);
    let weak = Some(DeltaGains::Uniform(LayerGains { delta: 0.7, ..LayerGains::ONE }));
    let mut first = chat(&persona(), None);
    first.gains.clone_from(&weak);
    let reply = complete(&model, first).unwrap();
    let mut messages = persona();
    messages.extend([reply.message.clone(), Message::user("Why?")]);
    let carried = complete(&model, chat(&messages, reply.snapshot)).unwrap();
    assert_eq!(carried.prefix_reuse, PrefixReuse::Continued);
    let unmodulated = complete(&model, chat(&messages, None)).unwrap();
    assert_ne!(bits(&carried.tokens), bits(&unmodulated.tokens));
}
