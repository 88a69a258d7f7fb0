#!/usr/bin/env bash
# `cargo deny check`: advisories, licences, sources and duplicate crates, by deny.toml. Installs cargo-deny under target/ where
# it is missing (a few minutes).
#
#   scripts/check-deny.sh                                     with the advisory database from GitHub
#   ADVISORY_DB=/mirror/advisory-db scripts/check-deny.sh     with a clone of it on this machine, without the network
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cargo-deny > /dev/null; then
    tools=$PWD/target/cargo-deny
    [ -x "$tools/bin/cargo-deny" ] ||
        RUSTUP_TOOLCHAIN=${DENY_TOOLCHAIN:-stable} CARGO_TARGET_DIR=$tools/build cargo install cargo-deny --locked --debug --root "$tools"
    PATH=$tools/bin:$PATH
fi
if [ -n "${ADVISORY_DB:-}" ]; then
    # git reads the clone where cargo-deny asks for GitHub.
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0=https://github.com/RustSec/advisory-db
    GIT_CONFIG_KEY_0=url.file://$(realpath "$ADVISORY_DB").insteadOf
    export GIT_CONFIG_KEY_0
    echo "advisories of $(git -C "$ADVISORY_DB" log -1 --format=%cs)"
fi
cargo deny --locked check
