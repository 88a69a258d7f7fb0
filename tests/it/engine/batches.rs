//! Results have the same bits however a sequence is read, for every architecture.

use std::sync::OnceLock;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::base::limits::ACTIVE_SEQUENCES_MAX;
use loom_agent::foundation::chat::{
    Continuation, DeltaGains, LanguageModel, LayerGains, Message, ModelError, PrefixReuse, Prompt, Request, Sampling,
    Snapshot,
};
use loom_agent::inference::engine::LocalModel;
use proptest::prelude::*;

use super::{MODELS, bits, block_on, bundled, complete, fixture, folder, request, score};

/// A model opened with one thread and with two.
struct Subject {
    name: &'static str,
    one: LocalModel,
    two: LocalModel,
}

impl Subject {
    /// Maps arbitrary numbers to ids of this model.
    fn ids(&self, numbers: &[u32]) -> Vec<u32> {
        let vocabulary = self.one.info().vocabulary.unwrap() as u32;
        numbers.iter().map(|number| number % vocabulary).collect()
    }
}

/// The bundled model and one small model of each other architecture.
fn subjects() -> &'static [Subject] {
    static SUBJECTS: OnceLock<Vec<Subject>> = OnceLock::new();
    SUBJECTS.get_or_init(|| {
        let open = |name| match name {
            "bundled" => Subject { name, one: bundled(1), two: bundled(2) },
            name => Subject { name, one: folder(&fixture(name), 1), two: folder(&fixture(name), 2) },
        };
        ["bundled"].into_iter().chain(MODELS).map(open).collect()
    })
}

fn recurrent() -> impl Iterator<Item = &'static Subject> {
    subjects().iter().filter(|subject| subject.one.info().delta)
}

/// Arbitrary numbers, to be mapped by [`Subject::ids`]. Long ones fill more than one page of a KV cache.
fn ids(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..4096u32, len)
}

fn fresh(ids: &[u32]) -> Request {
    request(Prompt::Ids(ids.to_vec()), Sampling::greedy())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn chunking_changes_no_bit(numbers in ids(3..290), chunk in 1..40usize) {
        for subject in subjects() {
            let window = subject.one.info().window_tokens.filter(|_| !subject.one.info().delta);
            let mut ids = subject.ids(&numbers);
            ids.truncate(window.unwrap_or(usize::MAX));
            let model = &subject.one;
            let whole = score(model, fresh(&ids[..1]), &ids[1..], 0);
            for chunk in [chunk, 1] {
                let (mut tokens, mut after) = (Vec::new(), None);
                let mut read = 1;
                while read < ids.len() {
                    let mut request = fresh(&ids[..read]);
                    request.after = after;
                    let to = (read + chunk).min(ids.len());
                    let scored = score(model, request, &ids[read..to], 0);
                    prop_assert_eq!(scored.prefix_reuse, if read == 1 { PrefixReuse::Fresh } else { PrefixReuse::Continued });
                    tokens.extend(scored.tokens);
                    (after, read) = (scored.snapshot, to);
                }
                prop_assert_eq!(bits(&tokens), &bits(&whole.tokens)[..ids.len() - 1], "{}", subject.name);
            }
        }
    }

    #[test]
    fn batching_changes_no_bit(all in prop::collection::vec(ids(2..50), 2..8)) {
        for subject in subjects() {
            let model = &subject.one;
            let all: Vec<_> = all.iter().map(|numbers| subject.ids(numbers)).collect();
            let alone: Vec<_> = all.iter().map(|ids| bits(&complete(model, write(ids)).unwrap().tokens)).collect();
            let together = block_on(async {
                let tasks: Vec<_> = all.iter().map(|ids| {
                    let (model, request) = (model.clone(), write(ids));
                    async move { model.complete(request, None).await.unwrap() }
                }).collect();
                join(tasks).await
            });
            for (alone, together) in alone.iter().zip(&together) {
                prop_assert_eq!(alone, &bits(&together.tokens), "{}", subject.name);
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit(numbers in ids(2..300)) {
        for subject in subjects() {
            let mut ids = subject.ids(&numbers);
            ids.truncate(50);
            let one = complete(&subject.one, write(&ids)).unwrap();
            let two = complete(&subject.two, write(&ids)).unwrap();
            prop_assert_eq!(bits(&one.tokens), bits(&two.tokens), "{}", subject.name);
        }
        let bundled = &subjects()[0];
        let (one, two) = (complete(&bundled.one, write(&numbers)), complete(&bundled.two, write(&numbers)));
        prop_assert_eq!(bits(&one.unwrap().tokens), bits(&two.unwrap().tokens));
    }

    #[test]
    fn scoring_equals_generation(numbers in ids(1..50)) {
        for subject in subjects() {
            let (model, ids) = (&subject.two, subject.ids(&numbers));
            let written = complete(model, write(&ids)).unwrap();
            let own: Vec<_> = written.tokens.iter().map(|token| token.id.unwrap()).collect();
            if own.is_empty() {
                continue;
            }
            let scored = score(model, fresh(&ids), &own, 3);
            prop_assert_eq!(&scored.tokens, &written.tokens, "{}", subject.name);
            // And from the state before the reply.
            let mut again = fresh(&ids);
            again.after = written.before;
            prop_assert_eq!(&score(model, again, &own, 3).tokens, &written.tokens, "{}", subject.name);
        }
    }

    #[test]
    fn forks_of_one_state_are_independent(
        numbers in ids(1..61), left in ids(1..5), right in ids(1..5),
    ) {
        for subject in subjects() {
            let model = &subject.one;
            let (ids, left, right) = (subject.ids(&numbers), subject.ids(&left), subject.ids(&right));
            let opening = complete(model, request(Prompt::Ids(ids.clone()), silent())).unwrap().before;
            let scores = |after: Option<Snapshot>, continuation: &[u32]| {
                let mut request = fresh(&ids);
                request.after = after;
                bits(&score(model, request, continuation, 0).tokens)
            };
            let (fresh_left, fresh_right) = (scores(None, &left), scores(None, &right));
            for _ in 0..2 {
                prop_assert_eq!(&scores(opening.clone(), &left), &fresh_left, "{}", subject.name);
                prop_assert_eq!(&scores(opening.clone(), &right), &fresh_right, "{}", subject.name);
            }
        }
    }

    #[test]
    fn texts_scored_together_are_independent(
        numbers in ids(1..55), known in 0..55usize, texts in prop::collection::vec(ids(1..9), 1..6), keep_state in any::<bool>(),
    ) {
        for subject in subjects() {
            let model = &subject.two;
            let ids = subject.ids(&numbers);
            let texts: Vec<_> = texts.iter().map(|numbers| subject.ids(numbers)).collect();
            let mut request = fresh(&ids);
            request.keep_state = keep_state;
            let alone: Vec<_> = texts.iter().map(|text| score(model, request.clone(), text, 0)).collect();
            // From the beginning, and from a snapshot inside the prompt.
            let known = ids.split_at_checked(known).filter(|(known, _)| !known.is_empty());
            let known = known.and_then(|(known, _)| {
                complete(model, super::request(Prompt::Ids(known.to_vec()), silent())).unwrap().before
            });
            for after in [None, known] {
                request.after = after;
                let each = texts.iter().cloned().map(Continuation::Ids).collect();
                let each = block_on(model.score_each(request.clone(), each)).unwrap();
                prop_assert_eq!(each.len(), texts.len());
                for (scored, alone) in each.iter().zip(&alone) {
                    prop_assert_eq!(bits(&scored.tokens), bits(&alone.tokens), "{}", subject.name);
                    prop_assert_eq!(scored.before.as_ref().unwrap().tokens(), ids.len());
                    prop_assert_eq!(scored.snapshot.is_some(), keep_state);
                    prop_assert_eq!(scored.usage.tokens_in, alone.usage.tokens_in);
                }
                // The first reads the prompt; the others reuse its state.
                let cached: Vec<_> = each.iter().map(|scored| scored.usage.tokens_cached).collect();
                prop_assert!(cached.iter().skip(1).all(|&cached| cached == ids.len() as u64), "{:?}", cached);
            }
        }
    }

    #[test]
    fn gains_of_one_change_no_bit_and_the_delta_gain_combines_both_others(numbers in ids(2..60), gain in 0.0..3.0f32) {
        for subject in recurrent() {
            let (model, ids) = (&subject.one, subject.ids(&numbers));
            let with = |gains: Option<DeltaGains>| {
                let mut request = fresh(&ids[..1]);
                request.gains = gains;
                bits(&score(model, request, &ids[1..], 0).tokens)
            };
            let layers = model.info().layers.unwrap();
            prop_assert_eq!(with(None), with(Some(DeltaGains::Uniform(LayerGains::ONE))));
            prop_assert_eq!(with(None), with(Some(DeltaGains::PerLayer(vec![LayerGains::ONE; layers]))));
            prop_assert_eq!(
                with(Some(DeltaGains::Uniform(LayerGains { delta: gain, ..LayerGains::ONE }))),
                with(Some(DeltaGains::Uniform(LayerGains { decay: gain, write: gain, ..LayerGains::ONE }))),
                "{}", subject.name
            );
        }
    }
}

/// A short sampled reply.
fn write(ids: &[u32]) -> Request {
    let sampling = Sampling { max_tokens: 12, temperature: 1.0, top_logprobs: 3, ..Sampling::default() };
    request(Prompt::Ids(ids.to_vec()), sampling)
}

/// A reply of one token, used for the snapshot before it.
fn silent() -> Sampling {
    Sampling { max_tokens: 1, ..Sampling::greedy() }
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
fn a_failing_request_does_not_affect_others() {
    let model = &subjects()[0].one;
    let ids: Vec<u32> = (0..60).map(|number| 100 + 7 * number % 900).collect();
    // It takes many passes, so that the two following requests start in the same pass.
    let long_prompt: Vec<u32> = ids.iter().copied().cycle().take(2_000).collect();
    let score = |first: u32, ids: &[u32], write: f32| {
        let mut request = fresh(&[first]);
        request.gains = Some(DeltaGains::Uniform(LayerGains { write, ..LayerGains::ONE }));
        let (model, continuation) = (model.clone(), Continuation::Ids(ids.to_vec()));
        async move { model.score(request, continuation).await.map(|scored| bits(&scored.tokens)) }
    };
    let alone = block_on(score(7, &ids, 1.0)).unwrap();
    let together = block_on(join(vec![score(5, &long_prompt, 1.0), score(6, &ids, f32::MAX), score(7, &ids, 1.0)]));
    let [Ok(_), Err(broken), good] = &together[..] else { panic!("{together:?}") };
    assert!(broken.to_string().contains("is not a probability distribution"), "{broken}");
    assert_eq!(good.as_ref().unwrap(), &alone);
}

#[test]
fn a_gain_of_zero_freezes_the_state() {
    // Then only the convolutions have memory: 6 layers, 3 tokens each, in the largest model.
    let tail: Vec<u32> = (100..120).collect();
    // Attention in a hybrid remembers the first tokens anyway.
    for subject in recurrent().filter(|subject| subject.one.info().window_tokens.is_none()) {
        let after = |first: u32, gains| {
            let ids = subject.ids(&[&[first, first + 1], tail.as_slice()].concat());
            let mut request = fresh(&ids);
            request.gains = gains;
            bits(&score(&subject.one, request, &[7], 0).tokens)
        };
        let frozen = Some(DeltaGains::Uniform(LayerGains { delta: 0.0, ..LayerGains::ONE }));
        assert_eq!(after(10, frozen.clone()), after(913, frozen), "{}", subject.name);
        assert_ne!(after(10, None), after(913, None), "{}", subject.name);
    }
}

#[test]
fn gains_are_refused_where_there_is_no_delta() {
    for subject in subjects().iter().filter(|subject| !subject.one.info().delta) {
        let mut request = fresh(&[1, 2]);
        request.gains = Some(DeltaGains::Uniform(LayerGains::ONE));
        let error = complete(&subject.one, request).unwrap_err();
        assert!(matches!(error, ModelError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("no Δ that gains could scale; use a Mamba model"), "{error}");
    }
}

#[test]
fn more_callers_than_slots_are_all_served() {
    let model = &subjects()[0].two;
    let replies = block_on(async {
        let calls = (0..ACTIVE_SEQUENCES_MAX as u64 + 9).map(|seed| {
            let prompt = Prompt::Chat(vec![Message::user("Hi!")]);
            let sampling = Sampling { max_tokens: 3, ..Sampling::default() };
            let (model, request) = (model.clone(), Request::new(prompt, sampling, RngStream::root(seed % 5)));
            async move { model.complete(request, None).await.unwrap().message.content }
        });
        join(calls.collect()).await
    });
    assert_eq!(replies.len(), ACTIVE_SEQUENCES_MAX + 9);
    assert!(replies.iter().zip(replies.iter().skip(5)).all(|(a, b)| a == b), "the same stream draws the same reply");
}
