#!/usr/bin/env python3
"""Writes src/governance/regulator/background.weights: how telling a word is, from how few dialogues it occurs in.

    python3 scripts/background_weights.py SELF_DIALOGUE TASKMASTER4

Both are text files (plain or .xz), one turn a line, dialogues divided by blank lines:
  - the Self-dialogue Corpus (Fainberg et al. 2018), BSD-3-Clause, https://github.com/jfainberg/self_dialogue_corpus
  - Taskmaster-4 (Google), CC BY 4.0, https://github.com/google-research-datasets/Taskmaster

A word is a run of letters and digits, in lower case; a short word's plural s goes, and of the rest the first six
characters count, as src/governance/regulator/scanner.rs has it. Only the counts of
dialogues per hashed prefix are kept, as one byte per bucket: no text of either corpus is in the file.
"""

import collections
import lzma
import math
import pathlib
import re
import sys

HEADER, BUCKETS, PREFIX, DIALOGUES_MIN, POWER = 1024, 1 << 17, 6, 3, 0.7
WORD = re.compile(r"[^\W_]+")
SPEAKER = re.compile(r"^\w+: ", re.M)


def fnv1a(data: bytes) -> int:
    state = 0x811C9DC5
    for byte in data:
        state = ((state ^ byte) * 0x01000193) & 0xFFFFFFFF
    return state


def prefix(word: str) -> str:
    if 4 <= len(word) <= PREFIX and word[-1] == "s" and word[-2] not in "sui":
        return word[:-1]
    return word[:PREFIX]


def bucket(prefix: str) -> int:
    state = fnv1a(prefix.encode())
    return (state ^ (state >> 17)) & (BUCKETS - 1)


counts, dialogues = collections.Counter(), 0
for name in sys.argv[1:]:
    opened = lzma.open(name, "rt", encoding="utf8") if name.endswith(".xz") else open(name, encoding="utf8")
    with opened as file:
        for dialogue in file.read().split("\n\n"):
            dialogues += 1
            text = SPEAKER.sub("", dialogue).lower()
            counts.update({prefix(word) for word in WORD.findall(text)})

in_bucket = collections.Counter()
for start, count in counts.items():
    if count >= DIALOGUES_MIN:
        in_bucket[bucket(start)] += count
most = math.log(dialogues + 1)
weights = bytearray([255]) * BUCKETS
for at, count in in_bucket.items():
    weights[at] = round(255 * (math.log((dialogues + 1) / (min(count, dialogues) + 1)) / most) ** POWER)

notice = f"""loom background weights 1
(ln((1+n)/(1+d))/ln(1+n))^{POWER} x 255 per bucket of hashed six-character word prefixes; n = {dialogues} dialogues.
Counted in, and containing no text of:
Self-dialogue Corpus (Fainberg et al.), "Copyright (c) 2017, All rights reserved.", BSD-3-Clause.
Taskmaster-4 (Google), CC BY 4.0, changed: counted.
Made by scripts/background_weights.py.
""".encode()
assert len(notice) < HEADER
path = pathlib.Path(__file__).parent.parent / "src/governance/regulator/background.weights"
path.write_bytes(notice.ljust(HEADER, b"\n") + bytes(weights))
print(f"{dialogues} dialogues, {sum(c >= DIALOGUES_MIN for c in counts.values())} prefixes, {len(in_bucket)} buckets")
