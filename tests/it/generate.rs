//! `loom generate` and `loom logprobs` from outside.

use std::process::{Command, Output};

use loom_agent::foundation::chat::LanguageModel;
use loom_agent::inference::engine::{EngineOptions, LocalModel};
use serde_json::{Value, json};

use crate::engine::texts::with_bos;
use crate::engine::{bundled, fixture};
use crate::program;

fn loom(arguments: &[&str], input: &str) -> Output {
    program::fed(program::command(&program::root(), arguments), input)
}

fn text(arguments: &[&str], input: &str) -> String {
    let output = loom(arguments, input);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str], input: &str) -> Value {
    serde_json::from_str(&text(arguments, input)).unwrap()
}

const HI: &str = r#"[{"role": "system", "content": "I have two dogs."}, {"role": "user", "content": "Hi! Any pets?"}]"#;

#[test]
fn what_was_generated_scores_as_it_was_told() {
    for arguments in [
        &["generate", "--chat", "-", "--seed", "3", "--temperature", "1.1"][..],
        &["generate", "--max-tokens", "40", "--delta", "g_delta=0.8,g_write=1.2", "--delta-layers", "0,2"],
    ] {
        let input = if arguments.contains(&"--chat") { HI } else { "I have two dogs" };
        let mut arguments = arguments.to_vec();
        arguments.extend(["--format", "json", "--top-logprobs", "3"]);
        let generated = json(&arguments, input);
        let tokens = generated["tokens"].as_array().unwrap();
        assert!(tokens.len() > 2, "{generated}");
        let mut again = vec!["logprobs", "--ids", "--format", "json", "--top-logprobs", "3"];
        again.extend(arguments.iter().skip_while(|a| **a != "--delta").take(4));
        let scored = json(&again, &generated.to_string());
        let mut told = tokens.clone();
        told.extend(generated["end"].as_object().map(|end| json!(end)));
        // Floats were printed and read back: equal means equal bits.
        assert_eq!(scored["tokens"].as_array().unwrap(), &told);
        let sum: f64 = told.iter().map(|token| token["logprob"].as_f64().unwrap()).sum();
        assert_eq!(scored["totals"]["logprob"], json!(sum));
        assert_eq!(scored["totals"]["scored"], json!(told.len()));
        assert_eq!(scored["digest"], generated["digest"]);
    }
}

#[test]
fn text_and_json_say_the_same_and_colours_only_add() {
    let arguments = ["generate", "Once upon a time", "--seed", "4", "--max-tokens", "24"];
    let plain = text(&arguments, "");
    let told = json(&[&arguments[..], &["--format", "json"]].concat(), "");
    assert_eq!(plain, format!("{}\n", told["text"].as_str().unwrap()));
    let colored = text(&[&["--color", "always"], &arguments[..]].concat(), "");
    assert!(colored.contains("\x1b["), "{colored}");
    let mut bare = String::new();
    for part in colored.split('\x1b') {
        bare.push_str(part.split_once('m').filter(|_| part.starts_with('[')).map_or(part, |(_, rest)| rest));
    }
    assert_eq!(bare, format!("{plain}\np ≥ .5  ≥ .1  ≥ .01  less\n"));
    // From standard input as from the command line.
    let piped = [&["generate"], &arguments[2..]].concat();
    assert_eq!(text(&piped, "Once upon a time"), plain);
}

#[test]
fn a_long_text_is_scored_in_pieces_as_it_is_in_one() {
    let long = "I have two dogs and a cat. They love the hills behind our house. ".repeat(320);
    let scored = json(&["logprobs", "--format", "json"], &long);
    let totals = &scored["totals"];
    assert!(totals["tokens"].as_u64().unwrap() > 4_200, "more than two pieces: {totals}");
    let tokens = scored["tokens"].as_array().unwrap();
    assert_eq!(tokens[0]["logprob"], Value::Null);
    // Scored anew with everything before it as context, the end is the same.
    let ids: Vec<_> = tokens.iter().map(|token| token["id"].clone()).collect();
    let (context, end) = ids.split_at(3_000);
    let input =
        json!({ "prompt": { "ids": context }, "tokens": end.iter().map(|id| json!({ "id": id })).collect::<Vec<_>>() });
    let again = json(&["logprobs", "--ids", "--format", "json"], &input.to_string());
    assert_eq!(again["tokens"].as_array().unwrap()[..], tokens[3_000..]);
    let sum = |key: &str| tokens.iter().filter_map(|token| token[key].as_f64()).sum::<f64>();
    let scored = totals["scored"].as_f64().unwrap();
    assert_eq!(totals["logprob"].as_f64(), Some(sum("logprob")));
    assert_eq!(totals["perplexity"].as_f64(), Some((-sum("logprob") / scored).exp()));
    let bytes = long.len() - tokens[0]["text"].as_str().unwrap().len();
    assert_eq!(totals["bytes"], json!(bytes));
    assert_eq!(totals["bits_per_byte"].as_f64(), Some(-sum("logprob") / std::f64::consts::LN_2 / bytes as f64));
}

#[test]
fn a_text_is_scored_at_the_dtype_that_was_asked_for() {
    let told = json(&["logprobs", "--dtype", "q8_0", "--format", "json"], "I have two dogs.");
    let options = EngineOptions { dtype: Some("q8_0".parse().unwrap()), ..EngineOptions::default() };
    let model = LocalModel::bundled(&options).unwrap();
    assert_eq!(told["digest"], json!(model.info().digest));
    assert_ne!(told["digest"], json!(bundled(1).info().digest));
}

#[test]
fn a_text_too_long_for_any_model_is_refused_before_it_is_scored() {
    let ids = format!("[{}7]", "7,".repeat(1 << 20));
    let output = loom(&["logprobs", "--ids", "--format", "json"], &ids);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("has 1048577 tokens, and a model takes at most 1048576: cut it"), "{told}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}

#[test]
fn a_text_too_long_for_a_window_is_refused_before_it_is_scored() {
    let model = format!("local:{}", fixture("smollm").display());
    for (length, code) in [(64, 0), (65, 2)] {
        let ids = format!("[7{}]", ",8".repeat(length - 1));
        let output = loom(&["logprobs", "-m", &model, "--ids", "--format", "json"], &ids);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert_eq!(output.stdout.is_empty(), code == 2, "half an answer");
        assert_eq!(told.contains("has 65 tokens, and the model reads at most 64: cut it into parts"), code == 2);
    }
}

/// In a process that may not have more than 4 GiB of addresses: a template that got as far as it would like to is killed.
#[cfg(target_os = "linux")]
#[test]
fn a_hostile_template_stays_within_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("template.jinja");
    let loom = env!("CARGO_BIN_EXE_loom");
    for (template, why) in [
        (
            "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "allocates more than",
        ),
        ("{{ 'x' * 99999999 ~ 'y' * 99999999 ~ 'z' * 99999999 }}", "repeated too often"),
        (
            "{% set l = range(99999) | list %}{{ l | join('a long text between the items' * 4000) }}",
            "allocates more than",
        ),
        (
            "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}",
            "a value is larger than",
        ),
        ("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "puts a namespace into another value"),
        ("{{ '%999999999d' | format(1) }}", "allocates more than"),
    ] {
        std::fs::write(&path, template).unwrap();
        let limited = format!("ulimit -v {} && exec \"$0\" \"$@\"", 4 << 20);
        let mut command = Command::new("sh");
        command.args(["-c", &limited, loom, "generate", "--threads", "1", "--chat-template"]);
        command.arg(&path).args(["--chat", "-"]);
        let output = program::fed(command, HI);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{template}: {told}");
        assert!(told.contains(why), "{template}: {told}");
    }
}

#[test]
fn a_context_and_a_beginning_have_the_first_token_scored() {
    let scored = json(&["logprobs", "--format", "json", "--bos"], "Hello");
    assert_eq!(scored["totals"]["scored"], scored["totals"]["tokens"]);
    let kind = json(&["logprobs", "--format", "json", "--context", "My dog is"], " very good.");
    let unkind = json(&["logprobs", "--format", "json", "--context", "My dog is"], " of electrons.");
    assert!(kind["totals"]["logprob_mean"].as_f64() > unkind["totals"]["logprob_mean"].as_f64());
    let human = text(&["logprobs", "--context", "My dog is"], " very good.");
    assert!(human.lines().any(|line| line.starts_with("perplexity ")), "{human}");
}

#[test]
fn a_text_is_scored_after_the_token_that_its_tokenizer_puts_before_it() {
    let scores = |config: &str, arguments: &[&str], input: &str| {
        let (_keep, model) = with_bos(config);
        let model = model.info().name.clone();
        let mut all = vec!["logprobs", "-m", &model, "--format", "json"];
        all.extend(arguments);
        let scored = json(&all, input);
        let tokens = scored["tokens"].as_array().unwrap();
        tokens.iter().map(|token| (token["id"].clone(), token["logprob"].clone())).collect::<Vec<_>>()
    };
    let ids = scores("{}", &["--ids"], "[0, 5, 6, 7]");
    let text = scores("{}", &[], "w5 w6 w7");
    assert_eq!(text, ids[1..]);
    assert!(text.iter().all(|(_, logprob)| logprob.is_number()));
    // A text that writes the token itself has no second one; a context follows it.
    assert_eq!(scores("{}", &[], "w0 w5 w6 w7"), ids);
    assert_eq!(scores("{}", &["--context", "w5"], "w6 w7"), ids[2..]);
    // Where the tokenizer does not add it, `--bos` does.
    let without = r#"{"add_bos_token": false, "bos_token": "w0"}"#;
    let alone = scores(without, &[], "w5 w6 w7");
    assert_eq!(alone[0].1, Value::Null);
    assert_ne!(alone[1..], ids[2..]);
    assert_eq!(scores(without, &["--bos"], "w5 w6 w7"), ids[1..]);
}

#[test]
fn the_ids_of_a_prompt_are_those_that_the_model_read() {
    let (_keep, model) = with_bos("{}");
    let model = model.info().name.clone();
    let generated = json(&["generate", "w5 w6", "-m", &model, "--max-tokens", "4", "--format", "json"], "");
    assert_eq!(generated["prompt"]["ids"], json!([0, 5, 6]));
    let scored = json(&["logprobs", "-m", &model, "--ids", "--format", "json"], &generated.to_string());
    assert_eq!(scored["tokens"], generated["tokens"]);
}

#[test]
fn what_cannot_be_done_is_told() {
    for (arguments, input, code, why) in [
        (&["logprobs", "-m", "echo"][..], "x", 2, "does not expose its tokenizer; use `bundled`"),
        (&["logprobs"], "", 2, "-: there is nothing to score"),
        (&["logprobs", "--ids"], "{}", 2, "-: not token ids; expected a JSON array"),
        (&["logprobs", "/nowhere.txt"], "", 2, "/nowhere.txt cannot be read: "),
        (
            &["generate", "--chat", "-"],
            "{}",
            2,
            "-: not a conversation (invalid type: null, expected a sequence); write a list of",
        ),
        (&["generate", "--chat", "-"], r#"[{"role": "robot", "content": ""}]"#, 2, "unknown variant `robot`, expected"),
        (&["generate", "x", "--delta", "g=1"], "", 2, "there is no gain `g`"),
        (&["generate", "x", "--delta", "g_write=1", "--delta-layers", "9"], "", 2, "there is no layer 9"),
        (&["generate", "x", "-m", "echo", "--delta", "g_write=1"], "", 2, "model `echo` has no Δ"),
        (&["generate", "x", "--temperature", "-1"], "", 5, "`temperature` must be 0 (greedy) or a positive number"),
        (&["generate", "x", "--max-tokens", "18446744073709551615"], "", 5, "it may be at most 524288"),
        (&["generate", "x", "--threads", "0"], "", 2, "must be at least 1"),
        (&["generate", "x", "--threads", "100000"], "", 5, "100000 threads were requested; the range is 1 to 1024"),
        (&["generate", "x", "-m", "local:/nowhere"], "", 5, "`/nowhere` cannot be read: No such file"),
        (&["serve", "--host", "0.0.0.0"], "", 2, "0.0.0.0 is reachable by other machines: set an API key"),
        (&["serve", "--api-key", "/nowhere"], "", 2, "/nowhere cannot be read: "),
    ] {
        let output = loom(arguments, input);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
        assert!(told.contains(why), "{arguments:?}: {told}");
    }
}

#[test]
fn a_model_is_checked_by_what_it_says_too() {
    let told = text(&["model", "check", "bundled"], "");
    let output = told.lines().find(|line| line.starts_with("output ")).expect(&told);
    let numbers: Vec<f64> = output.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [costs, chance] = numbers[..] else { panic!("{output}") };
    assert!(costs < chance && (chance - 4096f64.ln()).abs() < 0.01, "{output}");
}

#[test]
fn offline_nobody_is_asked_for_a_model() {
    for command in ["generate", "logprobs", "serve"] {
        let arguments = [command, "--model", "hf:acme/plain", "--offline"];
        let output = program::fed(program::command(tempfile::tempdir().unwrap().path(), &arguments), "x");
        let told = program::told(&output);
        assert_eq!(output.status.code(), Some(5), "{told}");
        assert!(told.contains("cannot be downloaded offline: run `loom model fetch"), "{told}");
    }
}

#[test]
fn help_teaches() {
    for command in ["generate", "logprobs", "serve"] {
        insta::assert_snapshot!(format!("help_{command}"), text(&[command, "--help"], ""));
    }
}
