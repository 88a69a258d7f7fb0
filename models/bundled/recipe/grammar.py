"""Sentences written with alternatives, and how they are drawn.

A text file holds sections `[name]`, one sentence a line. In a sentence `(a|b|)` is one of these, `<name>` what was given
under that name or a line of the section or list of that name, and `a~` is "a" or "an". A section `[name,]` is a list:
its items stand between commas.

Every ninth line of a section and every ninth item of a list is kept from training ("held"): they serve the evaluation.
"""
import pathlib
import random
import re

TEXTS = pathlib.Path(__file__).resolve().parent / 'texts'
HELD_EVERY = 9


class Grammar:
    def __init__(self, *files):
        self.sections = {}
        for name in files:
            self.read((TEXTS / name).read_text())

    def read(self, text):
        current = None
        for line in text.split('\n'):
            line = line.strip()
            if not line or line.startswith('#'):
                continue
            m = re.fullmatch(r'\[([^\]]+?)(,?)\]', line)
            if m:
                current, is_list = self.sections.setdefault(m.group(1), []), bool(m.group(2))
            elif is_list:
                current += [item.strip() for item in line.split(',') if item.strip()]
            else:
                current.append(line)

    def lines(self, name, part='train'):
        """The lines of a section that belong to a part: train, held or all."""
        lines = self.sections[name]
        if part == 'all' or len(lines) < HELD_EVERY:
            return lines
        held = [line for k, line in enumerate(lines) if k % HELD_EVERY == HELD_EVERY - 1]
        return held if part == 'held' else [line for line in lines if line not in held]

    def has(self, name):
        return name in self.sections

    def draw(self, section, rng, part='train', /, **slots):
        return self.fill(rng.choice(self.lines(section, part)), rng, part, **slots)

    def fill(self, text, rng, part='train', /, **slots):
        out, _ = self._fill(text, 0, rng, part, slots)
        return tidy(out)

    def _fill(self, text, at, rng, part, slots, inside=False):
        """Reads up to the end or the closing parenthesis; returns what was chosen and where it stopped."""
        options, out = [], []
        while at < len(text):
            c = text[at]
            if c == '(':
                inner, at = self._fill(text, at + 1, rng, part, slots, True)
                out.append(inner)
            elif c == ')' and inside:
                options.append(''.join(out))
                return rng.choice(options), at + 1
            elif c == '|' and inside:
                options.append(''.join(out))
                out = []
                at += 1
            elif c == '<':
                end = text.index('>', at)
                name = text[at + 1:end]
                if name in slots:
                    out.append(str(slots[name]))
                else:
                    out.append(self._fill(rng.choice(self.lines(name, part)), 0, rng, part, slots)[0])
                at = end + 1
            else:
                out.append(c)
                at += 1
        options.append(''.join(out))
        return ''.join(out), at


def tidy(text):
    text = re.sub(r'\b([Aa])~ (\W*)(\w)', lambda m: m.group(1) + ('n ' if m.group(3).lower() in 'aeio' else ' ') + m.group(2) + m.group(3), text)
    text = re.sub(r'\s+', ' ', text).strip()
    text = re.sub(r' ([,.!?])', r'\1', text)
    return text


def capital(text):
    """The first letter of every sentence is a capital."""
    text = re.sub(r'^(["“]?)([a-z])', lambda m: m.group(1) + m.group(2).upper(), text)
    return re.sub(r'([.!?] )([a-z])', lambda m: m.group(1) + m.group(2).upper(), text)


def words(text):
    return re.findall(r"[a-z0-9']+", text.lower().replace('’', "'"))
