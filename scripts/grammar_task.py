#!/usr/bin/env python3
"""Writes configs/tasks/grammar.tsv: minimal pairs of simple grammar, a sample of BLiMP.

    python3 scripts/grammar_task.py BLiMP.zip

BLiMP (Warstadt, Parrish, Liu, Mohananey, Peng, Wang and Bowman, TACL 2020), CC BY 4.0,
https://github.com/alexwarstadt/blimp. All paradigms of agreement and of irregular forms are taken, chosen before any
model was asked: the first 125 pairs of each that no other paradigm has.
"""

import json
import pathlib
import sys
import zipfile

TERMS = {"anaphor_agreement", "determiner_noun_agreement", "subject_verb_agreement", "irregular_forms"}
PER_PARADIGM = 125
HEAD = """\
# Minimal pairs of simple grammar: a good sentence, a tab, a bad one.
# From BLiMP (Warstadt, Parrish, Liu, Mohananey, Peng, Wang and Bowman, TACL 2020), CC BY 4.0,
# https://github.com/alexwarstadt/blimp; a selection, made by scripts/grammar_task.py. For measuring, never for training.
"""

seen, lines = set(), []
with zipfile.ZipFile(sys.argv[1]) as archive:
    for name in sorted(archive.namelist()):
        if not (name.startswith("data/") and name.endswith(".jsonl")):
            continue
        rows = [json.loads(line) for line in archive.read(name).decode().splitlines()]
        if rows[0]["linguistics_term"] not in TERMS:
            continue
        taken = 0
        for row in rows:
            pair = row["sentence_good"] + "\t" + row["sentence_bad"]
            if taken < PER_PARADIGM and pair not in seen:
                seen.add(pair)
                lines.append(pair)
                taken += 1
path = pathlib.Path(__file__).parent.parent / "configs/tasks/grammar.tsv"
path.write_text(HEAD + "\n".join(lines) + "\n")
