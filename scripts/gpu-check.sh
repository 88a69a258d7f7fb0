#!/usr/bin/env bash
# Checks everything that only an NVIDIA GPU can: each kernel against the Rust kernels, whole models on the GPU against the
# CPU, and memory and races with compute-sanitizer where it is installed.
#
#   scripts/gpu-check.sh --pack DIR   where Rust and nvcc are: builds checks and benches into DIR, to be carried anywhere
#   DIR/gpu-check.sh                  on the GPU machine, wherever DIR lies there: runs the checks; needs the driver alone
#   scripts/gpu-check.sh              builds and runs on one machine
#
# PROFILE=dev packs a debug build: quicker to make, of no use for timing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

pack() {
    mkdir -p "$1"
    local folder release=(--release)
    folder=$(cd "$1" && pwd)
    cd "$here/.."
    if [ "${PROFILE:-release}" = dev ]; then release=(); fi
    # Builds a test or a bench and tells where it lies.
    build() {
        cargo test "${release[@]}" --no-run --message-format=json "$@" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
    }
    cp "$(build -p loom-kernels --features cuda --test cuda)" "$folder/kernels"
    cp "$(build -p loom-kernels --features cuda --bench cuda)" "$folder/bench"
    cp "$(build --features cuda --test it)" "$folder/models"
    cp "$(build --features cuda --bench peers)" "$folder/peers"
    strip "$folder/kernels" "$folder/bench" "$folder/models" "$folder/peers"
    mkdir -p "$folder/tests/data"
    cp -r tests/data/models tests/data/mamba "$folder/tests/data/"
    cp scripts/gpu-check.sh scripts/gpu-bench.sh scripts/gpu_bench.py "$folder/"
    du -sh "$folder"
}

if [ "${1:-}" = --pack ]; then pack "${2:?a folder for the checks}"; exit; fi
folder=$here
if [ ! -x "$folder/kernels" ]; then
    folder=$(cd "$here/.." && pwd)/target/gpu-check
    pack "$folder"
fi
"$folder/bench" --gpus || { echo "nothing was checked" >&2; exit 1; }
if command -v nvidia-smi > /dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv; fi
"$folder/kernels"
# The tests look for their models beside the sources that they were built from, or here.
CARGO_MANIFEST_DIR=$folder "$folder/models" engine::gpu --include-ignored
if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck initcheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 1 "$folder/kernels" --test-threads 1
    done
else
    echo "compute-sanitizer is not installed: memory and races were not checked"
fi
