#!/usr/bin/env bash
# What the likelihood scores of every turn cost beside the rollouts that they are taken of, with no, one and five forbidden
# phrases: what reading the phrases adds to the run itself, and what `loom score` takes afterwards (or `loom run --score` at
# its end), as shares of the same rollouts without phrases. Best and median of several runs.
#
#   scripts/bench-scores.sh [RUNS]                  the bundled model, 20 turns, two rollouts side by side; 7 runs
#   scripts/bench-scores.sh [RUNS] MODEL TURNS      another persona's model (`local:DIR`), which talks with a script
#
# Needs Python 3 and an optimised `loom` (LOOM=…, else target/release/loom), and a machine without other work.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 scripts/bench_scores.py --loom "${LOOM:-target/release/loom}" "$@"
