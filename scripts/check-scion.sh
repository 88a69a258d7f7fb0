#!/usr/bin/env bash
# Plays the charts of npm's @scion-scxml/test-framework (Apache-2.0) on the statechart kernel: those that need neither a data
# model nor `send`. Prints passed, playable and all by folder; fails if one that is playable does not pass.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.0.16
folder=target/scion-$version
if [ ! -d "$folder/package/test" ]; then
    mkdir -p "$folder"
    npm pack --silent --pack-destination "$folder" "@scion-scxml/test-framework@$version" > /dev/null
    tar -xzf "$folder"/*.tgz -C "$folder"
fi
LOOM_SCION_TESTS="$PWD/$folder/package/test" \
    cargo test --no-default-features --lib -- --ignored --nocapture the_charts_of_scion
