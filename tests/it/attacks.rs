//! Files and requests of strangers: what an attacker tried, and what the program answers. `scripts/attack.sh` has what
//! takes too long for here.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program;
use crate::rollout::ANNA;

/// A finished run in `run`.
fn results(folder: &Path) {
    fs::write(folder.join("anna.yaml"), ANNA).unwrap();
    let arguments =
        ["run", "anna.yaml", "--persona-model", "echo", "--target", "echo", "--turns", "2", "--output", "run"];
    let output = program::loom(folder, &arguments);
    assert!(output.status.success(), "{}", program::told(&output));
}

fn told(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let begun = Instant::now();
    let output = program::loom(folder, arguments);
    assert!(begun.elapsed() < Duration::from_mins(2), "{arguments:?} took {:?}", begun.elapsed());
    let told = program::told(&output);
    assert!(!told.contains("loom has a bug"), "{arguments:?}: {told}");
    (output.status.code(), told)
}

#[cfg(unix)]
#[test]
fn links_in_a_results_folder_are_not_written_through() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    results(path);
    let victim = path.join("victim");
    fs::write(&victim, "kept").unwrap();
    for name in ["report.md", "report.json", "report.html", "curves.svg"] {
        let _there = fs::remove_file(path.join("run").join(name));
        symlink(&victim, path.join("run").join(name)).unwrap();
    }
    assert_eq!(told(path, &["report", "run"]).0, Some(0));
    assert!(fs::read_to_string(path.join("run/report.md")).unwrap().starts_with("# Anna"));
    // `--output` is the user's: a link there is followed; the figure beside it is not the user's.
    fs::create_dir(path.join("mine")).unwrap();
    symlink(path.join("real.md"), path.join("mine/anna.md")).unwrap();
    fs::write(path.join("real.md"), "old").unwrap();
    symlink(&victim, path.join("mine/curves.svg")).unwrap();
    assert_eq!(told(path, &["report", "run", "--output", "mine/anna.md"]).0, Some(0));
    assert!(fs::read_to_string(path.join("real.md")).unwrap().starts_with("# Anna"));
    // Scores go into the transcript's place, not into what it links to.
    let transcript = path.join("run/rollout_000.json");
    let outside = path.join("outside.json");
    fs::rename(&transcript, &outside).unwrap();
    symlink(&outside, &transcript).unwrap();
    let before = fs::read(&outside).unwrap();
    assert_eq!(told(path, &["score", "run", "--judge-model", "none", "--likelihood", "off"]).0, Some(0));
    assert_eq!(fs::read(&outside).unwrap(), before);
    // The receipts' log is appended to, so a link there is refused.
    for name in ["receipts.jsonl", "receipts.lock"] {
        let _there = fs::remove_file(path.join("run").join(name));
        symlink(&victim, path.join("run").join(name)).unwrap();
    }
    let (code, text) = told(path, &["score", "run", "--judge-model", "none", "--likelihood", "off", "--again"]);
    assert!(code != Some(0), "{text}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
}

#[cfg(unix)]
#[test]
fn folders_that_are_links_are_not_written_through() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("anna.yaml"), ANNA).unwrap();
    let sweep = "sweep_version: \"0.1.0\"\nconfigs: [anna.yaml]\npersona_models: [echo]\ntargets: [echo]\nseeds: [1]\nturns: 2\n";
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    fs::create_dir(path.join("victim")).unwrap();
    let kept = || fs::read_dir(path.join("victim")).unwrap().count() == 0;
    for name in ["cell_0000", "receipts", "receipts/1-of-1"] {
        let out = path.join("out");
        fs::create_dir_all(out.join(name).parent().unwrap()).unwrap();
        symlink(path.join("victim"), out.join(name)).unwrap();
        let (code, text) = told(path, &["sweep", "sweep.yaml", "--output", "out"]);
        assert!(code == Some(2) && text.contains("is a symbolic link") && kept(), "{name}: {code:?} {text}");
        fs::remove_dir_all(out).unwrap();
    }
    // The folder itself is the user's: it may be a link.
    fs::create_dir(path.join("real")).unwrap();
    symlink(path.join("real"), path.join("out")).unwrap();
    assert_eq!(told(path, &["sweep", "sweep.yaml", "--output", "out"]).0, Some(0));
    assert!(path.join("real/cell_0000/run.json").is_file());
    fs::create_dir(path.join("merged")).unwrap();
    symlink(path.join("victim"), path.join("merged/cell_0000")).unwrap();
    let (code, text) = told(path, &["merge", "out", "--output", "merged"]);
    assert!(code == Some(2) && text.contains("is a symbolic link") && kept(), "{code:?} {text}");
}

#[cfg(unix)]
#[test]
fn a_device_or_a_fifo_instead_of_a_file_is_an_error_at_once() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    results(path);
    symlink("/dev/zero", path.join("zero.yaml")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(path.join("fifo.yaml")).status().unwrap().success());
    for name in ["zero.yaml", "fifo.yaml"] {
        for command in [&["validate", name][..], &["dry-run", name], &["run", name], &["sweep", name, "--list"]] {
            let (code, text) = told(path, command);
            assert!(!matches!(code, None | Some(0)) && text.contains("not a file"), "{command:?}: {code:?} {text}");
        }
    }
    for (name, command) in [
        ("run/run.json", &["report", "run"][..]),
        ("run/rollout_000.json", &["report", "run"]),
        ("run/rollout_000.json", &["view", "run"]),
        ("run/rollout_000.tokens.jsonl", &["report", "run"]),
        ("run/config.yaml", &["run", "--resume", "run"]),
        ("run/receipts.jsonl", &["receipts", "verify", "run"]),
    ] {
        let kept = fs::read(path.join(name)).unwrap();
        fs::remove_file(path.join(name)).unwrap();
        symlink("/dev/zero", path.join(name)).unwrap();
        let (code, text) = told(path, command);
        assert!(code.is_some_and(|code| code < 70), "{name} {command:?}: {text}");
        fs::remove_file(path.join(name)).unwrap();
        fs::write(path.join(name), kept).unwrap();
    }
    assert_eq!(told(path, &["report", "run"]).0, Some(0));
    // A model folder.
    fs::create_dir(path.join("model")).unwrap();
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        symlink("/dev/zero", path.join("model").join(name)).unwrap();
    }
    let (code, text) = told(path, &["generate", "Hello", "-m", "local:model"]);
    assert!(code == Some(5) && text.contains("not a file"), "{code:?} {text}");
    // Standard input stays possible under its own name.
    let output = program::fed(program::command(path, &["validate", "/dev/stdin"]), ANNA);
    assert!(output.status.success(), "{}", program::told(&output));
}

#[test]
fn text_from_files_does_not_control_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let name = "Anna\\e]0;owned\\a\\e[2J\\u202e\\u009b2J";
    let hostile = ANNA.replacen("Anna", name, 1).replace("name: Anna", &format!("name: \"{name}\""));
    let yaml = if hostile.contains(&format!("name: \"{name}\"")) {
        hostile
    } else {
        ANNA.replacen("name: Anna", &format!("name: \"{name}\""), 1)
    };
    fs::write(path.join("anna.yaml"), &yaml).unwrap();
    fs::write(
        path.join("replies"),
        "[\"Hello \\u001b]0;owned\\u0007 \\u202e [x](javascript:alert(1)) https://evil.example/a_b\"]",
    )
    .unwrap();
    let run = [
        "run",
        "anna.yaml",
        "--persona-model",
        "scripted:replies",
        "--target",
        "scripted:replies",
        "--turns",
        "8",
        "--output",
        "run",
    ];
    for arguments in [
        &run[..],
        &["validate", "anna.yaml"],
        &["dry-run", "anna.yaml"],
        &["report", "run"],
        &["report", "run", "--output", "-"],
        &["view", "run"],
        &["score", "run", "--judge-model", "none"],
        &["dry-run", "anna.yaml", "--format", "json"],
    ] {
        let (_, text) = told(path, arguments);
        assert!(!text.chars().any(loom_agent::foundation::text::is_unsafe), "{arguments:?}: {text:?}");
    }
    let report = fs::read_to_string(path.join("run/report.md")).unwrap();
    assert!(!report.chars().any(loom_agent::foundation::text::is_unsafe) && !report.contains("[x]("), "{report}");
    let svg = fs::read_to_string(path.join("run/curves.svg")).unwrap();
    assert!(roxmltree::Document::parse(&svg).is_ok());
}

#[test]
fn a_config_that_would_cost_minutes_is_refused_with_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let at = ANNA.find("  phases:").unwrap();
    let dimension = |number: usize| {
        format!(
            "    d{number}:\n      description: \"d\"\n      levels: {{low: a, medium: b, high: c}}\n      curve: linear\n      start_value: 0.1\n      end_value: 0.8\n"
        )
    };
    let with = |count: usize| {
        let many: String = (0..count).map(dimension).collect();
        format!("{}{many}{}", &ANNA[..at], &ANNA[at..])
    };
    fs::write(path.join("many.yaml"), with(2_000)).unwrap();
    let (code, text) = told(path, &["dry-run", "many.yaml", "--turns", "10000"]);
    assert!(code == Some(3) && text.contains("DIMENSIONS_MAX"), "{code:?} {text}");
    let long = ANNA.replacen("Mention the alarms", &"Mention the alarms, again and again. ".repeat(8_000), 1);
    fs::write(path.join("long.yaml"), long).unwrap();
    let (code, text) = told(path, &["dry-run", "long.yaml", "--turns", "10000"]);
    assert!(code == Some(3) && text.contains("PLAN_TEXT_BYTES_MAX"), "{code:?} {text}");
    // Thousands of problems: the first are shown.
    fs::write(path.join("wrong.yaml"), with(2_000).replace("description: \"d\"", "desc: d")).unwrap();
    let (code, text) = told(path, &["validate", "wrong.yaml"]);
    assert!(code == Some(3) && text.contains(" more\n"), "{code:?} {}", text.len());
    // A large but ordinary persona passes.
    fs::write(path.join("some.yaml"), with(30)).unwrap();
    let (code, text) = told(path, &["dry-run", "some.yaml", "--turns", "200"]);
    assert_eq!(code, Some(0), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_failed_write_has_one_exit_code_and_keeps_the_old_file() {
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    results(path);
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["validate", "anna.yaml"],
        &["dry-run", "anna.yaml"],
        &["schema"],
        &["examples"],
        &["report", "run", "--output", "-"],
        &["model", "list"],
        &["receipts", "verify", "run"],
        &["completions", "bash"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = program::command(path, arguments).stdout(Stdio::from(full)).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // A folder in which no file can be made stands for a full disk.
    assert_eq!(told(path, &["report", "run", "--output", "/dev/full", "--format", "md"]).0, Some(2));
    assert_eq!(told(path, &["report", "run", "--output", "/dev/null", "--format", "md"]).0, Some(0));
    assert!(!fs::symlink_metadata("/dev/null").unwrap().is_file());
}

#[test]
fn damaged_tokenizers_are_errors_not_bugs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let model = program::root().join("tests/data/mamba/plain");
    fs::create_dir(path.join("model")).unwrap();
    for entry in fs::read_dir(model).unwrap() {
        let file = entry.unwrap().path();
        fs::copy(&file, path.join("model").join(file.file_name().unwrap())).unwrap();
    }
    let whole = fs::read_to_string(path.join("model/tokenizer.json")).unwrap();
    assert_eq!(told(path, &["generate", "Hello", "-m", "local:model", "--max-tokens", "1"]).0, Some(0));
    let double = r#"{"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"}"#;
    let bomb = format!(r#"{{"type": "Sequence", "normalizers": [{}]}}"#, [double; 12].join(","));
    let mut json: serde_json::Value = serde_json::from_str(&whole).unwrap();
    json["normalizer"] = serde_json::from_str(&bomb).unwrap();
    for text in [whole[..whole.len() / 2].to_owned(), String::new(), "{}".to_owned(), "[]".to_owned(), json.to_string()]
    {
        fs::write(path.join("model/tokenizer.json"), &text).unwrap();
        let (code, told) = told(path, &["generate", "aaaaaaaaaaaaaaaa", "-m", "local:model", "--max-tokens", "1"]);
        assert!(code == Some(5) && told.contains("tokenizer.json"), "{code:?} {told}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn large_requests_together_take_a_bounded_memory() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    let folder = tempfile::tempdir().unwrap();
    let mut command = program::command(folder.path(), &["serve", "--port", "0", "--threads", "1"]);
    let mut server = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let resident = |name: &str| {
        let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap() >> 10
    };
    let ask = |body: String| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!(
            "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        // A body that is refused is not read to its end.
        let _sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        let mut answer = Vec::new();
        let _read = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).get(9..12).unwrap_or_default().to_owned()
    };
    let before = resident("VmRSS:");
    let text = |text: &str, bytes: usize| serde_json::json!({ "prompt": text.repeat(bytes / text.len()) }).to_string();
    let bodies = [
        text("x y ", 2 << 20),
        text("x y ", 2 << 20),
        text("the quick brown fox ", 2 << 20),
        text("7", 2 << 20),
        text("a b", 15 << 20),
        format!("{{\"messages\": [{{\"role\": \"user\", \"content\": \"a\"}}{}]}}", ", {\"x\": {}}".repeat(300_000)),
    ];
    let answers: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = bodies.into_iter().map(|body| scope.spawn(|| ask(body))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(answers[..3], ["200", "200", "200"], "{answers:?}");
    assert_eq!(answers[3], "400", "a text that cannot be divided: {answers:?}");
    let peak = resident("VmHWM:");
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(peak < before + 384, "{before} MiB before, {peak} MiB at most, {answers:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_that_a_file_names_is_asked_about_on_a_terminal() {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::process::Command;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(path.join("anna.yaml"), ANNA).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let requests = std::thread::spawn(move || {
        let mut asked = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap();
            if head[..read].starts_with(b"END") {
                return asked;
            }
            asked += 1;
            let _sent = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
        asked
    });
    let sweep = format!(
        "sweep_version: \"0.1.0\"\nconfigs: [anna.yaml]\npersona_models: [echo]\ntargets: [\"openai-compatible:http://{server}/v1#m\"]\n\
         seeds: [1]\nturns: 2\n"
    );
    fs::write(path.join("sweep.yaml"), sweep).unwrap();
    // `script` (util-linux) runs the program on a terminal of its own.
    let on_terminal = |output: &str, answer: &str| {
        let line = format!("{} sweep sweep.yaml --output {output}", env!("CARGO_BIN_EXE_loom"));
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(path).env("HOME", path).env_remove("LOOM_ALLOW_HOSTS");
        let output = program::fed(command, answer);
        (output.status.code(), program::told(&output))
    };
    let (code, told) = on_terminal("no", "n\n");
    assert!(
        code == Some(4) && told.contains(&format!("Send this conversation and the key to http://{server}")),
        "{told}"
    );
    let (code, told) = on_terminal("yes", "y\n");
    assert_ne!(code, Some(4), "{told}");
    // Without a terminal nobody is asked.
    let (code, told) = self::told(path, &["sweep", "sweep.yaml", "--output", "piped"]);
    assert!(code == Some(4) && told.contains("--allow-host") && !told.contains("[y/N]"), "{told}");
    std::net::TcpStream::connect(server).unwrap().write_all(b"END").unwrap();
    assert!(requests.join().unwrap() >= 1, "the answer y sends the request");
    let refused = fs::read_dir(path.join("no")).map_or(0, |entries| {
        entries.filter(|entry| entry.as_ref().unwrap().path().join("rollout_000.json").exists()).count()
    });
    assert_eq!(refused, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_grow_is_an_error_and_the_old_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    results(path);
    fs::write(path.join("report.md"), "old").unwrap();
    // As on a full disk: no file may have a byte.
    let full = |arguments: &str| {
        let line = format!("trap '' XFSZ; ulimit -f 0; exec {} {arguments}", env!("CARGO_BIN_EXE_loom"));
        let mut command = std::process::Command::new("sh");
        let output = command.args(["-c", &line]).current_dir(path).env("HOME", path).output().unwrap();
        (output.status.code(), program::told(&output))
    };
    let listed = || {
        let mut names: Vec<_> =
            fs::read_dir(path.join("run")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (listed(), fs::read(path.join("run/rollout_000.json")).unwrap());
    for arguments in ["report run --output report.md", "report run", "score run --judge-model none --likelihood off"] {
        let (code, told) = full(arguments);
        assert!(matches!(code, Some(2 | 4)) && !told.contains("loom has a bug"), "{arguments}: {code:?} {told}");
    }
    assert_eq!(fs::read_to_string(path.join("report.md")).unwrap(), "old");
    assert_eq!((listed(), fs::read(path.join("run/rollout_000.json")).unwrap()), before);
    let (code, told) = full("run anna.yaml --persona-model echo --target echo --turns 2 --output other");
    assert!(code.is_some_and(|code| (1..70).contains(&code)), "{code:?} {told}");
    assert!(!path.join("other/rollout_000.json").exists());
    assert_eq!(full("validate anna.yaml").0, Some(0), "what writes no file is not affected");
}
