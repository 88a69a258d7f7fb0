#!/usr/bin/env bash
# The same generations and log-probabilities through Loom's confidence estimators and those of lm-polygraph and uqlm: their
# values side by side where the estimator is the same (they must agree within 1e-4), then how well each ranks right above wrong
# answers, those of the peers that Loom lacks included.
#
#   scripts/bench-confidence.sh [TASK [BENCH_FLAGS...]]   a task of `loom confidence bench`; closed_facts_free if not given
#   LOOM=path of the program (built in release mode if not given)
#   PEERS=a Python that has lm-polygraph and uqlm; if not given, target/peers is made with pip
#
# The estimators' classes of both are called on what Loom exported (`--items-json`); no model is downloaded, and no estimator
# runs that needs one of inference (NLI).
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${LOOM:-}" ]; then
  cargo build --release --quiet
  LOOM="${CARGO_TARGET_DIR:-target}/release/loom"
fi
if [ -z "${PEERS:-}" ]; then
  PEERS=target/peers/bin/python
  if [ ! -x "$PEERS" ]; then
    python3 -m venv target/peers
    # With all of their dependencies the two cannot be installed together: some of lm-polygraph's no longer build.
    target/peers/bin/pip install --quiet --no-deps lm-polygraph==0.7.0 uqlm==0.6.7
    target/peers/bin/pip install --quiet "torch>=2.6" "numpy>=1.26.4,<2" "pyarrow<20" "transformers>=4.50,<5" scipy \
      "scikit-learn<2" "pandas<3" tqdm datasets "sentence-transformers<6" nltk rouge-score sacrebleu openai boostedprob dill \
      diskcache omegaconf spacy bert-score "rich<15" langchain langchain-core langchain-model-profiles "matplotlib<4" \
      absl-py optuna pillow requests "huggingface_hub<1"
  fi
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
task=${1:-closed_facts_free}
shift || true
# Self-certainty and the peers' estimators of whole distributions need every alternative.
"$LOOM" confidence bench --task "$task" --samples 8 --temperature 0.7 --alternatives all --group-tokens 8 \
  --resamples 200 \
  --items-json "$work/items.jsonl" --json "$work/study.json" "$@"
echo
exec "$PEERS" scripts/bench_confidence.py "$work/items.jsonl" "$work/study.json"
