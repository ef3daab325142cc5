# SPDX-License-Identifier: Apache-2.0
"""Where inputs are routed: how often each layer's shared version is taken, and by which inputs.

Inputs are told apart as in `instances`: right with both models, the shared one only, the personal one only, neither.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.metrics.instances import Breakdown

CATEGORIES = Breakdown._fields


class Routing(NamedTuple):
    """One entry per layer, and one line per category in `by_category`; not-a-number where there is no row."""

    names: tuple[str, ...]
    shared_share: np.ndarray  # mean q_0 over rows
    taken: np.ndarray  # share of rows that take the shared version: q_0 >= 1/2
    one_way: np.ndarray  # share of clients all of whose rows go one way: the other version is not computed for them
    by_category: dict[str, np.ndarray]  # category -> mean q_0 of its rows
    taken_by_category: dict[str, np.ndarray]  # category -> share of its rows that take the shared version
    rows: dict[str, int]  # category -> its number of rows


def routing_report(
    names: tuple[str, ...], shares: Any, shared_correct: Any, personal_correct: Any, mask: Any, picked: Any = None
) -> Routing:
    """Summarise q_0: shares (clients, rows, layers), or (clients, rows, time, layers); the rest (clients, rows).

    Of a sequence, q_0 is the mean over positions and it takes the shared version where most positions do; it counts as
    right where most of its positions are. `picked`, shaped as shares, is the share of positions that take the shared
    version, for shares that are already means over positions.
    """
    shares, real = np.asarray(shares, float), np.asarray(mask, bool)
    if shares.shape[:2] != real.shape or shares.shape[-1] != len(names):
        raise RequestError(
            f"shares must have a row per row of mask {real.shape} and an entry per name, {len(names)}, got shape "
            f"{shares.shape}."
        )
    steps = shares.reshape(*shares.shape[:2], -1, len(names))
    picked = steps >= 0.5 if picked is None else np.asarray(picked, float).reshape(steps.shape)
    shared, personal = (np.asarray(flags, float) >= 0.5 for flags in (shared_correct, personal_correct))
    kinds = (shared & personal, shared & ~personal, ~shared & personal, ~shared & ~personal)
    rows = {name: real & kind for name, kind in zip(CATEGORIES, kinds)}
    mean, taken = steps.mean(axis=2), picked.mean(axis=2) >= 0.5
    # a client without rows computes nothing; padding takes no way
    ways = [np.all((picked == way) | ~real[:, :, None, None], axis=(1, 2)) for way in (1, 0)]
    one_way, present = np.logical_or(*ways).reshape(-1, 1, len(names)), np.asarray(real.any(axis=1))
    return Routing(
        names,
        _mean(mean, real),
        _mean(taken, real),
        _mean(one_way, present[:, None]),
        {name: _mean(mean, where) for name, where in rows.items()},
        {name: _mean(taken, where) for name, where in rows.items()},
        {name: int(where.sum()) for name, where in rows.items()},
    )


def _mean(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """(layers,): mean over the chosen rows of all clients; not-a-number where none is."""
    chosen = values[where]
    return chosen.mean(axis=0) if len(chosen) else np.full(values.shape[-1], np.nan)
