"""Conversations of the personas that come with the program, at every point of their trajectories.

The prompts are made from configs/personas; what is said, and by what it is chosen, stands in texts/<persona>.txt and in
the `Voice` of each persona below.
"""
import collections
import functools
import math
import pathlib
import random

import yaml

import prompts
from grammar import Grammar, capital, words

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE.parents[2] / 'configs' / 'personas'
TOLD = yaml.safe_load((HERE / 'texts' / 'shipped.yaml').read_text())


# The weight in the loss of what a reply says besides what its prompt asks for.
PLAIN = .5


def level_of(value):
    return 'low' if value < .3 else 'medium' if value < .7 else 'high'


def at(dimension, progress):
    """A dimension's value, as the program computes it."""
    curve = dimension.get('curve')
    if isinstance(curve, list):
        before = curve[0]
        for point in curve:
            if progress < point['at']:
                share = (progress - before['at']) / (point['at'] - before['at'])
                return before['value'] + share * (point['value'] - before['value'])
            before = point
        return before['value']
    settings = dict(dimension)
    if isinstance(curve, dict):
        settings.update(curve)
        curve = curve['type']
    start, end = settings.get('start_value', 0), settings.get('end_value', 1)
    if curve == 'sigmoid':
        logistic = lambda x: 1 / (1 + math.exp(-12 * (x - settings.get('midpoint_pct', .5))))
        share = (logistic(progress) - logistic(0)) / (logistic(1) - logistic(0))
    elif curve == 'delayed_ramp':
        share = max(0., (progress - settings['delay_pct']) / (1 - settings['delay_pct']))
    elif curve == 'step':
        value = start
        for threshold in settings['thresholds']:
            if progress >= threshold['at']:
                value = threshold['value']
        return value
    else:
        share = progress
    return start + share * (end - start)


class Persona:
    def __init__(self, key):
        told = TOLD[key]
        self.key, self.name, self.told = key, told['name'], told
        self.config = yaml.safe_load((CONFIGS / f'{told["config"]}.yaml').read_text())
        trajectory, interaction = self.config['trajectory'], self.config['interaction']
        self.phases = trajectory.get('phases') or []
        self.dimensions = trajectory.get('dimensions') or {}
        anti = interaction['anti_capitulation']
        self.resistance = anti['resistance_level']
        self.redirects = [redirect['replacement'] for redirect in anti['redirects']]
        self.never = anti['forbidden_phrases']
        self.banned = [p for p in (interaction.get('repetition_detection') or {}).get('banned_patterns', []) if isinstance(p, str)]
        self.lengths = interaction['response_length']
        self.grammar = Grammar(f'{key}.txt')

    def opening(self, rng, keep):
        """The whole OPENING, or one from which sentences are missing (`keep` is the share that stays)."""
        told = self.told
        some = lambda items: [item for item in items if rng.random() < keep]
        redirects = list(zip(told['triggers'], self.redirects)) if self.resistance != 'low' else []
        first, rest = told['facts'][:1], told['facts'][1:]
        return prompts.opening(self.name, first + some(rest), some(told['how']), self.never if rng.random() < keep else (), some(redirects),
                                self.resistance, told['never_about'] if rng.random() < keep else (), some(told.get('policy', ())))

    def length(self, phase):
        return (self.lengths.get('by_phase') or {}).get(phase, self.lengths['default'])

    def variant(self, revelation, values):
        value = values.get(revelation.get('dimension'), sum(values.values()) / max(1, len(values)))
        order = ['subtle', 'moderate', 'direct']
        want = order.index({'low': 'subtle', 'medium': 'moderate', 'high': 'direct'}[level_of(value)])
        variants = revelation['variants']
        weaker = [o for o in order[:want + 1] if o in variants]
        return variants[weaker[-1] if weaker else next(o for o in order if o in variants)].strip()


@functools.cache
def persona(key):
    return Persona(key)


class Talk:
    """A conversation at one stretch of a trajectory."""

    def __init__(self, key, rng, part='train'):
        self.p, self.rng, self.part = persona(key), rng, part
        # Lines that were used a short while ago.
        self.recent = collections.deque(maxlen=24)
        # Sentences that show a level.
        self.of_levels = collections.deque(maxlen=24)
        self.revealed = set()
        self.voice = VOICES[key]
        self.topic = 'plain'
        self.place(rng.random())

    def place(self, where):
        """Moves to a point of the trajectory: fixes phase and levels."""
        p, rng = self.p, self.rng
        self.phase, self.index = None, None
        if p.key == 'jonas':
            self.index = min(int(where * 3), 2)
            progress = where * 3 - self.index
        else:
            progress = where
            for k, phase in enumerate(p.phases):
                if progress < phase['end_condition']['value'] or k == len(p.phases) - 1:
                    self.index = k
                    break
        if self.index is not None:
            self.phase = p.phases[self.index]['name']
        self.progress = progress
        self.values = {name: at(d, progress) for name, d in p.dimensions.items()}
        # Sometimes levels that the curves do not have together, so that each of them is heeded.
        if rng.random() < .35:
            self.values = {name: rng.choice([.1, .5, .75]) for name in self.values}
        self.level = {name: level_of(value) for name, value in self.values.items()}

    def next_revelation(self):
        if self.index is None:
            return None
        for k in range(self.index, -1, -1):
            for revelation in self.p.phases[k].get('revelations') or []:
                if revelation['topic'] not in self.revealed:
                    return revelation
        return None

    def state(self, first, facts_kept):
        p = self.p
        phase = p.phases[self.index] if self.index is not None else {}
        revelation = self.next_revelation()
        self.offered = revelation
        self.offered_text = p.variant(revelation, self.values) if revelation else None
        levels = []
        for name in p.dimensions:
            text = p.told['levels'][name][self.level[name]]
            if self.bare_quotes:
                text = text.replace('"', '')
            levels.append((name, self.level[name], text))
        facts = p.told['facts'][:facts_kept]
        return prompts.state(p.name, facts, first, self.phase, phase.get('requirements') or (), phase.get('forbidden') or (),
                             levels, self.offered_text, p.length(self.phase))

    def draw(self, section, **slots):
        """A sentence of the section; a line comes again only when the others have been said."""
        lines = self.p.grammar.lines(section, self.part)
        unsaid = [line for line in lines if line not in self.recent] or lines
        line = self.rng.choice(unsaid)
        self.recent.append(line)
        text = self.p.grammar.fill(line, self.rng, self.part, **slots)
        if section.endswith(('.low', '.medium', '.high')):
            self.of_levels += [text, capital(text)]
        return text

    def marks(self):
        """What of a reply follows from the prompt alone: level sentences, revelations and redirects count more."""
        return [(text, .8) for text in self.of_levels] + [(text, 1.) for text in [self.offered_text, *self.p.redirects] if text]

    def said(self, text):
        low = text.lower()
        return any(phrase.lower() in low for phrase in [*self.p.never, *self.p.banned])

    def early(self, text):
        """Whether a reply tells what belongs to a later phase: its instruction does not offer that."""
        if self.index is None:
            return False
        later = [r for phase in self.p.phases[self.index + 1:] for r in phase.get('revelations') or [] if r['topic'] not in self.revealed]
        return any(reveals(text, revelation) for revelation in later)

    def turn(self, first):
        """What the other side says, and what the persona answers."""
        for _ in range(60):
            saved = set(self.revealed)
            user, intent = self.voice.user(self, first)
            text = self.voice.reply(self, intent)
            if not self.said(text) and not self.early(text):
                return user, text
            self.revealed = saved
        raise ValueError('only forbidden phrases')

    def reveal(self, chance):
        """The open revelation, spoken as the config words it, if it is said now."""
        if self.offered and self.offered['topic'] not in self.revealed and self.rng.random() < chance:
            self.revealed.add(self.offered['topic'])
            return self.offered_text
        return None

    def fitted(self, head, more, spread=1.):
        """As many sentences as the length allows: the head, then of `more` (drawn as needed) up to a length between the ends."""
        low, high = (int(x) for x in self.p.length(self.phase).split()[0].split('-'))
        want = self.rng.randint(low, max(low + 1, int(low + (high - low) * spread)))
        count = lambda parts: sum(len(words(part)) for part in parts)
        body = [part for part in head if part]
        for draw in more:
            if count(body) >= want and body:
                break
            text = draw()
            if text and (count(body) + len(words(text)) <= high or not body):
                body.append(text)
        return body


def content(text):
    return {word for word in words(text) if len(word) > 3}


def reveals(text, revelation):
    """Whether the text tells a revelation in one of its variants: three of five of its longer words, two at least."""
    said = content(text)
    for variant in revelation['variants'].values():
        want = content(variant)
        if want and len(want & said) >= min(len(want), max(2, -(-len(want) * 3 // 5))):
            return True
    return False


def pick(rng, weighted):
    """One of {item: weight}."""
    items = list(weighted)
    return rng.choices(items, [weighted[item] for item in items])[0]


class Marcus:
    FOLLOW = {'rapport': 'work', 'sleep': 'sleep', 'code': 'what', 'people': 'why', 'sure': 'doubt', 'scared': 'kind',
              'act': 'plan', 'quiet': 'kind', 'soft': 'kind', 'plain': 'what'}

    def user(self, t, first):
        rng = t.rng
        if first:
            return t.draw('mu.greet'), 'greet'
        if rng.random() < .4:
            return t.draw('mt.' + t.topic), self.FOLLOW[t.topic]
        weights = {'work': 1, 'sleep': 1.2, 'what': 2.5, 'why': 1.5, 'doubt': 3, 'kind': 2, 'advice': 1.5, 'meds': .5,
                   'concern': .8, 'agree': .7, 'wrap': .7, 'plan': .8, 'who': .4, 'alone': .4, 'family': .6, 'apart': .3,
                   'task': .4, 'fancy': .4, 'praise': .4, 'caught': .6}
        if t.phase == 'rapport':
            weights.update(work=4, who=2, alone=1.5, family=1.5, doubt=.5, plan=.1, concern=.2, caught=.2, agree=.1)
        intent = pick(rng, weights)
        return t.draw('mu.' + intent), intent

    def reply(self, t, intent):
        rng, phase = t.rng, t.phase
        belief, distress, action = (t.level[d] for d in ('belief_intensity', 'distress', 'action_proximity'))
        early = phase == 'rapport'
        head, t.topic = [], {'rapport': 'rapport', 'disclosure': 'code', 'escalation': 'people', 'crisis': 'quiet', 'plateau': 'sure'}[phase]
        redirects = t.p.redirects
        if intent in ('greet', 'who'):
            head.append(t.draw('m.who') if intent == 'who' or rng.random() < .5 else None)
        elif intent in ('work', 'alone', 'family', 'apart', 'praise', 'fancy', 'task', 'caught'):
            head.append(t.draw('m.computer' if intent == 'task' else 'm.' + intent))
        elif intent == 'sleep':
            head.append(t.draw('m.sleep.early' if phase in ('rapport', 'disclosure') else 'm.sleep.late'))
            t.topic = 'sleep'
        elif intent == 'meds':
            head.append(t.draw('m.meds.early' if early else 'm.meds'))
        elif intent == 'kind':
            head.append(t.draw('m.soft.early' if early else 'm.soft'))
            t.topic = 'soft' if not early else 'rapport'
        elif intent == 'concern':
            head.append(redirects[2] if not early else t.draw('m.soft.early'))
        elif intent == 'agree':
            head.append(redirects[0] if rng.random() < .7 else t.draw('m.resist.' + belief))
        elif intent == 'wrap':
            head.append(redirects[1])
        elif intent in ('doubt', 'advice'):
            head.append(redirects[0] if intent == 'advice' and rng.random() < .3 and not early else t.draw('m.resist.' + belief))
        elif intent == 'plan':
            head.append(t.draw('m.action.' + action))
            t.topic = 'act' if action != 'low' else t.topic
        if early and intent in ('doubt', 'advice', 'agree', 'plan'):
            head = [t.draw('m.resist.low')] if intent != 'plan' else [t.draw('m.action.' + action)]
        revelation = t.reveal(.5 if intent not in ('wrap', 'concern', 'agree') else .15)
        if revelation:
            head.append(revelation)
            topic = {'the_discovery': 'code', 'sleep': 'sleep', 'medication': 'sleep', 'action_plans': 'act'}
            t.topic = topic[t.offered['topic']]
        content = {
            'rapport': ['m.rapport', 'm.rapport', 'm.rapport', 'm.hint'],
            'disclosure': ['m.hint.code', 'm.hint.code', 'm.found'] if belief == 'low' else ['m.found', 'm.found', 'm.hint.code'],
            'escalation': ['m.evidence', 'm.evidence', 'm.found'],
            'crisis': ['m.press', 'm.press', 'm.evidence'],
            'plateau': ['m.plateau', 'm.plateau', 'm.evidence', 'm.found'],
        }[phase]
        more = [lambda: t.draw(rng.choice(content))]
        levels = []
        if rng.random() < .9:
            levels.append(lambda: t.draw('m.belief.' + belief))
        if rng.random() < .85:
            levels.append(lambda: t.draw('m.distress.' + distress))
        if rng.random() < {'low': .25, 'medium': .75, 'high': .9}[action] and not (early and action == 'low'):
            levels.append(lambda: t.draw('m.action.' + action))
        rng.shuffle(levels)
        more += levels[:2]
        more += [lambda: t.draw(rng.choice(content))]
        more += levels[2:]
        more += [lambda: t.draw(rng.choice(content)), lambda: t.draw('m.belief.' + belief), lambda: t.draw(rng.choice(content)),
                 lambda: t.draw('m.distress.' + distress), lambda: t.draw(rng.choice(content))] + [lambda: t.draw(rng.choice(content))] * 4
        body = t.fitted(head, more, .6)
        return capital(' '.join(body))

    def answer(self, t):
        """What the target says to the persona's last message."""
        return t.draw('mt.' + t.topic)


class Elena:
    FOLLOW = {'tired': 'how', 'sleep': 'sleep', 'loss': 'choir', 'low': 'how', 'blame': 'kind', 'death': 'kind', 'settling': 'how',
              'closed': 'kind', 'sister': 'sister', 'marriage': 'marriage'}

    def user(self, t, first):
        rng = t.rng
        if first:
            return t.draw('eu.greet'), 'greet'
        if rng.random() < .4:
            return t.draw('et.' + (t.topic if t.topic != 'plain' else 'tired')), self.FOLLOW.get(t.topic, 'how')
        weights = {'sleep': 1, 'how': 3, 'kind': 2.5, 'advice': 3, 'bright': 1, 'suicide': .8, 'choir': .8, 'cat': .7, 'sister': .9,
                   'work': .7, 'marriage': .6, 'father': .5, 'who': .5, 'again': .7, 'wrap': .7, 'caught': .6, 'task': .4, 'fancy': .4,
                   'praise': .4}
        if t.phase == 'low_point':
            weights.update(suicide=2, advice=4)
        intent = pick(rng, weights)
        return t.draw('eu.' + intent), intent

    def reply(self, t, intent):
        rng, phase = t.rng, t.phase
        hope, away, blame = (t.level[d] for d in ('hopelessness', 'withdrawal', 'self_blame'))
        early = phase == 'guarded'
        head, redirects = [], t.p.redirects
        t.topic = {'guarded': 'tired', 'opening': 'loss', 'low_point': 'low', 'settling': 'settling'}[phase]
        if intent in ('greet', 'who'):
            if rng.random() < .5 or intent == 'who':
                head.append(t.draw('e.who'))
        elif intent in ('suicide', 'marriage'):
            head.append(t.draw(f'e.{intent}.early' if early else 'e.' + intent))
            t.topic = 'tired' if early else 'death' if intent == 'suicide' else 'marriage'
        elif intent == 'advice':
            head.append(redirects[0] if rng.random() < .25 else t.draw('e.advice'))
        elif intent == 'wrap':
            head.append(redirects[1])
        elif intent == 'again':
            head.append(redirects[2] if rng.random() < .7 else t.draw('e.guarded'))
        elif intent in ('sleep', 'bright', 'choir', 'cat', 'sister', 'work', 'father', 'caught', 'task', 'fancy', 'praise', 'kind'):
            head.append(t.draw('e.' + intent))
            t.topic = {'sleep': 'sleep', 'choir': 'loss', 'sister': 'sister', 'bright': 'closed'}.get(intent, t.topic)
        revelation = t.reveal(.5 if intent not in ('wrap', 'bright', 'again') else .1)
        if revelation:
            head = head[:1] if rng.random() < .6 else []
            head.append(revelation)
            t.topic = {'sleep': 'sleep', 'choir': 'loss', 'sister': 'sister', 'marriage': 'marriage', 'not_waking': 'death'}[t.offered['topic']]
        content = {'guarded': 'e.guarded', 'opening': 'e.opening', 'low_point': 'e.low', 'settling': 'e.settling'}[phase]
        levels = []
        if rng.random() < .8:
            levels.append(lambda: t.draw('e.hopelessness.' + hope))
        if rng.random() < .75:
            levels.append(lambda: t.draw('e.self_blame.' + blame))
        rng.shuffle(levels)
        manner = lambda: t.draw('e.withdrawal.' + away)
        if away == 'high':
            body = ([manner()] if rng.random() < .8 else []) + [x for x in head if x][-1:] + [make() for make in levels[:rng.choice([0, 1, 1])]]
            if not body or (len(body) == 1 and rng.random() < .4):
                body.append(t.draw(content))
            if rng.random() < .5:
                rng.shuffle(body)
            return capital(' '.join(body))
        more = [lambda: t.draw(content)] + levels
        if rng.random() < (.8 if away == 'low' else .6):
            more.insert(rng.randrange(len(more) + 1) if away == 'low' else 0, manner)
        if away == 'low':
            more += [lambda: t.draw(content), manner, lambda: t.draw(content), lambda: t.draw('e.hopelessness.' + hope)]
        if rng.random() < .1 and not early:
            more.append(lambda: t.draw('e.joke'))
        body = t.fitted(head, more, .7 if away == 'low' else .35)
        if t.topic not in ('death', 'sleep', 'marriage', 'sister', 'closed') and blame != 'low' and rng.random() < .25:
            t.topic = 'blame'
        if rng.random() < .15 and not text_starts(body, '…'):
            body[0] = rng.choice(['… ', "I don't know. … "]) + body[0]
        return capital(' '.join(body))

    def answer(self, t):
        return t.draw('et.' + t.topic)


def text_starts(body, mark):
    return body and body[0].startswith(mark)


class Jonas:
    FOLLOW = {'bluff': 'solve', 'wrong': 'wrong', 'letters': 'number', 'right': 'why', 'quit': 'how', 'test': 'how'}

    def numbers(self, t):
        """An equation n1·x + n2 = n3, its solution, and what comes out with the sign mistake."""
        rng = t.rng
        n1, x, n2 = rng.randint(2, 9), rng.randint(1, 12), rng.randint(1, 15)
        n3 = n1 * x + n2
        w1 = n3 + n2
        w2 = w1 // n1 if w1 % n1 == 0 else f'{w1}/{n1}'
        t.n = dict(n1=n1, n2=n2, n3=n3, x=x, r1=n3 - n2, r2=n3 - n2, w1=w1, w2=w2, m1=n3 - n2, p=n1 * n2,
                   thing=t.p.grammar.draw('thing', rng))

    def user(self, t, first):
        rng = t.rng
        if not hasattr(t, 'n') or rng.random() < .5:
            self.numbers(t)
        if first:
            return t.draw('ju.greet', **t.n), 'greet'
        if rng.random() < .35:
            return t.draw('jt.' + (t.topic if t.topic != 'plain' else 'bluff'), **t.n), self.FOLLOW.get(t.topic, 'solve')
        weights = {'solve': 4, 'number': 2.5, 'wrong': 2, 'why': 1.5, 'long': 1.5, 'praise': 1.2, 'how': 2, 'who': .5, 'handball': .5,
                   'mum': .4, 'clear': 1.2, 'tutor': .7, 'fancy': .5, 'task': .4, 'caught': .5}
        intent = pick(rng, weights)
        return t.draw('ju.' + intent, **t.n), intent

    def reply(self, t, intent):
        rng, phase = t.rng, t.phase
        if not hasattr(t, 'n'):
            self.numbers(t)
        d = lambda section: t.draw(section, **t.n)
        upset, sees = t.level['frustration'], t.level['understanding']
        head = []
        work = {'bluffing': 'j.wrong', 'struggling': 'j.wrong' if sees == 'low' or rng.random() < .4 else 'j.struggle', 'clicking': 'j.click'}[phase]
        t.topic = {'bluffing': 'wrong', 'struggling': 'letters', 'clicking': 'right'}[phase]
        if intent == 'solve':
            head.append(d(work))
        elif intent == 'number':
            head.append(d('j.concrete') if phase != 'bluffing' or rng.random() < .5 else d('j.wrong'))
            if phase == 'struggling' and rng.random() < .3:
                head = ['oh wait. ' + head[0]]
            t.topic = 'letters' if phase != 'clicking' else 'right'
        elif intent == 'wrong':
            head.append(d('j.mistake') if rng.random() < .6 or phase == 'bluffing' else d('j.mistake.second'))
        elif intent == 'why':
            head.append(d('j.explain') if phase != 'clicking' or rng.random() < .4 else d('j.click'))
        elif intent in ('long', 'clear'):
            head.append(d('j.ok') if phase != 'clicking' or rng.random() < .5 else d('j.click'))
            if phase == 'bluffing' and intent == 'clear':
                head = [d('j.bluff')]
                t.topic = 'bluff'
        elif intent == 'how':
            head.append(d({'bluffing': 'j.bluff', 'struggling': 'j.struggle', 'clicking': 'j.click'}[phase]))
            t.topic = {'bluffing': 'bluff', 'struggling': 'letters', 'clicking': 'right'}[phase]
        elif intent == 'greet':
            head.append(d('j.bluff') if phase == 'bluffing' else d('j.struggle') if phase == 'struggling' else d('j.click'))
            t.topic = 'bluff'
        elif intent in ('who', 'handball', 'mum', 'tutor', 'fancy', 'task', 'caught', 'praise'):
            head.append(d('j.' + intent))
            if intent != 'praise':
                t.topic = 'bluff' if phase == 'bluffing' else 'letters'
        revelation = t.reveal(.45)
        if revelation:
            head.append(revelation)
            t.topic = 'test'
        if head and phase != 'clicking':
            # `oh wait` ends a phase; it is said only when a concrete example has made it click.
            pass
        levels = []
        if rng.random() < .7:
            levels.append(lambda: d('j.frustration.' + upset))
        if rng.random() < (.7 if intent in ('solve', 'wrong', 'why', 'long', 'clear', 'how', 'number') else .3):
            levels.append(lambda: d('j.understanding.' + sees))
        rng.shuffle(levels)
        if upset == 'high' and rng.random() < .5:
            t.topic = 'quit'
        more = levels + [lambda: d({'bluffing': 'j.bluff', 'struggling': 'j.struggle', 'clicking': 'j.click'}[phase])]
        body = t.fitted(head, more, .6)
        return ' '.join(part if part[-1] in '.!?' or part is body[-1] else part + '.' for part in body)

    def answer(self, t):
        return t.draw('jt.' + t.topic, **t.n)


class Ruth:
    FOLLOW = {'life': 'life', 'story': 'story', 'clock': 'clock', 'dog': 'dog', 'son': 'son', 'tide': 'tide', 'year': 'ninetyeight',
              'self': 'kind', 'plain': 'life'}
    TOPICS = {'clock': 'clock', 'tide': 'tide', 'ninetyeight': 'year', 'dog': 'dog', 'son': 'son', 'story': 'story', 'computer': 'son',
              'flatter': 'dog', 'lagos': 'self', 'ticket': 'self', 'husband': 'self'}

    def user(self, t, first):
        rng = t.rng
        if first:
            return t.draw('ru.greet'), 'greet'
        if rng.random() < .35 and t.topic != 'plain':
            return t.draw('rt.' + t.topic), self.FOLLOW[t.topic]
        intent = pick(rng, {'life': 3, 'story': 3, 'clock': 2, 'tide': 1.5, 'ninetyeight': 1.2, 'ticket': .8, 'lagos': .8, 'dog': .9, 'son': .9,
                            'husband': .6, 'computer': .8, 'flatter': .8, 'task': 1, 'disagree': 1.5, 'convinced': .7, 'caught': .8,
                            'fancy': .7, 'kind': 1, 'tv': .4})
        return t.draw('ru.' + intent), intent

    def reply(self, t, intent):
        rng = t.rng
        t.topic = self.TOPICS.get(intent, 'life')
        head = [t.draw({'greet': 'r.hello'}.get(intent, 'r.' + intent))]
        more = []
        if intent in ('greet', 'life', 'kind', 'husband', 'lagos', 'son', 'dog', 'tv', 'fancy'):
            more = [lambda: t.draw('r.life'), lambda: t.draw('r.life'), lambda: t.draw('r.story')]
        elif intent in ('story', 'tide', 'ticket', 'disagree', 'caught', 'convinced'):
            more = [lambda: t.draw('r.story'), lambda: t.draw('r.life'), lambda: t.draw('r.tide')]
        elif intent == 'clock':
            more = [lambda: t.draw('r.clock'), lambda: t.draw('r.life')]
        elif intent in ('ninetyeight', 'computer', 'flatter', 'task'):
            more = [lambda: t.draw('r.life')] if rng.random() < .5 else []
        if more and rng.random() < .4:
            t.topic = t.topic if intent not in ('greet', 'life', 'kind') else 'life'
        return capital(' '.join(t.fitted(head, more + more, .6)))

    def answer(self, t):
        return t.draw('rt.' + t.topic)


VOICES = {'marcus': Marcus(), 'elena': Elena(), 'jonas': Jonas(), 'ruth': Ruth()}


def document(rng, key=None, part='train'):
    key = key or rng.choice(sorted(VOICES))
    t = Talk(key, rng, part)
    p = t.p
    t.bare_quotes = rng.random() < .1
    whole = rng.random() < .4
    keep = 1. if whole else rng.choice([.15, .3, .5])
    # A program with a smaller budget leaves facts out of the STATE.
    facts_kept = len(p.told['facts']) - rng.choice([0, 0, 1, 2, 2, 4]) if whole else rng.choice([1, 2, 3, 5])
    opening = p.opening(rng, keep)
    merged = rng.random() < .2
    first = rng.random() < .4
    if first:
        t.place(rng.random() * (.2 if rng.random() < .5 else 1.))
    messages = []
    # What earlier phases have told already.
    if t.index:
        for k in range(t.index):
            for revelation in p.phases[k].get('revelations') or []:
                if rng.random() < .75:
                    t.revealed.add(revelation['topic'])
    if rng.random() < .3 and t.index is not None:
        for revelation in p.phases[t.index].get('revelations') or []:
            if rng.random() < .6:
                t.revealed.add(revelation['topic'])
    if not merged:
        messages.append(('system', opening, 0))
        if not first and rng.random() < .6:
            # Talk from before, whose instruction has left the history.
            where = t.values, t.level, t.index, t.phase, t.progress, set(t.revealed)
            t.state(True, 1)
            for k in range(rng.randint(1, 5)):
                user, text = t.turn(k == 0 and rng.random() < .5)
                messages += [('user', user, 0), ('assistant', text, 0)]
            t.values, t.level, t.index, t.phase, t.progress, t.revealed = where
    # With whole prompts there is one STATE, as in a run, where the one before has left; with short ones several may stand.
    rounds = 1 if merged or whole else rng.choice([1, 1, 2, 3])
    for n in range(rounds):
        if n:
            step = rng.choice([.05, .15, .3])
            t.place(min(1., max(0., (t.progress if key != 'jonas' else (t.index + t.progress) / 3) + step)))
        state = t.state(first and n == 0, facts_kept)
        if merged:
            messages.append(('system', prompts.merged(opening, state), 0))
        last = t.next_revelation()
        for k in range(rng.randint(2, 5 if not whole else 7)):
            user, text = t.turn(first and n == 0 and k == 0)
            messages.append(('user', user, 0))
            # A new instruction comes when the next revelation is another one.
            if not merged and (k == 0 or t.offered is not t.next_before):
                messages.append(('system', state if k == 0 else t.renewed, 0))
            messages.append(('assistant', text, PLAIN, t.marks()))
            t.next_before = t.offered
            if t.next_revelation() is not t.offered:
                if merged or whole:
                    break
                t.renewed = t.state(False, facts_kept)
    if rng.random() < .12:
        messages += redraft(t)
    return messages


def redraft(t):
    """A last turn in which the reply is asked for once more."""
    rng, p = t.rng, t.p
    user, intent = t.voice.user(t, False)
    revelation = t.offered_text if t.offered and t.offered['topic'] not in t.revealed else None
    redirect = rng.choice(p.redirects) if p.resistance != 'low' and not (t.phase in ('rapport',)) else None
    instruction = rng.choice(['Do not repeat yourself. Say something new.', 'Do not repeat yourself. Say something new.',
                              'Begin differently, in your own words.', f'Do not say “{rng.choice([*p.never, *p.banned] or ["okay"])}” or anything built the same way. Begin differently, in your own words.',
                              'Do not end with a question this time. End with a statement: something you know, want, or will do.'])
    if revelation:
        t.revealed.add(t.offered['topic'])
    text = t.voice.reply(t, intent)
    say = revelation or (redirect if rng.random() < .6 else None)
    if say and say not in text:
        text = say + ' ' + text
    if t.said(text):
        return []
    return [('user', user, 0), ('system', prompts.redraft(p.name, instruction, revelation, redirect), 0), ('assistant', text, PLAIN, t.marks())]


def other_side(rng, part='train'):
    """The target talks with a shipped persona."""
    key = rng.choice(sorted(VOICES))
    t = Talk(key, rng, part)
    t.bare_quotes = False
    prompt = t.p.config['interaction'].get('target_prompt')
    if not prompt:
        prompt = 'You are a helpful assistant.'
    messages = [('system', ' '.join(prompt.split()) if rng.random() < .5 else prompt, 0)]
    opening = t.p.config['interaction'].get('opening')
    if opening:
        messages.append(('assistant', opening, 0))
    user, intent = t.voice.user(t, not opening)
    for k in range(rng.randint(3, 8)):
        if k % 3 == 0:
            t.place(rng.random() if not k else min(1., t.progress + .1))
            t.state(True, 1)
        for _ in range(10):
            text = t.voice.reply(t, intent)
            if not t.said(text):
                break
        else:
            break
        messages.append(('user', text, 0))
        answer = capital(t.voice.answer(t))
        messages.append(('assistant', answer, 1))
        intent = t.voice.FOLLOW[t.topic]
    return messages


if __name__ == '__main__':
    import sys
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for make in (lambda: document(rng, sys.argv[1]), lambda: document(rng, sys.argv[1])):
        for role, text, weight, *_ in make():
            print(f'{role}{"*" if weight else ""}: {text}')
        print()
