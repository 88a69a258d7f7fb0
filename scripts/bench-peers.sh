#!/usr/bin/env bash
# Loom beside llama.cpp (on the same GGUF) and transformers (on the same safetensors): mamba-130m and Qwen2.5-0.5B at real
# size with random weights, f32, bf16, q8_0 and q4_k, 1 and 2 threads, prefill of 1,024 tokens and decode of 1, 4 and 16
# sequences, beside the read bandwidth measured in the same run.
#
#   scripts/bench-peers.sh [mamba|qwen]... [--tiny] [--dtype f32|bf16|q8_0|q4_k ...]     --tiny: small dims, to try the script itself
#
# Needs Python 3.11, a C++ compiler and cmake; the first run builds llama.cpp and fetches about 3 GB from PyPI. Models are
# kept under target/bench-models (5 GB).
set -euo pipefail
cd "$(dirname "$0")/.."

python=target/bench-peers/bin/python
if ! "$python" -c 'import llama_cpp, torch, transformers, gguf' 2> /dev/null; then
    python3 -m venv target/bench-peers
    "$python" -m pip install --quiet gguf numpy torch transformers
    CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" "$python" -m pip install --quiet --no-binary llama-cpp-python llama-cpp-python
fi
loom=$(cargo bench --no-run --bench peers --message-format json | sed -n 's/.*"executable":"\([^"]*peers-[^"]*\)".*/\1/p')
exec "$python" scripts/bench_peers.py --loom "$loom" "$@"
