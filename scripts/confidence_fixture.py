#!/usr/bin/env python3
"""Writes tests/data/confidence.json: calibration measures, rejection areas and logistic regressions for
`foundation::stats` to agree with.

    pip install scikit-learn uncertainty-calibration && python3 scripts/confidence_fixture.py
"""

import json
import pathlib

import calibration
import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

rng = np.random.default_rng(11)


def stated(n, sharpness):
    p = 1 / (1 + np.exp(-sharpness * rng.normal(size=n)))
    y = (rng.random(n) < p**1.3).astype(int)
    brier, rate = brier_score_loss(y, p), y.mean()
    auarc, oracle = calibration.utils.get_selective_stats(p, y)[0], calibration.utils.get_selective_stats(y, y)[0]
    return {
        "p": p.tolist(),
        "y": y.tolist(),
        "ece_15": float(calibration.get_ece(p, y, num_bins=15, mode="marginal")),
        "brier": float(brier),
        "brier_skill": float(1 - brier / brier_score_loss(y, np.full(n, rate))),
        "auarc": float(auarc),
        "prr": float((auarc - rate) / (oracle - rate)),
    }


def logistic(name, x, y, penalty):
    fit = LogisticRegression(C=1 / penalty, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(x, y)
    return {
        "name": name,
        "x": x.tolist(),
        "y": y.tolist(),
        "penalty": penalty,
        "intercept": float(fit.intercept_[0]),
        "weights": fit.coef_[0].tolist(),
    }


def labels(log_odds):
    return (rng.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(int)


x = rng.normal(size=(80, 4))
line = np.linspace(-1, 1, 30).reshape(-1, 1)
cases = [
    logistic("four features", x, labels(x @ [1.0, -2.0, 0.0, 0.5] - 0.7), 1.0),
    logistic("hardly any penalty", x, labels(x @ [0.3, 0.2, 0.0, -0.5]), 1e-3),
    logistic("separable", line, (line[:, 0] > 0.1).astype(int), 0.5),
    logistic("one class is rare", x, labels(x @ [0.5, 0.5, 0.5, 0.5] - 3.0), 2.0),
]
out = {
    "scikit_learn": sklearn.__version__,
    "uncertainty_calibration": "0.1.4",
    "stated": [stated(200, 1.0), stated(60, 3.0)],
    "logistic": cases,
}
path = pathlib.Path(__file__).parent.parent / "tests/data/confidence.json"
path.write_text(json.dumps(out) + "\n")
