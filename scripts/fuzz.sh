#!/usr/bin/env bash
# Builds and runs the fuzz targets, each for so many seconds on one core: scripts/fuzz.sh [SECONDS [TARGET …]]
#
# What a stranger's file reaches first is fuzzed: a target for each in fuzz/fuzz_targets. libFuzzer's coverage comes
# from the stable compiler's own passes, so neither a nightly toolchain nor cargo-fuzz is needed, only a C++ compiler;
# memory safety is Rust's, so no sanitizer is linked. The first build compiles every dependency anew: the engine's take half an
# hour on two cores, those of `jsonl_events`, `otlp_spans`, `receipts`, `chart` and `memory_text` a few minutes. A finding stops the script: it lies in
# fuzz/artifacts, and running the target on it shows it again.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${1:-180}
shift || true
if [ $# -eq 0 ]; then
    for target in fuzz_targets/*.rs; do set -- "$@" "$(basename "$target" .rs)"; done
fi
# What each begins with.
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

# The engine's dependencies are the many.
features=--no-default-features
for target in "$@"; do
    case $target in
        gguf_header | safetensors_header | chat_template | tokenizer_json | model_config | chunks | persona_yaml)
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
RUSTFLAGS=$coverage cargo build --release --target "$host" "$features" $(printf -- '--bin %s ' "$@")

for target in "$@"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    case $target in
        jsonl_events) grep -h '^{"type"' ../docs/REGULATOR.md > "corpus/$target/docs" ;;
        otlp_spans) sed -n 's/.*"spans": *\(\[.*\]\)}\]}\]}$/\1/p' ../tests/data/otlp.jsonl | head -n 1 > "corpus/$target/spans" ;;
    esac
    echo "== $target, $seconds s"
    "target/$host/release/$target" "corpus/$target" $(seeds "$target") -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3072 \
        -max_len=65536 -artifact_prefix="artifacts/$target/" -print_final_stats=1 2>&1 | tail -n 12
done
