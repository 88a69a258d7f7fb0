"""Writes the software bill of materials of the program `loom` as CycloneDX 1.5 JSON, and checks its dependencies.

    python3 scripts/sbom.py > loom.cdx.json     what is compiled into the default program for this machine
    python3 scripts/sbom.py --check             licences and sources as deny.toml allows; crates in several versions

Without the network: everything is in Cargo.lock and in what cargo has fetched. `cargo deny check` checks the same and
advisories besides, where it is installed. Needs Python 3.11 or newer.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
# Known to be unmaintained; each is a dependency of the crate named, and goes when that lets it go.
UNMAINTAINED = {"paste": "gemm, of candle-core (RUSTSEC-2024-0436)"}


def compiled(metadata):
    """The packages that normal and build dependencies of the program reach."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    reached, waiting = set(), [metadata["resolve"]["root"]]
    while waiting:
        at = waiting.pop()
        if at in reached:
            continue
        reached.add(at)
        for dependency in nodes[at]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    edges = {at: sorted(dependency["pkg"] for dependency in nodes[at]["deps"] if dependency["pkg"] in reached) for at in reached}
    return sorted((package for package in metadata["packages"] if package["id"] in reached), key=lambda package: package["id"]), edges


def allowed(licence, names):
    """Whether an SPDX expression holds with these licences; `/` is the old form of OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", licence.replace("/", " OR "))
    at = 0

    def term():
        nonlocal at
        if tokens[at] == "(":
            at += 1
            holds = either()
            at += 1
            return holds
        name = tokens[at]
        at += 1
        if at < len(tokens) and tokens[at] == "WITH":
            name += f" WITH {tokens[at + 1]}"
            at += 2
        return name in names or name.split(" WITH ")[0] in names

    def both():
        nonlocal at
        holds = term()
        while at < len(tokens) and tokens[at] == "AND":
            at += 1
            holds = term() and holds
        return holds

    def either():
        nonlocal at
        holds = both()
        while at < len(tokens) and tokens[at] == "OR":
            at += 1
            holds = both() or holds
        return holds

    return either()


def check(packages):
    names = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
    wrong, versions = [], {}
    for package in packages:
        name, licence = f"{package['name']} {package['version']}", package["license"]
        versions.setdefault(package["name"], []).append(package["version"])
        if package["source"] not in (REGISTRY, None):
            wrong.append(f"{name}: from {package['source']}")
        if not licence or not allowed(licence, names):
            wrong.append(f"{name}: licence {licence or 'unknown'}")
    several = {name: found for name, found in sorted(versions.items()) if len(found) > 1}
    print(f"{len(packages)} packages; {len(wrong)} with a licence or a source that deny.toml does not allow")
    print("in several versions: " + ", ".join(f"{name} {' '.join(found)}" for name, found in several.items()))
    for name, why in UNMAINTAINED.items():
        if name in versions:
            print(f"unmaintained: {name}, wanted by {why}")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def bill(packages, edges, root):
    sums = {(package["name"], package["version"]): package.get("checksum") for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    reference = lambda package: f"pkg:cargo/{package['name']}@{package['version']}"
    by_id = {package["id"]: reference(package) for package in packages}
    components = []
    for package in packages:
        component = {"type": "application" if package["id"] == root else "library", "bom-ref": reference(package), "name": package["name"],
                     "version": package["version"], "purl": reference(package)}
        if package["license"]:
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksum := sums.get((package["name"], package["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package["repository"]:
            component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        components.append((package["id"], component))
    content = {
        "metadata": {"component": next(component for at, component in components if at == root)},
        "components": [component for at, component in components if at != root],
        "dependencies": [{"ref": by_id[at], "dependsOn": [by_id[one] for one in edges[at]]} for at, _ in components],
    }
    # The same dependencies give the same bytes.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1, **content}


def main():
    host = next(line.split()[1] for line in subprocess.check_output(["rustc", "-vV"], text=True).splitlines() if line.startswith("host:"))
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", host]
    metadata = json.loads(subprocess.check_output(command, cwd=ROOT))
    packages, edges = compiled(metadata)
    if sys.argv[1:] == ["--check"]:
        raise SystemExit(check(packages))
    print(json.dumps(bill(packages, edges, metadata["resolve"]["root"]), indent=1))


if __name__ == "__main__":
    main()
