//! The hub, against a fake one on loopback that speaks the real one's protocol: a list of files, ranges, large files
//! behind a redirect to another host, cut downloads, refusals, and lies.

mod fake;

use std::fs;
use std::path::Path;

use loom_agent::foundation::base::RngStream;
use loom_agent::foundation::chat::{LanguageModel, ModelError, Prompt, Request, Sampling};
use loom_agent::inference::providers::{OpenOptions, open};
use loom_agent::inference::remote::hub::{HubOptions, cached_or_fetch, fetch};

use self::fake::{COMMIT, Hub, Lie};
use crate::program;

fn hub_options(hub: &Hub, home: &Path) -> HubOptions {
    HubOptions {
        offline: false,
        endpoint: Some(hub.url.clone()),
        cache: Some(home.join("hub")),
        records: Some(home.join("records")),
        first_wait: std::time::Duration::from_millis(1),
    }
}

fn open_options(hub: HubOptions) -> OpenOptions {
    let mut options = OpenOptions::new(Some(1), None);
    options.hub = hub;
    options
}

fn continuation(model: &dyn LanguageModel) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sampling = Sampling { max_tokens: 12, ..Sampling::greedy() };
    let request = Request::new(Prompt::Ids(vec![1, 2, 3]), sampling, RngStream::root(0));
    runtime.block_on(model.complete(request, None)).unwrap().message.content
}

fn refusal(spec: &str, options: HubOptions) -> String {
    match open(&spec.parse().unwrap(), &open_options(options)) {
        Ok(model) => panic!("{} was opened", model.info().name),
        Err(ModelError::Unavailable { why, .. }) => why,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_model_is_downloaded_once_and_opened_from_the_cache() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    for (name, folder) in [("acme/plain", "tests/data/mamba/plain"), ("acme/shards", "tests/data/mamba/shards")] {
        let options = hub_options(&hub, home.path());
        let model = open(&format!("hf:{name}").parse().unwrap(), &open_options(options.clone())).unwrap();
        assert_eq!(model.info().name, format!("hf:{name}"));
        let local = open(&format!("local:{folder}").parse().unwrap(), &open_options(options.clone())).unwrap();
        assert_eq!(model.info().digest, local.info().digest);
        assert_eq!(continuation(model.as_ref()), continuation(local.as_ref()));

        // No further requests are sent.
        let asked = hub.asked().len();
        let offline = HubOptions { offline: true, ..options };
        assert!(open(&format!("hf:{name}@main").parse().unwrap(), &open_options(offline)).is_ok());
        assert_eq!(hub.asked().len(), asked);
    }
    let asked = hub.asked().join("\n");
    assert!(asked.contains("model-00003-of-00003.safetensors"), "{asked}");
    assert!(!asked.contains("pytorch_model.bin") && !asked.contains("training.log"), "{asked}");
}

#[test]
fn an_interrupted_download_is_resumed() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let fetched = fetch("acme/large", None, &hub_options(&hub, home.path())).unwrap();
    let weights = fetched.folder.join("model.safetensors");
    assert_eq!(fs::read(weights).unwrap(), fake::large());
    let ranges: Vec<_> = hub.asked().into_iter().filter(|line| line.contains("/cdn/")).collect();
    let count = |range: &str| ranges.iter().filter(|line| line.ends_with(range)).count();
    assert_eq!((count("bytes=0-9999999"), count("bytes=10000000-19999999")), (1, 2), "{ranges:#?}");
}

#[test]
fn hub_errors_say_what_to_do() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let why = |spec: &str| refusal(spec, hub_options(&hub, home.path()));
    assert!(why("hf:acme/private").contains("401") && why("hf:acme/private").contains("set HF_TOKEN"));
    assert!(why("hf:acme/gated").contains("403") && why("hf:acme/gated").contains("accept its terms at"));
    assert!(why("hf:acme/nothing").contains("the hub has no acme/nothing at main (404)"));
    assert!(why("hf:acme/plain@v9").contains("the hub has no acme/plain at v9 (404)"));
    assert!(why("hf:acme/bare").contains("acme/bare has no `tokenizer.json`"));
    assert!(why("hf:..x/plain").contains("not a valid name on the hub"));
    let offline = HubOptions { offline: true, ..hub_options(&hub, home.path()) };
    assert!(refusal("hf:acme/plain", offline).contains("run `loom model fetch` while online"));
    let nobody = HubOptions { endpoint: Some("http://127.0.0.1:9".to_owned()), ..hub_options(&hub, home.path()) };
    assert!(refusal("hf:acme/plain", nobody).contains("name another hub in HF_ENDPOINT"));
}

#[test]
fn an_address_with_a_secret_is_rejected_and_not_shown() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    for endpoint in ["https://me:hf_secret@127.0.0.1:1", "hf_secret"] {
        let options = HubOptions { endpoint: Some(endpoint.to_owned()), ..hub_options(&hub, home.path()) };
        let why = refusal("hf:acme/plain", options);
        assert!(why.contains("hold no user or password") && !why.contains("secret"), "{why}");
    }
}

#[test]
fn an_untrusted_hub_cannot_write_outside_its_folder() {
    for (lie, why) in [
        (Lie::ShardOutside, "the shard `../../../x` is not a plain file name"),
        (Lie::CommitIsPath, "is not a commit"),
        (Lie::TagIsPath, "belongs to another commit, or its digest is invalid"),
        (Lie::OtherBytes, "is damaged: the hub states sha256"),
        (Lie::EndlessFile, "`config.json` has 1099511627776 bytes; the maximum is"),
    ] {
        let (hub, home) = (Hub::lying(lie), tempfile::tempdir().unwrap());
        let told = refusal("hf:acme/shards", hub_options(&hub, &home.path().join("a/b/c")));
        assert!(told.contains(why), "{lie:?}: {told}");
        let outside = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert!(outside.iter().all(|name| name == "a"), "{lie:?}: {outside:?}");
    }
}

#[test]
fn a_file_changed_after_its_download_is_an_error_with_both_digests() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let options = hub_options(&hub, home.path());
    let fetched = cached_or_fetch("acme/plain", None, &options).unwrap();
    let weights = fetched.folder.join("model.safetensors").canonicalize().unwrap();
    let recorded = fetched.files.iter().find(|(name, _)| name == "model.safetensors").unwrap().1.sha256.clone();
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let told = refusal("hf:acme/plain", options);
    assert!(told.contains("has changed since it was first downloaded") && told.contains(&recorded), "{told}");
    assert_eq!(told.matches("sha256 ").count(), 1, "{told}");
}

/// `loom model …` with the hub's variables; its exit code and all that it printed.
fn loom(hub: &Hub, home: &Path, token: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = program::command(home, arguments);
    let output = command.envs([("HF_ENDPOINT", hub.url.as_str()), ("HF_TOKEN", token)]).env("HF_HOME", home).output();
    let output = output.unwrap();
    (output.status.code(), program::told(&output))
}

#[test]
fn the_model_commands_fetch_inspect_and_check() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let run = |arguments: &[&str]| loom(&hub, home.path(), fake::TOKEN, arguments);

    let (code, told) = run(&["model", "info", "hf:acme/plain"]);
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains("fetch it first, with `loom model fetch hf:acme/plain`"), "{told}");
    let (code, told) = run(&["model", "info", "hf:state-spaces/mamba-130m-hf"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("129135360") && told.contains("data from the catalog") && told.contains("as q4_k"), "{told}");

    let (code, told) = run(&["model", "fetch", "hf:acme/private"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains(&format!("commit {COMMIT}")) && !told.contains(fake::TOKEN), "{told}");
    let (code, told) = run(&["model", "info", "hf:acme/private", "--format", "json"]);
    assert_eq!(code, Some(0), "{told}");
    let facts: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(facts["licence"], "mit");
    assert_eq!(facts["commit"], COMMIT);
    assert_eq!(facts["shape"]["architecture"], "mamba");
    let (code, told) = run(&["model", "check", "hf:acme/private"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("all weights are finite") && told.contains("digest"), "{told}");
    let (code, told) = run(&["model", "list"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("hf:acme/private") && told.contains(&COMMIT[..12]) && told.contains("hf:Qwen/Qwen3-0.6B"),
        "{told}"
    );

    // The weights came from another host, which did not get the token.
    let asked = hub.asked().join("\n");
    assert!(asked.contains("/cdn/acme/private/model.safetensors") && !asked.contains("TOKEN LEAKED"), "{asked}");

    let (code, told) = loom(&hub, home.path(), "", &["model", "fetch", "hf:acme/private@main"]);
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains("set HF_TOKEN"), "{told}");
}

#[test]
fn a_run_asks_before_it_downloads() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    fs::write(home.path().join("anna.yaml"), crate::rollout::ANNA).unwrap();
    let run =
        ["run", "anna.yaml", "--persona-model", "hf:acme/plain", "--target", "echo", "--no-score", "--turns", "1"];
    // The key that signs receipts cannot be read: it is a folder.
    let key = home.path().join(".local/share/loom/key");
    fs::create_dir_all(&key).unwrap();
    let (code, told) = loom(&hub, home.path(), "", &[run.as_slice(), &["--output", "denied"]].concat());
    assert_eq!((code, hub.asked().len()), (Some(1), 0), "{told}");
    fs::remove_dir(&key).unwrap();
    let (code, told) = loom(&hub, home.path(), "", &[run.as_slice(), &["--output", "run"]].concat());
    assert!(code == Some(0) && !hub.asked().is_empty(), "{told}");
    let log = fs::read_to_string(home.path().join("run/receipts.jsonl")).unwrap();
    let granted = log.lines().filter(|line| line.contains("gate.granted") && line.contains("127.0.0.1"));
    assert!(granted.count() > 0, "{log}");
}

#[test]
fn a_model_too_large_for_memory_is_rejected_before_its_weights_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "model_type": "mamba", "vocab_size": 50280, "hidden_size": 65536, "num_hidden_layers": 4096, "state_size": 16,
    });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let told = refusal(&format!("local:{}", folder.path().display()), HubOptions::default());
    if cfg!(target_os = "linux") {
        assert!(told.contains("it needs") && told.contains("as f32") && told.contains("are free"), "{told}");
    }
}
