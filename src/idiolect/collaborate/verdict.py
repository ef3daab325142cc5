# SPDX-License-Identifier: Apache-2.0
"""How good advice was: every way on test rows, who can be decided at all, and what was lost against the best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from idiolect.collaborate.quadratic import Sample
from idiolect.core.keys import Purpose, host_generator
from idiolect.metrics.intervals import MINIMUM_ROWS
from idiolect.metrics.summary import bootstrap_interval


class Verdict(NamedTuple):
    """Test losses and what they say; entries of agents without test rows are not-a-number or False."""

    losses: np.ndarray  # (agents, ways) mean test loss
    tested: np.ndarray  # (agents,) has test rows
    right: np.ndarray  # (agents,) the pick is the best way on test rows, or not measurably worse
    decidable: np.ndarray  # (agents,) some way is measurably worse than the best
    regret: dict[str, tuple[float, float, float]]  # mean over agents of loss - best loss, with its 95 % interval
    against: dict[str, tuple[float, float, float]]  # mean saving of the advice against every fixed way

    @property
    def share_right(self) -> float:
        """Of the tested agents."""
        return float(self.right[self.tested].mean()) if self.tested.any() else float("nan")


def judge(test: Sample, row_losses: np.ndarray, pick: np.ndarray, ways: tuple[str, ...], seed: int = 0) -> Verdict:
    """(rows, ways) losses on test rows and each agent's pick."""
    losses = np.where((test.counts > 0)[:, None], test.means(row_losses), np.nan)
    tested = test.counts > 0
    best = np.argmin(np.where(tested[:, None], losses, 0.0), axis=1)
    worse = np.stack([_measurably_worse(test, row_losses, np.full(test.agents, way), best) for way in range(len(ways))])
    places = np.arange(test.agents)
    right = tested & ~worse[pick, places]
    least = losses[places, best]
    taken = losses[places, pick]
    named = {"advice": taken} | {f"always {way}": losses[:, place] for place, way in enumerate(ways)}
    regret = {name: _mean(values[tested] - least[tested], seed) for name, values in named.items()}
    against = {name: _mean(values[tested] - taken[tested], seed) for name, values in named.items() if name != "advice"}
    return Verdict(losses, tested, right, tested & worse.any(axis=0), regret, against)


def _mean(values: np.ndarray, seed: int) -> tuple[float, float, float]:
    low, high = bootstrap_interval(values, host_generator(seed, Purpose.BOOTSTRAP))
    return (float(values.mean()) if values.size else float("nan")), low, high


def _measurably_worse(test: Sample, row_losses: np.ndarray, way: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Whether 0 lies below the 95 % Student interval of loss(way) - loss(best), blocks of rows being independent."""
    rows = np.arange(len(test.owner))
    difference = row_losses[rows, way[test.owner]] - row_losses[rows, best[test.owner]]
    mean = test.means(difference)
    _, block = np.unique(np.stack([test.owner, test.block]), axis=1, return_inverse=True)
    totals = np.bincount(block.reshape(-1), difference - mean[test.owner])
    owner = np.zeros(len(totals), np.int64)
    owner[block.reshape(-1)] = test.owner
    blocks = np.bincount(owner, minlength=test.agents)
    squares = np.bincount(owner, totals**2, minlength=test.agents)
    spread = np.sqrt(squares * blocks / np.maximum(blocks - 1, 1)) / np.maximum(test.counts, 1)
    quantile = student.ppf(0.975, np.maximum(blocks - 1, 1))
    return (blocks >= MINIMUM_ROWS) & (mean - quantile * spread > 0)
