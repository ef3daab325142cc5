# SPDX-License-Identifier: Apache-2.0
"""What a model costs on rows unseen: every row (or block of rows) left out in turn by one Newton step.

Folds would take a fifth of a client's few rows away and make training alone look worse than it is. The step from the
optimum on all rows is exact for squares and close for log losses (approximate leave-one-out).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from idiolect.collaborate.batched import derivatives, newton_steps, own_answers, sums_of_groups
from idiolect.collaborate.quadratic import Sample

MOST_NUMBERS = 500_000_000  # rows times squared coefficients: beyond it folds are quicker


def is_quick(sample: Sample) -> bool:
    """Whether leaving out one row at a time is affordable, and honest: no client holds a copy of another's rows."""
    return len(sample.owner) * sample.size**2 <= MOST_NUMBERS and not sample.copies


class Fitted(NamedTuple):
    """Models that count rows of others, too, at their optimum."""

    hessians: np.ndarray  # (clients, size, size) of the weighted losses, without the ridge
    own: np.ndarray  # (clients,) what a row of the client's own counts in its model


def left_out_losses(sample: Sample, models: np.ndarray, penalty: float, fitted: Fitted | None = None) -> np.ndarray:
    """(rows,) loss of every row under its client's model without the row's block; `models` are the optima.

    Without `fitted` every client's model is that of its own rows, each counted once.
    """
    losses, agents = np.empty(len(sample.owner)), np.arange(sample.agents)
    for place, rows, _ in sample.groups.pieces():
        some = None if fitted is None else Fitted(*(part[place] for part in fitted))
        losses[rows] = _losses(sample.some_agents(agents[place]), models[place], sample.ridge(penalty), some)
    return losses


def _losses(sample: Sample, models: np.ndarray, ridge: np.ndarray, fitted: Fitted | None) -> np.ndarray:
    if not len(sample.owner):
        return np.zeros(0)
    block, holder = sample.blocks
    order, rows = sample.grouped(block, len(holder))  # blocks of one client stand together
    answers = own_answers(sample.loss, rows.design, models[sample.owner[order]])
    each = derivatives(sample.loss, rows.design, rows.goals, answers)
    gradients, hessians = (sums_of_groups(one, rows.starts) for one in each)
    bounds = np.searchsorted(holder, np.arange(sample.agents + 1))
    whole, own = (sums_of_groups(hessians, bounds), np.ones(sample.agents)) if fitted is None else fitted
    weight = own[holder][:, None]
    # one Newton step from the optimum of all rows to that of the others: at the optimum the gradient of the others is
    # minus that of the block, so that no model is fitted anew
    moved = models[holder] + newton_steps(weight * gradients, whole[holder] - weight[..., None] * hessians, ridge)
    if fitted is None:
        moved[np.diff(bounds)[holder] == 1] = 0.0  # nothing is left to learn from
    losses = np.empty(len(order))
    losses[order] = sample.loss.row_losses(own_answers(sample.loss, rows.design, moved[rows.owner]), rows.goals)
    return losses
