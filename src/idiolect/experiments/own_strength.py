# SPDX-License-Identifier: Apache-2.0
"""A strength of personalization for each client, chosen on its own validation rows and judged on others.

Few rows decide little: every client's rows count beside a few rows of the mean client, and whether own values pay at
all is judged by cross-fitting, one half of the validation rows choosing for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.engines.simulate import Session
from idiolect.metrics.scores import SCORES

if TYPE_CHECKING:
    from idiolect.experiments.prepare import Prepared

PRIOR_ROWS = 10.0  # of the mean client, added to each client's own


class Own(NamedTuple):
    """One value per client, and the loss of each on validation rows that did not choose it."""

    name: str
    values: list[float]
    losses: list[float]


def choose_own(
    prepared: Prepared, name: str, values: Sequence[float], lanes: Sequence[tuple[Session, int]], common: int
) -> Own | None:
    """Each client's own value, or None where that is no better than `common`, the place of the best for all."""
    score = SCORES[prepared.choose_by]
    if len(values) < 2 or score.per_row is None or score.higher_is_better:
        return None
    rows = prepared.federation.validation
    counts = rows.counts
    losses = np.stack([_row_losses(session, lane, prepared.choose_by, rows.counts) for session, lane in lanes])
    place = np.arange(losses.shape[2])
    halves = [(place % 2 == half) & (place < counts[:, None]) for half in (0, 1)]
    crossed, fixed = np.zeros(len(counts)), np.zeros(len(counts))
    for chooses, judges in (halves, halves[::-1]):
        picked = pick(losses, chooses)
        crossed += np.where(judges, losses[picked, np.arange(len(counts))], 0).sum(axis=1)
        fixed += np.where(judges, losses[common], 0).sum(axis=1)
    scored = counts > 0
    if (
        not crossed[scored].sum() / fixed[scored].sum() < 1
        or not (crossed / counts.clip(1)).mean() < (fixed / counts.clip(1)).mean()
    ):
        return None
    chosen = pick(losses, place < counts[:, None])
    means = np.where(scored, crossed / counts.clip(1), np.nan)
    return Own(name, [float(values[place]) for place in chosen], means.tolist())


def pick(losses: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """(clients,) place of the value with the least loss over the client's counted rows and some of the mean client.

    `losses` is (values, clients, rows), `counted` (clients, rows).
    """
    totals = np.where(counted, losses, 0).sum(axis=2)
    rows = counted.sum(axis=1)
    present = rows > 0
    typical = (totals[:, present] / rows[present]).mean(axis=1) if present.any() else np.zeros(len(losses))
    return np.argmin(totals + PRIOR_ROWS * typical[:, None], axis=0)


def _row_losses(session: Session, lane: int, score: str, counts: np.ndarray) -> np.ndarray:
    """(clients, rows) losses of a lane's personal models on validation rows, at its selected round."""
    outputs = session.validation_outputs(lane)
    capacity = outputs.shape[1]
    padded = session.federation.validation.pad(np.arange(len(counts)), capacity)
    mask = np.arange(capacity) < counts[:, None]
    per_row = SCORES[score].per_row
    assert per_row is not None
    found = jax.vmap(per_row)(jnp.asarray(outputs), jnp.asarray(padded.targets), jnp.asarray(mask))
    return np.asarray(found, np.float64)
