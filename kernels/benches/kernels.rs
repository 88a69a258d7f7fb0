//! Individual kernels at the sizes of the bundled model and of mamba-130m.
//!
//! `cargo bench -p loom-kernels`; `RAYON_NUM_THREADS=1` for one thread, `LOOM_KERNELS=avx2` for another path.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loom_kernels::{
    Dtype, Panels, Rows, SampleParams, SampleScratch, Scan, active_path, causal_conv_silu, matmul, read_logits,
    rms_norm, sample, selective_scan,
};

fn noise(len: usize) -> Vec<f32> {
    let mut state = 88_172_645_463_325_252u64;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

/// Reading 1 GiB: the bound of a product with one row whose weights exceed the cache.
fn memory(c: &mut Criterion) {
    let data = noise(1 << 28);
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(1 << 30)).sample_size(10);
    group.bench_function("1GiB", |b| {
        b.iter(|| {
            black_box(&data).chunks_exact(16).fold([0u32; 16], |mut sum, x| {
                for (sum, x) in sum.iter_mut().zip(x) {
                    *sum ^= x.to_bits();
                }
                sum
            })
        });
    });
}

/// Throughput counts bytes of weights for one row, multiply-adds × 2 for many.
fn product(c: &mut Criterion) {
    // Of mamba-130m: the bundled model's head, in_proj, out_proj, the head. The last streams, as decoding does.
    let shapes = [(192, 4096, 1), (768, 3072, 12), (1536, 768, 12), (768, 50_280, 3)];
    for dtype in Dtype::ALL {
        let mut group = c.benchmark_group(format!("matmul/{}/{dtype}", active_path()));
        group.sample_size(20);
        for (inputs, outputs, copies) in shapes {
            // Several copies in rotation, so that a single row never finds its weights in the cache.
            let one = noise(inputs * outputs);
            let panels: Vec<_> = (0..copies).map(|_| Panels::pack_as(dtype, &one, outputs, inputs)).collect();
            let bytes = panels.iter().map(Panels::bytes).sum::<usize>() as u64;
            for rows in [1, 4, 16, 256] {
                if rows == 256 && outputs != 3072 {
                    continue;
                }
                let (x, mut y) = (noise(rows * inputs), vec![0.0; rows * outputs]);
                group.throughput(if rows == 1 {
                    Throughput::Bytes(bytes)
                } else {
                    Throughput::Elements((2 * rows * inputs * outputs * copies) as u64)
                });
                group.bench_function(BenchmarkId::new(format!("{inputs}x{outputs}"), rows), |b| {
                    b.iter(|| panels.iter().for_each(|panels| matmul(black_box(&x), rows, panels, &mut y)));
                });
            }
        }
    }
}

/// Throughput counts state updates.
fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group(format!("scan/{}", active_path()));
    for (channels, len) in [(384, 1), (1536, 1), (1536, 64)] {
        let d_state = 16;
        let (u, wide) = (noise(len * channels), noise(len * d_state));
        let a: Vec<f32> = noise(channels * d_state).iter().map(|x| -8.0 * x.abs() - 0.1).collect();
        let (bias, d) = (vec![-4.0; channels], vec![1.0; channels]);
        let (mut state, mut y) = (vec![0.0; channels * d_state], vec![0.0; len * channels]);
        let scan = Scan {
            u: Rows::new(&u, channels),
            delta_raw: Rows::new(&u, channels),
            dt_bias: &bias,
            a: &a,
            b: Rows::new(&wide, d_state),
            c: Rows::new(&wide, d_state),
            d: &d,
            z: Some(Rows::new(&u, channels)),
            gain_decay: 1.0,
            gain_write: 1.0,
        };
        group.throughput(Throughput::Elements((len * channels * d_state) as u64));
        group.bench_function(BenchmarkId::new(channels.to_string(), len), |b| {
            b.iter(|| selective_scan(black_box(&scan), &mut state, &mut y));
        });
    }
}

fn small(c: &mut Criterion) {
    let mut group = c.benchmark_group(format!("layer/{}", active_path()));
    let (x, weight, mut y) = (noise(1536), noise(1536 * 4), vec![0.0; 1536]);
    let mut tail = noise(1536 * 3);
    group.bench_function("conv_1536", |b| {
        b.iter(|| causal_conv_silu(Rows::new(black_box(&x), 1536), &weight, Some(&x), 4, &mut tail, &mut y));
    });
    group.bench_function("rms_norm_768", |b| {
        b.iter(|| rms_norm(black_box(&x[..768]), &weight[..768], 1e-5, &mut y[..768]));
    });
}

fn logits(c: &mut Criterion) {
    let mut group = c.benchmark_group(format!("logits/{}", active_path()));
    for size in [4096, 50_280] {
        let logits: Vec<f32> = noise(size).iter().map(|x| x * 8.0).collect();
        group.throughput(Throughput::Bytes(4 * size as u64));
        for top in [0, 20] {
            group.bench_function(BenchmarkId::new(format!("read_top{top}"), size), |b| {
                b.iter(|| read_logits(black_box(&logits), top));
            });
        }
        let mut scratch = SampleScratch::default();
        for (name, top_p) in [("sample", 1.0), ("sample_top_p", 0.95)] {
            let params = SampleParams { temperature: 0.8, top_k: None, top_p, min_p: 0.0 };
            group.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter(|| sample(black_box(&logits), &params, 0.5, &mut scratch));
            });
        }
    }
}

criterion_group!(benches, memory, product, scan, small, logits);
criterion_main!(benches);
