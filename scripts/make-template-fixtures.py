#!/usr/bin/env python3
"""Makes tests/data/chat_templates/expected.json: the output of `transformers` for the templates in the same folder.

    target/venv/bin/pip install transformers jinja2
    target/venv/bin/python scripts/make-template-fixtures.py
"""

import json
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

FOLDER = Path(__file__).resolve().parent.parent / "tests/data/chat_templates"


def message(role: str, content: str) -> dict:
    return {"role": role, "content": content}


TALK = [
    message("system", "You are terse. "),
    message("user", " What is 2 + 2?"),
    message("assistant", "4 "),
    message("user", "Sure? \"Yes\" & <b>é</b>"),
]
CONVERSATIONS = {"talk": TALK, "no_system": TALK[1:], "one": TALK[1:2], "twice_user": [TALK[1], TALK[3]]}


def main() -> None:
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        for name, messages in CONVERSATIONS.items():
            for generate in (False, True):
                try:
                    rendered, _ = render_jinja_template(
                        conversations=[messages], chat_template=path.read_text(), add_generation_prompt=generate,
                        bos_token="<s>", eos_token="</s>", pad_token="</s>", unk_token=None,
                    )
                    text = rendered[0]
                except Exception:  # The template raises: nothing may be rendered.
                    text = None
                cases.append(dict(template=path.name, conversation=name, generate=generate, text=text))
    data = {"conversations": CONVERSATIONS, "cases": cases}
    (FOLDER / "expected.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


main()
