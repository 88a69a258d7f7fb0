#!/usr/bin/env bash
# Reads an exported log with Inspect (`inspect_ai` from PyPI, in a virtual environment under target/): the log, its data
# frames of evals, samples, messages and events, and the viewer's bundle.
#
# Needs Python 3.10 or newer and a built `loom` (LOOM=…, else target/debug/loom).
set -euo pipefail
cd "$(dirname "$0")/.."

loom=${LOOM:-target/debug/loom}
python=target/inspect/bin/python
if [ ! -x "$python" ]; then
    python3 -m venv target/inspect
    "$python" -m pip install --quiet inspect_ai pandas pyarrow
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$loom" run tests/data/report/anna.yaml --rollouts 3 --output "$folder/anna" > "$folder/told" 2>&1 || { cat "$folder/told"; exit 1; }
"$loom" export "$folder/anna" --to inspect --output "$folder/logs"
"$python" - "$folder/logs" << 'PYTHON'
import sys
from pathlib import Path

from inspect_ai.analysis import evals_df, events_df, messages_df, samples_df
from inspect_ai.log import bundle_log_dir, list_eval_logs, read_eval_log

folder = sys.argv[1]
[info] = list_eval_logs(folder)
head = read_eval_log(info, header_only=True)
assert head.status == "success" and head.samples is None, head.status
log = read_eval_log(info)
assert len(log.samples) == 3
sample = log.samples[0]
assert [message.role for message in sample.messages[:3]] == ["system", "assistant", "user"]
assert len(sample.messages) == 1 + 2 * 24
logprobs = sample.output.choices[0].logprobs.content
assert "".join(token.token for token in logprobs) == sample.output.completion
assert all(token.logprob <= 0 for token in logprobs)
assert {score.name for score in log.results.scores} >= {"novelty/1", "agreement/1"}
samples = samples_df(folder)
assert len(samples) == 3 and samples["score_novelty/1"].between(0, 1).all(), list(samples.columns)
assert len(evals_df(folder)) == 1
assert samples["input"].str.len().min() > 0
messages = messages_df(folder)
assert len(messages) == 3 * (1 + 2 * 24 - 1), len(messages)  # all but the last one, to which nobody replied
events = events_df(folder)
assert len(events) == 3 * 24 and events["event"].eq("model").all()
bundle = Path(folder).parent / "bundle"
bundle_log_dir(folder, output_dir=str(bundle))
assert (bundle / "index.html").is_file() and any((bundle / "logs").glob("*.json")), list(bundle.iterdir())
print(f"inspect_ai reads {info.name.rsplit('/', 1)[-1]}: {len(samples)} samples, {len(log.results.scores)} scores, {len(messages)} messages, {len(events)} events")
PYTHON
