#!/usr/bin/env bash
# aarch64 on another machine, under qemu: the kernels' tests, NEON and the portable path bit for bit, and a scored run in f32,
# bf16 and q8_0, whose transcripts must be those that this machine writes, clock times aside. Says nothing of speed.
#
# Needs rustup, of Debian qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross, and a `loom` for this machine (LOOM=…, else
# target/release/loom). Its first run compiles everything for aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
emulator="qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$emulator
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
rustup --quiet target add "$target"
cargo test -p loom-kernels --target "$target" --lib
cargo build --target "$target"
here=${LOOM:-target/release/loom}
there="$emulator ${CARGO_TARGET_DIR:-target}/$target/debug/loom"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for dtype in f32 bf16 q8_0; do
    for side in here there; do
        folder=$out/$side/$dtype
        # `there` is two words: the emulator and the program.
        ${!side} run configs/personas/mania_patient.yaml --turns 3 --rollouts 2 --parallel 2 --seed 7 --dtype "$dtype" \
            --no-score --output "$folder" > /dev/null
        ${!side} score "$folder" --judge-model none > /dev/null
    done
done
$there doctor | grep kernels
python3 - "$out" <<'PYTHON'
"""Every transcript here against the one from there, less what the clock says."""
import json, sys
from pathlib import Path

def timeless(value):
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in ("timing", "created_at")}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value

here, there = Path(sys.argv[1], "here"), Path(sys.argv[1], "there")
files = sorted(file.relative_to(here) for file in here.glob("*/rollout_*.json*"))
assert files
for file in files:
    mine, other = ((side / file).read_text() for side in (here, there))
    if file.suffix == ".json":
        mine, other = (timeless(json.loads(text)) for text in (mine, other))
    if mine != other:
        sys.exit(f"{file} differs")
print(f"{len(files)} files from aarch64, the same as here")
PYTHON
