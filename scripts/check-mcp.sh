#!/usr/bin/env bash
# Drives the memory through the official Python client of the Model Context Protocol (PyPI `mcp`).
# usage: scripts/check-mcp.sh [LOOM]      (the binary; by itself the one that the tests build)
set -euo pipefail
cd "$(dirname "$0")/.."
loom=$(realpath "${1:-target/debug/loom}")
if [ ! -x target/mcp/bin/python ]; then
    python3 -m venv target/mcp
    target/mcp/bin/python -m pip install --quiet 'mcp>=2'
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$loom" memory init "$work" > /dev/null
target/mcp/bin/python scripts/check-mcp.py "$loom" "$work"
