//! Models on a GPU say what they say on the CPU, within a tolerance; greedy tokens are equal. These need a GPU, or the CPU
//! that plays one: `cargo test --features cuda,loom-kernels/cuda-emulation --test it gpu -- --ignored`.

use loom_agent::foundation::chat::{DeltaGains, LayerGains, Prompt, Reading, Request, Sampling, TokenLogprob};
use loom_agent::inference::engine::{Device, EngineOptions, LocalModel};

use super::{block_on, complete, fixture, folder, request, score};
use loom_agent::foundation::chat::LanguageModel;

fn on_gpu(name: &str) -> Result<LocalModel, String> {
    let options = EngineOptions { threads: Some(1), device: Device::Cuda(0), ..EngineOptions::default() };
    LocalModel::from_dir(&fixture(name), &options).map_err(|error| error.to_string())
}

fn asked(ids: &[u32], max_tokens: usize) -> Request {
    request(Prompt::Ids(ids.to_vec()), Sampling { max_tokens, ..Sampling::greedy() })
}

#[track_caller]
fn close(gpu: &[TokenLogprob], cpu: &[TokenLogprob]) {
    assert_eq!(gpu.len(), cpu.len());
    for (at, (gpu, cpu)) in gpu.iter().zip(cpu).enumerate() {
        assert_eq!(gpu.id, cpu.id, "token {at}");
        for (gpu, cpu) in [(gpu.logprob, cpu.logprob), (gpu.entropy, cpu.entropy)] {
            let (gpu, cpu) = (gpu.unwrap(), cpu.unwrap());
            assert!((gpu - cpu).abs() < 2e-4, "token {at}: {gpu} on the GPU, {cpu} on the CPU");
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
    for name in ["plain", "shards"] {
        let (gpu, cpu) = (on_gpu(name).unwrap(), folder(&fixture(name), 1));
        let ids = ids(70);
        let both = [&gpu, &cpu].map(|model| score(model, asked(&ids[..2], 1), &ids[2..], 3));
        close(&both[0].tokens, &both[1].tokens);
        let both = [&gpu, &cpu].map(|model| complete(model, asked(&ids, 12)).unwrap());
        close(&both[0].tokens, &both[1].tokens);
        let modulated = || {
            let mut request = asked(&ids[..2], 1);
            request.gains = Some(gains(2));
            request
        };
        let scored = [&gpu, &cpu].map(|model| score(model, modulated(), &ids[2..], 0));
        close(&scored[0].tokens, &scored[1].tokens);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_fork_leaves_its_origin_as_it_was() {
    let (gpu, cpu) = (on_gpu("plain").unwrap(), folder(&fixture("plain"), 1));
    let ids = ids(30);
    let read = |model: &LocalModel| score(model, asked(&ids[..1], 1), &ids[1..20], 0).snapshot;
    let (origin, whole) = (read(&gpu), read(&cpu));
    // Twice from the same snapshot, with something else between.
    for (from, to) in [(20, 30), (20, 22), (20, 30)] {
        let branch = |model: &LocalModel, after| {
            let mut request = asked(&ids[..from], 1);
            request.after = after;
            score(model, request, &ids[from..to], 0)
        };
        let (ours, theirs) = (branch(&gpu, origin.clone()), branch(&cpu, whole.clone()));
        assert_eq!(ours.reading, Reading::Continued);
        close(&ours.tokens, &theirs.tokens);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn company_changes_no_greedy_token() {
    let (gpu, cpu) = (on_gpu("plain").unwrap(), folder(&fixture("plain"), 1));
    let all = ids(40);
    let prompts: Vec<_> = (1..6).map(|n| &all[n..n * 7]).collect();
    let together = block_on(async {
        let replies = prompts.iter().map(|ids| gpu.complete(asked(ids, 6), None));
        futures_util::future::join_all(replies).await
    });
    for (ids, reply) in prompts.iter().zip(together) {
        close(&reply.unwrap().tokens, &complete(&cpu, asked(ids, 6)).unwrap().tokens);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn what_a_gpu_does_not_serve_is_refused() {
    let check = |name: &str, why: &str| {
        let error = on_gpu(name).err().unwrap_or_default();
        assert!(error.contains(why) && error.contains("`cpu`"), "{name}: {error}");
    };
    check("odd", "multiples of 8");
    check("falcon-mamba", "Falcon");
    check("mamba2", "Mamba-2");
    check("llama", "transformer");
}

#[test]
fn a_gpu_that_is_not_there_is_named() {
    let options = EngineOptions { device: Device::Cuda(99), ..EngineOptions::default() };
    let error = LocalModel::from_dir(&fixture("plain"), &options).err().unwrap().to_string();
    assert!(error.contains("cuda:99"), "{error}");
}
