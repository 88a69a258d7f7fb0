#!/usr/bin/env bash
# Makes a model of every family with transformers (odd sizes, and published widths), with a real tokenizer, and compares
# Loom with transformers from text: ids, the rendered conversation, log-probabilities of prompt and reply, greedy
# continuation; and with itself: in a batch, and after a fork. Prints a table.
#
#   scripts/check-zoo.sh                 every model
#   scripts/check-zoo.sh gemma3 phi3     these alone
#
# PYTHON names a Python with torch, transformers and tokenizers; LOOM the program. Without them, an environment under
# target/ is made and the program is built.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/zoo-environment.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" scripts/zoo.py "$LOOM" "$work" "$@"
