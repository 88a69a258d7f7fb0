#!/usr/bin/env python3
"""Reference values for `foundation::text` and `foundation::stats`, from scikit-learn, NumPy and SciPy.

Writes tests/data/tfidf.json and tests/data/stats.json. Run from the repository root:

    pip install scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6
    python scripts/text_fixtures.py

The texts are split into words before scikit-learn sees them (lower case, at white space), so that only the
weighting and the cosine are compared, not the tokeniser.
"""
import json
from pathlib import Path

import numpy as np
import scipy
import sklearn
from scipy import stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

OUT = Path("tests/data")

SETS = [
    ["i will log everything and bring you the results",
     "i will log everything keep the structure locked and bring you the results raw",
     "my sister called about the garden and the dog"],
    ["one", "one one two", "two three", "four"],
    ["the patterns are in the commits", "the patterns are in the commits"],
    ["nobody listens to me at work anymore", "listen the build server wakes up at three every night",
     "nobody at work listens", "three commits every night at the same minute", "me", "anymore anymore anymore me"],
]


def main() -> None:
    sets = []
    for texts in SETS:
        vectors = TfidfVectorizer(tokenizer=str.split, token_pattern=None).fit_transform(texts)
        sets.append({"texts": texts, "cosines": cosine_similarity(vectors).tolist()})
    write("tfidf.json", {"made_by": f"scikit-learn {sklearn.__version__}", "sets": sets})

    rng = np.random.default_rng(20_26)
    samples = [[2.5], [1.0, 2.0], [3.0, 1.0, 2.0, 2.0], rng.normal(size=23).round(4).tolist(),
               (rng.random(12) * 1e6).round(2).tolist()]
    single = [{
        "x": x, "mean": float(np.mean(x)),
        "sd": float(np.std(x, ddof=1)) if len(x) > 1 else None,
        "quantiles": [[p, float(np.quantile(x, p))] for p in (0.0, 0.025, 0.1, 0.5, 0.77, 1.0)],
    } for x in samples]
    x = rng.normal(size=15)
    pairs = [([1.0, 2.0, 3.0], [2.0, 4.0, 6.5]), ([1.0, 2.0, 2.0, 4.0], [4.0, 3.0, 3.0, 1.0]),
             (x.round(3).tolist(), (0.4 * x + rng.normal(size=15)).round(1).tolist())]
    paired = [{
        "x": a, "y": b, "pearson": float(stats.pearsonr(a, b)[0]), "spearman": float(stats.spearmanr(a, b)[0]),
        "rmse": float(np.sqrt(np.mean((np.array(a) - np.array(b)) ** 2))),
    } for a, b in pairs]
    # The percentile bootstrap of the mean: with many resamples the interval is SciPy's up to resampling noise.
    x = samples[3]
    ends = [stats.bootstrap((x,), np.mean, n_resamples=20_000, method="percentile", rng=seed).confidence_interval
            for seed in range(5)]
    bootstrap = {"x": x, "low": float(np.mean([e.low for e in ends])), "high": float(np.mean([e.high for e in ends]))}
    made_by = f"NumPy {np.__version__}, SciPy {scipy.__version__}"
    write("stats.json", {"made_by": made_by, "single": single, "paired": paired, "bootstrap": bootstrap})


def write(name: str, value: dict) -> None:
    (OUT / name).write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
