# SPDX-License-Identifier: Apache-2.0
"""From held-out losses of three ways to one piece of advice per client, with its expected gain and interval.

Few rows decide little. Each client's measured gains are drawn towards what clients of its size gain, as far as the
clients differ from one another less than their rows are noisy (`shrinkage`, two gains at once).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from idiolect.collaborate.options import OPTIONS
from idiolect.collaborate.quadratic import Sample
from idiolect.collaborate.shrinkage import shrink

_PRIOR_ROWS = 4.0  # rows of all clients' covariance that are added to a client's own
_QUANTILE = 1.959963984540054


class Advice(NamedTuple):
    """One entry per client. Gains are held-out loss saved against training alone, in order of OPTIONS."""

    pick: np.ndarray  # (clients,) place in OPTIONS
    measured: np.ndarray  # (clients, 3) mean saving over the client's own held-out rows
    expected: np.ndarray  # (clients, 3) drawn towards clients alike
    low: np.ndarray  # (clients, 3) 95 % interval of the expected gain
    high: np.ndarray
    chance: np.ndarray  # (clients,) probability that the pick is no worse than each other way, least of them

    def names(self) -> list[str]:
        """What each client should do."""
        return [OPTIONS[place] for place in self.pick]


def advise(sample: Sample, losses: np.ndarray) -> Advice:
    """The way with the largest expected gain, for every client; (rows, 3) held-out losses given."""
    saved = losses[:, :1] - losses[:, 1:]
    measured = sample.means(saved)
    noise = gain_noise(sample, saved, measured)
    found = shrink(measured, noise, sample.counts, model_luck(sample))
    nothing = np.zeros((sample.agents, 1))  # what training alone gains, for sure
    expected = np.hstack([nothing, found.expected])
    pick = np.argmax(expected, axis=1)
    return Advice(
        pick,
        np.hstack([nothing, measured]),
        expected,
        np.hstack([nothing, found.low]),
        np.hstack([nothing, found.high]),
        found.ahead[np.arange(sample.agents), pick].min(axis=1),
    )


def model_luck(sample: Sample) -> np.ndarray:
    """(clients,) variance of the gains of models learnt from other such rows, over the noise of a mean over rows.

    Rows that are left out say how good models are that are learnt like these, not how good these very ones are; the
    two differ by about as much as rows are noisy (Nadeau and Bengio 2003), more where rows are few for the model.
    """
    return 1 + np.minimum(sample.size / np.maximum(sample.counts, 1), 2.0)


def gain_noise(sample: Sample, saved: np.ndarray, means: np.ndarray) -> np.ndarray:
    """(clients, k, k) covariance of mean gains; rows of a block stand or fall together."""
    totals, owners = sample.block_sums(saved - means[sample.owner]), sample.blocks[1]
    squares = np.zeros((sample.agents, saved.shape[1], saved.shape[1]))
    np.add.at(squares, owners, totals[:, :, None] * totals[:, None, :])
    blocks = np.bincount(owners, minlength=sample.agents)
    counts = np.maximum(sample.counts, 1)
    # per block; a client with few of them borrows from the others
    freedom = np.maximum(blocks - 1, 0)[:, None, None]
    pooled = _typical(squares, freedom)
    # a squared miss is as uncertain as it is large: few rows with a large mean have seen but part of their spread
    expected = pooled + 2 * means[:, :, None] * means[:, None, :] * (counts / np.maximum(blocks, 1))[:, None, None] ** 2
    per_block = (squares + _PRIOR_ROWS * expected) / (freedom + _PRIOR_ROWS)
    # few blocks estimate their own spread badly: as wide as Student's law with so many degrees of freedom
    wider = (student.ppf(0.975, np.maximum(freedom, 2)) / _QUANTILE) ** 2
    own = squares / np.maximum(freedom, 1)
    wider = wider * np.maximum(1, _trace(own) / np.maximum(_trace(per_block), 1e-300))[:, None, None]
    return wider * per_block * (np.maximum(blocks, 1) / counts**2)[:, None, None]


def _typical(squares: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """A covariance of one block as most clients have it: the mean without the noisiest tenth."""
    each = _trace(squares) / np.maximum(freedom[:, 0, 0], 1)
    usual = each <= np.quantile(each, 0.9)
    return np.asarray(squares[usual].sum(axis=0) / max(float(freedom[usual].sum()), 1.0))


def _trace(matrices: np.ndarray) -> np.ndarray:
    return np.trace(matrices, axis1=1, axis2=2)
