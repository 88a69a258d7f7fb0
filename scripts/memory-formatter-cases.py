#!/usr/bin/env python3
"""Writes the formatter cases of tests/data/memory/formatters: twenty files of decisions, each as it is written and as three
Markdown formatters leave it. Own texts, no network.

usage: memory-formatter-cases.py OUT            writes NN/original.md, then runs the formatters that it finds:
         PRETTIER=…/prettier  MDFORMAT=…/mdformat
       The layouts of Obsidian's Linter plugin (obsidian.md) are made by its own rules, see docs/MEMORY.md.
"""
import os, pathlib, random, subprocess, sys

out = pathlib.Path(sys.argv[1])
OBJECTS = ["SQLite", "x_y_z", "main branch", "*any*", "Größe", "v1.2", "C++", "a-b", "PRJ_001", "100 %"]
PROSE = ["Agreed in the meeting.", "See [the notes](notes.md) and [[Cache]].", "It was *late*, and nobody objected.", "Cheap, fast; enough."]


def signature(rnd, number, subject, obj, modality, flat):
    rows = [f"- id: CS-{number}", "domain: workflow", f"subject: {subject}", "predicate: use", f"object: {obj}",
            f"modality: {modality}", f"priority: {rnd.randint(1, 9)}"]
    projects = rnd.choice([[], [], ["PRJ-001"], ["PRJ-001", "PRJ-002"]])
    time = rnd.choice([None, ("2026-01-01", "2026-12-31")])
    if flat:
        inner = f"projects: [{', '.join(projects)}], channels: [], time: {{{'' if time is None else f'start: {time[0]}, end: {time[1]}'}}}"
        rows.append(f"scope: {{{inner}}}")
    else:
        rows.append("scope:")
        rows.append("  projects: []" if not projects else "  projects:")
        rows += [f"    - {project}" for project in projects]
        rows.append("  channels: []")
        if time:
            rows += ["  time:", f"    start: {time[0]}", f"    end: {time[1]}"]
    if rnd.random() < 0.5:
        rows += ["axis:", f"  key: workflow.{subject}"] + (["  exclusive: false"] if rnd.random() < 0.3 else [])
    if rnd.random() < 0.3:
        rows.append(f"composes_with: [CS-{number + 50}]")
    rows.append(f"evidence: {rnd.choice(PROSE)}")
    return [rows[0]] + ["  " + row for row in rows[1:]]


def decision(rnd, number, style):
    rows = [f"[D-20260101-{number:03}]", "Date: 2026-01-01", f"Status: {rnd.choice(['active'] * 5 + ['revoked'])}", "Scope: global",
            f"Statement: {rnd.choice(['Use', 'Never use'])} {rnd.choice(OBJECTS)}."]
    if style["continued"] and number % 4 == 1:
        rows += ["  It goes on here,", "  and here."]
    rows += [f"Rationale: {rnd.choice(PROSE)}", "Supersedes: none", f"Tags: {rnd.choice(['storage', 'a_b, c', 'x'])}"]
    sources = ["Sources:"] + [f"- chat:{rnd.randint(1, 99)}" for _ in range(rnd.randint(1, 3))]
    header = "ConstraintSignature:" if rnd.random() < 0.2 else "ConstraintSignatures:"
    signatures = [header]
    for index in range(rnd.randint(1, 2)):
        subject, obj = f"s{number // 2}", rnd.choice(OBJECTS[:3])
        modality = rnd.choice(["must", "must", "must_not", "should", "should_not", "may"])
        signatures += signature(rnd, number * 10 + index, subject, obj, modality, style["flat"])
    if style["signatures_first"]:
        rows += signatures + sources
    else:
        rows += sources + signatures
    if rnd.random() < 0.2:
        rows.append("AlignsWith: D-20260101-001")
    return rows


for case in range(1, 21):
    rnd = random.Random(case)
    style = {"flat": case % 2 == 0, "continued": case % 5 == 0, "signatures_first": case % 3 == 0}
    rows = ["# Decisions", ""] if case % 4 else []
    for number in range(1, 9):
        rows += decision(rnd, number, style)
        end = case % 6
        if end == 1:
            rows += ["", "---"]
        elif end == 2:
            rows += ["", rnd.choice(PROSE), ""]
        elif end == 3 and number % 3 == 0:
            rows += ["", f"## Part {number}"]
        elif end == 4 and number == 5:
            rows += ["---"]
        rows.append("")
    folder = out / f"{case:02}"
    folder.mkdir(parents=True, exist_ok=True)
    original = folder / "original.md"
    original.write_text("\n".join(rows).rstrip("\n") + "\n", encoding="utf-8")
    if prettier := os.environ.get("PRETTIER"):
        text = subprocess.run([prettier, "--parser", "markdown"], input=original.read_text(), text=True, check=True, capture_output=True).stdout
        (folder / "prettier.md").write_text(text, encoding="utf-8")
    if mdformat := os.environ.get("MDFORMAT"):
        target = folder / "mdformat.md"
        target.write_text(original.read_text(), encoding="utf-8")
        subprocess.run([mdformat, str(target)], check=True)
