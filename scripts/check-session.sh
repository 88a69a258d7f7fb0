#!/usr/bin/env bash
# A session on the bundled model from a need to its footer, offline; then the same session killed at five places and resumed.
# Both must come to the same report, and the receipts of both must verify. LOOM names the binary.
set -euo pipefail
cd "$(dirname "$0")/.."

loom=$(realpath "${LOOM:-target/release/loom}")
need='How does a depressed-patient persona hold up against an empathetic helper over 12 turns?'
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export XDG_DATA_HOME=$folder/data
start=(session start "$need" --engagement autonomous)
steps() {
    local count
    count=$(grep -c '"kind":"session\.' "$1/receipts.jsonl" 2> /dev/null || true)
    echo "${count:-0}"
}

"$loom" "${start[@]}" --output whole > whole.txt 2> /dev/null
tail -n 1 whole.txt
"$loom" receipts verify whole
all=$(steps whole)

"$loom" "${start[@]}" --output broken > /dev/null 2>&1 &
kills=0
for place in 1 2 3 4 5; do
    while kill -0 $! 2> /dev/null && [ "$(steps broken)" -lt $((all * place / 6)) ]; do sleep 0.002; done
    if kill -9 $! 2> /dev/null; then
        kills=$((kills + 1))
        wait $! 2> /dev/null || true
        echo "killed after $(steps broken) of $all steps"
    fi
    "$loom" session resume broken > /dev/null 2>&1 &
done
wait $!
"$loom" receipts verify broken
"$loom" mood replay broken | tail -n 1
cmp whole/report.md broken/report.md
echo "killed $kills times; the reports are the same"
