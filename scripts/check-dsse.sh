#!/usr/bin/env bash
# Verifies the exported statement on a run with other programs: securesystemslib (DSSE) and cryptography (Ed25519), both from
# PyPI. LOOM names the binary.
set -euo pipefail
cd "$(dirname "$0")/.."
loom=$(realpath "${LOOM:-target/debug/loom}")
if [ ! -x target/dsse/bin/python ]; then
    python3 -m venv target/dsse
    target/dsse/bin/python -m pip install --quiet 'securesystemslib[crypto]>=1.1'
fi
python=$(realpath -s target/dsse/bin/python)
check=$(realpath scripts/check_dsse.py)
config=$(realpath tests/data/rollout/anna.yaml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_DATA_HOME=$work/data
"$loom" run "$config" --persona-model echo --target echo --turns 2 --rollouts 2 --no-score --output run > /dev/null 2>&1
"$loom" receipts export run --format in-toto > run.intoto.json
"$python" "$check" run run.intoto.json
