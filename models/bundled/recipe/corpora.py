"""Natural talk: four public corpora as training documents.

    python corpora.py DIALOGUES_DIR OUT_DIR

DIALOGUES_DIR holds self_dialogue.txt.xz, synthetic_persona_chat.txt.xz, topical_chat.txt.xz and tm4.txt.xz: blocks of
lines `A: …` / `B: …` (`user:`, `assistant:`; `User 1:`, `User 2:` below two personas). Writes OUT_DIR/talk.npz,
OUT_DIR/chats.npz and, from 100 dialogues that are not trained on, OUT_DIR/held.npy. The held-out dialogues are those of
the first version of this model, so that the two compare.
"""
import lzma
import pathlib
import random
import re
import sys

import numpy as np

import packing

NAMES = ['Alex', 'Maya', 'Sam', 'Marcus', 'Priya', 'Jo', 'Lena', 'Omar', 'Chris', 'Tara', 'Ben', 'Nina', 'Leo', 'Ruth',
         'Ivan', 'Dana']


def blocks(text):
    return [block for block in re.split(r'\n\s*\n', text) if block.strip()]


def conversations(text, speakers):
    found = []
    for block in blocks(text):
        turns = []
        for line in block.split('\n'):
            m = re.match(r'^(%s): ?(.*)$' % '|'.join(speakers), line)
            if m:
                if turns and turns[-1][0] == m.group(1):
                    turns[-1][1] += ' ' + m.group(2).strip()
                else:
                    turns.append([m.group(1), m.group(2).strip()])
            elif turns:
                turns[-1][1] += ' ' + line.strip()
        turns = [turn[1] for turn in turns if turn[1]]
        if len(turns) >= 2:
            found.append(turns)
    return found


def persona_chats(text, rng):
    found = []
    for block in blocks(text):
        m = re.match(r'User 1 persona: (.*?)\nUser 2 persona: (.*?)\n(?=User [12]: )(.*)$', block, re.S)
        if not m:
            continue
        one, two = [persona.strip().replace('\n', ' ') for persona in m.group(1, 2)]
        turns = []
        for line in m.group(3).split('\n'):
            mm = re.match(r'^User ([12]): ?(.*)$', line)
            if mm:
                turns.append((mm.group(1), mm.group(2).strip()))
            elif turns:
                turns[-1] = (turns[-1][0], turns[-1][1] + ' ' + line.strip())
        names = rng.sample(NAMES, 2)
        for k in (0, 1):
            for user in ('User', 'user'):
                turns = [(who, said.replace(f"[{user} {k + 1}'s name]", names[k])) for who, said in turns]
        found.append((one, two, [turn for turn in turns if turn[1]], names))
    return found


def document(system, turns, user_first):
    messages = [('system', system, 1)] if system else []
    for k, text in enumerate(turns):
        messages.append(('user' if (k % 2 == 0) == user_first else 'assistant', text, 1))
    return messages


def main(folder, out):
    folder, out = pathlib.Path(folder), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    read = lambda name: lzma.open(folder / f'{name}.txt.xz', 'rt').read()
    rng = random.Random(7)
    chats = persona_chats(read('synthetic_persona_chat'), rng)
    rng.shuffle(chats)
    held, chats = chats[:100], chats[100:]
    tok = packing.tokenizer()

    def side(chat, k):
        persona, name = chat[k], chat[3][k]
        named = lambda m: chat[3][int(m.group(1)) - 1]
        turns = [re.sub(r"\[[Uu]ser ([12])(?:'s)? ?[Nn]ame\]", named, text) for _, text in chat[2]]
        return document(f'You are {name}. {persona}', turns, chat[2][0][0] != str(k + 1))

    whole = lambda ids, weights: (ids + [packing.END_OF_TEXT], [1] * (len(ids) + 1))
    talk = conversations(read('self_dialogue'), ['A', 'B'])
    talk += conversations(read('topical_chat'), ['A', 'B'])
    talk += conversations(read('tm4'), ['user', 'assistant'])
    talk = [document(None, turns, rng.random() < .8) for turns in talk]
    print('talk', packing.write(out / 'talk.npz', (whole(*d) for d in packing.encode(tok, talk))))
    sides = [side(chat, k) for chat in chats for k in (0, 1)]
    print('chats', packing.write(out / 'chats.npz', (whole(*d) for d in packing.encode(tok, sides))))
    ids = [i for d in packing.encode(tok, [side(chat, 0) for chat in held]) for i in whole(*d)[0]]
    np.save(out / 'held.npy', np.asarray(ids, np.uint16))
    print('held', len(ids))


if __name__ == '__main__':
    main(*sys.argv[1:])
