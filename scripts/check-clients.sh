#!/usr/bin/env bash
# Real clients against `loom serve` on the bundled model: the official `openai` package and lm-evaluation-harness, in an
# environment of the script's own under target/. What they see must be what `loom generate` and `loom logprobs` say.
# With --record their requests are written to tests/data/clients.jsonl, which tests/it/serve/clients.rs replays.
#
# Needs Python 3.10 or newer; the first run fetches about 300 MB from PyPI. $LOOM names the program (default
# target/debug/loom, which `cargo test --test it` builds).
set -euo pipefail
cd "$(dirname "$0")/.."

loom=${LOOM:-target/debug/loom}
[ -x "$loom" ] || cargo test --quiet --no-run --test it
python=target/clients/bin/python
if ! "$python" -c 'import openai, lm_eval, aiohttp, tenacity, tiktoken' 2> /dev/null; then
    python3 -m venv target/clients
    "$python" -m pip install --quiet openai 'lm-eval[api]'
fi

work=$(mktemp -d)
serve=
trap '[ -z "$serve" ] || kill "$serve" 2> /dev/null || true; rm -rf "$work"' EXIT
head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$work/key"
"$loom" serve --port 0 --api-key "$work/key" --threads 1 > "$work/out" &
serve=$!
for _ in $(seq 100); do
    url=$(sed -n 's/.*at \(http[^,]*\).*/\1/p' "$work/out")
    [ -n "$url" ] && break
    sleep 0.1
done
HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME="$work/hf" TQDM_DISABLE=1 LOOM="$loom" \
    "$python" scripts/check_clients.py "$url" "$work" $([ "${1:-}" != --record ] || echo tests/data/clients.jsonl)

kill -TERM "$serve"
wait "$serve"
serve=
echo "the server was told to stop, answered what was under way, and ended with 0"
