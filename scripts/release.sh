#!/usr/bin/env bash
# Builds what is published for this machine's target, in target/dist: an archive with the program, its licences, its shipped
# configs and its bill of materials (CycloneDX 1.5), the bill beside it, and checksums. The same commit and toolchain give the
# same archive, but for paths within the program.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "$(git status --porcelain)" ]; then
    echo "the working tree has changes; commit them first" >&2
    exit 1
fi
python3 scripts/sbom.py --check
if command -v cargo-deny > /dev/null; then
    cargo deny --locked check
else
    echo "advisories were not checked: cargo-deny is not installed (scripts/check-deny.sh)" >&2
fi
cargo build --release --locked --bin loom
target=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n '/^\[workspace.package\]/,/^\[package\]/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=loom-$version-$target
dist=target/dist
rm -rf "$dist"
mkdir -p "$dist/$name"
cp "${CARGO_TARGET_DIR:-target}/release/loom" README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$dist/$name/"
cp -r configs docs "$dist/$name/"
python3 scripts/sbom.py > "$dist/$name.cdx.json"
cp "$dist/$name.cdx.json" "$dist/$name/loom.cdx.json"
tar -C "$dist" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -cf - "$name" |
    gzip -9n > "$dist/$name.tar.gz"
rm -r "${dist:?}/$name"
(cd "$dist" && sha256sum "$name.tar.gz" "$name.cdx.json" | tee SHA256SUMS)
