//! Narrower weight types: distance from f32, independence of how a sequence is read, and GGUF.

use loom_agent::foundation::chat::{LanguageModel, ModelSpec, Prompt, Sampling, Scored};
use loom_agent::inference::engine::{Dtype, EngineOptions, LocalModel};
use loom_agent::inference::providers::{OpenOptions, open};

use super::{bits, complete, fixture, request, score};

fn bundled(dtype: Option<Dtype>) -> LocalModel {
    LocalModel::bundled(&EngineOptions { threads: Some(1), dtype, ..EngineOptions::default() }).unwrap()
}

/// Scores of arbitrary tokens, with all alternatives.
fn reading(model: &LocalModel) -> Scored {
    let ids: Vec<_> = (0..4).flat_map(|round: u32| (5..60).map(move |i| (i * 37 + round * 911) % 4096)).collect();
    let mut prompt = request(Prompt::Ids(vec![0]), Sampling::greedy());
    prompt.sampling.top_logprobs = 4096;
    score(model, prompt, &ids, 4096)
}

/// Mean and largest divergence KL(a ‖ b) of the next-token distributions, and the share of equal most likely tokens.
fn apart(a: &Scored, b: &Scored) -> (f64, f64, f64) {
    let (mut mean, mut most, mut same) = (0.0, 0.0f64, 0.0);
    for (a, b) in a.tokens.iter().zip(&b.tokens) {
        let mut of_b = vec![0.0f32; 4096];
        b.top.iter().for_each(|&(id, logprob)| of_b[id as usize] = logprob);
        let kl: f64 =
            a.top.iter().map(|&(id, p)| f64::from(p).exp() * (f64::from(p) - f64::from(of_b[id as usize]))).sum();
        mean += kl;
        most = most.max(kl);
        same += f64::from(u8::from(a.top[0].0 == b.top[0].0));
    }
    let count = a.tokens.len() as f64;
    (mean / count, most, same / count)
}

#[test]
fn narrower_weights_are_close_to_f32() {
    let exact = reading(&bundled(None));
    for (dtype, bound) in [(Dtype::F32, 0.0), (Dtype::Bf16, 1e-4), (Dtype::Q8_0, 1e-3), (Dtype::Q4K, 3e-3)] {
        let model = bundled(Some(dtype));
        let (mean, most, same) = apart(&exact, &reading(&model));
        println!("{dtype}: KL mean {mean:.2e}, largest {most:.2e}, same likeliest token {:.1} %", 100.0 * same);
        assert!(mean.abs() <= bound, "{dtype}: {mean}");
        assert_eq!(model.info().digest == bundled(None).info().digest, dtype == Dtype::F32);
    }
}

#[test]
fn scoring_equals_generation_in_every_dtype() {
    for dtype in Dtype::ALL {
        let model = bundled(Some(dtype));
        let sampling = Sampling { max_tokens: 24, temperature: 1.0, ..Sampling::default() };
        let prompt = vec![0, 17, 250, 999];
        let written = complete(&model, request(Prompt::Ids(prompt.clone()), sampling)).unwrap();
        let ids: Vec<_> = written.tokens.iter().map(|token| token.id.unwrap()).collect();
        let scored = score(&model, request(Prompt::Ids(prompt), Sampling::greedy()), &ids, 0);
        assert_eq!(bits(&written.tokens), bits(&scored.tokens), "{dtype}");
    }
}

#[test]
fn the_info_names_the_dtype() {
    let dtype = |model: &LocalModel| model.info().dtype.clone().unwrap();
    assert_eq!(dtype(&bundled(None)), "f32");
    assert_eq!(dtype(&bundled(Some(Dtype::Bf16))), "bf16");
    // Its rows of 192 and 384 are not multiples of 256.
    assert_eq!(dtype(&bundled(Some(Dtype::Q4K))), "q8_0");
    let own = LocalModel::from_dir(&fixture("shards"), &EngineOptions::default()).unwrap();
    assert_eq!(dtype(&own), "bf16");
}

#[test]
fn two_dtypes_of_the_same_files_are_two_models() {
    let options = OpenOptions::new(Some(1), None);
    let digest = |dtype| open(&ModelSpec::Bundled.into(), &options.with_dtype(dtype)).unwrap().info().digest;
    assert_ne!(digest(None), digest(Some(Dtype::Q8_0)));
    assert_eq!(digest(None), digest(Some(Dtype::F32)));
}

#[test]
fn a_gguf_equals_the_folder_it_was_made_from() {
    let path = fixture("../gguf/plain.gguf");
    let spec = ModelSpec::Local(path.clone());
    assert_eq!(open(&spec.into(), &OpenOptions::default()).unwrap().info().vocabulary, Some(40));
    let options = EngineOptions { threads: Some(1), ..EngineOptions::default() };
    super::parity::check_model(&LocalModel::from_path(&path, &options).unwrap(), &fixture("plain"));
    let transformers = ["gemma2", "gemma3", "olmo2", "phi3", "granite", "qwen3-yarn", "qwen3-moe", "smollm3"];
    let recurrent = ["granite-hybrid", "bamba", "falcon-h1", "nemotron-h", "mamba2"];
    for name in transformers.iter().chain(&recurrent) {
        let path = fixture(&format!("../gguf/{name}.gguf"));
        super::parity::check_model(&LocalModel::from_path(&path, &options).unwrap(), &fixture(name));
    }
    // Experts, and a shared one; without rotary positions, which llama.cpp's hybrids never have.
    let path = fixture("../gguf/granite-hybrid-moe.gguf");
    super::parity::check_model(&LocalModel::from_path(&path, &options).unwrap(), &fixture("granite-hybrid-moe"));
}

#[test]
fn a_falcon_mamba_in_gguf_has_the_norms_of_its_family() {
    let ids: Vec<u32> = (0..40).map(|at| at * 7 % 40).collect();
    let logprobs = |path: &std::path::Path| -> Vec<f32> {
        let model = LocalModel::from_path(path, &EngineOptions::default()).unwrap();
        let prompt = request(Prompt::Ids(ids[..1].to_vec()), Sampling::greedy());
        score(&model, prompt, &ids[1..], 0).tokens.iter().map(|token| token.logprob.unwrap()).collect()
    };
    let furthest = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // Files have no key for the epsilon of these norms: it is the default of `transformers`.
    let folder = super::candle::changed("falcon-mamba", |config| config["mixer_rms_eps"] = 1e-6.into());
    let (from_gguf, from_folder) = (logprobs(&fixture("../gguf/falcon-mamba.gguf")), logprobs(folder.path()));
    assert!(furthest(&from_gguf, &from_folder) < 1e-4, "{from_gguf:?} {from_folder:?}");
    assert!(furthest(&from_folder, &logprobs(&fixture("falcon-mamba"))) > 1e-3);
}
