#!/usr/bin/env bash
# Prints the folder that serves as CUDA_HOME: $CUDA_HOME, or the toolkit that is installed; else a CUDA compiler from PyPI's
# wheels (100 MB), put where it is asked for. No GPU and no driver are needed.
# usage: scripts/setup-cuda.sh [DIR]      (by itself target/cuda)
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-target/cuda}")
home=$folder/nvidia/cu13
# Each must be whole: a folder that holds nvcc.
for installed in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$(dirname "$(dirname "$(command -v nvcc || echo /none/none)")")" /usr/local/cuda; do
    if [ -x "$installed/bin/nvcc" ]; then
        echo "$installed"
        exit
    fi
done
if [ ! -x "$home/bin/nvcc" ]; then
    python3 -m pip install --quiet --disable-pip-version-check --no-compile --upgrade --root-user-action ignore \
        --timeout 20 --retries 2 --target "$folder" \
        'cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]==13.0.2' 'nvidia-cuda-cuobjdump==13.2.78' 'nvidia-cuda-nvdisasm==13.2.78' >&2
    ln -sfn lib "$home/lib64"
fi
echo "$home"
