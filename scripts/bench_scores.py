"""The table of scripts/bench-scores.sh: runs, scores, compares what was said, prints Markdown."""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

CONFIG = Path(__file__).resolve().parent.parent / "configs/personas/mania_patient.yaml"
PHRASES = [0, 1, 5]
ROLLOUTS = 2
REPLIES = ["I see. Go on.", "What did you find then?", "Who else has seen it?", "I am not sure what you mean."]


def config(phrases: int) -> str:
    """The patient with that many forbidden phrases, of whom no judge is asked."""
    text = CONFIG.read_text()
    block = re.search(r"    forbidden_phrases:\n((?:      - .*\n)+)", text)
    kept = "".join(block[1].splitlines(True)[:phrases])
    text = text.replace(block[0], f"    forbidden_phrases:\n{kept}" if kept else "    forbidden_phrases: []\n")
    return re.sub(r"enabled: true(\n      (?:description|sample_rate))", r"enabled: false\1", text)


def seconds(told: str) -> list[float]:
    """What the likelihoods of each rollout took."""
    return [float(taken) for taken in re.findall(r"likelihoods ([0-9.]+) s", told)]


def once(loom: str, folder: Path, phrases: int, options: list[str]) -> dict:
    """One run scored afterwards, and the same run scored at its end: what a rollout and its likelihoods took, and what was said."""
    yaml, out = folder / f"{phrases}.yaml", folder / "out"
    yaml.write_text(config(phrases))

    def call(*arguments: str) -> str:
        done = subprocess.run([loom, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"loom {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    run = ["run", str(yaml), "--rollouts", str(ROLLOUTS), "--parallel", str(ROLLOUTS), "--output", str(out), *options]
    call(*run, "--no-score")
    transcripts = [json.loads((out / f"rollout_{at:03}.json").read_text()) for at in range(ROLLOUTS)]
    after = seconds(call("score", str(out), "--judge-model", "none", "--parallel", str(ROLLOUTS)))
    found = {
        "rollout": statistics.mean(one["totals"]["timing"]["seconds"] for one in transcripts),
        "after": statistics.mean(after),
        "said": [turn["persona"]["content"] for one in transcripts for turn in one["turns"]],
    }
    shutil.rmtree(out)
    found["with"] = statistics.mean(seconds(call(*run, "--score")))
    shutil.rmtree(out)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--loom", required=True)
    parser.add_argument("runs", nargs="?", type=int, default=7)
    parser.add_argument("model", nargs="?")
    parser.add_argument("turns", nargs="?", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "replies.json").write_text(json.dumps(REPLIES))
        options = ["--turns", str(arguments.turns)]
        if arguments.model:
            options += ["--persona-model", arguments.model, "--target", f"scripted:{folder / 'replies.json'}"]
        # In turns, so that a machine that slows down slows all of them down.
        runs = [[once(arguments.loom, folder, count, options) for count in PHRASES] for _ in range(arguments.runs)]
    print(f"{arguments.model or 'bundled'}, {arguments.turns} turns, {ROLLOUTS} rollouts side by side, {arguments.runs} runs\n")
    print("| | " + " | ".join(f"{count} phrases" for count in PHRASES) + " |\n|---|" + "---:|" * len(PHRASES))

    def row(what: str, cell) -> None:
        """One row: `cell` of each number of phrases, over the best and over the median of the runs."""
        cells = [
            ", ".join(cell(lambda name, at=at, of=of: of(run[at][name] for run in runs),
                           lambda of=of: of(run[0]["rollout"] for run in runs)) for of in (min, statistics.median))
            for at in range(len(PHRASES))
        ]
        print(f"| {what} | " + " | ".join(cells) + " |")

    row("a rollout, s", lambda of, own: f"{of('rollout'):.2f}")
    row("the phrases, with the run", lambda of, own: f"{of('rollout') / own() - 1:.0%}")
    row("the rest, afterwards", lambda of, own: f"{of('after') / own():.0%}")
    row("the rest, at the end of the run", lambda of, own: f"{of('with') / own():.0%}")
    row("**together, afterwards**", lambda of, own: f"{(of('rollout') + of('after')) / own() - 1:.0%}")
    row("**together, at the end of the run**", lambda of, own: f"{(of('rollout') + of('with')) / own() - 1:.0%}")
    same = all(one["said"] == runs[0][0]["said"] for run in runs for one in run)
    print(f"\nBest, median. {'Every run said the same.' if same else 'With other phrases other things were said.'}")


main()
