# Sets `python` and `LOOM` for check-zoo.sh and check-real.sh, which source it from the repository's root.
python=${PYTHON:-target/peers/bin/python}
if [ ! -x "$python" ]; then
    python3 -m venv target/peers
    "$python" -m pip install --quiet torch transformers tokenizers jinja2 scikit-learn scipy numpy
fi
if [ -z "${LOOM:-}" ]; then
    cargo build --quiet --release --bin loom
    LOOM=${CARGO_TARGET_DIR:-target}/release/loom
fi
