# SPDX-License-Identifier: Apache-2.0
"""Several steps of a client in one go, beside the round's own steps: fine-tuning, a phase before or after them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from idiolect.algorithms.optimizers import Descent
from idiolect.core import NOTHING, Batched, step_key
from idiolect.core.control import repeat
from idiolect.core.types import Batch, ClientData, Key, Params, Tally

Gradient = Callable[[Key, Params, Batch], tuple[Params, Tally]]


def walk(
    algorithm: Batched,
    key: Key,
    start: Params,
    data: ClientData,
    gradient: Gradient,
    descent: Descent,
    *,
    steps: int = 0,
    epochs: int = 0,
    may_be_empty: bool = False,
) -> tuple[Params, Tally]:
    """`epochs` passes over the client's rows or else `steps` steps, from `start`, with the algorithm's batch size.

    The number of steps of an epoch is the client's own: where clients differ, the loop ends with the longest. Rows that
    `may_be_empty` are walked over only where there are some.
    """
    if not (steps or epochs):
        return start, NOTHING
    plan = dataclasses.replace(algorithm, local_steps=steps, epochs=epochs)
    drawn = plan.draw_batches(key, data)

    def one_step(t: ArrayLike, carried: tuple[Params, Any, Tally]) -> tuple[Params, Any, Tally]:
        params, memory, tally = carried
        direction, cost = gradient(step_key(key, t), params, plan.batch(t, drawn, data))
        return *descent.step(params, memory, direction), tally.plus(cost.counters())

    # the base's own rule: a method that draws its number of steps, or counts other rows, overrides `steps` for its
    # rounds alone
    count = Batched.steps(plan, (), data.count)
    if may_be_empty:
        count = jnp.where(data.count > 0, count, 0)
    end, _, tally = repeat(count, one_step, (start, descent.start(start), NOTHING.counters()))
    return end, tally
