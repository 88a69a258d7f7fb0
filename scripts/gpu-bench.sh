#!/usr/bin/env bash
# Speed on an NVIDIA GPU: decode steps of Mamba-1 at published widths with made-up weights in bf16, as tokens/s and as a
# share of the memory bandwidth that the GPU reaches in a plain copy. The kernels alone: no sampling, no text.
#
#   scripts/gpu-bench.sh DIR    DIR as made by scripts/gpu-check.sh --pack; without it, builds here
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-target/gpu-check}
if command -v nvidia-smi > /dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv; fi
date -u +%F
if [ -x "$folder/bench" ]; then "$folder/bench"; else cargo bench -p loom-kernels --features cuda --bench cuda; fi
