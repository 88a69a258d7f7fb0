#!/usr/bin/env python3
"""Writes tests/data/isotonic.json: isotonic fits and AUROC values by scikit-learn, for `foundation::stats` to agree with.

    pip install scikit-learn && python3 scripts/isotonic_fixture.py
"""

import json
import pathlib

import numpy as np
import sklearn
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import roc_auc_score

rng = np.random.default_rng(7)


def case(name, x, y):
    fit = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y)
    ask = np.concatenate([x, (x[:-1] + x[1:]) / 2, [x.min() - 1, x.max() + 1]])
    labels = set(np.unique(y)) == {0.0, 1.0}
    return {
        "name": name,
        "x": x.tolist(),
        "y": y.tolist(),
        "ask": ask.tolist(),
        "answer": fit.predict(ask).tolist(),
        "auroc": float(roc_auc_score(y, x)) if labels else None,
    }


n = 120
score = np.round(rng.normal(size=n), 1)  # rounded, so that there are ties
cases = [
    case("labels with ties", score, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(float)),
    case("real values", rng.random(60), np.clip(rng.random(60), 0, 1)),
    case("already rising", np.arange(5.0), np.array([0.0, 0.1, 0.2, 0.7, 1.0])),
    case("falling", np.arange(6.0), np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])),
    case("all scores equal", np.zeros(4), np.array([0.0, 1.0, 1.0, 1.0])),
]
path = pathlib.Path(__file__).parent.parent / "tests/data/isotonic.json"
path.write_text(json.dumps({"scikit_learn": sklearn.__version__, "cases": cases}) + "\n")
