//! Mutated files for every reader of strangers' files: each gives a result or an error, soon, and never a panic.
//! `LOOM_MUTATIONS=N` sets the number per reader (`scripts/attack.sh` runs many); a finding is kept in a temporary file.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use loom_agent::foundation::store::receipts;
use loom_agent::governance::memory::parse::Document;
use loom_agent::governance::mood::MoodProfile;
use loom_agent::governance::regulator::{self, Calibration, RegulatorState, SessionLog};
use loom_agent::governance::statechart::Chart;
use loom_agent::governance::statechart::hope::HopeVocabulary;
use loom_agent::inference::engine;
use loom_agent::inference::remote;
use loom_agent::simulation::judge::judged::Rubric;
use loom_agent::simulation::persona::{self, AdversaryScript};
use loom_agent::simulation::rollout::{Manifest, Transcript};
use loom_agent::studies::confidence::Task;

use crate::program;
use crate::rollout::ANNA;

/// Mutations per reader in the suite.
const MUTATIONS: usize = 150;
/// Longest time for one input.
const SLOW: Duration = Duration::from_secs(10);

/// A reader, and files that it accepts.
struct Reader {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    read: fn(&[u8]),
}

/// Numbers that depend on the seed alone (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Texts that readers have stumbled over.
const INSERTED: [&[u8]; 14] = [
    b"999999999999999999999999999999",
    b"-1",
    b"1e999",
    b"null",
    b"\x00",
    b"\xff\xfe",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"&a [*a, *a]",
    b"\"",
    b"\n\n",
    "\u{202e}\u{1b}]0;x\u{7}".as_bytes(),
    b"18446744073709551615",
    b"{{",
];

fn mutated(seed: &[u8], other: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..[1, 1, 1, 2, 4, 16][numbers.below(6)] {
        let at = numbers.below(bytes.len() + 1);
        let most = [4, 40, 400][numbers.below(3)];
        let end = (at + 1 + numbers.below(most)).min(bytes.len());
        match numbers.below(9) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            2 => drop(bytes.splice(at..at, INSERTED[numbers.below(INSERTED.len())].iter().copied())),
            3 => drop(bytes.drain(at..end.max(at))),
            4 => {
                let part = bytes[at..end.max(at)].repeat([1, 2, 30][numbers.below(3)]);
                drop(bytes.splice(at..at, part));
            }
            5 => {
                let number = numbers.next().to_le_bytes();
                bytes.iter_mut().skip(at).zip(number).for_each(|(byte, new)| *byte = new);
            }
            6 => {
                let from = numbers.below(other.len() + 1);
                let to = (from + numbers.below(200)).min(other.len());
                drop(bytes.splice(at..at, other[from..to].iter().copied()));
            }
            // A number becomes another one.
            7 => {
                if let Some(digit) = bytes.iter().skip(at).position(u8::is_ascii_digit) {
                    let new: &[u8] = [&b"-7"[..], b"0", b"4294967296", b"1e308", b"0.0000001"][numbers.below(5)];
                    drop(bytes.splice(at + digit..=at + digit, new.iter().copied()));
                }
            }
            _ => {
                let from = numbers.below(bytes.len() + 1);
                let part: Vec<u8> = bytes.iter().skip(from).take(16).copied().collect();
                bytes.iter_mut().skip(at).zip(part).for_each(|(byte, new)| *byte = new);
            }
        }
    }
    bytes.truncate(1 << 20);
    bytes
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[expect(clippy::too_many_lines, reason = "a list")]
fn readers() -> Vec<Reader> {
    let file = |name: &str| fs::read(program::root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let folder = |name: &str, ending: &str| -> Vec<Vec<u8>> {
        let entries = fs::read_dir(program::root().join(name)).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{name}");
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    };
    let run = tempfile::tempdir().unwrap();
    fs::write(run.path().join("anna.yaml"), ANNA).unwrap();
    let arguments =
        ["run", "anna.yaml", "--persona-model", "echo", "--target", "echo", "--turns", "2", "--output", "run"];
    program::ends(run.path(), 0, &arguments);
    let of_run = |name: &str| vec![fs::read(run.path().join("run").join(name)).unwrap()];
    let chunk = r#"{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":" a"},"finish_reason":null,"logprobs":{"content":[
        {"token":" a","id":5,"bytes":[32,97],"logprob":-0.1,"top_logprobs":[{"token":" a","id":5,"logprob":-0.1}]}]}}],"usage":
        {"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}"#;
    let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#;
    let events = text(&file("docs/REGULATOR.md"))
        .lines()
        .filter(|line| line.starts_with("{\"type\""))
        .collect::<Vec<_>>()
        .join("\n");
    vec![
        Reader {
            name: "persona YAML",
            seeds: folder("configs/personas", ".yaml"),
            read: |bytes| drop(persona::parse("a", &text(bytes)).map_err(|errors| format!("{errors:?} {errors}"))),
        },
        Reader {
            name: "adversary YAML",
            seeds: folder("configs/adversaries", ".yaml"),
            read: |bytes| drop(AdversaryScript::parse("a", &text(bytes))),
        },
        Reader {
            name: "rubric YAML",
            seeds: folder("configs/judging/rubrics", ".yaml"),
            read: |bytes| drop(Rubric::parse(&text(bytes))),
        },
        Reader {
            name: "mood YAML",
            seeds: folder("configs/moods", ".yaml"),
            read: |bytes| drop(MoodProfile::parse("a", &text(bytes), None)),
        },
        Reader {
            name: "statechart",
            seeds: folder("configs/charts", ".chart"),
            read: |bytes| drop(Chart::<HopeVocabulary>::load("a", &text(bytes))),
        },
        Reader {
            name: "task",
            seeds: folder("configs/tasks", ".tsv"),
            read: |bytes| drop(Task::parse("a", &text(bytes))),
        },
        Reader {
            name: "memory Markdown",
            seeds: memory_texts(),
            read: |bytes| {
                let text = text(bytes);
                let document = Document::parse(&text);
                assert!(document.text() == text && document.blocks().count() <= text.len());
            },
        },
        Reader {
            name: "transcript",
            seeds: of_run("rollout_000.json"),
            read: |bytes| drop(serde_json::from_slice::<Transcript>(bytes)),
        },
        Reader {
            name: "run.json",
            seeds: of_run("run.json"),
            read: |bytes| drop(serde_json::from_slice::<Manifest>(bytes)),
        },
        Reader { name: "receipts", seeds: of_run("receipts.jsonl"), read: |bytes| drop(receipts::chain(bytes)) },
        Reader {
            name: "event lines",
            seeds: vec![events.into_bytes()],
            read: |bytes| regulator::fuzzing::jsonl_events(&text(bytes)),
        },
        Reader {
            name: "OTLP",
            seeds: text(&file("tests/data/otlp.jsonl")).lines().map(|line| line.as_bytes().to_vec()).collect(),
            read: |bytes| regulator::fuzzing::jsonl_events(&text(bytes)),
        },
        Reader {
            name: "session log",
            seeds: vec![file("tests/data/otlp_others.jsonl")],
            read: |bytes| drop(SessionLog::parse(&text(bytes))),
        },
        Reader {
            name: "regulator state",
            seeds: vec![br#"{"format":"loom-regulator","version":1,"turn":2,"tokens":3}"#.to_vec()],
            read: |bytes| {
                drop(RegulatorState::from_json(&text(bytes)));
                drop(Calibration::from_json(&text(bytes)));
            },
        },
        Reader {
            name: "chunks",
            seeds: vec![chunk.replace('\n', "").into_bytes(), delta.as_bytes().to_vec()],
            read: |bytes| remote::fuzzing::chunks(&text(bytes)),
        },
        Reader { name: "GGUF", seeds: folder("tests/data/gguf", ".gguf"), read: engine::fuzzing::gguf_header },
        Reader {
            name: "safetensors",
            seeds: vec![file("tests/data/mamba/plain/model.safetensors")],
            read: engine::fuzzing::safetensors_header,
        },
        Reader {
            name: "tokenizer.json",
            seeds: vec![file("tests/data/mamba/plain/tokenizer.json"), file("tests/data/models/bert/tokenizer.json")],
            read: |bytes| engine::fuzzing::tokenizer_json(&text(bytes)),
        },
        Reader {
            name: "config.json",
            seeds: vec![
                file("tests/data/mamba/plain/config.json"),
                file("tests/data/models/llama/config.json"),
                file("models/bundled/tokenizer_config.json"),
            ],
            read: |bytes| engine::fuzzing::model_config(&text(bytes)),
        },
        Reader {
            name: "chat template",
            seeds: folder("tests/data/chat_templates", ".jinja"),
            read: |bytes| engine::fuzzing::chat_template(&text(bytes)),
        },
    ]
}

fn memory_texts() -> Vec<Vec<u8>> {
    let mut texts = Vec::new();
    let mut folders = vec![program::root().join("tests/data/memory/01/input")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                texts.push(fs::read(path).unwrap());
            }
        }
    }
    texts.sort();
    texts
}

#[test]
fn mutated_files_give_a_result_or_an_error() {
    let count = std::env::var("LOOM_MUTATIONS").map_or(MUTATIONS, |count| count.parse().unwrap());
    let only = std::env::var("LOOM_MUTATIONS_OF").ok();
    let first = std::env::var("LOOM_MUTATIONS_SEED").map_or(0, |seed| seed.parse::<u64>().unwrap());
    let mut found = Vec::new();
    for (number, Reader { name, seeds, read }) in readers().into_iter().enumerate() {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        seeds.iter().for_each(|seed| read(seed));
        let mut numbers = Numbers(first << 16 | number as u64);
        let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
        for _ in 0..count {
            let seed = &seeds[numbers.below(seeds.len())];
            let other = &seeds[numbers.below(seeds.len())];
            let input = mutated(seed, other, &mut numbers);
            let at = Instant::now();
            let ended = catch_unwind(AssertUnwindSafe(|| read(&input)));
            slowest = slowest.max(at.elapsed());
            if ended.is_err() || at.elapsed() > SLOW {
                let kept = std::env::temp_dir().join(format!("loom-mutation-{number}-{}", numbers.0));
                fs::write(&kept, &input).unwrap();
                found.push(format!("{name}: {} ({:?})", kept.display(), at.elapsed()));
                break;
            }
        }
        eprintln!("{name:18} {count} mutations in {:.1?}, slowest {slowest:.1?}", begun.elapsed());
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
