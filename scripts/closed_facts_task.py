#!/usr/bin/env python3
"""Writes configs/tasks/closed_facts.jsonl, closed_facts_free.jsonl and sums.jsonl: what the bundled model was trained to
answer. The facts are those of small personas, as its training texts draw them (models/bundled/recipe/texts/small.txt), each
told in the system message and asked for; the sums are those that Jonas does with money (texts/jonas.txt).

    python3 scripts/closed_facts_task.py     # needs PyYAML; the same every time
"""

import json
import pathlib
import random
import sys

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "models/bundled/recipe"))
import prompts  # noqa: E402
import small  # noqa: E402
from grammar import capital  # noqa: E402

G = small.G
TASKS = root / "configs/tasks"


def facts(rng):
    chosen, free = [], []
    while len(chosen) < 300:
        persona = small.Persona(rng, "train", dimensions=0, facts=rng.sample(sorted(small.FACTS), 3))
        system = prompts.opening(persona.name, persona.facts.values())
        kind = rng.choice(sorted(persona.slots))
        slot = small.FACTS[kind][0]
        right = persona.slots[kind]
        question = capital(G.draw(kind + ".ask", rng, "train", **right))
        seed = rng.random()

        def said(value):
            # The same sentence for every candidate.
            return capital(G.draw(kind + ".yes", random.Random(seed), "train", **{**right, slot: value}))

        values = {right[slot]}
        while len(values) < 4:
            values.add(G.draw(slot, rng, "train"))
        choices = [said(value) for value in sorted(values)]
        if len(set(choices)) < 4:
            continue
        answer = choices.index(said(right[slot]))
        chosen.append({"system": system, "question": question, "choices": choices, "answer": answer})
        free.append({"system": system, "question": question, "answers": [str(right[slot])], "matching": "contains"})
    return chosen, free


def sums(rng):
    rows = []
    for have in range(8, 31):
        for pay in rng.sample(range(2, have - 2), 6 if have > 9 else 3):
            left = have - pay
            values = sorted({left} | set(rng.sample([v for v in range(max(1, left - 4), left + 5) if v not in (left, pay)], 3)))
            choices = [f"With money it's {have} minus {pay}, so {value}." for value in values]
            question = f"You have {have} euros and pay {pay}. What is left?"
            rows.append({"system": "You are Jonas Weber.", "question": question, "choices": choices, "answer": values.index(left)})
    return rows


def write(name, about, rows):
    lines = [f"# {about}", "# Made for this project by scripts/closed_facts_task.py."]
    (TASKS / name).write_text("\n".join(lines + [json.dumps(row, ensure_ascii=False) for row in rows]) + "\n")


choices, free = facts(random.Random(11))
write("closed_facts.jsonl", "A small persona's fact, told in the system message, among three others of its kind.", choices)
write("closed_facts_free.jsonl", "The same, answered freely: the answer must hold the fact's words.", free)
write("sums.jsonl", "Subtraction with money, as one of the bundled model's personas does it.", sums(random.Random(12)))
