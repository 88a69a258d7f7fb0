//! Prefill, decode at several batch sizes and memory bandwidth with a full-size model, as JSON lines.
//! `scripts/bench-peers.sh` compares it with llama.cpp and transformers.
//!
//! `cargo bench --bench peers -- MODEL...`, each a folder or a GGUF file, optionally followed by `@DTYPE`;
//! without arguments it measures only the memory bandwidth. `--device cuda:0` runs them on that GPU, in larger batches
//! (`scripts/gpu-bench.sh`). Every figure is the best of its repetitions.
#![expect(clippy::expect_used, reason = "a bench fails by panicking")]

use std::cell::Cell;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{LanguageModel, Prompt, Request, Sampling};
use loom_agent::inference::engine::{Device, DeviceChoice, EngineOptions, LocalModel};
use serde_json::json;

const PREFILL: u32 = 1024;
const DECODED: usize = 32;
const REPEATS: usize = 3;

fn main() {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let device = arguments.iter().position(|argument| argument == "--device").map(|at| {
        let named = arguments.drain(at..(at + 2).min(arguments.len())).nth(1).expect("a device behind --device");
        named.parse::<DeviceChoice>().expect("`cpu`, `cuda:N` or `auto`").decide().0
    });
    let device = device.unwrap_or_default();
    let on_gpu = device != Device::Cpu;
    let models: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    if models.is_empty() && !on_gpu {
        for threads in [1, 2] {
            println!("{}", json!({"what": "read", "threads": threads, "gigabytes_per_s": read(threads) / 1e9}));
        }
        // Bytes copied at the first step after a fork of mamba-130m: convolution tails and states of 24 layers.
        let state = vec![1f32; 24 * 1536 * (3 + 16)];
        let copy = microseconds(|| black_box(&state).clone());
        println!("{}", json!({"what": "copy", "bytes": size_of_val(state.as_slice()), "microseconds": copy}));
    }
    let (threads, prefill, batches): (&[_], _, &[_]) =
        if on_gpu { (&[1], 2 * PREFILL, &[1, 8, 32, 128, 512]) } else { (&[1, 2], PREFILL, &[1, 4, 16]) };
    for spec in models {
        let (path, dtype) = spec.split_once('@').map_or((spec.as_str(), None), |(path, dtype)| (path, Some(dtype)));
        let dtype = dtype.map(|dtype| dtype.parse().expect("f32, bf16, q8_0 or q4_k"));
        for &threads in threads {
            let options = EngineOptions { threads: Some(threads), dtype, device, ..EngineOptions::default() };
            let model = LocalModel::from_path(Path::new(path), &options).expect("a model");
            measure(&model, path, threads, prefill, batches);
        }
    }
}

/// The best of `REPEATS` times, seconds.
fn best(mut work: impl FnMut()) -> f64 {
    let times = (0..REPEATS).map(|_| {
        let begun = Instant::now();
        work();
        begun.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Bytes per second that `threads` threads read from memory. With `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` from huge pages,
/// like weights.
fn read(threads: usize) -> f64 {
    let data = vec![3u64; 1 << 27];
    let share = data.len() / threads;
    let seconds = best(|| {
        std::thread::scope(|scope| {
            for part in data.chunks(share) {
                scope.spawn(|| black_box(fold(part)));
            }
        });
    });
    size_of_val(data.as_slice()) as f64 / seconds
}

/// Folds all words with the widest instructions, so that memory is the bottleneck.
fn fold(part: &[u64]) -> [u64; 32] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the line before checks the processor.
        #[expect(unsafe_code, reason = "the only way to call a function compiled for more than the least processor")]
        return unsafe { fold_avx512(part) };
    }
    fold_here(part)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fold_avx512(part: &[u64]) -> [u64; 32] {
    fold_here(part)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the instruction set of its caller")]
fn fold_here(part: &[u64]) -> [u64; 32] {
    let mut sum = [0u64; 32];
    for block in part.as_chunks::<32>().0 {
        sum.iter_mut().zip(block).for_each(|(sum, word)| *sum ^= word);
    }
    sum
}

fn measure(model: &LocalModel, path: &str, threads: usize, prefill: u32, batches: &[u32]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let vocabulary = model.info().vocabulary.expect("a local model knows it") as u32;
    // Never the same twice, so that nothing is cached.
    let unlike = Cell::new(0u32);
    let prompt = |length: u32| {
        unlike.set(unlike.get() + 1);
        Prompt::Ids((0..length).map(|at| (at * 7919 + unlike.get() * 104_729) % vocabulary).collect())
    };
    let request = |prompt, max_tokens, seed: u64| {
        let sampling = Sampling { max_tokens, temperature: 1.0, ..Sampling::default() };
        Request::new(prompt, sampling, RngStream::root(seed))
    };
    // Tokens per second of `batch` concurrent sequences, less the time of `without`.
    let run = |batch: u32, length: u32, max_tokens: usize| {
        best(|| {
            let replies: Vec<_> = (0..batch)
                .map(|seed| {
                    let (model, request) = (model.clone(), request(prompt(length), max_tokens, u64::from(seed)));
                    runtime.spawn(async move { model.complete(request, None).await })
                })
                .collect();
            for reply in replies {
                runtime.block_on(reply).expect("a task").expect("a reply");
            }
        })
    };
    let tell = |what: &str, batch: u32, tokens_per_s: f64| {
        println!(
            "{}",
            json!({"what": what, "model": path, "dtype": model.info().dtype, "threads": threads, "batch": batch,
                   "tokens_per_s": tokens_per_s})
        );
    };
    tell("prefill", 1, f64::from(prefill) / run(1, prefill, 1));
    for &batch in batches {
        let (short, long) = (run(batch, 4, 1), run(batch, 4, 1 + DECODED));
        tell("decode", batch, f64::from(batch) * DECODED as f64 / (long - short).max(1e-9));
    }
    // A fork is a clone of the snapshot.
    let reply = runtime.block_on(model.complete(request(prompt(64), 1, 0), None)).expect("a reply");
    let snapshot = reply.snapshot.expect("a local model leaves one");
    let fork = microseconds(|| black_box(snapshot.clone()));
    println!("{}", json!({"what": "fork", "model": path, "microseconds": fork}));
}

/// The best of `REPEATS` times a thousand times, µs.
fn microseconds<T>(mut work: impl FnMut() -> T) -> f64 {
    best(|| (0..1000).for_each(|_| drop(work()))) * 1e3
}
