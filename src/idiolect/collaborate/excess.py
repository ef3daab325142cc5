# SPDX-License-Identifier: Apache-2.0
"""Discrepancies from models: how much worse client j's model is than my own on my rows, f_i(x_j) - f_i(x_i).

Every client's rows are dealt to folds; its own model is judged on rows it has not seen, without losing any row
(cross-fitting). The expectation is b_ij + (what j's few rows cost) - (what i's few rows cost): negative where j's model
would serve i better than its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from idiolect.collaborate.exchange import Exchange, Parcel
from idiolect.collaborate.quadratic import Expansion, Sample, quick_models, score, score_own


class Excess(NamedTuple):
    """Estimates for all ordered pairs."""

    value: np.ndarray  # (clients, clients) mean of loss(x_j) - loss(x_i) over rows of i
    noise: np.ndarray  # (clients,) what one nat of evidence is in units of the loss


def pairwise_excess(sample: Sample, expansion: Expansion, penalty: float) -> Excess:
    """All ordered pairs. For many clients see `blocks.learn_in_blocks`, which asks for few of them."""
    alone = np.eye(sample.agents)
    models = quick_models(sample, expansion, alone, penalty)
    # i's own model is judged without the rows it is judged on, as j's never saw them: otherwise i would look better
    # than it is
    folds = [quick_models(sample, expansion, alone, penalty, without=fold) for fold in range(sample.folds)]
    own = score_own(sample, np.stack(folds, axis=1))
    value = sample.means(score(sample, models) - own[:, None])
    np.fill_diagonal(value, 0.0)
    return Excess(value, noise_scale(sample, own))


def judging(sample: Sample, models: int, pairs: int) -> Exchange:
    """What it costs that `pairs` times a client judges one of `models` models that clients have sent."""
    return Exchange(
        # one mean per pair goes back to the server, and nothing of single rows
        (Parcel("a client's model", (sample.size,), models, pairs), Parcel("mean loss of a judged model", (), pairs)),
        pairs,
        int(min(sample.counts[sample.counts > 0], default=0)) or None,
        "Every client sees the models of those it judges and the server every mean excess.",
    )


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
