#!/usr/bin/env bash
# Checks everything that only an NVIDIA GPU can: each kernel against the Rust kernels and whole models on the GPU against the
# CPU, with cuBLAS and CUDA graphs and without; memory and races with compute-sanitizer where it is installed. All of it
# runs, whatever fails; the end says what did.
#
#   scripts/gpu-check.sh --pack DIR   where Rust and nvcc are: builds checks and benches into DIR and DIR.tar.xz, to be
#                                     carried anywhere
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
    CUDA_HOME=$(scripts/setup-cuda.sh)
    export CUDA_HOME
    if [ "${PROFILE:-release}" = dev ]; then release=(); fi
    # Builds a test or a bench and tells where it lies.
    build() {
        cargo test ${release[@]+"${release[@]}"} --no-run --message-format=json "$@" |
            sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
    }
    cp "$(build -p loom-kernels --features cuda --test cuda)" "$folder/kernels"
    cp "$(build -p loom-kernels --features cuda --bench cuda)" "$folder/bench"
    # The program is built along with its tests.
    local tests
    tests=$(build --features cuda --test it)
    cp "$tests" "$folder/models"
    cp "$(dirname "$tests")/../loom" "$folder/loom"
    cp configs/personas/mania_patient.yaml "$folder/persona.yaml"
    cp "$(build --features cuda --bench peers)" "$folder/peers"
    strip "$folder/kernels" "$folder/bench" "$folder/models" "$folder/peers" "$folder/loom"
    mkdir -p "$folder/tests/data"
    cp -r tests/data/models tests/data/mamba "$folder/tests/data/"
    cp scripts/gpu-check.sh scripts/gpu-bench.sh scripts/gpu_bench.py "$folder/"
    tar -C "$(dirname "$folder")" -cJf "$folder.tar.xz" "$(basename "$folder")"
    du -sh "$folder" "$folder.tar.xz"
}

if [ "${1:-}" = --pack ]; then pack "${2:?a folder for the checks}"; exit; fi
folder=$here
if [ ! -x "$folder/kernels" ]; then
    folder=$(cd "$here/.." && pwd)/target/gpu-check
    pack "$folder"
fi
# shellcheck source=scripts/gpu-bench.sh
. "$folder/gpu-bench.sh" --libraries
"$folder/bench" --gpus || { echo "nothing was checked" >&2; exit 1; }
if command -v nvidia-smi > /dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv; fi

failed=()
# What it is, and the command.
check() {
    local what=$1 begun=$SECONDS
    shift
    printf '\n== %s: %s\n' "$what" "$*"
    if "$@"; then echo "== $what: passed in $((SECONDS - begun)) s"; else failed+=("$what"); fi
}

# The tests look for their models beside the sources that they were built from, or here.
export CARGO_MANIFEST_DIR=$folder
check "kernels" "$folder/kernels"
check "models" "$folder/models" engine::gpu --include-ignored
check "kernels without cuBLAS" env LOOM_CUBLAS=off "$folder/kernels"
check "models without cuBLAS" env LOOM_CUBLAS=off "$folder/models" engine::gpu --include-ignored
check "models without CUDA graphs" env LOOM_CUDA_GRAPHS=off "$folder/models" engine::gpu --include-ignored
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ -x "$sanitizer" ]; then
    # Without cuBLAS, whose kernels are not ours to check.
    for tool in memcheck racecheck initcheck; do
        check "$tool" env LOOM_CUBLAS=off "$sanitizer" --tool "$tool" --error-exitcode 1 "$folder/kernels" --test-threads 1
    done
else
    echo "compute-sanitizer is not installed: memory and races were not checked"
fi
echo
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "all checks passed"
