# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning: some steps from the shared model on the client's own training rows, at evaluation time."""

from __future__ import annotations

from typing import Any

import jax

from idiolect.core import batches, tree
from idiolect.core.algorithm import Algorithm
from idiolect.core.control import repeat
from idiolect.core.data import ClientData
from idiolect.core.keys import Key
from idiolect.core.tally import NOTHING, Tally
from idiolect.core.tree import Params


def fine_tune(
    algorithm: Algorithm, key: Key, shared: Params, personal: Params, data: ClientData, *, steps: int, step_size: Any
) -> tuple[Params, Tally]:
    """`steps` SGD steps on the shared block beside a fixed personal one, with the algorithm's batch size."""
    if steps == 0:
        return shared, NOTHING
    size = algorithm.batch_size
    rows = batches.draw_with_replacement(key, steps, size, data) if size else None

    def one_step(t: Any, carried: tuple[Params, Tally]) -> tuple[Params, Tally]:
        params, tally = carried
        batch = data.batch() if rows is None else batches.take_rows(data, rows[t])
        slope, cost = algorithm.objective.gradient_shared(jax.random.fold_in(key, t), params, personal, batch)
        return tree.descend(params, step_size, slope), tally.plus(cost.counters())

    return repeat(steps, one_step, (shared, NOTHING.counters()))
