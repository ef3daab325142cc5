# SPDX-License-Identifier: Apache-2.0
"""Discrepancies from models: how much worse client j's model is than my own on my rows, f_i(x_j) - f_i(x_i).

Every client's rows are dealt to folds; its own model is judged on rows it has not seen, without losing any row
(cross-fitting), and every pair by the differences row by row. The expectation is b_ij + (what j's few rows cost)
- (what i's few rows cost): negative where j's model would serve i better than its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from idiolect.collaborate.exchange import Exchange, Parcel
from idiolect.collaborate.quadratic import Expansion, Sample, own_weights, quick_models, score, score_own


class Excess(NamedTuple):
    """Estimates for the ordered pairs that were evaluated; (clients, clients) arrays, not-a-number elsewhere."""

    value: np.ndarray  # mean of loss(x_j) - loss(x_i) over rows of i
    standard_error: np.ndarray  # of that mean; infinite where one block of rows cannot tell
    freedom: np.ndarray  # (clients,) blocks of rows minus 1
    noise: np.ndarray  # (clients,) what one nat of evidence is in units of the loss
    exchange: Exchange

    def bound(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) Student interval per pair; infinite for a client with a single block of rows."""
        quantile = student.ppf(0.5 + level / 2, np.maximum(self.freedom, 1))[:, None]
        half = np.where(self.value == 0, 0.0, quantile * self.standard_error)
        half = np.where(self.freedom[:, None] < 1, np.inf, half)
        np.fill_diagonal(half, 0.0)
        return self.value - half, self.value + half

    def close(self, epsilon: float, level: float = 0.95) -> np.ndarray:
        """Booleans: does the *upper* bound say f_i(x_j) - f_i(x_i) <= epsilon/2? Always for a client with itself."""
        with np.errstate(invalid="ignore"):
            near = self.bound(level)[1] <= epsilon / 2
        np.fill_diagonal(near, True)
        return near


def held_out_models(sample: Sample, expansion: Expansion, penalty: float) -> np.ndarray:
    """(clients, folds, size): every client's quick model without the rows of one fold."""
    own = own_weights(sample)
    folds = [quick_models(sample, expansion, own, penalty, without=fold) for fold in range(sample.folds)]
    return np.stack(folds, axis=1)


def pairwise_excess(sample: Sample, expansion: Expansion, penalty: float) -> Excess:
    """All ordered pairs. For many clients see `blocks.learn_in_blocks`, which asks for few of them."""
    models = quick_models(sample, expansion, own_weights(sample), penalty)
    # i's own model is judged without the rows it is judged on, as j's never saw them: otherwise i would look better
    # than it is
    own = score_own(sample, held_out_models(sample, expansion, penalty))
    differences = score(sample, models) - own[:, None]
    value = sample.means(differences)
    error, freedom = _standard_errors(sample, differences, value)
    np.fill_diagonal(value, 0.0)
    np.fill_diagonal(error, 0.0)
    pairs = sample.agents * (sample.agents - 1)
    return Excess(value, error, freedom, noise_scale(sample, own), judging(sample, sample.agents, pairs))


def judging(sample: Sample, models: int, pairs: int) -> Exchange:
    """What it costs that `pairs` times a client judges one of `models` models that clients have sent."""
    return Exchange(
        # one mean per pair goes back to the server; standard errors, fourth moments of the rows, stay
        (Parcel("a client's model", (sample.size,), models, pairs), Parcel("mean loss of a judged model", (), pairs)),
        pairs,
        _fewest_rows(sample),
        "Every client sees the models of those it judges and the server every mean excess.",
    )


def _fewest_rows(sample: Sample) -> int | None:
    """Of a client that has any."""
    return int(min(sample.counts[sample.counts > 0], default=0)) or None


def noise_scale(sample: Sample, own: np.ndarray) -> np.ndarray:
    """(clients,) loss per nat: 1 for log losses; for squares the held-out variance, drawn towards that of all.

    Few rows say little about their variance: two rows of all clients are added to each client's own.
    """
    if sample.loss.criterion != "squared":
        return np.ones(sample.agents)
    outputs = sample.goals.shape[1]
    total, counts = 2 * sample.sums(own) / outputs, sample.counts
    pooled = max(float(total.sum() / max(counts.sum(), 1)), 1e-300)
    return (total + 2 * pooled) / (counts + 2)


def _standard_errors(sample: Sample, differences: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a mean over a client's rows whose blocks are independent, and blocks - 1 per client."""
    centred, owners = differences - value[sample.owner], sample.blocks[1]
    blocks = np.bincount(owners, minlength=sample.agents)
    if len(owners) < len(centred):
        squares = np.zeros((sample.agents, differences.shape[1]))
        # rows of a block err together: their sum is one observation
        np.add.at(squares, owners, sample.block_sums(centred) ** 2)
    else:
        squares = sample.sums(centred**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        correction = np.where(blocks > 1, blocks / (blocks - 1), np.inf)
        error = np.sqrt(squares * correction[:, None]) / np.maximum(sample.counts, 1)[:, None]
    return np.where(np.isnan(error), np.inf, error), blocks - 1
