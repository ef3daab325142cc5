# SPDX-License-Identifier: Apache-2.0
"""Do the intervals of `advise` hold? Clients with known laws: usual ones, a few outlying ones, some without signal.

A gain is true when it is that of the models trained on all rows, judged by many fresh rows of the same client.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import Result, Target
from idiolect.collaborate.advice import advise
from idiolect.collaborate.options import OPTIONS, fit_options, try_options
from idiolect.collaborate.quadratic import fold_rows, make_sample, score_own
from idiolect.collaborate.threads import one_thread
from idiolect.core.data import Rows
from idiolect.theory.convex import ConvexLoss

KINDS = ("usual", "outlying", "shuffled")
FEATURES, FRESH = 4, 2000


class Setting(NamedTuple):
    """One federation to draw."""

    criterion: str = "squared"
    clients: int = 40
    outlying: int = 3
    shuffled: int = 4
    spread: float = 0.3  # of usual clients' coefficients around the common ones
    rows: tuple[int, int] = (12, 80)


SETTINGS = {
    "regression, 40 clients": Setting(),
    "regression, 40 clients alike": Setting(spread=0.05),
    "regression, 12 clients": Setting(clients=12, outlying=1, shuffled=1),
    "regression, 40 clients of 6 to 15 rows": Setting(rows=(6, 15)),
    "two classes, 40 clients": Setting("logistic", rows=(25, 120)),
}


def run(quick: bool) -> Result:
    """Coverage of every setting, by kind of client."""
    draws = 2 if quick else 30
    numbers: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        numbers[name] = {kind: f"{100 * held:.1f} %" for kind, held in coverage(setting, draws).items()}
    everybody = np.mean([float(one["all"].split()[0]) for one in numbers.values()])
    return Result(numbers, (Target("mean coverage of 95 % intervals", float(everybody), 93.0, "%", at_least=True),))


def coverage(setting: Setting, draws: int, seed: int = 0) -> dict[str, float]:
    """Part of true gains inside their intervals, over all clients, both gains and all draws; and by kind."""
    held = [_draw(setting, np.random.default_rng([seed, number])) for number in range(draws)]
    kind = np.concatenate([one for one, _ in held])
    inside = np.concatenate([two for _, two in held])
    by_kind = {name: float(inside[kind == place].mean()) for place, name in enumerate(KINDS)}
    return {"all": float(inside.mean())} | by_kind


def _draw(setting: Setting, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(clients,) kinds and (clients, 2) whether the gains of joining lie inside their intervals."""
    kind = np.zeros(setting.clients, int)
    kind[: setting.outlying] = 1
    kind[setting.outlying : setting.outlying + setting.shuffled] = 2
    slopes = np.ones(FEATURES) + setting.spread * draws.normal(size=(setting.clients, FEATURES))
    slopes[kind == 1] = -1.5 + 0.3 * draws.normal(size=(setting.outlying, FEATURES))
    slopes[kind == 2] = 0.0
    counts = draws.integers(setting.rows[0], setting.rows[1] + 1, setting.clients)
    width = ConvexLoss(setting.criterion, FEATURES, 0, bias=True, diagonal=False, l2=0.0)
    sample = make_sample(width, _rows(setting, slopes, counts, draws), least=fold_rows(width))
    test = make_sample(width, _rows(setting, slopes, np.full(setting.clients, FRESH), draws), 2)
    with one_thread():
        options = try_options(sample, least=fold_rows(width))
        advice = advise(sample, options.losses)
        models = fit_options(sample, options)
    losses = np.stack([test.means(score_own(test, models[way])) for way in OPTIONS], axis=1)
    gains = losses[:, :1] - losses
    return kind, ((advice.low <= gains) & (gains <= advice.high))[:, 1:]


def _rows(setting: Setting, slopes: np.ndarray, counts: np.ndarray, draws: np.random.Generator) -> Rows:
    inputs = draws.normal(size=(counts.sum(), FEATURES))
    answers = (inputs * np.repeat(slopes, counts, axis=0)).sum(axis=1)
    if setting.criterion == "logistic":
        targets = (answers + draws.logistic(size=len(answers)) > 0).astype(np.int64)
    else:
        targets = answers + draws.normal(size=len(answers))
    return Rows(inputs, targets, np.concatenate([[0], np.cumsum(counts)]))
