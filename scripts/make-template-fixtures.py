#!/usr/bin/env python3
"""Makes tests/data/chat_templates/expected.json: the output of `transformers` for the templates in the same folder.

    target/venv/bin/pip install transformers jinja2
    target/venv/bin/python scripts/make-template-fixtures.py
"""

import json
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

FOLDER = Path(__file__).resolve().parent.parent / "tests/data/chat_templates"


def message(role: str, content: str, thought: str | None = None) -> dict:
    return {"role": role, "content": content} | ({"thought": {"text": thought}} if thought else {})


def told(message: dict) -> dict:
    """A message as templates know it."""
    thought = message.get("thought")
    return {"role": message["role"], "content": message["content"]} | (
        {"reasoning_content": thought["text"]} if thought else {})


TALK = [
    message("system", "You are terse. "),
    message("user", " What is 2 + 2?"),
    message("assistant", "4 "),
    message("user", "Sure? \"Yes\" & <b>é</b>"),
]
THOUGHT = [TALK[1], message("assistant", "4", "\nTwo and two.\n")]
CONVERSATIONS = {"thought": THOUGHT, "thought_before": [*THOUGHT, TALK[3]], "talk": TALK, "no_system": TALK[1:], "one": TALK[1:2], "twice_user": [TALK[1], TALK[3]]}


def main() -> None:
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        thinks = "</think>" in path.read_text()
        for name, messages in CONVERSATIONS.items():
            if name.startswith("thought") and not thinks:
                continue
            variants = [{}, {"enable_thinking": True}, {"enable_thinking": False}] if thinks else [{}]
            for generate, arguments in ((generate, arguments) for generate in (False, True) for arguments in variants):
                try:
                    rendered, _ = render_jinja_template(
                        conversations=[[told(one) for one in messages]], chat_template=path.read_text(), add_generation_prompt=generate,
                        bos_token="<s>", eos_token="</s>", pad_token="</s>", unk_token=None, **arguments,
                    )
                    text = rendered[0]
                except Exception:  # The template raises: nothing may be rendered.
                    text = None
                case = dict(template=path.name, conversation=name, generate=generate, text=text)
                cases.append(case | ({"arguments": arguments} if arguments else {}))
    data = {"conversations": CONVERSATIONS, "cases": cases}
    (FOLDER / "expected.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


main()
