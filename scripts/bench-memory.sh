#!/usr/bin/env bash
# The memory's speed beside that of the reference implementation (PyPI `mind-mem`), on the same workspaces, in one run.
# usage: scripts/bench-memory.sh [SIZE…]      (decisions; tasks are a fifth of them; default 1000 10000 50000)
# The reference is measured where `python3 -c 'import mind_mem'` works with $PYTHON (default python3): parsing at every
# size, its whole scan up to $REFERENCE_SCAN_MAX decisions (default 1000; at 10000 it takes more than ten minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
sizes=("$@")
[ ${#sizes[@]} -gt 0 ] || sizes=(1000 10000 50000)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for size in "${sizes[@]}"; do
  python3 scripts/gen-memory-workspace.py "$work/$size" --decisions "$size" > /dev/null
done
cargo bench --quiet --no-default-features --bench memory -- "${sizes[@]/#/$work/}"

if "$python" -c 'import mind_mem' 2> /dev/null; then
  for size in "${sizes[@]}"; do
    "$python" - "$work/$size" "$size" "${REFERENCE_SCAN_MAX:-1000}" << 'PY'
import importlib.metadata, logging, subprocess, sys, time
logging.disable(logging.CRITICAL)
from mind_mem.block_parser import parse_file
folder, size, scan_max = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print(f"mind-mem {importlib.metadata.version('mind-mem')}, {size} decisions")
start = time.process_time()
for name in ("decisions/DECISIONS.md", "tasks/TASKS.md"):
    parse_file(f"{folder}/{name}")
print(f"  parse                   {1e3 * (time.process_time() - start):8.1f} ms of CPU")
if size <= scan_max:
    import resource
    subprocess.run([sys.executable, "-m", "mind_mem.intel_scan", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"  whole scan              {1e3 * (used.ru_utime + used.ru_stime):8.1f} ms of CPU")
PY
  done
else
  echo "the reference implementation is not installed: pip install mind-mem, then PYTHON=… $0"
fi
