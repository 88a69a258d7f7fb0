#!/usr/bin/env bash
# Attacks a built program as a stranger's files and requests would: slow and silent clients, streams that nobody reads, large
# and deep requests, and mutated files for every reader under limits of memory and time. Prints what it measured and fails
# if a promise of docs/SECURITY.md does not hold. The quick part is in the suite (tests/it/attacks.rs, tests/it/serve/attacks.rs).
#
#   scripts/attack.sh                          builds the release program, 200 mutations per reader
#   LOOM=target/debug/loom scripts/attack.sh   a program that is there
#   ROUNDS=20 SEED=1 scripts/attack.sh         fewer mutations, another seed
#   LOOM_MUTATIONS=100000 cargo test --release --test it -- mutations --nocapture     mutations within one process: many more
#
# Needs Linux and Python 3.11 or newer; connects to nothing but loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${LOOM:-}" ]; then
    cargo build --release --bin loom
    LOOM=${CARGO_TARGET_DIR:-target}/release/loom
fi
exec python3 scripts/attack.py "$(realpath "$LOOM")" --rounds "${ROUNDS:-200}" --seed "${SEED:-0}"
