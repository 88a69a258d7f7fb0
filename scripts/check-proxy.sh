#!/usr/bin/env bash
# The official `openai` package through `loom proxy` to `loom serve` on the bundled model, in an environment of the script's own
# under target/: what passes must be what the server says without the proxy, and caps must hold.
#
# Needs Python 3.10 or newer; the first run fetches the package from PyPI. $LOOM names the program (default target/debug/loom,
# which `cargo test --test it` builds), $PYTHON a Python that has the package.
set -euo pipefail
cd "$(dirname "$0")/.."

loom=${LOOM:-target/debug/loom}
[ -x "$loom" ] || cargo test --quiet --no-run --test it
python=${PYTHON:-target/proxy-client/bin/python}
if ! "$python" -c 'import openai' 2> /dev/null; then
    python3 -m venv target/proxy-client
    python=target/proxy-client/bin/python
    "$python" -m pip install --quiet openai
fi

work=$(mktemp -d)
serve= proxy=
trap 'for pid in $serve $proxy; do kill "$pid" 2> /dev/null || true; done; rm -rf "$work"' EXIT
head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$work/key"

# The URL that a program started in the background prints into a file.
url_in() {
    for _ in $(seq 100); do
        url=$(sed -n 's/^[^ ]* at \(http[^,]*\).*/\1/p' "$1")
        [ -z "$url" ] || break
        sleep 0.1
    done
    echo "$url"
}

"$loom" serve --port 0 --api-key "$work/key" --threads 1 > "$work/serve" &
serve=$!
direct=$(url_in "$work/serve")
"$loom" proxy "$direct" --port 0 --cost-cap-tokens 150 > "$work/proxy" &
proxy=$!
through=$(url_in "$work/proxy")

"$python" scripts/check_proxy.py "$direct" "$through" "$work/key"

"$python" scripts/proxy_latency.py "$loom"

kill -TERM "$proxy" "$serve"
wait "$proxy" "$serve"
serve= proxy=
echo "both were told to stop, and ended with 0"
