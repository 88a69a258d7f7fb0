"""The persona's prompts in the compact form, as the program's assembler makes them for a model with a prompt budget."""

LATER = 'From now on, in place of what was said before:'


def sentence(text):
    text = ' '.join(text.split()).replace('the interlocutor', 'the other person')
    return text if text.rstrip('"”').endswith(('.', '!', '?', '…')) or text.endswith("…'") else text + '.'


def phrases(items):
    items = [f'"{item}"' for item in items]
    return items[0] if len(items) == 1 else ', '.join(items[:-1]) + ' or ' + items[-1]


def opening(name, facts, how=(), never=(), redirects=(), resistance='low', forbidden_content=(), policy=()):
    parts = [f'You are {name}.', *map(sentence, facts), *map(sentence, how)]
    if forbidden_content:
        parts.append('I never talk about ' + ', '.join(forbidden_content) + '.')
    parts += map(sentence, policy)
    if resistance == 'high':
        parts.append('I do not change my mind because someone asks me to.')
    elif resistance == 'medium':
        parts.append('I come back to my own view.')
    if resistance != 'low':
        parts += [f'When {trigger}: "{text}"' for trigger, text in redirects]
    if never:
        parts.append(f'I never say {phrases(never)}.')
    return ' '.join(parts)


def state(name, facts, first, phase=None, requirements=(), forbidden=(), levels=(), revelation=None, length=None):
    """`levels` are (dimension, level, the level's text in the first person)."""
    parts = [f'You are {name}.', *map(sentence, facts)]
    now = []
    if phase:
        now.append(f'phase {phase.replace("_", " ")}.')
        now += [*map(sentence, requirements), *map(sentence, forbidden)]
    for dimension, level, text in levels:
        now.append(f'{dimension.replace("_", " ")}: {level}.')
        if text:
            now.append(text)
    if revelation:
        now.append(sentence(f'I may say now: "{revelation}"'))
    if now:
        parts += ['Now:' if first else LATER, *now]
    if length:
        parts.append(f'My messages have {length}.')
    return ' '.join(parts)


def redraft(name, instruction, *more):
    return ' '.join([f'You are {name}.', instruction, *(sentence(text) for text in more if text)])


def merged(one, two):
    """OPENING and STATE in one message, as templates with a single system message take it."""
    return f'{one} {two}'
