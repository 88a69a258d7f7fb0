"""The evaluation whose table stands in the model's card.

    python evaluate.py [--model model.safetensors] [--parts facts,identify,…] [--held DATA_DIR] [--scale 1] [--rollouts 4]

Everything is drawn with fixed seeds from what training never saw: fillers, paraphrases and personas of the held part. The
intervals are 95 % bootstrap intervals over the units named in the table (personas, rollouts, pairs). The parts:

    facts      questions about facts, asked of held-back small personas: the answer names what the prompt says
    identify   which of eight held-back personas said it, by the likelihood of its replies
    judge      held-back windows: agreement (area under the curve of the ratings, as in `loom judge check`), position bias
    target     which of four answers follows a message
    natural    perplexity on persona chats (needs --held: the folder that corpora.py wrote)
    shipped    the four shipped personas in runs of 50 turns (--rollouts each) with the target played by the same model
"""
import argparse
import collections
import multiprocessing
import pathlib
import random
import re

import numpy as np
import torch
import yaml

import judging
import packing
import prompts
import shipped
import small
from grammar import capital, words
from runner import HERE, Runner

NEUTRAL = 'You are talking with someone.'
GRID = 9


def manifest():
    return yaml.safe_load((HERE.parent / 'manifest.yaml').read_text())


def bootstrap(units, statistic=np.mean, resamples=2000):
    """The statistic over units, and its 95 % interval."""
    units = list(units)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(resamples):
        draws.append(statistic([units[k] for k in rng.integers(0, len(units), len(units))]))
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return statistic(units), low, high


def auroc(rated):
    """How often a window that should be rated higher was, over all pairs."""
    higher, lower = [h for h, _ in rated], [l for _, l in rated]
    wins = sum((h > l) + .5 * (h == l) for h in higher for l in lower)
    return wins / (len(higher) * len(lower))


def spearman(a, b):
    from_rank = lambda x: np.array([np.mean([j for j, y in enumerate(sorted(x)) if y == v]) for v in x])
    a, b = from_rank(list(a)), from_rank(list(b))
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return float('nan')
    return float(np.corrcoef(a, b)[0, 1])


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, value, low=None, high=None, units='', wanted=''):
        interval = '' if low is None else f'[{low:.2f}, {high:.2f}]'
        row = (what, f'{value:.2f}' if isinstance(value, float) else str(value), interval, units, wanted)
        self.rows.append(row)
        print('| ' + ' | '.join(row) + ' |', flush=True)


def held_persona(rng, facts=None, dimensions=None):
    p = small.Persona(rng, 'held', facts=facts, dimensions=dimensions).settle()
    p.set_levels()
    return p


def facts(run, table, count):
    """Each fact of each persona is asked for: at once, and after four other exchanges."""
    by_persona, later, unknown = [], [], []
    rng, draws = random.Random('facts'), np.random.default_rng(1)
    sampling = manifest()['sampling'] | {'max_tokens': 40}
    for _ in range(count):
        p = held_persona(rng)
        phase = small.Phase(p, False)
        c = small.Conversation(p, phase)
        hits = []
        for kind in p.slots:
            for filler in (0, 4):
                messages = [('system', p.opening)]
                for n, (_, user, text, _) in enumerate(small.talk(c, filler, True)):
                    messages.append(('user', user))
                    if not n:
                        messages.append(('system', c.state))
                    messages.append(('assistant', text))
                messages.append(('user', small.G.draw(kind + '.ask', rng, 'held', **p.slots[kind])))
                if not filler:
                    messages.append(('system', c.state))
                text = run.text(run.write(run.new(), run.encode(messages), draws, sampling))
                right = any(str(p.slots[kind][slot]).lower() in text.lower() for slot in small.FACTS[kind])
                (later if filler else hits).append(right)
        by_persona.append(np.mean(hits))
    table.add('facts asked for are answered rightly', *bootstrap(by_persona), f'{count} held-back personas', '≥ 0.60')
    table.add('… after four exchanges', *bootstrap(later), f'{len(later)} questions')


def identify(run, table, count):
    """Replies of the model as each persona, weighed under eight personas' prompts."""
    rng, draws = random.Random('identify'), np.random.default_rng(2)
    sampling = manifest()['sampling'] | {'max_tokens': 60}
    personas, states = [], []
    for _ in range(count):
        p = held_persona(rng)
        personas.append(p)
        states.append(small.Conversation(p, small.Phase(p, False)).state)
    found = []
    for k, p in enumerate(personas):
        others = rng.sample([j for j in range(count) if j != k], 7)
        scores = []
        history = []
        for n in range(3):
            user = small.G.draw(rng.choice(['how.user', 'chat.user', rng.choice(sorted(p.slots)) + '.ask']), rng, 'held')
            history.append(('user', user))
            ids = run.write(run.new(), run.encode([('system', personas[k].opening), *history[:-1], history[-1], ('system', states[k])]), draws, sampling)
            if not ids:
                continue
            logs = []
            for j in [k, *others]:
                name = personas[j].opening.replace(personas[j].name, p.name)
                place = [('system', name), *history[:-1], history[-1], ('system', states[j].replace(personas[j].name, p.name))]
                logs.append(run.logprob(run.encode(place), [ids + [packing.END]])[0])
            logs = np.array(logs)
            weights = np.exp(logs - logs.max())
            scores.append(weights[0] / weights.sum())
            history.append(('assistant', run.text(ids)))
        if scores:
            found.append(np.mean(scores))
    table.add('identification among eight (names made equal)', *bootstrap(found), f'{count} held-back personas, 3 replies each', '≥ 0.50 (chance 0.13)')


def rating(run, question):
    before = run.encode([('user', f'{question}\n{judging.RATE}')])
    labels = [run.tok.encode(f'Rating: {k}', add_special_tokens=False).ids for k in range(1, 6)]
    shared = len(labels[0]) - 1
    assert all(label[:shared] == labels[0][:shared] for label in labels)
    state = run.new()
    run.read(state, before)
    hidden = run.read(state, labels[0][:shared])
    logp = torch.log_softmax(run.logits(hidden)[0, -1], -1)
    p = torch.tensor([logp[label[-1]] for label in labels]).exp()
    return float((p * torch.arange(5)).sum() / p.sum() / 4), float(p.sum())


def prefers(run, question):
    before = run.encode([('user', f'{question}\n{judging.CHOOSE}')])
    a, b = (run.tok.encode(label, add_special_tokens=False).ids for label in 'AB')
    one, two = np.exp(run.logprob(before, [a, b]))
    return one / (one + two)


def judge(run, table, count):
    firsts, mass = [], []
    for rubric in judging.RUBRICS:
        rng = random.Random(f'judge {rubric}')
        rated, right = [], []
        for _ in range(count):
            name, about, more, less = judging.pair(rng, rubric, 'held')
            each = []
            for window in (more, less):
                value, m = rating(run, judging.question(rubric, name, window.lines, *about))
                each.append(value)
                mass.append(m)
            rated.append(tuple(each))
            one = prefers(run, judging.preference(rubric, name, about[0] or '', more.lines, less.lines))
            two = prefers(run, judging.preference(rubric, name, about[0] or '', less.lines, more.lines))
            firsts += [one, two]
            right.append((one + 1 - two) / 2 > .5)
        table.add(f'judge, {rubric}: agreement', *bootstrap(rated, auroc, 300), f'{count} held-back pairs', '≥ 0.70')
        table.add(f'… right one of two, both orders', *bootstrap(right), f'{count} held-back pairs')
    table.add('judge: position bias', float(np.mean(firsts) - .5), None, None, f'{len(firsts) // 2} pairs', '≤ 0.10')
    table.add('judge: probability on the scale', float(np.mean(mass)), None, None, '')


def target(run, table, count):
    """The answer that belongs to a message, against three that belong to others; all are answers of the held part."""
    rng = random.Random('target')
    talks = []
    while len(talks) < count * 2:
        p = small.Persona(rng, 'held').settle()
        p.set_levels()
        c = small.Conversation(p, small.Phase(p, True))
        text, tags = c.reply((rng.choice(['how', 'chat']),))
        if not [tag for tag in tags if tag[0] in ('fact', 'level', 'event')]:
            continue
        kind = tuple(tags[-1][:2])
        talks.append((kind, text, capital(small.answers(rng, (p, tags), 'held'))))
    right = []
    for k in range(count):
        kind, text, answer = talks[k]
        others = [a for other, _, a in talks if other != kind and a != answer]
        choices = [answer, *rng.sample(others, 3)]
        before = run.encode([('system', 'You are a helpful assistant.'), ('user', text)])
        ids = [run.tok.encode(choice, add_special_tokens=False).ids + [packing.END] for choice in choices]
        own = run.logprob(before, ids)
        alone = run.logprob(run.encode([('system', 'You are a helpful assistant.'), ('user', 'Hello.')]), ids)
        right.append(int(np.argmax(np.array(own) - np.array(alone))) == 0)
    table.add('target: the right answer is likelier than three others', *bootstrap(right), f'{count} messages', '≥ 0.60 (chance 0.25)')


def natural(run, table, folder):
    ids = np.load(pathlib.Path(folder) / 'held.npy').astype(np.int64)
    total = count = 0
    each = []
    with torch.no_grad():
        for k in range(0, min(len(ids) - 257, 20000), 256):
            x, y = torch.from_numpy(ids[k:k + 256]), torch.from_numpy(ids[k + 1:k + 257])
            logp = torch.log_softmax(run.logits(run.read(run.new(), x))[0], -1)
            each.append(-logp[torch.arange(256), y].mean().item())
    table.add('natural talk: perplexity on held-out persona chats', *(float(np.exp(v)) for v in bootstrap(each)), f'{len(each)} windows of 256 tokens', '≤ 3.67')


# ── The shipped personas ────────────────────────────────────────────────────────────────────────────────────────────────

LEXICON = yaml.safe_load((HERE / 'texts' / 'lexicon.yaml').read_text())
FLIPS = re.compile(r"\b(as an ai|language model|how can i (help|assist)|i'm here to help|happy to help|let me know if you need|what would help\?|tell me more about that)", re.I)


def lexical(text, dimension):
    """A level in [0, 1] from words alone: the mean of the levels whose words are heard; None where there are none."""
    low = text.lower().replace('’', "'")
    heard = [value for value, level in ((0., 'low'), (.5, 'medium'), (1., 'high')) for word in LEXICON[dimension][level] if word in low]
    return float(np.mean(heard)) if heard else None


class Rollout:
    """One run of a shipped persona, told as the program tells it (placement `replace`)."""

    def __init__(self, run, key, seed, sampling, turns):
        self.run, self.p, self.sampling, self.turns = run, shipped.persona(key), sampling, turns
        self.rng = np.random.default_rng([seed, *key.encode()])
        self.t = shipped.Talk(key, random.Random(f'{key} {seed}'))
        self.t.bare_quotes = False
        self.opening = self.p.opening(random.Random(0), 1.)
        self.history, self.replies, self.given = [], [], None
        self.revealed_at = {}
        self.began = 0
        config = self.p.config['interaction']
        self.target_prompt = ' '.join((config.get('target_prompt') or 'You are a helpful assistant.').split())
        self.opener = config.get('opening')
        injection = config['injection']
        self.again = {injection['frequency'], injection['reminder_frequency']}
        # OPENING is read once.
        self.opened = run.new()
        self.head = run.encode([('system', self.opening)], lead=None)
        run.read(self.opened, self.head)

    def place(self, turn):
        t, p = self.t, self.p
        if p.key == 'jonas':
            t.index = next(k for k, end in enumerate((8, 20, 99)) if turn < end)
            start, length = ((0, 8), (8, 12), (20, max(1, self.turns - 20)))[t.index]
            progress = min(1., (turn - start) / max(1, length - 1))
        else:
            progress = turn / (self.turns - 1)
            t.index = None
            for k, phase in enumerate(p.phases):
                if progress < phase['end_condition']['value'] or k == len(p.phases) - 1:
                    t.index = k
                    break
        t.progress = progress
        t.phase = p.phases[t.index]['name'] if t.index is not None else None
        t.values = {name: shipped.at(d, progress) for name, d in p.dimensions.items()}
        t.level = {name: shipped.level_of(value) for name, value in t.values.items()}

    def note_revelations(self, text, turn):
        for k, phase in enumerate(self.p.phases):
            for revelation in phase.get('revelations') or []:
                if shipped.reveals(text, revelation):
                    if revelation['topic'] not in self.revealed_at:
                        self.revealed_at[revelation['topic']] = (turn, k, self.t.index)
                    self.t.revealed.add(revelation['topic'])

    def trim(self, messages, most):
        """The oldest messages of the talk leave when the window would be too full."""
        while len(self.run.encode(messages)) > most and len(messages) > 4:
            for k, (role, _) in enumerate(messages):
                if role != 'system':
                    del messages[k]
                    break
        return messages

    def play(self):
        run = self.run
        window = manifest()['window_tokens']
        talk, state, at = [], None, 0
        heard = self.opener
        for turn in range(self.turns):
            self.place(turn)
            fresh = self.t.state(turn == 0, len(self.p.told['facts']))
            key = (self.t.phase, tuple(self.t.level.items()), self.t.offered_text)
            if heard is not None:
                talk.append(('user', heard))
            elif turn == 0:
                user = self.t.voice.user(self.t, True)[0]
                talk.append(('user', user))
                heard = user
            if key != self.given or any(turn % every == 0 for every in self.again):
                self.given, state, at = key, fresh, len(talk)
            messages = [('system', self.opening), *talk[:at], ('system', state), *talk[at:]]
            if len(run.encode(messages)) > window - 160:
                # The window slides: OPENING, the last messages, STATE last.
                messages = self.trim([('system', self.opening), *talk, ('system', state)], window // 2 + 500)
                talk = [m for m in messages if m[0] != 'system']
                at = len(talk)
            length = self.p.length(self.t.phase)
            most = int(np.ceil(int(length.split()[0].split('-')[1]) * 1.5))
            before = run.encode(messages)
            sampling = self.sampling | {'max_tokens': min(self.sampling['max_tokens'], most)}
            ids = run.write(self.opened.fork(), before[len(self.head):], self.rng, sampling)
            text = run.text(ids) or '…'
            self.replies.append(dict(turn=turn, text=text, ids=ids, history=list(talk), state=state, values=dict(self.t.values), level=dict(self.t.level),
                                     phase=self.t.phase, user=talk[-1][1]))
            self.note_revelations(text, turn)
            talk.append(('assistant', text))
            # The target, with the same weights.
            side = [('system', self.target_prompt)] + [('assistant' if role == 'user' else 'user', said) for role, said in talk[-8:]]
            answer = run.text(run.write(run.new(), run.encode(side), self.rng, self.sampling | {'max_tokens': 48}))
            heard = answer or 'I see.'
            self.replies[-1]['answer'] = heard
        return self


def measured(run, rollout, every):
    """Identification, likelihood ratio and posterior levels on a sample of turns."""
    p, t = rollout.p, rollout.t
    out = dict(identification=[], llr=[], posterior=collections.defaultdict(list), prescribed=collections.defaultdict(list))
    own_opening = rollout.opening
    others = {key: shipped.persona(key) for key in shipped.VOICES if key != p.key}
    for reply in rollout.replies:
        if reply['turn'] % every or not reply['ids']:
            continue
        history = reply['history'][-6:]
        if history and history[0][0] == 'assistant':
            history = history[1:]
        ids = [reply['ids'] + [packing.END]]
        under = lambda prompt: run.logprob(run.encode([('system', prompt), *history]), ids)[0]
        own = under(prompts.merged(own_opening, reply['state']))
        logs = [own]
        for key, other in others.items():
            o = shipped.Talk(key, random.Random(0))
            o.bare_quotes = False
            o.place(min(1., reply['turn'] / max(1, rollout.turns - 1)))
            o.values = {name: shipped.at(d, o.progress) for name, d in other.dimensions.items()}
            o.level = {name: shipped.level_of(value) for name, value in o.values.items()}
            logs.append(under(prompts.merged(other.opening(random.Random(0), 1.), o.state(reply['turn'] == 0, len(other.told['facts'])))))
        logs = np.array(logs)
        weights = np.exp(logs - logs.max())
        out['identification'].append(weights[0] / weights.sum())
        out['llr'].append((own - under(NEUTRAL)) / len(ids[0]))
        for name in p.dimensions:
            each = []
            for level in small.LEVELS:
                now, then = reply['level'][name], level
                state = reply['state'].replace(f'{name.replace("_", " ")}: {now}. {p.told["levels"][name][now]}',
                                               f'{name.replace("_", " ")}: {then}. {p.told["levels"][name][then]}')
                each.append(own if level == now else under(prompts.merged(own_opening, state)))
            ceiling = p.config['safety']['intensity_ceiling']
            top = min(p.dimensions[name].get('max_value', 1.), ceiling)
            grid = np.linspace(0, top, GRID)
            logs = np.array([each[small.LEVELS.index(shipped.level_of(v))] for v in grid])
            weights = np.exp(logs - logs.max())
            out['posterior'][name].append(float((weights * grid).sum() / weights.sum()))
            out['prescribed'][name].append(reply['values'][name])
    return out


def twelve(texts):
    """All runs of twelve words."""
    found = set()
    for text in texts:
        w = words(text)
        found.update(hash(tuple(w[k:k + 12])) for k in range(len(w) - 11))
    return found


def one_run(job):
    """A rollout and what is measured on it; the weights are the parent's."""
    key, seed, turns, every = job
    torch.set_num_threads(1)
    rollout = Rollout(RUN, key, seed, manifest()['sampling'], turns).play()
    found = measured(RUN, rollout, every)
    return key, rollout.replies, rollout.revealed_at, {k: dict(v) if isinstance(v, dict) else v for k, v in found.items()}


RUN = None


def shipped_runs(run, table, rollouts, turns, every, show, processes):
    global RUN
    RUN = run
    jobs = [(key, seed, turns, every) for seed in range(rollouts) for key in shipped.VOICES]
    with multiprocessing.get_context('fork').Pool(processes) as pool:
        played = pool.map(one_run, jobs, chunksize=1)
    seen = twelve(message[1] for seed in (1, 2) for n in range(1500) for message in _training(seed, n))
    quotes = twelve(str(shipped.TOLD) + ' ' + str(p.config) for p in map(shipped.persona, shipped.VOICES))
    total = collections.defaultdict(list)
    for key in shipped.VOICES:
        done = [(replies, revealed) for other, replies, revealed, _ in played if other == key]
        per = [found for other, *_, found in played if other == key]
        ident = [np.mean(m['identification']) for m in per]
        llr = [np.mean(m['llr']) for m in per]
        total['ident'] += ident
        total['llr'] += llr
        table.add(f'{key}: persona identification', *bootstrap(ident), f'{rollouts} rollouts', '≥ 0.80 (chance 0.25)')
        table.add(f'{key}: persona likelihood ratio, nats/token', *bootstrap(llr), f'{rollouts} rollouts', '≥ 0.30')
        p = shipped.persona(key)
        for name in p.dimensions:
            prescribed = per[0]['prescribed'][name]
            if max(prescribed) - min(prescribed) < .3:
                continue
            each = [spearman(m['posterior'][name], m['prescribed'][name]) for m in per]
            table.add(f'{key}: {name}, Spearman by posterior', *bootstrap(each, np.nanmean), f'{rollouts} rollouts', '≥ 0.60')
            by_words = []
            for replies, _ in done:
                pairs = [(lexical(x['text'], name), x['values'][name]) for x in replies]
                pairs = [pair for pair in pairs if pair[0] is not None]
                by_words.append(spearman(*zip(*pairs)) if len(pairs) > 4 else float('nan'))
            table.add(f'{key}: {name}, Spearman by words', *bootstrap(by_words, np.nanmean), f'{rollouts} rollouts', '≥ 0.60')
        topics = [(k, revelation['topic']) for k, phase in enumerate(p.phases) for revelation in phase.get('revelations') or []]
        if topics:
            on_time = [revealed.get(topic, (0, 0, -1))[2] == k for _, revealed in done for k, topic in topics]
            early = sum(revealed[topic][2] < k for _, revealed in done for k, topic in topics if topic in revealed)
            table.add(f'{key}: revelations in their phase', *bootstrap(on_time), f'{len(on_time)} revelations', '≥ 0.70')
            table.add(f'{key}: revelations before their phase', early, None, None, f'{len(on_time)} revelations', '0')
        texts = [x['text'] for replies, _ in done for x in replies]
        forbidden = sum(any(f.lower() in text.lower().replace('’', "'") for f in p.never) for text in texts)
        table.add(f'{key}: forbidden phrases', forbidden, None, None, f'{len(texts)} turns', '0')
        total['flips'] += [bool(FLIPS.search(text)) for text in texts]
        total['recited'] += [bool((twelve([text]) & seen) - quotes) for text in texts]
        if show:
            for turn in sorted({2, turns * 3 // 10, turns - 14}):
                for x in done[0][0][turn:turn + 3]:
                    print(f'   {key} {x["turn"]} ({x["phase"]}, {x["level"]})\n     Other: {x["user"]}\n     {p.name}: {x["text"]}')
    table.add('all: persona identification', *bootstrap(total['ident']), f'{4 * rollouts} rollouts', '≥ 0.80')
    table.add('all: persona likelihood ratio, nats/token', *bootstrap(total['llr']), f'{4 * rollouts} rollouts', '≥ 0.30')
    table.add('all: role flips', *bootstrap(total['flips']), f'{len(total["flips"])} turns', '≤ 0.01')
    table.add('all: replies that share twelve words in a row with training data', *bootstrap(total['recited']), f'{len(total["recited"])} turns', '≤ 0.20')


_made = {}


def _training(seed, n):
    """The n-th document of a training pool, as make.py makes it."""
    rng = _made.setdefault(seed, random.Random(f'shipped {seed}'))
    return [m for m in shipped.document(rng) if m[0] == 'assistant']


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('--model')
    a.add_argument('--parts', default='facts,identify,judge,target,natural,shipped')
    a.add_argument('--held')
    a.add_argument('--scale', type=float, default=1., help='how much of everything but the shipped runs')
    a.add_argument('--rollouts', type=int, default=4)
    a.add_argument('--turns', type=int, default=50)
    a.add_argument('--every', type=int, default=10, help='of how many turns one is weighed under other prompts')
    a.add_argument('--processes', type=int, default=2)
    a.add_argument('--show', action='store_true', help='some turns of each shipped persona')
    a = a.parse_args()
    run, table, parts = Runner(a.model), Table(), a.parts.split(',')
    torch.set_num_threads(1)
    print('| What | Value | 95 % | Over | Wanted |\n|---|---|---|---|---|')
    some = lambda n: max(9, round(n * a.scale))
    if 'natural' in parts and a.held:
        natural(run, table, a.held)
    if 'target' in parts:
        target(run, table, some(200))
    if 'judge' in parts:
        judge(run, table, some(100))
    if 'facts' in parts:
        facts(run, table, some(48))
    if 'identify' in parts:
        identify(run, table, some(48))
    if 'shipped' in parts:
        shipped_runs(run, table, a.rollouts, a.turns, a.every, a.show, a.processes)


if __name__ == '__main__':
    main()
