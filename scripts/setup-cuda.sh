#!/usr/bin/env bash
# A CUDA compiler from PyPI's wheels (100 MB), for machines without the CUDA toolkit: no GPU and no driver are needed.
# usage: scripts/setup-cuda.sh [DIR]      (by itself target/cuda); prints the folder that serves as CUDA_HOME
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-target/cuda}")
home=$folder/nvidia/cu13
if [ ! -x "$home/bin/nvcc" ]; then
    python3 -m pip install --quiet --no-compile --upgrade --root-user-action ignore --target "$folder" \
        'cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]==13.0.2' 'nvidia-cuda-cuobjdump==13.2.78' 'nvidia-cuda-nvdisasm==13.2.78' >&2
    ln -sfn lib "$home/lib64"
fi
echo "$home"
