# SPDX-License-Identifier: Apache-2.0
"""How good advice was: every way on test rows, who can be decided at all, and what was lost against the best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from idiolect.collaborate.quadratic import Sample
from idiolect.core.keys import Purpose, host_generator
from idiolect.metrics.paired import MINIMUM_ROWS
from idiolect.metrics.summary import bootstrap_interval


class Verdict(NamedTuple):
    """Test losses of one split and what they say; entries of clients without test rows are not-a-number or False."""

    losses: np.ndarray  # (clients, ways) mean test loss
    pick: np.ndarray  # (clients,) the way that was advised
    tested: np.ndarray  # (clients,) has test rows
    right: np.ndarray  # (clients,) the pick is the best way on test rows, or not measurably worse
    decidable: np.ndarray  # (clients,) some way is measurably worse than the best

    @property
    def taken(self) -> np.ndarray:
        """(clients,) loss of the pick."""
        return np.asarray(self.losses[np.arange(len(self.pick)), self.pick])


class Estimate(NamedTuple):
    """A mean over clients with its 95 % interval (a bootstrap over clients)."""

    mean: float
    low: float
    high: float


def judge(test: Sample, row_losses: np.ndarray, pick: np.ndarray) -> Verdict:
    """(rows, ways) losses on test rows, and each client's pick."""
    tested = test.counts > 0
    losses = np.where(tested[:, None], test.means(row_losses), np.nan)
    best = np.argmin(np.where(tested[:, None], losses, 0.0), axis=1)
    ways = range(row_losses.shape[1])
    worse = np.stack([_measurably_worse(test, row_losses, np.full(test.agents, way), best) for way in ways])
    right = tested & ~worse[pick, np.arange(test.agents)]
    return Verdict(losses, pick, tested, right, tested & worse.any(axis=0))


def regrets(verdicts: list[Verdict], ways: tuple[str, ...]) -> dict[str, Estimate]:
    """Mean loss above each client's best way, of the advice and every fixed way; splits averaged per client first."""
    named = {"advice": [one.taken for one in verdicts]}
    named |= {f"always {way}": [one.losses[:, place] for one in verdicts] for place, way in enumerate(ways)}
    best = [one.losses.min(axis=1) for one in verdicts]
    return {name: _mean([ours - least for ours, least in zip(values, best)]) for name, values in named.items()}


def savings(verdicts: list[Verdict], ways: tuple[str, ...]) -> dict[str, Estimate]:
    """Mean test loss that the advice saves against every fixed way."""
    return {
        f"always {way}": _mean([one.losses[:, place] - one.taken for one in verdicts]) for place, way in enumerate(ways)
    }


def _mean(splits: list[np.ndarray]) -> Estimate:
    values = np.stack(splits)
    each = np.nanmean(values[:, ~np.isnan(values).all(axis=0)], axis=0)
    low, high = bootstrap_interval(each, host_generator(0, Purpose.BOOTSTRAP))
    return Estimate(float(each.mean()) if each.size else float("nan"), low, high)


def _measurably_worse(test: Sample, row_losses: np.ndarray, way: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Whether 0 lies below the 95 % Student interval of loss(way) - loss(best), blocks of rows being independent."""
    rows = np.arange(len(test.owner))
    difference = row_losses[rows, way[test.owner]] - row_losses[rows, best[test.owner]]
    mean = test.means(difference)
    totals, owner = test.block_sums(difference - mean[test.owner]), test.blocks[1]
    blocks = np.bincount(owner, minlength=test.agents)
    squares = np.bincount(owner, totals**2, minlength=test.agents)
    spread = np.sqrt(squares * blocks / np.maximum(blocks - 1, 1)) / np.maximum(test.counts, 1)
    quantile = student.ppf(0.975, np.maximum(blocks - 1, 1))
    return (blocks >= MINIMUM_ROWS) & (mean - quantile * spread > 0)
