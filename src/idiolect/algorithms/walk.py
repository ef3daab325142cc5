# SPDX-License-Identifier: Apache-2.0
"""Several SGD steps of a client in one go, beside the round's own steps: fine-tuning, a phase before or after them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jax.typing import ArrayLike

from idiolect.core import NOTHING, Batched, step_key, tree
from idiolect.core.control import repeat
from idiolect.core.types import Batch, ClientData, Key, Params, Scalar, Tally

Gradient = Callable[[Key, Params, Batch], tuple[Params, Tally]]


def walk(
    algorithm: Batched,
    key: Key,
    start: Params,
    data: ClientData,
    gradient: Gradient,
    *,
    step_size: Scalar,
    steps: int = 0,
    epochs: int = 0,
) -> tuple[Params, Tally]:
    """`epochs` passes over the client's rows or else `steps` steps, from `start`, with the algorithm's batch size.

    The number of steps of an epoch is the client's own: where clients differ, the loop ends with the longest.
    """
    if not (steps or epochs):
        return start, NOTHING
    plan = dataclasses.replace(algorithm, local_steps=steps, epochs=epochs)
    drawn = plan.draw_batches(key, data)

    def one_step(t: ArrayLike, carried: tuple[Params, Tally]) -> tuple[Params, Tally]:
        params, tally = carried
        direction, cost = gradient(step_key(key, t), params, plan.batch(t, drawn, data))
        return tree.descend(params, step_size, direction), tally.plus(cost.counters())

    # the base's own rule: a method that draws its number of steps, or counts other rows, overrides `steps` for its
    # rounds alone
    return repeat(Batched.steps(plan, (), data.count), one_step, (start, NOTHING.counters()))
