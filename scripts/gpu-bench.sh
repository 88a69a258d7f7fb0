#!/usr/bin/env bash
# Speed on an NVIDIA GPU: first the kernels of a decode step of Mamba-1 by themselves; then whole models of published
# shapes with made-up weights in bf16 through the engine, beside torch and transformers on the same weights and GPU, where
# Python has them. Tokens a second at N = 1, 8, 32, 128, 512, and as a share of what the memory bandwidth allows; a prompt of
# 2,048 tokens as a share of what the arithmetic allows.
#
#   DIR/gpu-bench.sh [MODEL...]       DIR as made by scripts/gpu-check.sh --pack, wherever it lies
#   scripts/gpu-bench.sh [MODEL...]   builds here first
#
# Models: mamba-130m, mamba-1.4b, mamba-2.8b, qwen2.5-0.5b, qwen2.5-7b; all if none is named. They are written to $MODELS, by
# itself the folder `made` beside the benches (28 GB for all).

# cuBLAS is looked for where the system has its libraries and in the toolkit; PyTorch's wheels keep one too.
libraries() {
    local found
    found=$(python3 - 2> /dev/null << 'PYTHON'
import importlib.util
for package in ("nvidia.cu13", "nvidia.cublas"):
    spec = importlib.util.find_spec(package)
    if spec:
        print(":".join(f"{place}/lib" for place in spec.submodule_search_locations))
        break
PYTHON
    ) || true
    if [ -n "$found" ]; then export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$found; fi
}
libraries
# Another script wants that alone.
if [ "${1:-}" = --libraries ]; then return; fi

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$here
if [ ! -x "$folder/bench" ]; then
    folder=$(cd "$here/.." && pwd)/target/gpu-check
    "$here/gpu-check.sh" --pack "$folder"
fi
"$folder/bench" --gpus || { echo "nothing was measured" >&2; exit 1; }
if command -v nvidia-smi > /dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv; fi
date -u +%F
"$folder/bench"
if python3 -c 'import torch, transformers; torch.zeros(1).cuda()' 2> /dev/null; then
    python3 "$folder/gpu_bench.py" --benches "$folder" --models "${MODELS:-$folder/made}" "$@"
else
    echo "Python has no torch and transformers that see the GPU: whole models were not measured"
fi
