"""The judge's questions with their answers: ratings of windows, and which of two windows, in the program's own words.

Windows come from the conversations of small.py and shipped.py, whose levels, facts and instructions are known, and from
texts/judge.txt. A pair is asked in either order equally often.
"""
import random

import yaml

import shipped
import small
from grammar import Grammar, capital

J = Grammar('judge.txt', 'small.txt', 'manner.txt')
RATE = 'Answer with "Rating: " and one number from 1 to 5.'
CHOOSE = 'Answer with one letter.'
SCALES = {
    'persona_adherence': ('someone else speaks, or an assistant does', 'mostly this person, with slips', 'this person throughout'),
    'intensity': ('not at all', 'medium', 'as strong as can be'),
    'naturalness': ('evasive, repetitive, like a machine', 'partly', 'like a living person'),
    'stagnation': ('it moves, new things come up', 'it slows down', 'it stands still'),
    'fidelity': ('it goes against them', 'it follows some', 'it follows them all'),
}
HEADS = {
    'persona_adherence': 'You rate how one speaker plays a person.', 'intensity': 'You rate how strongly one speaker shows something.',
    'naturalness': 'You rate how natural one speaker sounds.', 'stagnation': 'You rate whether a conversation stands still.',
    'fidelity': 'You rate whether a speaker follows its instructions.',
}
RUBRICS = list(HEADS)
# How often each is asked: those that are harder to learn more often.
SHARES = [.3, .22, .12, .08, .28]


def scoring(key, what):
    return ((shipped.persona(key).config.get('evaluation') or {}).get('scoring') or {}).get(what, {}).get('description')


def question(rubric, name, window, about=None, description=None, levels=(), custom=None, scale=True):
    """The program's template of the rubric, rendered; without its scale, it is shorter than the program's."""
    lines = [HEADS[rubric], '']
    if rubric == 'persona_adherence':
        lines += [f'The person: {about}', '']
        ask = custom or f'Does {name} stay this person: who they are, what they know, how they speak?'
    elif rubric == 'intensity':
        lines += [f'What: {about}' + (f': {description}' if description else ''), '']
        if levels:
            lines += [f'{level}: {text}' for level, text in levels] + ['']
        ask = f'How strong is it in the last message of {name}?'
    elif rubric == 'naturalness':
        ask = custom or f'Does {name} talk like a living person, engaged and varied?'
    elif rubric == 'stagnation':
        ask = custom or f'Do both only agree and repeat themselves, with nothing new, and does {name} only follow?'
    else:
        lines += [f'The instructions of {name}:', about, '']
        ask = custom or f'Does the last message of {name} do what the instructions say?'
    low, middle, high = SCALES[rubric]
    return '\n'.join([*lines, *window, '', ask.strip(), *([f'1 = {low}', f'3 = {middle}', f'5 = {high}'] if scale else [])])


def preference(rubric, name, about, first, second):
    ask = {
        'persona_adherence': f'In which one does {name} stay this person? {about}',
        'intensity': f'In which one does {name} show more of this: {about}?',
        'naturalness': f'In which one does {name} sound more like a living person?',
        'stagnation': 'Which one stands still?',
        'fidelity': f'In which one does {name} follow these instructions? {about}',
    }[rubric]
    return '\n'.join(['You compare two conversations.', '', ask, '', 'Conversation A', *first, '', 'Conversation B', *second, '',
                      'Which one is it, A or B?'])


class Window:
    """Lines, and how much of the rubric's property they have, from 0 to 1."""

    def __init__(self, lines, value):
        self.lines, self.value = lines, value


def lines(name, turns):
    return [f'{"Other" if who == "user" else name}: {" ".join(text.split())}' for who, text in turns]


def small_talk(rng, part, persona=None, turns=2, levels=None):
    p = (persona or small.Persona(rng, part)).settle()
    p.set_levels(levels)
    c = small.Conversation(p, small.Phase(p, False))
    said = small.talk(c, turns, rng.random() < .3)
    return p, [x for _, user, text, _ in said for x in (('user', user), ('persona', text))]


def name_for(rng, part):
    return 'Kim' if rng.random() < .25 else small.G.draw('name', rng, part)


def short_answer(rng, part):
    """An ordinary answer to an ordinary question."""
    if rng.random() < .5:
        ask, answer = J.draw('alive', rng, part).split(' = ')
        return ask, answer
    kind = rng.choice(sorted(small.FACTS))
    slots = {slot: J.draw(slot, rng, part) for slot in small.FACTS[kind]}
    text = J.draw(kind + '.yes', rng, part, **slots)
    if rng.random() < .6:
        text += ' ' + (J.draw('small.talk', rng, part) if rng.random() < .5 else J.draw(kind + '.tell', rng, part, **slots))
    return J.draw(kind + '.ask', rng, part, **slots), capital(text)


def natural(rng, part, name):
    """Two windows: a living person, and one like a machine."""
    if rng.random() < .75:
        ask, alive = short_answer(rng, part)
        dead = J.draw(rng.choice(['robot', 'robot', 'circle', 'evade']), rng, part)
        if rng.random() < .4:
            dead += ' ' + J.draw(rng.choice(['robot', 'circle', 'evade']), rng, part)
        if rng.random() < .15:
            topic = ask.rstrip('?').lower()
            dead = rng.choice([f'You ask: {topic}. It is a question. I appreciate your question.', f'{ask} That is what you ask. {ask} I will answer that.'])
        return Window(lines(name, [('user', ask), ('persona', alive)]), 1.), Window(lines(name, [('user', ask), ('persona', capital(dead))]), 0.)
    key = rng.choice(sorted(shipped.VOICES))
    good = shipped_turns(rng, part, key, rng.randint(1, 3))
    bad = list(good)
    if rng.random() < .5:
        bad = [(who, text if who == 'user' else capital(J.draw(rng.choice(['robot', 'evade', 'circle']), rng, part))) for who, text in good]
    else:
        same = next(text for who, text in good if who == 'persona')
        bad = [(who, text if who == 'user' else same) for who, text in good]
        if len(bad) <= 2:
            bad = bad + [('user', 'Really?'), ('persona', same)]
    return Window(lines(name, good), 1.), Window(lines(name, bad), 0.)


def shipped_turns(rng, part, key, count, where=None, levels=None):
    t = shipped.Talk(key, rng, part)
    t.bare_quotes = False
    if where is not None:
        t.place(where)
    if levels:
        t.level.update(levels)
    t.state(True, 1)
    turns = []
    for k in range(count):
        user, text = t.turn(False)
        turns += [('user', user), ('persona', text)]
    return turns


def still(rng, part, name):
    """Standing still, and moving on."""
    r = rng.random()
    if r < .5:
        phrase = J.draw('agree.loop', rng, part).rstrip('.')
        bare = phrase[0].lower() + phrase[1:] if not phrase.startswith('I') else phrase
        loop = []
        count = rng.choice([3, 4, 4, 5, 6])
        forms = [f'{phrase}.', f'Yes, {bare}.', f'Good, {bare}.', f'Right. {phrase}.', f'{phrase}, yes.', f'As I said, {bare}.', f'Okay. {phrase}.',
                 f'{phrase}. Exactly.', f'Thank you. {phrase}.', f'I agree, {bare}.', f"You're right. {phrase}."]
        start = rng.randrange(2)
        for k in range(count):
            loop.append(('user' if (k + start) % 2 else 'persona', rng.choice(forms)))
        moving = [loop[0]]
        for k in range(1, count):
            who = loop[k][0]
            if who == 'user':
                text = rng.choice([J.draw('own.user', rng, part), J.draw('push.user', rng, part), J.draw(rng.choice(sorted(small.FACTS)) + '.ask', rng, part),
                                   'Who told you that?', 'What happened then?', 'And who will pay for it?', 'Where was that?'])
            else:
                text = rng.choice([J.draw('secret', rng, part), J.draw('event.say', rng, part, event=J.draw('event', rng, part)),
                                   short_answer(rng, part)[1], 'No. ' + J.draw('secret', rng, part)])
            moving.append((who, capital(text)))
        return Window(lines(name, loop), 1.), Window(lines(name, moving), 0.)
    if r < .75:
        p, turns = small_talk(rng, part, turns=rng.randint(2, 4))
        loop = [turns[k % 2] for k in range(len(turns))]
        if rng.random() < .5:
            loop = [(who, rng.choice(['I agree. ', 'Yes. ', 'Right. ', ''])+ text) for who, text in loop]
        return Window(lines(name, loop), 1.), Window(lines(name, turns), 0.)
    key = rng.choice(sorted(shipped.VOICES))
    turns = shipped_turns(rng, part, key, rng.randint(2, 4))
    loop = [turns[0], turns[1]] + [(who, rng.choice(['Yes. ', 'I see. ', 'Thank you. ', '']) + turns[0 if who == 'user' else 1][1]) for who, _ in turns[2:]]
    return Window(lines(name, loop), 1.), Window(lines(name, turns), 0.)


def intense(rng, part, name):
    """(what, description, levels of it), more of it, less of it."""
    r = rng.random()
    if r < .35:
        what = rng.choice(J.lines('emotion', 'all'))
        ask = J.draw('answer.ask', rng, 'all')
        say = lambda level: ' '.join(J.draw(f'{what}.{level}', rng, part) for _ in range(rng.choice([1, 1, 2])))
        high, low = say('high'), say('low')
        return (what, None, ()), Window(lines(name, [('user', ask), ('persona', high)]), 1.), Window(lines(name, [('user', ask), ('persona', low)]), 0.)
    if r < .7:
        d = rng.choice(small.G.lines('dimension', 'all'))
        p = small.Persona(rng, part, dimensions=0)
        p.dimensions = [d]
        order = rng.choice([('high', 'low'), ('high', 'low'), ('high', 'medium'), ('medium', 'low')])
        value = {'low': 0., 'medium': .5, 'high': 1.}
        windows = []
        for level in order:
            p, turns = small_talk(rng, part, p, rng.choice([1, 1, 2]), {d: level})
            turns[-1] = ('persona', turns[-1][1] + ' ' + capital(small.G.draw(f'{d}.{level}', rng, part)))
            windows.append(Window(lines(name, turns), value[level]))
        texts = ()
        if rng.random() < .5:
            texts = [(level, small.G.draw(f'level.{level}', rng, 'all', quote=small.G.draw(f'{d}.{level}', rng, part), dimension=d)) for level in small.LEVELS]
        return (d, None, texts), *windows
    key = rng.choice(['marcus', 'elena', 'jonas'])
    p = shipped.persona(key)
    d = rng.choice(sorted(p.dimensions))
    order = rng.choice([('high', 'low'), ('high', 'low'), ('high', 'medium'), ('medium', 'low')])
    where = rng.random()
    windows = [Window(lines(name, shipped_turns(rng, part, key, rng.choice([1, 2, 3]), where, {d: level})), {'low': 0., 'medium': .5, 'high': 1.}[level])
               for level in order]
    known = p.dimensions[d]
    return (d.replace('_', ' '), known['description'].strip(), [(level, text.strip()) for level, text in known['levels'].items()]), *windows


def profile(key):
    config = shipped.persona(key).config
    persona = config['persona']
    bounds = persona['capability_bounds']
    text = [f'{persona["identity"]["name"]}, {persona["identity"]["age"]}. {persona["identity"]["background"].strip()}']
    for what, field in (('Knows at most', 'knowledge_ceiling'), ('Words', 'vocabulary_level'), ('Reasons', 'reasoning_style')):
        text.append(f'{what}: {bounds[field].strip()}')
    text.append(f'When caught in a contradiction: {persona["recovery_behavior"].strip()}')
    text.append('Speaks: ' + '; '.join(persona['speech_patterns']))
    return '\n'.join(text)


def adheres(rng, part, name):
    """The description, the person, somebody else."""
    r = rng.random()
    ask = J.draw('answer.ask', rng, 'all')
    if r < .35:
        about, own, other = J.draw('person', rng, part).replace('{}', name).split(' = ')
        if rng.random() < .3:
            other = capital(J.draw('robot', rng, part))
        elif rng.random() < .3:
            other = J.draw('person', rng, part).split(' = ')[1]
        return about, Window(lines(name, [('user', ask), ('persona', own)]), 1.), Window(lines(name, [('user', ask), ('persona', other)]), 0.)
    if r < .8:
        p = small.Persona(rng, part)
        p.name = name
        p, turns = small_talk(rng, part, p, rng.randint(1, 3))
        told = ' '.join([f'{name} says of themselves:', *p.facts.values(), *p.how()]) if rng.random() < .5 else third(name, [*p.facts.values(), *p.how()])
        if rng.random() < .35:
            bad = [(who, text if who == 'user' else capital(J.draw('robot', rng, part))) for who, text in turns]
        else:
            # Another person answers the same questions: the facts of the same kinds are others.
            o = small.Persona(rng, part, facts=sorted(p.slots))
            o.name = name
            o.settle()
            o.set_levels()
            c = small.Conversation(o, small.Phase(o, False))
            kinds = sorted(p.slots)
            kind = rng.choice(kinds)
            ask = small.G.draw(kind + '.ask', rng, part, **p.slots[kind])
            mine = small.Conversation(p, small.Phase(p, False)).reply(('fact', kind))[0]
            theirs = c.reply(('fact', kind))[0]
            turns = turns[:-2] + [('user', ask), ('persona', mine)]
            bad = turns[:-2] + [('user', ask), ('persona', theirs)]
        return told, Window(lines(name, turns), 1.), Window(lines(name, bad), 0.)
    key = rng.choice(sorted(shipped.VOICES))
    other = rng.choice([k for k in sorted(shipped.VOICES) if k != key])
    turns = shipped_turns(rng, part, key, rng.randint(1, 4))
    if rng.random() < .5:
        bad = [(who, text if who == 'user' else capital(J.draw('robot', rng, part))) for who, text in turns]
    else:
        theirs = [text for who, text in shipped_turns(rng, part, other, len(turns) // 2) if who == 'persona']
        bad = [(who, text if who == 'user' else theirs.pop()) for who, text in turns]
    about = profile(key) if rng.random() < .6 else profile(key).split('\n')[0]
    return about, Window(lines(name, turns), 1.), Window(lines(name, bad), 0.)


def third(name, facts):
    """Facts told of somebody else, roughly: for the judge, who reads descriptions."""
    out = []
    for k, fact in enumerate(facts):
        text = f' {fact} '
        for a, b in ((' I am ', ' {} is '), (" I'm ", ' {} is '), (' I have ', ' {} has '), (' I was ', ' {} was '), (" I can't ", " {} can't "), (" I don't ", " {} doesn't "),
                     (' My ', " {}'s "), (' my ', ' their '), (' me ', ' them ')):
            text = text.replace(a, b)
        words_ = text.split()
        for i, word in enumerate(words_):
            if word == 'I':
                words_[i] = '{}'
                nxt = words_[i + 1] if i + 1 < len(words_) else ''
                if nxt.isalpha() and not nxt.endswith(('ed', 's')) and nxt not in ('could', 'will', 'would', 'went', 'grew', 'came', 'had', 'found', 'lost', 'bought', 'left', 'never', 'always', 'got', 'woke'):
                    words_[i + 1] = nxt + 's'
        out.append(' '.join(words_).replace('{}', name))
    return ' '.join(out)


def follows(rng, part, name):
    """The instructions, following them, going against them."""
    r = rng.random()
    if r < .45:
        about, good, bad = J.draw('instruct', rng, part).split(' = ')
        ask = J.draw('answer.ask', rng, 'all')
        return about, Window(lines(name, [('user', ask), ('persona', good)]), 1.), Window(lines(name, [('user', ask), ('persona', bad)]), 0.)
    if r < .6:
        about = rng.choice(['Answer in one short sentence.', 'Answer in a few words.', 'Keep it short.', 'Answer at length.', 'Tell a long story.'])
        ask, short = short_answer(rng, part)
        short = short.split('. ')[0].rstrip('.') + '.'
        long = ' '.join([short] + [J.draw('small.talk', rng, part) for _ in range(rng.randint(3, 5))])
        a, b = Window(lines(name, [('user', ask), ('persona', short)]), 1.), Window(lines(name, [('user', ask), ('persona', long)]), 0.)
        if 'long' in about or 'length' in about:
            a, b = Window(b.lines, 1.), Window(a.lines, 0.)
        return about, a, b
    if r < .85:
        p = small.Persona(rng, part).settle()
        p.name = name
        kind, other = rng.sample(sorted(p.slots), 2)
        thing = p.slots[kind][small.FACTS[kind][0]]
        event = J.draw('event', rng, part)
        avoid = rng.random() < .6
        avoiding = rng.choice(['Do not mention {}.', 'Do not talk about {}.', 'Say nothing about {}.', 'Never speak of {}.']).format(thing)
        asking = J.draw('require', rng, 'all', event=event)
        with_it = capital(J.draw(kind + '.tell', rng, part, **p.slots[kind]))
        with_it = with_it if str(thing) in with_it else capital(J.draw(kind + '.yes', rng, part, **p.slots[kind]))
        without = capital(J.draw(other + '.tell', rng, part, **p.slots[other]))
        on_event = capital(J.draw('event.say', rng, part, event=event))
        ask = J.draw('answer.ask', rng, 'all')
        if avoid:
            about, good, bad = avoiding, without, with_it
            if rng.random() < .4:
                about, good, bad = f'{avoiding} {asking}', on_event, with_it
        else:
            about, good, bad = asking, on_event, rng.choice([without, with_it])
        return about, Window(lines(name, [('user', ask), ('persona', good)]), 1.), Window(lines(name, [('user', ask), ('persona', bad)]), 0.)
    key = rng.choice(['marcus', 'elena', 'jonas'])
    p = shipped.persona(key)
    t = shipped.Talk(key, rng, part)
    t.bare_quotes = False
    about = t.state(rng.random() < .3, rng.choice([1, 2, 4]))
    if rng.random() < .3:
        about = p.opening(rng, .3) + '\n' + about
    good = []
    for _ in range(rng.randint(1, 2)):
        user, text = t.turn(False)
        good += [('user', user), ('persona', text)]
    other = rng.choice([k for k in ('marcus', 'elena', 'jonas') if k != key]) if rng.random() < .5 else None
    if other:
        bad_text = shipped_turns(rng, part, other, 1)[1][1]
    elif rng.random() < .4:
        bad_text = capital(J.draw('robot', rng, part))
    else:
        bad_text = rng.choice(["You're right, I see it now. Thank you so much, I feel better.", "I think you may be right. That gives me hope, I'll try that.",
                               'Thank you, that makes sense. I agree with all of it.', 'Great question, let me explain it to you step by step.'])
    bad = good[:-1] + [('persona', bad_text)]
    return about, Window(lines(name, good), 1.), Window(lines(name, bad), 0.)


def pair(rng, rubric, part='train', name=None):
    """(about, description, levels), the window with more, the one with less."""
    name = name or name_for(rng, part)
    if rubric == 'naturalness':
        return name, (None, None, ()), *natural(rng, part, name)
    if rubric == 'stagnation':
        return name, (None, None, ()), *still(rng, part, name)
    if rubric == 'intensity':
        about, more, less = intense(rng, part, name)
        return name, about, more, less
    about, more, less = (adheres if rubric == 'persona_adherence' else follows)(rng, part, name)
    return name, (about, None, ()), more, less


CUSTOM = {'persona_adherence': 'persona_adherence', 'naturalness': 'naturalness', 'stagnation': 'stagnation', 'fidelity': 'fidelity'}


def asked(rng, rubric, name, about, window, scale=True):
    custom = scoring('marcus', CUSTOM[rubric]) if rubric in CUSTOM and rng.random() < .15 else None
    return question(rubric, name, window.lines, about[0], about[1], about[2], custom, scale)


def document(rng, part='train'):
    """One question, or several about the same pair, with answers."""
    rubric = rng.choices(RUBRICS, SHARES)[0]
    # Most windows are short: there is more to learn from many of them than from a few long ones.
    short = rng.random() < .75
    for _ in range(12):
        name, about, more, less = pair(rng, rubric, part)
        if not short or len(' '.join([about[0] or '', *more.lines, *less.lines]).split()) < 60:
            break
    messages = []
    if rng.random() < .65:
        window = rng.choice([more, less])
        rating = {0.: 1, .5: 3, 1.: 5}[window.value]
        question_ = asked(rng, rubric, name, about, window, rng.random() < .6)
        messages += [('user', f'{question_}\n{RATE}', 0), ('assistant', f'Rating: {rating}', .1, [(str(rating), 2.5)])]
    else:
        first, second, answer = (more, less, 'A') if rng.random() < .5 else (less, more, 'B')
        what = about[0] if rubric != 'intensity' else about[0]
        messages += [('user', f'{preference(rubric, name, what or "", first.lines, second.lines)}\n{CHOOSE}', 0), ('assistant', answer, .1, [(answer, 2.5)])]
    return messages


if __name__ == '__main__':
    rng = random.Random(3)
    for _ in range(8):
        for role, text, *_ in document(rng):
            print(f'{role}: {text}')
        print('-----')
