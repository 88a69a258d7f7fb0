#!/usr/bin/env bash
# Builds and runs the fuzz targets, each for so many seconds on one core: scripts/fuzz.sh [SECONDS [TARGET …]]
#
# What a stranger's file reaches first is fuzzed: a target for each in fuzz/fuzz_targets. libFuzzer's coverage comes
# from the stable compiler's own passes, so neither a nightly toolchain nor cargo-fuzz is needed, only a C++ compiler;
# memory safety is Rust's, so no sanitizer is linked. The first build compiles every dependency anew, about ten minutes on two
# cores; `jsonl_events`, `otlp_spans`, `receipts`, `chart` and `memory_text` alone need three. A finding stops the script: it
# lies in fuzz/artifacts, and running the target on it shows it again. The last line sums up all targets.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${1:-180}
shift || true
if [ $# -eq 0 ]; then
    for target in fuzz_targets/*.rs; do set -- "$@" "$(basename "$target" .rs)"; done
fi
# Folders that each begins with.
seeds() {
    case $1 in
        gguf_header) echo ../tests/data/gguf ;;
        safetensors_header) echo ../tests/data/mamba/plain ;;
        chat_template) echo ../tests/data/chat_templates ;;
        chart) echo ../configs/charts ;;
        persona_yaml) echo ../configs/personas ;;
        memory_text) echo ../tests/data/memory/01/input/decisions ;;
    esac
}
# Files for the corpus of a target.
begin() {
    local corpus=corpus/$1
    mkdir -p "$corpus" "artifacts/$1"
    case $1 in
        jsonl_events) grep -h '^{"type"' ../docs/REGULATOR.md > "$corpus/docs" ;;
        otlp_spans) sed -n 's/.*"spans": *\(\[.*\]\)}\]}\]}$/\1/;T;p;q' ../tests/data/otlp.jsonl > "$corpus/spans" ;;
        tokenizer_json)
            for model in ../tests/data/models/*/tokenizer.json; do
                cp "$model" "$corpus/$(basename "$(dirname "$model")")"
            done ;;
        model_config)
            for model in ../tests/data/models/*/config.json; do
                cp "$model" "$corpus/$(basename "$(dirname "$model")")"
            done ;;
        documents)
            # The first byte is the reader's number.
            local reader=0 pattern file
            for pattern in configs/adversaries configs/judging/rubrics configs/moods configs/tasks tests/data/otlp_others.jsonl; do
                for file in $(find "../$pattern" -type f); do
                    { printf "\\x0$reader"; cat "$file"; } > "$corpus/$reader-$(basename "$file")"
                done
                reader=$((reader + 1))
            done
            printf '\x05{"format":"loom-regulator","version":1,"turn":2,"tokens":3}' > "$corpus/5-state" ;;
    esac
}

# The engine's dependencies are the many.
features=--no-default-features
for target in "$@"; do
    case $target in
        gguf_header | safetensors_header | chat_template | tokenizer_json | model_config | chunks | persona_yaml | documents)
            features=--features=engine ;;
    esac
done
host=$(rustc -vV | sed -n 's/^host: //p')
coverage="-Cpasses=sancov-module -Ccodegen-units=1 --cfg fuzzing"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    coverage+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
# The versions that the program is built with.
cp ../Cargo.lock Cargo.lock
# Given a target, flags reach neither build scripts nor macros.
export CARGO_TARGET_DIR=$PWD/target
RUSTFLAGS=$coverage cargo build --release --target "$host" "$features" $(printf -- '--bin %s ' "$@")

executions=0
for target in "$@"; do
    begin "$target"
    echo "== $target, $seconds s"
    "target/$host/release/$target" "corpus/$target" $(seeds "$target") -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3072 \
        -max_len=65536 -artifact_prefix="artifacts/$target/" -print_final_stats=1 2>&1 | tee "artifacts/$target.log" | tail -n 5
    executions=$((executions + $(sed -n 's/^stat::number_of_executed_units: //p' "artifacts/$target.log")))
done
echo "$executions executions of $# targets, no finding"
