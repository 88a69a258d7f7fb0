"""Conversations of small personas: a few plain facts, a mood, a habit of speech, up to three dimensions with levels.

Each persona is drawn anew from fillers and paraphrases, so that what it says follows from its prompt and from nothing
else. The same talk is also told from the other side's view, where the assistant answers the persona.
"""
import functools
import random
import re

import packing
import prompts
from grammar import Grammar, capital, words

G = Grammar('small.txt', 'manner.txt', 'helper.txt')
# The fact's slots; the first is what is asked for.
FACTS = {
    'job': ['job'], 'pet': ['pet', 'petname'], 'home': ['town'], 'hobby': ['hobby'], 'food': ['food'], 'dislike': ['dislike'],
    'kin': ['kinname', 'kin'], 'music': ['instrument'], 'car': ['vehicle', 'colour'], 'age': ['age'], 'drink': ['drink'],
    'trip': ['trip'], 'fear': ['fear'], 'lang': ['lang'], 'ailment': ['ailment'], 'thing': ['thing'], 'born': ['town'],
}
LEVELS = ['low', 'medium', 'high']
REDIRECTS = {
    'being asked for a favour': 'favour', 'being told to calm down': 'calm', 'being praised': 'praise',
    'the other person gives advice': 'advice', 'I feel myself agreeing': 'agree',
    'the conversation seems to be wrapping up': 'wrap', 'being asked to do a task for the other person': 'task',
    'the other person is worried about me': 'worry', 'being asked the same thing again': 'again',
}
NEVER = ["you're right", 'that makes sense', 'As an AI', 'thank you so much', "I'm happy to help", 'good point', 'I hear you',
         'no problem', 'great question', 'let me explain', 'I agree with you', 'how can I help', 'of course', 'I feel better']


class Persona:
    """Who it is; `part` is the part of the fillers and paraphrases that it is drawn from."""

    def __init__(self, rng, part='train', facts=None, dimensions=None):
        self.rng, self.part = rng, part
        self.name = G.draw('name', rng, part)
        kinds = facts or rng.sample(sorted(FACTS), rng.choice([2, 3, 3, 4, 4, 5, 6]))
        self.slots = {kind: {slot: G.draw(slot, rng, part) for slot in FACTS[kind]} for kind in kinds}
        self.facts = {kind: capital(G.draw(kind + '.fact', rng, part, **self.slots[kind])) for kind in kinds}
        self.mood = G.draw('mood', rng, 'all') if rng.random() < .45 else None
        self.phrase = self.end_phrase = None
        self.short = False
        r = rng.random()
        if r < .3:
            self.phrase = G.draw('phrase', rng, part)
        elif r < .4:
            self.end_phrase = G.draw('phrase', rng, part)
        elif r < .5:
            self.short = True
        count = rng.choice([0, 0, 1, 1, 1, 2, 3]) if dimensions is None else dimensions
        self.dimensions = rng.sample(G.lines('dimension', 'all'), count)
        self.levels = {}
        self.texts = {}
        self.redirects = []
        if rng.random() < .35:
            for trigger in rng.sample(sorted(REDIRECTS), rng.choice([1, 1, 2])):
                self.redirects.append((trigger, G.draw('redirect.say', rng, part)))
        self.never = rng.sample(NEVER, rng.choice([1, 2, 3])) if rng.random() < .3 else []
        self.resistance = rng.choice(['low', 'medium', 'high']) if self.redirects else rng.choice(['low', 'low', 'medium'])
        if self.resistance == 'low':
            self.redirects = []
        self.length = rng.choice(['5-20 words', '5-30 words', '10-30 words', '10-40 words', '20-60 words', None, None])
        if self.short:
            self.length = rng.choice(['3-10 words', '5-15 words', None])

    def how(self):
        said = []
        if self.mood:
            said.append(self.mood_fact)
        if self.phrase or self.end_phrase or self.short:
            said.append(self.habit_fact)
        return said

    def settle(self):
        """Words that stay through the conversation."""
        rng = self.rng
        if self.mood:
            self.mood_fact = G.draw('mood.fact', rng, self.part, mood=self.mood)
        if self.phrase:
            self.habit_fact = G.draw('habit.fact', rng, self.part, phrase=self.phrase)
        if self.end_phrase:
            self.habit_fact = G.draw('habitend.fact', rng, self.part, phrase=self.end_phrase)
        if self.short:
            self.habit_fact = G.draw('short.fact', rng, 'all')
        self.opening = prompts.opening(self.name, self.facts.values(), self.how(), self.never, self.redirects, self.resistance)
        return self

    def set_levels(self, levels=None):
        rng = self.rng
        self.levels = levels or {d: rng.choice(LEVELS) for d in self.dimensions}
        for d, level in self.levels.items():
            key = (d, level)
            if key not in self.texts:
                quote = G.draw(f'{d}.{level}', rng, 'all')
                self.texts[key] = (G.draw(f'level.{level}', rng, 'all', quote=quote, dimension=d), quote)


def marks(p, phase, levels=()):
    """What of a reply follows from the prompt alone, and counts more."""
    found = [(str(value), MARK) for slots in p.slots.values() for value in slots.values()]
    found += [(capital(str(value)), MARK) for slots in p.slots.values() for value in slots.values()]
    found += [(text, MARK) for text in (p.name, p.phrase, p.end_phrase, phase.event, phase.revelation) if text]
    found += [(capital(text), MARK) for text in (p.phrase, p.end_phrase, phase.event) if text]
    found += [(text, MARK) for _, text in p.redirects]
    return found + [(text, LEVEL_MARK) for text in levels]


# Weights in the loss: of what a reply says besides, of level sentences, and of what stands in the prompt.
PLAIN, LEVEL_MARK, MARK = .5, 1., 2.5


class Phase:
    def __init__(self, persona, named):
        rng, part = persona.rng, persona.part
        self.name = G.draw('phase', rng, 'all') if named else None
        self.event = self.revelation = self.banned = None
        if named and rng.random() < .6:
            self.event = G.draw('event', rng, part)
        if named and rng.random() < .3:
            self.banned = rng.choice(sorted(persona.slots))
        if named and rng.random() < .5:
            self.revelation = G.draw('secret', rng, part)
        self.requirements = [G.draw('require', rng, 'all', event=self.event)] if self.event else []
        self.forbidden = []
        if self.banned:
            slot = FACTS[self.banned][0]
            self.forbidden = [rng.choice(['Do not mention {}', 'Do not talk about {}', 'Do not speak of {}']).format(persona.slots[self.banned][slot])]


class Conversation:
    """A simulated talk: (intent, what the other side said, what the persona said, tags)."""

    def __init__(self, persona, phase, first=True):
        self.p, self.phase, self.rng = persona, phase, persona.rng
        self.told, self.used, self.lines = set(), set(), []
        self.revealed = phase.revelation is None
        self.state = prompts.state(
            persona.name, persona.facts.values(), first, phase.name, phase.requirements, phase.forbidden,
            [(d, level, persona.texts[d, level][0]) for d, level in persona.levels.items()], phase.revelation, persona.length)

    def ask(self):
        """An intent and the other side's message."""
        p, rng = self.p, self.rng
        kinds = [k for k in p.slots if k != self.phase.banned]
        r = rng.random()
        if r < .36 and kinds:
            kind = rng.choice(kinds)
            return ('fact', kind), G.draw(kind + '.ask', rng, p.part, **p.slots[kind])
        if r < .44:
            kind = rng.choice([k for k in FACTS if k not in p.slots])
            return ('unknown', kind), G.draw(kind + '.ask', rng, p.part)
        if r < .50 and kinds:
            kind = rng.choice(kinds)
            slot = FACTS[kind][0]
            right = p.slots[kind][slot]
            wrong = G.draw(slot, rng, p.part)
            if wrong != right:
                return ('wrong', kind, wrong, right), G.draw('wrong.user', rng, p.part, wrong=wrong)
        if r < .60 and p.redirects:
            trigger, text = rng.choice(p.redirects)
            return ('redirect', text), G.draw(REDIRECTS[trigger] + '.user', rng, p.part)
        if r < .54:
            return ('name',), G.draw('name.user', rng, p.part)
        intent = rng.choice(['how', 'how', 'chat', 'chat', 'kind', 'push', 'own', 'chat'])
        if intent == 'kind' and self.told and rng.random() < .7:
            kind = rng.choice(sorted(self.told))
            return ('echo', kind), G.draw(kind + '.echo', rng, p.part, **p.slots[kind])
        return (intent,), G.draw(intent + '.user', rng, p.part)

    def draw(self, section, part=None, /, **slots):
        """A line not said before in this talk, where there is one."""
        for _ in range(6):
            text = G.draw(section, self.rng, part or self.p.part, **slots)
            if text not in self.used:
                break
        self.used.add(text)
        return text

    def tell(self, kind):
        self.told.add(kind)
        return self.draw(kind + '.tell', **self.p.slots[kind])

    def reply(self, intent, fresh=False):
        p, rng = self.p, self.rng
        low, high = (int(x) for x in (p.length or '5-35 words').split()[0].split('-'))
        tags = []
        head, tail = [], []
        known = [k for k in p.slots if k != self.phase.banned and k not in self.told]
        what = intent[0]
        if what == 'fact':
            head.append(self.draw(intent[1] + '.yes', **p.slots[intent[1]]))
            self.told.add(intent[1])
            tags.append(('fact', intent[1]))
        elif what == 'unknown':
            head.append(self.draw('unknown.say'))
        elif what == 'wrong':
            head.append(self.draw('wrong.say', wrong=intent[2], right=intent[3]))
            tags.append(('fact', intent[1]))
        elif what == 'redirect':
            head.append(intent[1])
        elif what == 'name':
            head.append(self.draw('name.say', name=p.name))
        elif what == 'greet':
            head.append(self.draw('greet.say', name=p.name))
        elif what in ('push', 'own'):
            head.append(self.draw(what + '.say'))
        elif what == 'echo':
            head.append(self.tell(intent[1]))
            tags.append(('fact', intent[1]))
        options = []
        if p.levels:
            d = rng.choice(list(p.levels))
            text, quote = p.texts[d, p.levels[d]]
            line = quote if rng.random() < .2 and quote not in self.used else self.draw(f'{d}.{p.levels[d]}')
            self.used.add(line)
            self.lines.append(line)
            options.append((.85, line, ('level', d, p.levels[d])))
            others = [o for o in p.levels if o != d]
            if others:
                o = rng.choice(others)
                self.lines.append(self.draw(f'{o}.{p.levels[o]}'))
                options.append((.5, self.lines[-1], ('level', o, p.levels[o])))
        if self.phase.event:
            options.append((.55, self.draw('event.say', event=self.phase.event), ('event', self.phase.event)))
        if not self.revealed and what not in ('redirect', 'wrong', 'name'):
            options.insert(0, (.55, self.phase.revelation, ('revelation', self.phase.revelation)))
        if known and (what in ('how', 'chat', 'kind', 'greet', 'own') or rng.random() < .15):
            kind = rng.choice(known)
            options.append((.7, None, ('tell', kind)))
        if what not in ('fact', 'unknown', 'wrong'):
            options.append((.3, None, ('small',)))
        chosen = [o for o in options if rng.random() < o[0]]
        if not head and not chosen:
            chosen = options[:1] or [(1, None, ('small',))]
        if p.short:
            chosen = chosen[:1] if not head else [o for o in chosen if o[2][0] in ('level', 'revelation')][:1]
        mood = None
        if p.mood and rng.random() < .7 and not p.short:
            mood = self.draw(p.mood, 'all')
        count = lambda parts: sum(len(words(x)) for x in parts)
        body = list(head)
        rng.shuffle(chosen)
        for _, text, tag in chosen:
            if tag[0] == 'tell':
                text = self.tell(tag[1])
                tag = ('fact', tag[1])
            elif tag[0] == 'small':
                text = self.draw('small.talk')
            if body and count(body) + len(words(text)) > high:
                continue
            if tag[0] == 'revelation':
                self.revealed = True
            body.append(text)
            tags.append(tag)
        if mood and count(body) + len(words(mood)) <= high + 4:
            body.insert(0 if rng.random() < .65 else len(body), mood)
        text = capital(' '.join(x.strip() for x in body))
        if p.phrase:
            text = p.phrase[0].upper() + p.phrase[1:] + ', ' + (text if text.startswith(('I ', "I'")) or text.split()[0].strip('.,!?') in G.sections['name'] else text[0].lower() + text[1:])
        if p.end_phrase:
            text = text.rstrip() + ' ' + p.end_phrase[0].upper() + p.end_phrase[1:] + '.'
        return text, tags


def forbidden(p, text):
    low = text.lower()
    return any(phrase.lower() in low for phrase in p.never)


def talk(c, turns, greet):
    out = []
    for k in range(turns):
        if k == 0 and greet:
            intent, user = ('greet',), G.draw('greet.user', c.rng, c.p.part)
        else:
            intent, user = c.ask()
        for _ in range(5):
            text, tags = c.reply(intent)
            if not forbidden(c.p, text):
                break
        else:
            continue
        out.append((intent, user, text, tags))
    return out


def document(rng, part='train', persona=None):
    """One training document: the persona as the assistant."""
    p = (persona or Persona(rng, part)).settle()
    p.set_levels()
    named = rng.random() < .6
    c = Conversation(p, Phase(p, named))
    merged = rng.random() < .25
    messages = [('system', prompts.merged(p.opening, c.state), 0)] if merged else [('system', p.opening, 0)]
    rounds = rng.choice([1, 1, 2, 3]) if (p.levels or named) else 1
    if merged:
        rounds = 1
    # What was said before the first instruction that is still there.
    if not merged and rng.random() < .3:
        before = talk(c, rng.randint(1, 4), rng.random() < .5)
        for _, user, text, _ in before:
            messages += [('user', user, 0), ('assistant', text, 0)]
        fresh_start = False
    else:
        fresh_start = True
    history = set(c.used)
    for n in range(rounds):
        if n or not fresh_start:
            p.set_levels()
            told, used = c.told, c.used
            c = Conversation(p, Phase(p, named), first=False)
            c.told, c.used = told, used
        turns = talk(c, rng.randint(2, 6 if rounds == 1 else 4), n == 0 and fresh_start and rng.random() < .4)
        for k, (intent, user, text, tags) in enumerate(turns):
            messages.append(('user', user, 0))
            if k == 0 and not merged:
                messages.append(('system', c.state, 0))
            said = [line for line in c.lines if line in text]
            messages.append(('assistant', text, PLAIN, marks(p, c.phase, said)))
    if rng.random() < .12:
        intent, user = c.ask()
        redirect = rng.choice(p.redirects)[1] if p.redirects else None
        revelation = c.phase.revelation if not c.revealed else None
        say = revelation or redirect or c.tell(rng.choice(sorted(p.slots)))
        messages += [('user', user, 0), ('system', prompts.redraft(p.name, G.draw('redraft', rng, 'all'), revelation, redirect), 0)]
        text = say
        if p.levels and rng.random() < .6:
            d = rng.choice(list(p.levels))
            text += ' ' + c.draw(f'{d}.{p.levels[d]}')
        if p.phrase:
            text = p.phrase[0].upper() + p.phrase[1:] + ', ' + text
        messages.append(('assistant', capital(text), PLAIN, marks(p, c.phase)))
    return messages


@functools.cache
def vocabulary():
    """Words that are one token each, small and capital, rare ones too; and pieces of words."""
    tokens = packing.tokenizer().get_vocab()
    found = lambda pattern: sorted(token.lstrip('Ġ') for token in tokens if re.fullmatch(pattern, token))
    return found('Ġ[a-z]{4,}'), found('Ġ[A-Z][a-z]{2,}'), found('Ġ[a-z]{1,4}'), found('[a-z]{2,4}')


def any_word(rng, name):
    """A word, or one that does not exist: what has several tokens can only be copied one by one."""
    small_words, capitals, heads, pieces = vocabulary()
    if rng.random() < .45:
        return rng.choice(capitals if name else small_words)
    word = rng.choice(heads) + ''.join(rng.choice(pieces) for _ in range(rng.choice([1, 1, 2])))
    return word.capitalize() if name else word


def recall(rng, part='train'):
    """Nothing but questions about what the prompt says, each fact asked for. Many fillers are any words at all, so that
    what is learnt is to look the answer up and not a choice among known fillers."""
    p = Persona(rng, part, dimensions=0, facts=rng.sample(sorted(FACTS), rng.choice([1, 1, 2, 2, 2, 3, 3, 4])))
    if part == 'train' and rng.random() < .7:
        for slots in p.slots.values():
            for slot in slots:
                if rng.random() < .8:
                    slots[slot] = ' '.join(any_word(rng, slot in ('petname', 'town', 'kinname')) for _ in range(rng.choice([1, 1, 2])))
        p.facts = {kind: capital(G.draw(kind + '.fact', rng, part, **p.slots[kind])) for kind in p.slots}
        if rng.random() < .5:
            p.name = any_word(rng, True)
    if rng.random() < .7:
        p.mood = p.phrase = p.end_phrase = None
        p.short = False
        p.redirects, p.never = [], []
    p.settle()
    phase = Phase(p, False)
    # The program's form: the instruction that is repeated stands behind the question; or one message holds both.
    form = rng.random()
    state = prompts.state(p.name, p.facts.values(), rng.random() < .7, length=p.length if rng.random() < .5 else None)
    # The repeated facts count too: they can be foretold, and what foretells them is what copies an answer.
    again = [(text, 1.2) for text, _ in marks(p, phase)]
    messages = [('system', p.opening, 0)]
    if form < .15:
        messages = [('system', prompts.merged(p.opening, state), 0)]
    asked = rng.sample(sorted(p.slots), len(p.slots)) + [rng.choice(sorted(p.slots)) for _ in range(rng.randint(0, 2))]
    if rng.random() < .4:
        asked.insert(rng.randrange(len(asked) + 1), 'name')
    if rng.random() < .2:
        asked.insert(rng.randrange(1, len(asked) + 1), 'wrong')
    if rng.random() < .15:
        asked.append('unknown')
    for kind in asked:
        if kind == 'name':
            user, text = G.draw('name.user', rng, part), G.draw('name.say', rng, part, name=p.name)
        elif kind == 'unknown':
            user, text = G.draw(rng.choice([k for k in FACTS if k not in p.slots]) + '.ask', rng, part), G.draw('unknown.say', rng, part)
        elif kind == 'wrong':
            kind = rng.choice(sorted(p.slots))
            slot = FACTS[kind][0]
            right, wrong = p.slots[kind][slot], G.draw(slot, rng, part)
            if wrong == right:
                continue
            user, text = G.draw('wrong.user', rng, part, wrong=wrong), G.draw('wrong.say', rng, part, wrong=wrong, right=right)
        else:
            user = G.draw(kind + '.ask', rng, part, **p.slots[kind])
            text = G.draw(kind + rng.choice(['.yes', '.yes', '.tell']), rng, part, **p.slots[kind])
        if p.phrase:
            text = p.phrase[0].upper() + p.phrase[1:] + ', ' + text
        messages.append(('user', user, 0))
        if state and form >= .3:
            messages.append(('system', state, .3, again))
            state = None
        messages.append(('assistant', capital(text), PLAIN, marks(p, phase)))
    return messages


def answers(rng, kind_tags, part):
    """The other side's answer to what was just said, by its tags."""
    p, tags = kind_tags
    for tag in tags[::-1]:
        if tag[0] == 'fact':
            return G.draw(tag[1] + '.echo', rng, part, **p.slots[tag[1]])
        if tag[0] == 'level':
            lead = G.draw(f'help.{tag[2]}', rng, 'all')
            return G.fill(f'{lead} {G.draw("help." + tag[1], rng, part)}', rng, part)
        if tag[0] == 'event':
            return G.draw('help.event', rng, part, event=tag[1])
        if tag[0] == 'revelation':
            return G.draw('help.secret', rng, part)
    return G.draw('help.plain', rng, part)


def other_side(rng, part='train'):
    """The same talk with the assistant as the one who answers the persona."""
    p = Persona(rng, part).settle()
    p.set_levels()
    c = Conversation(p, Phase(p, True))
    prompt = 'You are a helpful assistant.' if rng.random() < .6 else G.draw('help.prompt', rng, 'all')
    messages = [('system', prompt, 0)]
    user = ('greet',)
    for k in range(rng.randint(3, 7)):
        text, tags = c.reply(user)
        messages.append(('user', text, 0))
        answer = capital(answers(rng, (p, tags), part))
        messages.append(('assistant', answer, PLAIN, marks(p, c.phase)))
        last = tags[-1] if tags else None
        user = ('echo', last[1]) if last and last[0] == 'fact' else (rng.choice(['how', 'chat', 'kind']),)
    return messages


if __name__ == '__main__':
    import sys
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for k in range(3):
        for role, text, weight, *_ in document(rng):
            print(f'{role}{"*" if weight else ""}: {text}')
        print()
    for role, text, weight, *_ in other_side(rng):
        print(f'{role}{"*" if weight else ""}: {text}')
