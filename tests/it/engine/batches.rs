//! However a sequence is read, it says the same, bit for bit.

use std::sync::OnceLock;

use loom_agent::foundation::base::Stream;
use loom_agent::foundation::base::limits::ACTIVE_SEQUENCES_MAX;
use loom_agent::foundation::chat::{
    DeltaGains, LanguageModel, LayerGains, Message, Prompt, Reading, Request, Sampling,
};
use loom_agent::inference::engine::LocalModel;
use proptest::prelude::*;

use super::{bits, block_on, bundled, complete, request, score};

fn shared(threads: usize) -> &'static LocalModel {
    static ONE: OnceLock<LocalModel> = OnceLock::new();
    static TWO: OnceLock<LocalModel> = OnceLock::new();
    if threads == 1 { ONE.get_or_init(|| bundled(1)) } else { TWO.get_or_init(|| bundled(2)) }
}

fn ids(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..4096u32, len)
}

fn fresh(ids: &[u32]) -> Request {
    request(Prompt::Ids(ids.to_vec()), Sampling::greedy())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn in_one_piece_in_chunks_and_token_by_token(ids in ids(3..290), chunk in 1..40usize) {
        let model = shared(1);
        let whole = score(model, fresh(&ids[..1]), &ids[1..], 0);
        for chunk in [chunk, 1] {
            let (mut tokens, mut after) = (Vec::new(), None);
            let mut read = 1;
            while read < ids.len() {
                let mut request = fresh(&ids[..read]);
                request.after = after;
                let to = (read + chunk).min(ids.len());
                let scored = score(model, request, &ids[read..to], 0);
                prop_assert_eq!(scored.reading, if read == 1 { Reading::Fresh } else { Reading::Continued });
                tokens.extend(scored.tokens);
                (after, read) = (scored.snapshot, to);
            }
            prop_assert_eq!(bits(&tokens), &bits(&whole.tokens)[..ids.len() - 1]);
        }
    }

    #[test]
    fn alone_and_in_company(all in prop::collection::vec(ids(2..60), 2..8)) {
        let model = shared(1);
        let alone: Vec<_> = all.iter().map(|ids| bits(&complete(model, write(ids)).unwrap().tokens)).collect();
        let together = block_on(async {
            let tasks: Vec<_> = all.iter().map(|ids| {
                let (model, request) = (model.clone(), write(ids));
                async move { model.complete(request, None).await.unwrap() }
            }).collect();
            join(tasks).await
        });
        for (alone, together) in alone.iter().zip(&together) {
            prop_assert_eq!(alone, &bits(&together.tokens));
        }
    }

    #[test]
    fn with_one_thread_and_with_two(ids in ids(2..300)) {
        let one = complete(shared(1), write(&ids)).unwrap();
        let two = complete(shared(2), write(&ids)).unwrap();
        prop_assert_eq!(bits(&one.tokens), bits(&two.tokens));
    }

    #[test]
    fn written_and_scored(ids in ids(1..80)) {
        let model = shared(2);
        let written = complete(model, write(&ids)).unwrap();
        let own: Vec<_> = written.tokens.iter().map(|token| token.id.unwrap()).collect();
        prop_assume!(!own.is_empty());
        let scored = score(model, fresh(&ids), &own, 3);
        prop_assert_eq!(&scored.tokens, &written.tokens);
        // And from the state before the reply.
        let mut again = fresh(&ids);
        again.after = written.before;
        prop_assert_eq!(&score(model, again, &own, 3).tokens, &written.tokens);
    }

    #[test]
    fn gains_of_one_change_no_bit_and_the_gain_on_delta_is_both_others(ids in ids(2..60), gain in 0.0..3.0f32) {
        let model = shared(1);
        let with = |gains: Option<DeltaGains>| {
            let mut request = fresh(&ids[..1]);
            request.gains = gains;
            bits(&score(model, request, &ids[1..], 0).tokens)
        };
        prop_assert_eq!(with(None), with(Some(DeltaGains::Uniform(LayerGains::ONE))));
        prop_assert_eq!(with(None), with(Some(DeltaGains::PerLayer(vec![LayerGains::ONE; 6]))));
        prop_assert_eq!(
            with(Some(DeltaGains::Uniform(LayerGains { delta: gain, ..LayerGains::ONE }))),
            with(Some(DeltaGains::Uniform(LayerGains { decay: gain, write: gain, ..LayerGains::ONE })))
        );
    }
}

/// A short sampled reply.
fn write(ids: &[u32]) -> Request {
    let sampling = Sampling { max_tokens: 12, temperature: 1.0, top_logprobs: 3, ..Sampling::default() };
    request(Prompt::Ids(ids.to_vec()), sampling)
}

async fn join<F: Future<Output: Send + 'static> + Send + 'static>(tasks: Vec<F>) -> Vec<F::Output> {
    let handles: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    let mut done = Vec::new();
    for handle in handles {
        done.push(handle.await.unwrap());
    }
    done
}

#[test]
fn a_gain_of_zero_freezes_the_state() {
    // Then only the convolutions remember: 6 layers, 3 tokens each.
    let tail: Vec<u32> = (100..120).collect();
    let after = |first: u32, gains| {
        let mut request = fresh(&[&[first, first + 1], tail.as_slice()].concat());
        request.gains = gains;
        bits(&score(shared(1), request, &[7], 0).tokens)
    };
    let frozen = Some(DeltaGains::Uniform(LayerGains { delta: 0.0, ..LayerGains::ONE }));
    assert_eq!(after(10, frozen.clone()), after(900, frozen));
    assert_ne!(after(10, None), after(900, None));
}

#[test]
fn more_callers_than_places_are_all_served() {
    let model = shared(2);
    let replies = block_on(async {
        let calls = (0..ACTIVE_SEQUENCES_MAX as u64 + 9).map(|seed| {
            let prompt = Prompt::Chat(vec![Message::user("Hi!")]);
            let sampling = Sampling { max_tokens: 3, ..Sampling::default() };
            let (model, request) = (model.clone(), Request::new(prompt, sampling, Stream::root(seed % 5)));
            async move { model.complete(request, None).await.unwrap().message.content }
        });
        join(calls.collect()).await
    });
    assert_eq!(replies.len(), ACTIVE_SEQUENCES_MAX + 9);
    assert!(replies.iter().zip(replies.iter().skip(5)).all(|(a, b)| a == b), "the same stream draws the same reply");
}
