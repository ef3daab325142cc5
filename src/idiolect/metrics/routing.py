# SPDX-License-Identifier: Apache-2.0
"""Where inputs are routed: how often each layer's shared version is taken, and by which inputs.

Inputs are told apart as in `personalization`: right with both models, the shared one, the personal one, neither.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from idiolect.core.checks import RequestError
from idiolect.metrics.instances import kinds_of


class Routing(NamedTuple):
    """One entry per layer, and one line per category in `by_category`; not-a-number where there is no row."""

    names: tuple[str, ...]
    shared_share: np.ndarray  # mean q_0 over rows
    taken: np.ndarray  # fraction of rows that take the shared version: q_0 >= 1/2
    one_way: np.ndarray  # fraction of clients all of whose rows go one way: the other version is not computed for them
    by_category: dict[str, np.ndarray]  # category -> mean q_0 of its rows
    taken_by_category: dict[str, np.ndarray]  # category -> share of its rows that take the shared version
    rows: dict[str, int]  # category -> its number of rows


def routing_report(
    names: tuple[str, ...], shares: ArrayLike, shared_correct: ArrayLike, personal_correct: ArrayLike, mask: ArrayLike
) -> Routing:
    """Summarise q_0: shares (clients, rows, layers), the rest (clients, rows).

    Of sequences every position is a row: shares may be (clients, rows, time, layers), the rest (clients, rows, time).
    """
    shares, real = np.asarray(shares, float), np.asarray(mask, bool)
    if shares.shape[:-1] != real.shape or shares.shape[-1] != len(names):
        raise RequestError(
            f"shares must have an entry for each of mask {real.shape} and name, {len(names)}, got shape {shares.shape}."
        )
    shares, real = shares.reshape(len(shares), -1, len(names)), real.reshape(len(real), -1)
    shared, personal = (np.asarray(flags, bool).reshape(real.shape) for flags in (shared_correct, personal_correct))
    rows = kinds_of(shared, personal, real)._asdict()
    taken = shares >= 0.5
    # a client without rows computes nothing; padding takes no way
    ways = [np.all((taken == way) | ~real[:, :, None], axis=1) for way in (True, False)]
    one_way, present = np.logical_or(*ways)[:, None], np.asarray(real.any(axis=1))[:, None]
    return Routing(
        names,
        _mean(shares, real),
        _mean(taken, real),
        _mean(one_way, present),
        {name: _mean(shares, where) for name, where in rows.items()},
        {name: _mean(taken, where) for name, where in rows.items()},
        {name: int(where.sum()) for name, where in rows.items()},
    )


def _mean(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """(layers,): mean over the chosen rows of all clients; not-a-number where none is."""
    chosen = values[where]
    return chosen.mean(axis=0) if len(chosen) else np.full(values.shape[-1], np.nan)
