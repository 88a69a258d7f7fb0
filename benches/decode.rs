//! The time to decode one token with the bundled model, and the times of its kernels.
//!
//! `cargo bench --bench decode`. The kernels run at the model's dims with separate weights for every layer, so that their
//! cache behaviour is that of decoding.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{LanguageModel, Prompt, Request, Sampling};
use loom_agent::inference::engine::{EngineOptions, LocalModel};
use loom_kernels::{
    Panels, Rows, SampleParams, SampleScratch, Scan, causal_conv_silu, matmul, read_token, rms_norm, sample,
    selective_scan,
};

const LAYERS: usize = 6;
const D_MODEL: usize = 192;
const D_INNER: usize = 384;
const D_STATE: usize = 16;
const D_CONV: usize = 4;
const DT_RANK: usize = 12;
const VOCABULARY: usize = 4096;
const REPLY: usize = 64;

fn numbers(len: usize) -> Vec<f32> {
    let stream = RngStream::root(1);
    (0..len).map(|at| stream.uniform(at as u64) as f32 - 0.5).collect()
}

fn panels(count: usize, outputs: usize, inputs: usize) -> Vec<Panels> {
    (0..count).map(|_| Panels::pack(&numbers(outputs * inputs), outputs, inputs)).collect()
}

fn whole(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut group = c.benchmark_group("decode");
    group.throughput(criterion::Throughput::Elements(REPLY as u64));
    for threads in [1, 2] {
        let options = EngineOptions { threads: Some(threads), ..EngineOptions::default() };
        let model = LocalModel::bundled(&options).expect("the bundled model");
        let sampling = Sampling { max_tokens: REPLY, temperature: 1.0, ..Sampling::default() };
        // After the end-of-text token the model seldom stops early; the draws are the same in every pass.
        let request = Request::new(Prompt::Ids(vec![0]), sampling, RngStream::root(3));
        let reply = runtime.block_on(model.complete(request.clone(), None)).expect("a reply");
        let tokens = reply.usage.tokens_out;
        group.bench_function(format!("reply of {tokens} tokens, {threads} threads"), |b| {
            b.iter(|| runtime.block_on(model.complete(request.clone(), None)));
        });
    }
    group.finish();
}

fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("part of a token");
    let x = numbers(D_MODEL);
    let head = panels(1, VOCABULARY, D_MODEL).remove(0);
    group.bench_function("embedding", |b| {
        let mut row = vec![0.0; D_MODEL];
        b.iter(|| head.unpack_row(black_box(77), &mut row));
    });
    group.bench_function("norm and in_proj", |b| {
        let (weights, mut h, mut y) =
            (panels(LAYERS, 2 * D_INNER, D_MODEL), vec![0.0; D_MODEL], vec![0.0; 2 * D_INNER]);
        b.iter(|| {
            for weight in &weights {
                rms_norm(&x, &x, 1e-5, &mut h);
                matmul(&h, 1, weight, &mut y);
            }
        });
    });
    let u = numbers(D_INNER);
    group.bench_function("conv", |b| {
        let (weight, mut tail, mut y) =
            (numbers(D_INNER * D_CONV), vec![0.0; D_INNER * (D_CONV - 1)], vec![0.0; D_INNER]);
        b.iter(|| {
            for _ in 0..LAYERS {
                causal_conv_silu(Rows::new(&u, D_INNER), &weight, Some(&u), D_CONV, &mut tail, &mut y);
            }
        });
    });
    group.bench_function("x_proj and dt_proj", |b| {
        let (x_proj, dt_proj) = (panels(LAYERS, DT_RANK + 2 * D_STATE, D_INNER), panels(LAYERS, D_INNER, DT_RANK));
        let (mut dbc, mut delta) = (vec![0.0; DT_RANK + 2 * D_STATE], vec![0.0; D_INNER]);
        b.iter(|| {
            for (x_proj, dt_proj) in x_proj.iter().zip(&dt_proj) {
                matmul(&u, 1, x_proj, &mut dbc);
                matmul(dbc.split_at(DT_RANK).0, 1, dt_proj, &mut delta);
            }
        });
    });
    group.bench_function("scan", |b| {
        let a: Vec<f32> = numbers(D_INNER * D_STATE).iter().map(|a| -a.exp()).collect();
        let (bc, mut states, mut y) = (numbers(D_STATE), vec![0.0; LAYERS * D_INNER * D_STATE], vec![0.0; D_INNER]);
        let rows = |data| Rows::new(data, D_INNER);
        b.iter(|| {
            for state in states.chunks_exact_mut(D_INNER * D_STATE) {
                let scan = Scan {
                    u: rows(&u),
                    delta_raw: rows(&u),
                    dt_bias: &u,
                    a: &a,
                    b: Rows::new(&bc, D_STATE),
                    c: Rows::new(&bc, D_STATE),
                    d: &u,
                    z: Some(rows(&u)),
                    gain_decay: 1.0,
                    gain_write: 1.0,
                };
                selective_scan(&scan, state, &mut y);
            }
        });
    });
    group.bench_function("out_proj", |b| {
        let (weights, mut y) = (panels(LAYERS, D_MODEL, D_INNER), vec![0.0; D_MODEL]);
        b.iter(|| weights.iter().for_each(|weight| matmul(&u, 1, weight, &mut y)));
    });
    group.bench_function("norm and head", |b| {
        let (mut h, mut logits) = (vec![0.0; D_MODEL], vec![0.0; VOCABULARY]);
        b.iter(|| {
            rms_norm(&x, &x, 1e-5, &mut h);
            matmul(&h, 1, &head, &mut logits);
        });
    });
    let logits: Vec<f32> = numbers(VOCABULARY).iter().map(|x| 20.0 * x).collect();
    group.bench_function("reading", |b| b.iter(|| read_token(black_box(&logits), 9, 5)));
    group.bench_function("sampling", |b| {
        let params = SampleParams { temperature: 0.8, top_k: None, top_p: 0.95, min_p: 0.0 };
        let mut scratch = SampleScratch::default();
        b.iter(|| sample(black_box(&logits), &params, 0.4, &mut scratch));
    });
    group.finish();
}

criterion_group!(benches, whole, parts);
criterion_main!(benches);
