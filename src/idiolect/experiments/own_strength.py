# SPDX-License-Identifier: Apache-2.0
"""A strength of personalization for each client, chosen on its own validation rows and judged on others.

Few rows decide little: every client's rows count beside a few rows of the mean client, and whether own values pay at
all is judged by cross-fitting, the other folds choosing for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PRIOR_ROWS = 10.0  # of the mean client, added to each client's own


class Own(NamedTuple):
    """The place of each client's own value, and its losses on validation rows that did not choose it."""

    places: np.ndarray  # (clients,)
    losses: np.ndarray  # (folds, clients)


def choose_own(losses: np.ndarray, without: Sequence[np.ndarray], rows: np.ndarray, common: np.ndarray) -> Own | None:
    """Each client's own value, or None where that is no better than one value for all.

    `losses` are means over a client's validation rows, (values, folds, clients), `rows` how many these are in a fold;
    `without` has, for each fold, the same after the rounds that the other folds choose; `common` are the cross-fitted
    losses of one value for all, (folds, clients).
    """
    values, folds, clients = losses.shape
    scored = (rows > 0) & np.isfinite(losses).all(axis=(0, 1)) & np.isfinite(common).all(axis=0)
    if values < 2 or folds < 2 or not scored.any():
        return None
    everyone = np.arange(clients)
    crossed = np.empty((folds, clients))
    for number, others in enumerate(without):
        # a fold is judged by what the other folds chose: the best of several values is best by luck too
        chosen = pick(np.delete(others, number, axis=1), rows, scored)
        crossed[number] = others[chosen, number, everyone]
    # freedom that does not pay on rows which did not use it is taken back: one value for all
    if not crossed[:, scored].mean() < common[:, scored].mean():
        return None
    return Own(pick(losses, rows, scored), np.where(scored, crossed, np.nan))


def pick(losses: np.ndarray, rows: np.ndarray, scored: np.ndarray) -> np.ndarray:
    """(clients,) place of the value with the least loss over the client's rows and some of the mean client."""
    means = np.where(scored, losses.mean(axis=1), 0.0)  # (values, clients)
    typical = means[:, scored].mean(axis=1, keepdims=True)
    # as if each client had some rows of the mean client: with few rows it follows the others, with many itself
    return np.argmin(losses.shape[1] * rows * means + PRIOR_ROWS * typical, axis=0)
