#!/usr/bin/env bash
# Checks everything that only an NVIDIA GPU can: each kernel against the Rust kernels, Mamba-1 on the GPU against the CPU, and
# memory and races with compute-sanitizer where it is installed.
#
#   scripts/gpu-check.sh --pack DIR   where Rust and nvcc are: builds the checks into DIR, to be carried to a GPU machine
#   scripts/gpu-check.sh DIR          on the GPU machine, in this repository's folder: runs them; needs the driver alone
#   scripts/gpu-check.sh              builds and runs on one machine
set -euo pipefail
cd "$(dirname "$0")/.."

pack() {
    mkdir -p "$1"
    # The release build of a test: the program's own optimisation, with the kernels inside.
    build() { cargo test --release --no-run --message-format=json "$@" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1; }
    cp "$(build -p loom-kernels --features cuda --test cuda)" "$1/kernels"
    cp "$(build --features cuda --test it)" "$1/models"
    cp "$(build -p loom-kernels --features cuda --bench cuda)" "$1/bench"
    strip "$1/kernels" "$1/models" "$1/bench"
    du -sh "$1"
}

if [ "${1:-}" = --pack ]; then pack "${2:?a folder for the checks}"; exit; fi
folder=${1:-target/gpu-check}
[ -x "$folder/kernels" ] || pack "$folder"
if command -v nvidia-smi > /dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv; fi
"$folder/kernels"
# The tests look for their fixtures beside the sources that they were built from.
"$folder/models" engine::gpu --include-ignored
if command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck initcheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 1 "$folder/kernels" --test-threads 1
    done
else
    echo "compute-sanitizer is not installed: memory and races were not checked"
fi
