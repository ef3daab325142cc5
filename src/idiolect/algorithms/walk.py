# SPDX-License-Identifier: Apache-2.0
"""Several steps of a client in one go, beside the round's own steps: fine-tuning, a phase before or after them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jax.typing import ArrayLike

from idiolect.algorithms.client_optimizer import PLAIN, Descent
from idiolect.core import NOTHING, Batched, step_key
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
    optimizer: str = PLAIN,
) -> tuple[Params, Tally]:
    """`epochs` passes over the client's rows or else `steps` steps, from `start`, with the algorithm's batch size.

    The number of steps of an epoch is the client's own: where clients differ, the loop ends with the longest.
    """
    if not (steps or epochs):
        return start, NOTHING
    plan = dataclasses.replace(algorithm, local_steps=steps, epochs=epochs)
    drawn, descent = plan.draw_batches(key, data), Descent(optimizer, step_size)

    def one_step(t: ArrayLike, carried: tuple[Params, Any, Tally]) -> tuple[Params, Any, Tally]:
        params, memory, tally = carried
        direction, cost = gradient(step_key(key, t), params, plan.batch(t, drawn, data))
        return *descent.step(params, memory, direction), tally.plus(cost.counters())

    # the base's own rule: a method that draws its number of steps, or counts other rows, overrides `steps` for its
    # rounds alone
    begun = (start, descent.start(start), NOTHING.counters())
    end, _, tally = repeat(Batched.steps(plan, (), data.count), one_step, begun)
    return end, tally
