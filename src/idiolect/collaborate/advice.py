# SPDX-License-Identifier: Apache-2.0
"""From held-out losses of three ways to one piece of advice per agent, with its expected gain and interval.

Few rows decide little. Each agent's measured gains are drawn towards what agents of its size gain, as far as the
agents differ from one another less than their rows are noisy (empirical Bayes for normal means, two gains at once).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from idiolect.collaborate.options import OPTIONS
from idiolect.collaborate.quadratic import Sample

_PRIOR_ROWS = 4.0  # rows of everybody's covariance that are added to an agent's own
_ROUNDS = 20  # of estimating how much agents differ and what they gain on average
_ENOUGH = 8  # agents from which on gains may depend on their size
_QUANTILE = 1.959963984540054


class Advice(NamedTuple):
    """One entry per agent. Gains are held-out loss saved against training alone, in order of OPTIONS."""

    pick: np.ndarray  # (agents,) place in OPTIONS
    measured: np.ndarray  # (agents, 3) mean saving over the agent's own held-out rows
    expected: np.ndarray  # (agents, 3) drawn towards agents alike
    low: np.ndarray  # (agents, 3) 95 % interval of the expected gain
    high: np.ndarray
    chance: np.ndarray  # (agents,) probability that the pick is no worse than each other way, least of them

    def names(self) -> list[str]:
        """What each agent should do."""
        return [OPTIONS[place] for place in self.pick]


def advise(sample: Sample, losses: np.ndarray) -> Advice:
    """The way with the largest expected gain, for every agent; (rows, 3) held-out losses given."""
    saved = losses[:, :1] - losses[:, 1:]
    measured = sample.means(saved)
    noise = gain_noise(sample, saved, measured)
    expected, spread = shrink(measured, noise, sample.counts)
    with_alone = np.concatenate([np.zeros((sample.agents, 1)), expected], axis=1)
    wide = np.zeros((sample.agents, 3, 3))
    wide[:, 1:, 1:] = spread
    half = _QUANTILE * np.sqrt(np.einsum("aii->ai", wide))
    pick = np.argmax(with_alone, axis=1)
    return Advice(
        pick,
        np.concatenate([np.zeros((sample.agents, 1)), measured], axis=1),
        with_alone,
        with_alone - half,
        with_alone + half,
        _surety(with_alone, wide, pick),
    )


def gain_noise(sample: Sample, saved: np.ndarray, means: np.ndarray) -> np.ndarray:
    """(agents, k, k) covariance of mean gains; rows of a block stand or fall together."""
    centred = saved - means[sample.owner]
    _, block = np.unique(np.stack([sample.owner, sample.block]), axis=1, return_inverse=True)
    totals = np.zeros((block.max(initial=0) + 1, saved.shape[1]))
    np.add.at(totals, block.reshape(-1), centred)
    owners = np.zeros(len(totals), np.int64)
    owners[block.reshape(-1)] = sample.owner
    squares = np.zeros((sample.agents, saved.shape[1], saved.shape[1]))
    np.add.at(squares, owners, totals[:, :, None] * totals[:, None, :])
    blocks = np.bincount(owners, minlength=sample.agents)
    counts = np.maximum(sample.counts, 1)
    # per block; an agent with few of them borrows from the others
    freedom = np.maximum(blocks - 1, 0)[:, None, None]
    pooled = squares.sum(axis=0) / max(float(freedom.sum()), 1.0)
    per_block = (squares + _PRIOR_ROWS * pooled) / (freedom + _PRIOR_ROWS)
    return per_block * (np.maximum(blocks, 1) / counts**2)[:, None, None]


def shrink(measured: np.ndarray, noise: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means (agents, k) and covariances, prior N(b_0 + b_1/n_i, T_0 + T_1/n_i^2) fitted to all agents.

    Moments: (residual residual' - noise) regressed on 1 and 1/n_i^2; the negative parts of T_0 and T_1 are cut off.
    """
    unit = np.sqrt(np.einsum("aii->ai", noise).mean(axis=0))  # one gain may be far noisier than the other
    unit = np.where(unit > 0, unit, 1.0)
    expected, spread = _shrink(measured / unit, noise / unit[:, None] / unit, counts)
    return expected * unit, spread * unit[:, None] * unit


def _shrink(measured: np.ndarray, noise: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    agents, gains = measured.shape
    sizes = 1 / np.maximum(counts, 1)
    sizes = sizes / sizes.mean()
    terms = 2 if agents >= _ENOUGH and np.ptp(sizes) > 1e-12 else 1
    features = np.stack([np.ones(agents), sizes], axis=1)[:, :terms]
    between = np.zeros((agents, gains, gains))
    floor = 1e-9 * float(np.trace(noise, axis1=1, axis2=2).mean()) + 1e-100
    for _ in range(_ROUNDS):
        weights = 1 / (np.trace(noise + between, axis1=1, axis2=2) + floor)
        root = np.sqrt(weights)[:, None]
        coefficients = np.linalg.lstsq(features * root, measured * root)[0]
        residual = measured - features @ coefficients
        excess = residual[:, :, None] * residual[:, None, :] - noise
        parts = np.linalg.lstsq(features**2 * weights[:, None], excess.reshape(agents, -1) * weights[:, None])[0]
        kept = np.stack([_positive(part.reshape(gains, gains)) for part in parts])
        between = np.einsum("af,fij->aij", features**2, kept)
    keep = between @ np.linalg.inv(between + noise + floor * np.eye(gains))
    expected = features @ coefficients + np.einsum("aij,aj->ai", keep, residual)
    # the average is uncertain itself, and every agent leans on it
    total = noise + between
    information = np.linalg.pinv(features.T @ (features * weights[:, None]))
    lean = np.einsum("af,fg,ag->a", features, information, features) * weights
    left = np.eye(gains) - keep
    spread = between - keep @ between + left @ (lean[:, None, None] * total) @ left.transpose(0, 2, 1)
    return expected, (spread + spread.transpose(0, 2, 1)) / 2


def _positive(matrix: np.ndarray) -> np.ndarray:
    """The nearest covariance."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _surety(expected: np.ndarray, spread: np.ndarray, pick: np.ndarray) -> np.ndarray:
    """Least normal probability that the pick is at least as good as another way."""
    from scipy.special import ndtr

    places = np.arange(len(pick))
    least = np.ones(len(pick))
    for other in range(expected.shape[1]):
        ahead = expected[places, pick] - expected[:, other]
        variance = spread[places, pick, pick] + spread[:, other, other] - 2 * spread[places, pick, other]
        scale = np.sqrt(np.maximum(variance, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            chance = np.where(scale > 0, ndtr(ahead / scale), np.where(ahead >= 0, 1.0, 0.0))
        least = np.where(pick == other, least, np.minimum(least, chance))
    return least
