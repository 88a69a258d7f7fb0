//! candle-transformers as the second provider: parity with `transformers` and with the native networks, forks, windows, and
//! what it refuses.

use std::path::Path;

use loom_agent::foundation::chat::{LanguageModel, ModelError, PrefixReuse, Prompt, Sampling, TokenLogprob};
use loom_agent::inference::engine::{Device, Dtype, EngineOptions, LocalModel, ModelShape, Provider};
use loom_agent::inference::providers::{OpenOptions, open};

use super::parity::check_model;
use super::{complete, fixture, request, score, tiny};
use crate::program::{loom, root};

/// Families that candle alone has.
const CANDLE_ONLY: [&str; 6] = ["stablelm", "starcoder2", "glm4", "phi", "olmo", "gemma"];
/// Native models that candle has, too.
const BOTH: [&str; 9] = ["plain", "llama", "smollm", "qwen2", "qwen3", "olmo2", "gemma2", "mistral", "smollm3"];

fn options(provider: Provider) -> EngineOptions {
    EngineOptions { threads: Some(1), provider, ..EngineOptions::default() }
}

fn opened(name: &str) -> Result<LocalModel, ModelError> {
    LocalModel::from_dir(&fixture(name), &options(Provider::Candle))
}

fn candle(name: &str) -> LocalModel {
    opened(name).unwrap()
}

fn logprobs(tokens: &[TokenLogprob]) -> Vec<f32> {
    tokens.iter().map(|token| token.logprob.unwrap()).collect()
}

fn assert_close(a: &[TokenLogprob], b: &[TokenLogprob], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in logprobs(a).into_iter().zip(logprobs(b)) {
        assert!((a - b).abs() < 1e-4, "{what}: {a} {b}");
    }
}

/// A copy of a fixture with another `config.json`.
pub(super) fn changed(name: &str, change: impl Fn(&mut serde_json::Value)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = copy.path().join("config.json");
    let mut config = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
    copy
}

#[test]
fn families_of_candle_agree_with_transformers() {
    for name in CANDLE_ONLY {
        check_model(&candle(name), &fixture(name));
    }
}

#[test]
fn native_families_agree_with_candle() {
    for name in BOTH {
        let ids: Vec<u32> = (0..60).map(|i| i * 13 % 40).collect();
        let prompt = || request(Prompt::Ids(ids[..1].to_vec()), Sampling::greedy());
        let end = candle(name).info().window_tokens.unwrap_or(60).min(60);
        let [own, other] = [tiny(name), candle(name)].map(|model| score(&model, prompt(), &ids[1..end], 40));
        assert_close(&own.tokens, &other.tokens, name);
        for (own, other) in own.tokens.iter().zip(&other.tokens) {
            for (id, logprob) in &own.top {
                let known = other.top.iter().find(|(other, _)| other == id).unwrap().1;
                assert!((logprob - known).abs() < 1e-4, "{name}: {logprob} {known}");
            }
        }
    }
}

#[test]
fn a_fork_leaves_its_origin_as_it_is() {
    // A cache that is a value, one that clones share, a network that cannot be cloned, a cache beside the network, and a
    // recurrent state.
    for name in ["starcoder2", "phi", "glm4", "stablelm", "llama", "plain"] {
        let model = candle(name);
        let ids: Vec<u32> = (0..30).map(|i| i * 11 % 40).collect();
        let (prompt, rest) = ids.split_at(20);
        let asked = |prompt: &[u32]| request(Prompt::Ids(prompt.to_vec()), Sampling::greedy());
        let fresh = score(&candle(name), asked(prompt), rest, 0);
        let mut first = asked(prompt);
        first.sampling.max_tokens = 4;
        let before = complete(&model, first).unwrap().before.unwrap();
        for other in [rest.to_vec(), rest.iter().rev().copied().collect(), rest.to_vec()] {
            let mut again = asked(prompt);
            again.after = Some(before.clone());
            let scored = score(&model, again, &other, 0);
            assert_eq!(scored.prefix_reuse, PrefixReuse::Continued, "{name}");
            if other == rest {
                assert_close(&scored.tokens, &fresh.tokens, name);
            } else {
                assert_close(&scored.tokens, &score(&candle(name), asked(prompt), &other, 0).tokens, name);
            }
        }
    }
}

#[test]
fn a_long_reply_equals_scoring_it() {
    for name in ["glm4", "phi", "gemma"] {
        let model = candle(name);
        let prompt = vec![3, 9, 27, 1];
        let sampling = Sampling { max_tokens: 20, ..Sampling::greedy() };
        let reply = complete(&model, request(Prompt::Ids(prompt.clone()), sampling)).unwrap();
        let scored =
            score(&model, request(Prompt::Ids(prompt), Sampling::greedy()), reply.message.ids.as_ref().unwrap(), 0);
        assert_close(&reply.tokens, &scored.tokens, name);
    }
}

#[test]
fn the_window_is_at_most_a_sliding_one() {
    assert_eq!(candle("starcoder2").info().window_tokens, Some(75));
    assert_eq!(candle("stablelm").info().window_tokens, Some(128));
    assert_eq!(candle("plain").info().window_tokens, None);
    let native = tiny("mistral").info().window_tokens;
    assert!(candle("mistral").info().window_tokens < native);
}

#[test]
fn it_says_what_it_is_and_refuses_what_it_lacks() {
    let model = candle("stablelm");
    let info = model.info();
    assert!(info.name.starts_with("candle:local:"), "{}", info.name);
    assert!(info.provider.as_ref().unwrap().contains("candle-transformers"), "{info:?}");
    assert_eq!((info.dtype.as_deref(), info.delta, info.layers), (Some("f32"), false, Some(2)));
    assert_eq!(tiny("llama").info().provider, None);
    assert_ne!(tiny("llama").info().digest, candle("llama").info().digest);

    let why = |name: &str, options: &EngineOptions| match LocalModel::from_path(&fixture(name), options) {
        Ok(_) => panic!("{name} was opened"),
        Err(error) => error.to_string(),
    };
    let native = why("stablelm", &options(Provider::Native));
    assert!(native.contains("the architecture `stablelm`") && native.contains("`candle:local:DIR`"), "{native}");
    let through_candle = options(Provider::Candle);
    let hybrid = why("granite-hybrid", &through_candle);
    assert!(hybrid.contains("`granitemoehybrid` through candle; supported: `stablelm`"), "{hybrid}");
    let narrow = why("stablelm", &EngineOptions { dtype: Some(Dtype::Q8_0), ..through_candle.clone() });
    assert!(narrow.contains("as f32 here, not as q8_0"), "{narrow}");
    let gpu = why("stablelm", &EngineOptions { device: Device::Cuda(0), ..through_candle.clone() });
    assert!(gpu.contains("use the device `cpu`"), "{gpu}");
    let gguf = root().join("tests/data/gguf/plain.gguf");
    let gguf = LocalModel::from_path(&gguf, &through_candle).err().unwrap().to_string();
    assert!(gguf.contains("open a GGUF file as `local:FILE`"), "{gguf}");
    // Settings that candle ignores.
    let odd = why("llama-odd", &through_candle);
    assert!(odd.contains("through candle"), "{odd}");
    let long = why("phi3", &through_candle);
    assert!(long.contains("rotary positions of type `longrope` through candle; supported: `default`"), "{long}");
}

#[test]
fn a_config_from_elsewhere_is_an_error_and_not_a_panic() {
    let check = |field: &str, value: serde_json::Value, why: &str| {
        let folder = changed("stablelm", |config| config[field] = value.clone());
        let error = LocalModel::from_dir(folder.path(), &options(Provider::Candle)).err().unwrap().to_string();
        assert!(error.contains(why), "{field} {value}: {error}");
    };
    check("num_attention_heads", 0.into(), "`num_attention_heads` is 0");
    check("num_key_value_heads", 3.into(), "do not divide");
    check("hidden_size", u64::MAX.into(), "`hidden_size` is");
    check("vocab_size", 41.into(), "has dims");
    check("num_hidden_layers", 1.into(), "not used by the architecture");
    check("use_parallel_residual", true.into(), "`use_parallel_residual` true through candle");
    check("hidden_act", "swiglu7".into(), "candle");
}

#[test]
fn sizes_are_those_of_the_files() {
    for name in CANDLE_ONLY {
        let config = std::fs::read_to_string(fixture(name).join("config.json")).unwrap();
        let shape = ModelShape::parse_for(&config, Provider::Candle).unwrap();
        let weights = std::fs::read(fixture(name).join("model.safetensors")).unwrap();
        let header = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
        assert_eq!(shape.parameters as usize * 4, weights.len() - 8 - header, "{name}");
        assert_eq!(shape.weight_bytes(Dtype::F32), shape.parameters * 4);
    }
}

#[test]
fn it_is_named_in_the_spec_and_never_chosen_silently() {
    let named = |spec: &str| open(&spec.parse().unwrap(), &OpenOptions::default());
    let path = fixture("starcoder2");
    assert!(named(&format!("local:{}", path.display())).is_err());
    let spec = format!("candle:local:{}", path.display());
    let model = named(&spec).unwrap();
    assert_eq!(model.info().name, spec);
    assert!(named("candle:bundled").unwrap().info().provider.is_some());
    for wrong in ["candle:", "candle:echo", "candle:candle:bundled", "candle:openai/x"] {
        assert!(wrong.parse::<loom_agent::foundation::chat::ModelSpec>().is_err(), "{wrong}");
    }
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = loom(&root(), arguments);
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

fn spec(path: &Path) -> String {
    format!("local:{}", path.display())
}

#[test]
fn a_model_is_checked_against_candle() {
    for name in ["llama", "qwen3", "gemma2", "plain"] {
        let (code, said) = run(&["model", "check", &spec(&fixture(name)), "--against", "candle"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("largest difference"), "{said}");
    }
    let (code, said) = run(&["model", "check", "bundled", "--against", "candle", "--bound", "1e-9"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("differs from candle:bundled by"), "{said}");
    let (code, said) = run(&["model", "check", &spec(&fixture("mamba2")), "--against", "candle"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`mamba2` through candle"), "{said}");
    let (code, said) = run(&["model", "check", "bundled", "--bound", "0.1"]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn info_says_what_does_not_hold() {
    let (code, said) = run(&["model", "info", &format!("candle:{}", spec(&fixture("glm4")))]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("candle-transformers") && said.contains("the last bits of a result depend"), "{said}");
    assert!(said.contains("as f32") && !said.contains("as q8_0"), "{said}");
    let (_, native) = run(&["model", "info", "bundled"]);
    assert!(!native.contains("candle"), "{native}");
}
