//! Requests that are submitted together: all are in the inbox before the engine looks.

use std::sync::OnceLock;

use super::super::bundled;
use super::super::mamba::Mamba;
use super::super::models::parse_mamba;
use super::super::network::{NetworkConfig, Tensors};
use super::super::reply::Reply;
use super::super::sequence::{PromptInput, Task};
use super::super::tokenizer::Tokenizer;
use super::super::weights::Weights;
use super::*;
use crate::foundation::base::RngStream;
use crate::foundation::chat::{Sampling, TokenId};

const OPENING: &str = "The old man had lived by the sea all his life, and every morning he went down to his boat";

fn model() -> Arc<Mamba> {
    static MODEL: OnceLock<Arc<Mamba>> = OnceLock::new();
    let load = || {
        let config = parse_mamba(bundled::CONFIG, None).unwrap();
        let weights = config.load(&mut Weights::from_bytes(bundled::WEIGHTS).unwrap()).unwrap();
        let Tensors { embedding_and_head, layers } = weights;
        Arc::new(config.network(embedding_and_head, layers))
    };
    Arc::clone(MODEL.get_or_init(load))
}

fn tokenizer() -> Arc<Tokenizer> {
    static TOKENIZER: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    Arc::clone(TOKENIZER.get_or_init(|| Arc::new(Tokenizer::parse(bundled::TOKENIZER).unwrap())))
}

fn sharing() -> Scheduler<Mamba> {
    Scheduler::new(model(), Digest::of("a model"), Budget::default().prefix_bytes)
}

fn ids(text: &str) -> Vec<TokenId> {
    tokenizer().encode(text).unwrap()
}

/// Generates six tokens after `ids`, of which the first `history` may be shared.
fn write(ids: &[TokenId], history: usize, seed: u64) -> PreparedRequest {
    let sampling = Sampling { max_tokens: 6, temperature: 1.0, ..Sampling::default() };
    let reply = Reply::new(tokenizer(), &[], Arc::from([]), sampling, RngStream::root(seed)).unwrap();
    let task = Task::Write(Box::new(reply));
    PreparedRequest {
        input: PromptInput {
            ids: ids.to_vec(),
            history,
            after: None,
            gains: None,
            record_ssm: false,
            drops_thoughts: false,
        },
        task,
    }
}

/// Serves `requests`; the caller of number `leaves` leaves before anything is done, and its outcome is `None`.
fn serve(
    scheduler: &mut Scheduler<Mamba>,
    requests: Vec<PreparedRequest>,
    leaves: Option<u64>,
) -> Vec<Option<Box<Outcome>>> {
    let admission = Admission::new(Budget::default(), requests.len(), |_| 0);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (sender, mut inbox) = unbounded_channel();
    let answers: Vec<_> = (0..)
        .zip(requests)
        .map(|(key, request)| {
            let (events, answers) = unbounded_channel();
            let permit = runtime.block_on(admission.admit(1, request.input.ids.len(), 0)).unwrap().remove(0);
            assert!(sender.send(Message::Start(vec![Job { key, request, listens: false, events, permit }])).is_ok());
            answers
        })
        .collect();
    assert!(leaves.is_none_or(|key| sender.send(Message::CallerLeft { key }).is_ok()));
    drop(sender);
    scheduler.run(&mut inbox);
    let outcome = |mut answers: UnboundedReceiver<Event>| match answers.try_recv().ok()? {
        Event::Done(outcome) => Some(outcome.unwrap()),
        Event::Tokens(_) => panic!("there is no listener"),
    };
    answers.into_iter().map(outcome).collect()
}

fn bits(outcome: &Outcome) -> Vec<(Option<TokenId>, Option<u32>)> {
    outcome.tokens.iter().map(|token| (token.id, token.logprob.map(f32::to_bits))).collect()
}

/// How many tokens of each prompt were adopted from another. Checks that the replies are those without sharing.
fn adopted(scheduler: &mut Scheduler<Mamba>, requests: &dyn Fn() -> Vec<PreparedRequest>) -> Vec<u64> {
    let outcomes = serve(scheduler, requests(), None);
    for (outcome, request) in outcomes.iter().zip(requests()) {
        let mut alone = Scheduler::new(model(), Digest::of("a model"), 0);
        let lone = serve(&mut alone, vec![request], None);
        assert_eq!(bits(outcome.as_ref().unwrap()), bits(lone[0].as_ref().unwrap()));
    }
    outcomes.into_iter().map(|outcome| outcome.unwrap().usage.tokens_cached).collect()
}

#[test]
fn requests_submitted_together_read_their_prefix_once() {
    let prompt = ids(OPENING);
    // All but the beginning of the model's own turn.
    let shareable_prefix = prompt.len() - 1;
    let requests = || (0..8).map(|seed| write(&prompt, shareable_prefix, seed)).collect();
    assert_eq!(adopted(&mut sharing(), &requests), [&[0][..], &[shareable_prefix as u64; 7]].concat());
}

#[test]
fn diverging_prompts_share_their_common_prefix() {
    let with = |ending: &str| write(&ids(&format!("{OPENING}{ending}")), usize::MAX, 1);
    let mut scheduler = sharing();
    let shared = ids(OPENING).len() as u64;
    let whole = ids(&format!("{OPENING} to fish.")).len() as u64;
    // The last is the same as the first.
    let requests = || [" to fish.", " with his dog.", ", whatever the weather.", " to fish."].map(with).into();
    assert_eq!(adopted(&mut scheduler, &requests), [0, shared, shared, whole]);
    // The cached prefixes serve later requests.
    assert_eq!(adopted(&mut scheduler, &|| vec![with(", and back again.")]), [shared]);
}

#[test]
fn when_a_reader_is_cancelled_a_waiting_request_takes_over() {
    let prompt = ids(OPENING);
    let requests = || (0..3).map(|seed| write(&prompt, prompt.len() - 1, seed)).collect();
    let [left, second, third] = &serve(&mut sharing(), requests(), Some(0))[..] else { panic!("three outcomes") };
    assert!(left.is_none());
    let (second, third) = (second.as_ref().unwrap(), third.as_ref().unwrap());
    // The next in line reads in its place.
    assert_eq!([second.usage.tokens_cached, third.usage.tokens_cached], [0, prompt.len() as u64 - 1]);
    let mut alone = Scheduler::new(model(), Digest::of("a model"), 0);
    let lone = serve(&mut alone, requests(), None);
    for (outcome, lone) in [second, third].into_iter().zip(lone.iter().skip(1)) {
        assert_eq!(bits(outcome), bits(lone.as_ref().unwrap()));
    }
}
