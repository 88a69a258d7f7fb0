#!/usr/bin/env bash
# Runs one configuration twice per pair, with other seeds, and compares: every "yes" is a false positive. `loom compare`
# promises one in at most 5 % of such comparisons.
#
#     scripts/check-null.sh [PAIRS]        40 unless given; LOOM=… names the program, else target/release/loom
set -euo pipefail
cd "$(dirname "$0")/.."
loom=${LOOM:-target/release/loom}
pairs=${1:-40}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for seed in $(seq 1 $((2 * pairs))); do
    "$loom" run configs/personas/student.yaml --turns 8 --rollouts 4 --parallel 2 --seed "$seed" --no-score \
        --output "$folder/$seed" > /dev/null 2>&1
    "$loom" score "$folder/$seed" --judge-model none > /dev/null
done
different=0
for pair in $(seq 1 "$pairs"); do
    "$loom" compare "$folder/$pair" "$folder/$((pair + pairs))" > "$folder/$pair.md"
    if ! grep -q '^\*\*No difference is shown' "$folder/$pair.md"; then different=$((different + 1)); fi
done
echo "$pairs pairs of seeds of one configuration: $different show a difference"
# The promise is 5 % of the comparisons; twice that is beyond chance for 40 pairs.
[ "$different" -le $((pairs / 10)) ]
