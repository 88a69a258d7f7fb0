//! Models on a GPU agree with the CPU within a tolerance; greedy tokens are equal. These tests need a GPU, or its
//! emulation on the CPU: `cargo test --features cuda,loom-kernels/cuda-emulation --test it gpu -- --ignored`.

use std::fs;
use std::path::Path;

use loom_agent::foundation::chat::{
    DeltaGains, HalfLife, LayerGains, PrefixReuse, Prompt, Request, Sampling, SsmLayerStats, TokenLogprob,
};
use loom_agent::inference::engine::{Device, Dtype, EngineOptions, LocalModel};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

use super::parity::check_within;
use super::{block_on, complete, fixture, folder, request, score};
use loom_agent::foundation::chat::LanguageModel;

/// The fixtures of language models whose layers the kernels have; those named odd have unusual widths.
const SERVED: [&str; 12] = [
    "plain",
    "shards",
    "odd",
    "falcon-mamba",
    "mamba2",
    "mamba2-odd",
    "llama",
    "llama-odd",
    "smollm",
    "qwen2",
    "qwen3",
    "qwen3-yarn",
];

fn on_gpu(name: &str) -> Result<LocalModel, String> {
    of_folder(&fixture(name))
}

fn of_folder(path: &Path) -> Result<LocalModel, String> {
    let options = EngineOptions { threads: Some(1), device: Device::Cuda(0), ..EngineOptions::default() };
    LocalModel::from_dir(path, &options).map_err(|error| error.to_string())
}

/// A fixture with other dims: changed numbers in its `config.json`, and zeros in the affected tensors.
fn resized(name: &str, numbers: &[(&str, usize)], tensors: &[(&str, &[usize])]) -> TempDir {
    let (from, to) = (fixture(name), tempfile::tempdir().unwrap());
    fs::copy(from.join("tokenizer.json"), to.path().join("tokenizer.json")).unwrap();
    let config = fs::read_to_string(from.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    for (key, number) in numbers {
        config[key] = (*number).into();
    }
    fs::write(to.path().join("config.json"), config.to_string()).unwrap();
    let bytes = fs::read(from.join("model.safetensors")).unwrap();
    let own = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let changed: Vec<(String, Vec<usize>, Vec<u8>)> = own
        .into_iter()
        .map(|(name, view)| match tensors.iter().find(|(suffix, _)| name.ends_with(suffix)) {
            Some((_, dims)) => (name, dims.to_vec(), vec![0; 4 * dims.iter().product::<usize>()]),
            None => (name, view.shape().to_vec(), view.data().to_vec()),
        })
        .collect();
    let views = changed
        .iter()
        .map(|(name, dims, data)| (name, TensorView::new(safetensors::Dtype::F32, dims.clone(), data).unwrap()));
    fs::write(to.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    to
}

fn greedy(ids: &[u32], max_tokens: usize) -> Request {
    request(Prompt::Ids(ids.to_vec()), Sampling { max_tokens, ..Sampling::greedy() })
}

#[track_caller]
fn close(name: &str, gpu: &[TokenLogprob], cpu: &[TokenLogprob]) {
    within(name, 2e-4, gpu, cpu);
}

#[track_caller]
fn within(name: &str, nats: f32, gpu: &[TokenLogprob], cpu: &[TokenLogprob]) {
    assert_eq!(gpu.len(), cpu.len(), "{name}");
    for (at, (gpu, cpu)) in gpu.iter().zip(cpu).enumerate() {
        assert_eq!(gpu.id, cpu.id, "{name}: token {at}");
        for (gpu, cpu) in [(gpu.logprob, cpu.logprob), (gpu.entropy, cpu.entropy)] {
            let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
            assert!((gpu - cpu).abs() < nats, "{name}: token {at}: {gpu} on the GPU, {cpu} on the CPU");
        }
    }
}

fn ids(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i * i * 7 + 3 * i + 1) % 40).collect()
}

fn gains(layers: usize) -> DeltaGains {
    let layer = |index: usize| LayerGains { delta: 0.5 + index as f32, decay: 1.25, write: 0.75 };
    DeltaGains::PerLayer((0..layers).map(layer).collect())
}

#[test]
#[ignore = "needs a GPU"]
fn a_prompt_is_scored_and_continued_as_on_the_cpu() {
    for name in SERVED {
        let (gpu, cpu) = (on_gpu(name).unwrap(), folder(&fixture(name), 1));
        // A window of 64 leaves a few tokens to generate.
        let ids = ids(58);
        let both = [&gpu, &cpu].map(|model| score(model, greedy(&ids[..2], 1), &ids[2..], 3));
        close(name, &both[0].tokens, &both[1].tokens);
        let both = [&gpu, &cpu].map(|model| complete(model, greedy(&ids, 6)).unwrap());
        close(name, &both[0].tokens, &both[1].tokens);
        if gpu.info().delta {
            let modulated = || {
                let mut request = greedy(&ids[..2], 1);
                request.gains = Some(gains(2));
                request
            };
            let scored = [&gpu, &cpu].map(|model| score(model, modulated(), &ids[2..], 0));
            close(name, &scored[0].tokens, &scored[1].tokens);
        }
    }
}

/// The largest size that the kernels support, and the next one. The CPU supports both.
#[test]
#[ignore = "needs a GPU"]
fn families_with_parts_that_the_kernels_lack_are_refused() {
    for (name, why) in [
        ("mistral", "sliding-window attention"),
        ("gemma3", "sliding-window attention"),
        ("smollm3", "layers without rotary positions"),
        ("olmo2", "norms after attention"),
        ("granite", "multipliers"),
        ("qwen3-moe", "a mixture of experts"),
        ("granite-hybrid-moe", "a hybrid of attention and Mamba-2"),
        ("falcon-h1", "a hybrid of attention and Mamba-2"),
        ("nemotron-h", "a hybrid of attention and Mamba-2"),
        ("bamba", "a hybrid of attention and Mamba-2"),
    ] {
        let refusal = on_gpu(name).err().expect(why);
        assert!(refusal.contains(why) && refusal.contains("use the device `cpu`"), "{name}: {refusal}");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn dims_beyond_the_kernels_are_refused() {
    let conv = |name, channels: usize, taps| {
        resized(name, &[("conv_kernel", taps)], &[("conv1d.weight", &[channels, 1, taps])])
    };
    let state = |numbers: usize| {
        let (a, x) = ([48, numbers], [2 + 2 * numbers, 48]);
        resized("plain", &[("state_size", numbers)], &[("A_log", &a), ("x_proj.weight", &x)])
    };
    let heads = |width: usize| {
        let (q, kv, o) = ([4 * width, 32], [2 * width, 32], [32, 4 * width]);
        let kv: &[usize] = &kv;
        let tensors = [("q_proj.weight", &q[..]), ("k_proj.weight", kv), ("v_proj.weight", kv), ("o_proj.weight", &o)];
        resized("llama", &[("head_dim", width)], &tensors)
    };
    for (served, refused, why) in [
        (conv("plain", 48, 8), conv("plain", 48, 9), "convolution is longer than 8"),
        (state(128), state(129), "state is larger than 128"),
        (conv("mamba2", 96, 8), conv("mamba2", 96, 9), "convolution is longer than 8"),
        (heads(256), heads(258), "heads are wider than 256"),
    ] {
        let (gpu, cpu) = (of_folder(served.path()).unwrap(), folder(served.path(), 1));
        let both = [&gpu, &cpu].map(|model| complete(model, greedy(&ids(9), 4)).unwrap());
        close(why, &both[0].tokens, &both[1].tokens);
        let refusal = of_folder(refused.path()).err().expect(why);
        assert!(refusal.contains(why) && refusal.contains("use the device `cpu`"), "{refusal}");
        complete(&folder(refused.path(), 1), greedy(&ids(9), 4)).unwrap();
    }
}

#[test]
#[ignore = "needs a GPU"]
fn models_on_a_gpu_agree_with_transformers() {
    for name in SERVED {
        // With bf16 weights, activations of long prompts lose 2⁻¹⁸.
        let narrow = name == "shards";
        check_within(if narrow { 1e-3 } else { 1e-4 }, &on_gpu(name).unwrap(), &fixture(name));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn sampling_equals_the_cpu_s() {
    for name in ["plain", "qwen2"] {
        let (gpu, cpu) = (on_gpu(name).unwrap(), folder(&fixture(name), 1));
        let ids = ids(9);
        // The last case requests more alternatives than the kernel reports: the whole row is copied.
        for (top_k, top_p, repetition_penalty, top_logprobs) in
            [(None, 1.0, 1.0, 0), (Some(12), 0.9, 1.0, 5), (None, 0.95, 1.3, 20), (Some(30), 1.0, 1.1, 33)]
        {
            let sampling = Sampling {
                temperature: 0.8,
                max_tokens: 8,
                top_k,
                top_p,
                repetition_penalty,
                top_logprobs,
                ..Sampling::default()
            };
            let reply = |model| complete(model, request(Prompt::Ids(ids.clone()), sampling.clone())).unwrap().tokens;
            let (ours, theirs) = (reply(&gpu), reply(&cpu));
            close(name, &ours, &theirs);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                assert_eq!((ours.rank, ours.top.len()), (theirs.rank, top_logprobs), "{name}");
                let ids = |token: &TokenLogprob| token.top.iter().map(|(id, _)| *id).collect::<Vec<_>>();
                assert_eq!(ids(ours), ids(theirs), "{name}");
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_fork_does_not_change_its_origin() {
    for name in ["plain", "mamba2", "llama"] {
        forked(name);
    }
}

fn forked(name: &str) {
    let (gpu, cpu) = (on_gpu(name).unwrap(), folder(&fixture(name), 1));
    let ids = ids(30);
    let read = |model: &LocalModel| score(model, greedy(&ids[..1], 1), &ids[1..20], 0).snapshot;
    let (origin, whole) = (read(&gpu), read(&cpu));
    // Twice from the same snapshot, with another branch between.
    for (from, to) in [(20, 30), (20, 22), (20, 30)] {
        let branch = |model: &LocalModel, after| {
            let mut request = greedy(&ids[..from], 1);
            request.after = after;
            score(model, request, &ids[from..to], 0)
        };
        let (ours, theirs) = (branch(&gpu, origin.clone()), branch(&cpu, whole.clone()));
        assert_eq!(ours.prefix_reuse, PrefixReuse::Continued);
        close(name, &ours.tokens, &theirs.tokens);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn batching_changes_no_greedy_token() {
    for name in ["plain", "mamba2", "qwen3"] {
        together(name);
    }
}

fn together(name: &str) {
    let (gpu, cpu) = (on_gpu(name).unwrap(), folder(&fixture(name), 1));
    let all = ids(40);
    let prompts: Vec<_> = (1..10).map(|n| &all[n..n * 4]).collect();
    let together = block_on(async {
        let replies = prompts.iter().map(|ids| gpu.complete(greedy(ids, 6), None));
        futures_util::future::join_all(replies).await
    });
    for (ids, reply) in prompts.iter().zip(together) {
        close(name, &reply.unwrap().tokens, &complete(&cpu, greedy(ids, 6)).unwrap().tokens);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn recorded_delta_statistics_equal_the_cpu_s() {
    for name in ["plain", "falcon-mamba", "mamba2-odd"] {
        let (gpu, cpu) = (on_gpu(name).unwrap(), folder(&fixture(name), 1));
        let ids = ids(20);
        for modulation in [None, Some(gains(2))] {
            let both = [&gpu, &cpu].map(|model| {
                let mut request = greedy(&ids, 5);
                (request.record_ssm, request.gains) = (true, modulation.clone());
                complete(model, request).unwrap().ssm.unwrap()
            });
            let [ours, theirs] = &both;
            assert_eq!((ours.tokens, ours.layers.len()), (theirs.tokens, theirs.layers.len()), "{name}");
            for (ours, theirs) in ours.layers.iter().zip(&theirs.layers) {
                let numbers = |layer: &SsmLayerStats| {
                    let HalfLife { p10, median, p90 } = layer.half_life;
                    let half_lives = [p10, median, p90].map(Option::unwrap);
                    [layer.delta, layer.delta_decay, layer.delta_write, layer.state_norm].into_iter().chain(half_lives)
                };
                for (ours, theirs) in numbers(ours).zip(numbers(theirs)) {
                    assert!(
                        (ours - theirs).abs() < 1e-4 * theirs.abs(),
                        "{name}: {ours} on the GPU, {theirs} on the CPU"
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn q8_0_blocks_are_used_unchanged() {
    for name in ["plain", "qwen2"] {
        let of = |device| {
            let options =
                EngineOptions { threads: Some(1), device, dtype: Some(Dtype::Q8_0), ..EngineOptions::default() };
            LocalModel::from_dir(&fixture(name), &options).unwrap()
        };
        let ids = ids(40);
        let both =
            [of(Device::Cuda(0)), of(Device::Cpu)].map(|model| score(&model, greedy(&ids[..2], 1), &ids[2..], 3));
        // The CPU also rounds the activations.
        within(name, 0.1, &both[0].tokens, &both[1].tokens);
    }
}

#[test]
fn a_missing_gpu_is_named() {
    let options = EngineOptions { device: Device::Cuda(99), ..EngineOptions::default() };
    let error = LocalModel::from_dir(&fixture("plain"), &options).err().unwrap().to_string();
    assert!(error.contains("cuda:99"), "{error}");
}
