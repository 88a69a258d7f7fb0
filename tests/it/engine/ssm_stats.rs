//! Statistics of the recurrent state, and effects of gains on Δ on it.

use loom_agent::foundation::chat::{
    DeltaGains, LanguageModel, LayerGains, Prompt, Request, Sampling, SsmLayerStats, SsmStats, TokenId,
};
use loom_agent::inference::engine::LocalModel;

use super::{bits, bundled, complete, request, score, tiny};

/// A Mamba-1, a Falcon Mamba, a Mamba-2, and hybrids of Mamba-2 and attention, in turn and side by side.
fn models() -> Vec<LocalModel> {
    vec![
        bundled(1),
        tiny("falcon-mamba"),
        tiny("mamba2"),
        tiny("granite-hybrid"),
        tiny("falcon-h1"),
        tiny("bamba"),
        tiny("nemotron-h"),
    ]
}

fn ids(model: &LocalModel, len: u32) -> Vec<TokenId> {
    let vocabulary = u32::try_from(model.info().vocabulary.unwrap()).unwrap();
    (0..len).map(|at| (at * 7 + 3) % vocabulary).collect()
}

fn ask(ids: &[TokenId], gains: Option<LayerGains>) -> Request {
    let mut recorded = request(Prompt::Ids(ids.to_vec()), Sampling { max_tokens: 5, ..Sampling::greedy() });
    recorded.gains = gains.map(DeltaGains::Uniform);
    recorded.record_ssm = true;
    recorded
}

fn unrecorded(mut recorded: Request) -> Request {
    recorded.record_ssm = false;
    recorded
}

fn layers(stats: Option<SsmStats>) -> Vec<SsmLayerStats> {
    stats.unwrap().layers
}

#[test]
fn recording_statistics_changes_no_bit() {
    for model in models() {
        let ids = ids(&model, 12);
        let (prompt, rest) = ids.split_at(4);
        let looked = score(&model, ask(prompt, None), rest, 2);
        let quiet = score(&model, unrecorded(ask(prompt, None)), rest, 2);
        assert_eq!((bits(&looked.tokens), quiet.ssm), (bits(&quiet.tokens), None));
        assert_eq!(looked.ssm.unwrap().tokens, 12);
        let looked = complete(&model, ask(&ids, None)).unwrap();
        let quiet = complete(&model, unrecorded(ask(&ids, None))).unwrap();
        assert_eq!((bits(&looked.tokens), quiet.ssm), (bits(&quiet.tokens), None));
        assert_eq!(looked.ssm.unwrap().tokens as usize, 12 + looked.tokens.len());
    }
    let attention = tiny("llama");
    assert_eq!(score(&attention, ask(&[1, 2], None), &[3], 0).ssm, None);
}

#[test]
fn a_hybrid_has_statistics_of_its_recurrent_layers_and_gains_for_each() {
    let model = tiny("granite-hybrid");
    let ids = ids(&model, 16);
    let under = |decay: [f32; 3]| {
        let mut asked = ask(&ids[..1], None);
        asked.gains = Some(DeltaGains::PerLayer(decay.map(|decay| LayerGains { decay, ..LayerGains::ONE }).into()));
        score(&model, asked, &ids[1..], 0)
    };
    let plain = under([1.0; 3]);
    let indices: Vec<_> = layers(plain.ssm.clone()).iter().map(|layer| layer.layer).collect();
    assert_eq!(indices, [0, 2]);
    // The second layer is attention, which has no Δ.
    let second = under([1.0, 5.0, 1.0]);
    assert_eq!((bits(&second.tokens), &second.ssm), (bits(&plain.tokens), &plain.ssm));
    let third = under([1.0, 1.0, 2.0]);
    assert_ne!(bits(&third.tokens), bits(&plain.tokens));
    let (third, plain) = (layers(third.ssm), layers(plain.ssm));
    assert_eq!(third[0], plain[0]);
    assert_eq!(third[1].delta_decay.to_bits(), (2.0 * plain[1].delta_decay).to_bits());
}

#[test]
fn gains_of_one_are_no_modulation_and_the_delta_gain_combines_both() {
    for model in models() {
        let ids = ids(&model, 16);
        let (prompt, rest) = ids.split_at(5);
        let under = |gains| bits(&score(&model, ask(prompt, gains), rest, 0).tokens);
        assert_eq!(under(None), under(Some(LayerGains::ONE)));
        let both = under(Some(LayerGains { delta: 0.7, ..LayerGains::ONE }));
        assert_eq!(both, under(Some(LayerGains { decay: 0.7, write: 0.7, ..LayerGains::ONE })));
        assert_ne!(both, under(None));
    }
}

#[test]
fn a_gain_of_zero_freezes_the_state() {
    for model in models() {
        let ids = ids(&model, 16);
        let (prompt, rest) = ids.split_at(8);
        let before = score(&model, ask(&prompt[..1], None), &prompt[1..], 0);
        let mut frozen = ask(prompt, Some(LayerGains { delta: 0.0, ..LayerGains::ONE }));
        frozen.after = before.snapshot;
        let frozen = layers(score(&model, frozen, rest, 0).ssm);
        for (before, after) in layers(before.ssm).iter().zip(&frozen) {
            assert_eq!(before.state_norm.to_bits(), after.state_norm.to_bits());
            assert!(before.state_norm > 0.0 && before.half_life.median.is_some());
            assert_eq!((after.delta_decay, after.half_life.median), (0.0, None));
        }
    }
}

#[test]
fn doubling_the_decay_halves_the_half_life() {
    for model in models() {
        let ids = ids(&model, 16);
        let of = |decay| {
            layers(score(&model, ask(&ids[..1], Some(LayerGains { decay, ..LayerGains::ONE })), &ids[1..], 0).ssm)
        };
        // The input of the first layer does not depend on gains.
        let (plain, twice) = (of(1.0)[0], of(2.0)[0]);
        assert_eq!(
            (plain.delta, 2.0 * plain.delta_decay, plain.delta_write),
            (twice.delta, twice.delta_decay, twice.delta_write)
        );
        let (a, b) = (plain.half_life, twice.half_life);
        for (a, b) in [(a.p10, b.p10), (a.median, b.median), (a.p90, b.p90)] {
            assert!((a.unwrap() - 2.0 * b.unwrap()).abs() < 1e-9 * a.unwrap(), "{a:?} {b:?}");
        }
        assert!(a.p10 <= a.median && a.median <= a.p90);
        assert!(twice.state_norm < plain.state_norm);
    }
}

#[test]
fn statistics_of_a_cut_reply_count_only_kept_tokens() {
    let model = bundled(1);
    // A prompt whose reply is long enough to be cut.
    let replies = (8..64).map(|len| {
        let prompt = ids(&model, len);
        let whole = complete(&model, ask(&prompt, None)).unwrap();
        let text: String = whole.tokens.iter().map(|token| token.text.as_str()).collect();
        (prompt, whole, text)
    });
    let (prompt, whole, text) = replies.into_iter().find(|(.., text)| text.chars().count() > 4).unwrap();
    let stop: String = text.chars().skip(2).collect();
    let mut cut = ask(&prompt, None);
    cut.sampling.stop = vec![stop];
    let cut = complete(&model, cut).unwrap();
    assert!(cut.tokens.len() < whole.tokens.len(), "{text:?}");
    assert_eq!(cut.ssm.unwrap().tokens as usize, prompt.len() + cut.tokens.len());
}
