#!/usr/bin/env bash
# Compares Loom with transformers on checkpoints that are here, as check-zoo.sh does on models that it makes: ids, the
# rendered conversation, log-probabilities of prompt and reply, greedy continuation, a batch, a fork. Reads both as f32.
#
#   scripts/check-real.sh ~/models/SmolLM2-135M-Instruct ~/models/granite-4.0-h-350m
#
# PYTHON names a Python with torch, transformers and tokenizers; LOOM the program. Without them, an environment under
# target/ is made and the program is built.
set -euo pipefail
if [ $# -eq 0 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 2
fi
folders=()
for folder in "$@"; do
    folders+=("$(realpath "$folder")")
done
cd "$(dirname "$0")/.."
source scripts/zoo-environment.sh
"$python" scripts/zoo.py "$LOOM" --real "${folders[@]}"
