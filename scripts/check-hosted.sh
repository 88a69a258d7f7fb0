#!/usr/bin/env bash
# Hosted models against real servers on loopback: llama.cpp's (PyPI `llama-cpp-python[server]`) with a tiny random model,
# and litellm's Anthropic endpoint in front of it. An OpenAI-compatible server that runs already takes the first one's
# place when it is named: scripts/check-hosted.sh http://127.0.0.1:8080/v1 NAME
#
# Needs Python 3.11 or newer and, for llama-cpp-python, a C++ compiler; its first run builds it.
set -euo pipefail
cd "$(dirname "$0")/.."

url=${1:-http://127.0.0.1:8071/v1}
name=${2:-tiny}
peers=target/peers-hosted
if [ ! -x "$peers/bin/litellm" ]; then
    python3 -m venv "$peers"
    "$peers/bin/pip" install --quiet 'litellm[proxy]' gguf numpy
fi

servers=()
trap 'for server in "${servers[@]}"; do kill "$server" 2>/dev/null || true; done' EXIT
wait_for() {
    for _ in $(seq 600); do
        curl --silent --fail --max-time 2 "$1" >/dev/null && return
        sleep 0.2
    done
    echo "nothing answers at $1; see $2" >&2
    exit 1
}

if [ $# -eq 0 ]; then
    [ -d "$peers"/lib/python3*/site-packages/llama_cpp ] || "$peers/bin/pip" install --quiet 'llama-cpp-python[server]'
    "$peers/bin/python" scripts/make-tiny-gguf.py "$peers/tiny.gguf"
    "$peers/bin/python" -m llama_cpp.server --model "$peers/tiny.gguf" --model_alias tiny --host 127.0.0.1 --port 8071 \
        --n_ctx 2048 --logits_all true >"$peers/llama.log" 2>&1 &
    servers+=($!)
    export LOOM_HOSTED_ECHOES=1
fi
wait_for "$url/models" "$peers/llama.log"

cat >"$peers/litellm.yaml" <<EOF
model_list:
  - model_name: behind-litellm
    litellm_params: {model: "openai/$name", api_base: "$url", api_key: none}
litellm_settings: {drop_params: true}
EOF
# Without a key of its own, which litellm wants to be allowed; and with the chat completions behind it, which every server has,
# in place of OpenAI's newer `/responses`.
LITELLM_USE_CHAT_COMPLETIONS_URL_FOR_ANTHROPIC_MESSAGES=true LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true \
    "$peers/bin/litellm" --config "$peers/litellm.yaml" --host 127.0.0.1 --port 8072 >"$peers/litellm.log" 2>&1 &
servers+=($!)
wait_for http://127.0.0.1:8072/health/liveliness "$peers/litellm.log"

LOOM_HOSTED_URL=$url LOOM_HOSTED_NAME=$name ANTHROPIC_BASE_URL=http://127.0.0.1:8072 ANTHROPIC_API_KEY=none \
    cargo test --test it hosted::real -- --ignored --nocapture
