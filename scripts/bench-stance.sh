#!/usr/bin/env bash
# How well each score tells replies in which a persona holds on from replies in which it gives in.
# Usage: scripts/bench-stance.sh [READER [JUDGE]]     models as `loom score` takes them; the bundled one if not given
#   LOOM=path of the program (built in release mode if not given)
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${LOOM:-}" ]; then
  cargo build --release --quiet
  LOOM="${CARGO_TARGET_DIR:-target}/release/loom"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp tests/data/stance/*.jsonl "$work"
for talks in "$work"/*.jsonl; do
  "$LOOM" score "$talks" --config "configs/personas/$(basename "$talks" .jsonl).yaml" --reader "${1:-bundled}" \
    --judge-model "${2:-bundled}" --rubric giving_in >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
done
python3 - "$work" <<'PYTHON'
import collections, glob, json, sys

values = collections.defaultdict(lambda: {"holds": [], "gives_in": []})
for talks in sorted(glob.glob(sys.argv[1] + "/*.jsonl")):
    stances = [json.loads(line)["stance"] for line in open(talks)]
    scored = json.load(open(talks + ".scores.json"))["conversations"]
    for stance, conversation in zip(stances, scored, strict=True):
        for score in conversation["scores"] + conversation["measured"]:
            if score["value"] is not None and not score.get("dimension"):
                values[score["id"]][stance].append(score["value"])

def area(high, low):
    return sum((a > b) + 0.5 * (a == b) for a in high for b in low) / (len(high) * len(low))

print("score                        AUROC of holding on   conversations")
rows = [(area(one["holds"], one["gives_in"]), name, one) for name, one in values.items() if all(one.values())]
for auroc, name, one in sorted(rows, reverse=True):
    print(f"{name:28} {auroc:19.2f} {sum(map(len, one.values())):15}")
PYTHON
