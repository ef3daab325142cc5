# SPDX-License-Identifier: Apache-2.0
"""A client's own optimum, on the client: descent to a gradient norm for convex losses, epochs of SGD for the others.

Rows that stop a solve early are held out of the client's training rows. Its validation rows are not for that: they
choose rounds and settings, and would favour a model that had been stopped on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from idiolect.core import batches, step_key, tree
from idiolect.core.types import Array, Batch, ClientData, Key, Params

ROUNDING = 2.0  # times the machine's precision, relative to the terms of a gradient: as near zero as it can come


class Solved(NamedTuple):
    """Where a solve ended: the point, whether its gradient is small enough, and how many gradients it took."""

    params: Params
    reached: Array
    gradients: Array


class _Progress(NamedTuple):
    last: Array  # x
    point: Array  # y, where the gradient was taken
    gradient: Array
    inertia: Array  # t of the momentum (t - 1) / t+
    curvature: Array  # L as seen so far
    best: Array  # the point of the smallest gradient
    best_gradient: Array
    gradients: Array


def to_tolerance(
    gradient: Callable[[Params], Params], start: Params, *, tolerance: float, most: int, wanted: Array | bool = True
) -> Solved:
    """Accelerated gradient descent until |gradient| <= `tolerance`, or `most` gradients; none where not `wanted`.

    No constant is needed: L is the steepest change of the gradient seen so far (a step that meets a steeper one is
    taken back), and momentum starts anew when it points uphill, which adapts to the strong convexity. The tolerance is
    raised to what rounding allows. Every step is one gradient; losses are never compared, so that rounding of the
    loss, the square root of the precision, does not limit the accuracy.
    """
    flat, read = ravel_pytree(start)
    precision = jnp.finfo(flat.dtype).eps

    def gradient_at(point: Array) -> Array:
        return ravel_pytree(gradient(read(point)))[0]

    def enough(progress: _Progress) -> Array:
        # a gradient is a difference of terms of this size: below its rounding the norm only wanders, and the loop would
        # never end
        scale = jnp.linalg.norm(first) + progress.curvature * jnp.linalg.norm(progress.best)
        return jnp.linalg.norm(progress.best_gradient) <= jnp.maximum(tolerance, ROUNDING * precision * scale)

    def unfinished(progress: _Progress) -> Array:
        return jnp.logical_and(wanted, jnp.logical_and(~enough(progress), progress.gradients < most))

    first = gradient_at(flat)
    # a look along the gradient gives a first L
    length = 1e-3 / jnp.maximum(jnp.linalg.norm(first), jnp.finfo(flat.dtype).tiny)
    change = jnp.linalg.norm(gradient_at(flat - length * first) - first)
    curvature = jnp.maximum(change / 1e-3, precision)
    began = _Progress(flat, flat, first, jnp.ones_like(curvature), curvature, flat, first, jnp.asarray(2, jnp.int32))
    ended = jax.lax.while_loop(unfinished, lambda progress: _accelerated_step(gradient_at, progress), began)
    return Solved(read(ended.best), enough(ended), jnp.where(wanted, ended.gradients, 0))


def _accelerated_step(gradient_at: Callable[[Any], Any], now: _Progress) -> _Progress:
    moved = now.point - now.gradient / now.curvature
    # O'Donoghue and Candes's restart by the gradient: it needs no loss, which rounds far more coarsely than its
    # gradient
    uphill = jnp.vdot(now.gradient, moved - now.last) > 0
    inertia = (1 + jnp.sqrt(1 + 4 * now.inertia**2)) / 2
    push = jnp.where(uphill, jnp.zeros_like(inertia), (now.inertia - 1) / inertia)
    point = moved + push * (moved - now.last)
    gradient = gradient_at(point)
    # a step of length 0, at the optimum itself, has no steepness
    tiny = jnp.finfo(gradient.dtype).tiny
    steepness = jnp.linalg.norm(gradient - now.gradient) / jnp.maximum(jnp.linalg.norm(point - now.point), tiny)
    better = jnp.linalg.norm(gradient) < jnp.linalg.norm(now.best_gradient)
    best, best_gradient = tree.choose(better, (point, gradient), (now.best, now.best_gradient))
    one = jnp.ones_like(inertia)
    onward = (moved, point, gradient, jnp.where(uphill, one, inertia), now.curvature)
    # taken back to the best point seen, not to the last one: momentum may have gone wrong some steps ago
    back = (best, best, best_gradient, one, 1.2 * steepness)
    last, point, gradient, inertia, curvature = tree.choose(steepness > now.curvature, back, onward)
    return _Progress(last, point, gradient, inertia, curvature, best, best_gradient, now.gradients + 1)


def by_epochs(
    gradient: Callable[[Key, Params, Batch], Params],
    key: Key,
    start: Params,
    data: ClientData,
    *,
    epochs: int,
    batch_size: int,
    step_size: float,
    wanted: Array | bool = True,
) -> Params:
    """SGD through `epochs` fresh orders of the client's rows; `batch_size` 0 takes all rows at once."""
    orders = batches.draw_orders(key, epochs, data) if batch_size else ()
    steps = epochs * batches.batches_per_epoch(data.count, batch_size)

    def one_step(t: Array, params: Params) -> Params:
        batch = batches.take_from_order(data, orders, t, batch_size) if batch_size else data.batch()
        return tree.descend(params, step_size, gradient(step_key(key, t), params, batch))

    # no step, rather than one that is thrown away: where no client wants it, the loop costs nothing
    return jax.lax.fori_loop(0, jnp.where(wanted, steps, 0), one_step, start)


class Stopped(NamedTuple):
    """Where early stopping ended: the best point seen, epochs walked, rows to learn from and to stop by."""

    params: Params
    epochs: Array
    learning_rows: Array
    stopping_rows: Array


class _Walk(NamedTuple):
    params: Array
    best: Array
    best_loss: Array
    since: Array  # epochs since the best point
    epochs: Array


def until_no_better(
    gradient: Callable[[Key, Params, Batch], Params],
    loss: Callable[[Params, Batch], Any],
    key: Key,
    start: Params,
    data: ClientData,
    *,
    epochs: int,
    batch_size: int,
    step_size: float,
    stopping_share: float,
    patience: int,
    wanted: Array | bool = True,
) -> Stopped:
    """SGD that ends when `patience` epochs brought no lower loss on held-out rows, or after `epochs`.

    `stopping_share` of the client's rows, drawn by lot, are held out: at least one and never all. They are evaluated
    at the start and after every epoch, `Stopped.epochs + 1` times. A client of one row has none to hold out and walks
    through all `epochs`, and so does one whose held-out rows weigh nothing.
    """
    lot = batches.draw_orders(step_key(key, epochs), 1, data)[0]  # epoch e's order is drawn with fold e < `epochs`
    held = jnp.round(stopping_share * data.count.astype(jnp.result_type(float))).astype(jnp.int32)
    # at least one row to stop by, and at least one to learn from
    held = jnp.minimum(jnp.maximum(held, 1), data.count - 1)
    learning = data._replace(count=data.count - held)
    places = jnp.arange(data.capacity, dtype=jnp.int32)
    is_held = jnp.logical_and(places >= learning.count, places < data.count)
    stopping, own = (
        Batch(data.inputs, data.targets, jnp.zeros(data.capacity, bool).at[lot].set(mask), data.weights)
        for mask in (is_held, places < learning.count)
    )
    tells_nothing = held == 0
    if data.weights is not None:  # held-out rows may all weigh 0
        tells_nothing = ~jnp.any(jnp.logical_and(jnp.asarray(stopping.mask), data.weights > 0))
    # orders are places among the rows to learn from, which stand first in the lot
    orders = lot[batches.draw_orders(key, epochs, learning)] if batch_size else ()
    steps = batches.batches_per_epoch(learning.count, batch_size)

    def one_step(t: Array, params: Params) -> Params:
        batch = batches.take_from_order(learning, orders, t, batch_size) if batch_size else own
        return tree.descend(params, step_size, gradient(step_key(key, t), params, batch))

    def one_epoch(now: _Walk) -> _Walk:
        first = now.epochs * steps
        params = jax.lax.fori_loop(first, first + steps, one_step, now.params)
        reached = loss(params, stopping)
        # without a row to stop by, every epoch is the best so far
        better = jnp.logical_or(reached < now.best_loss, tells_nothing)
        best = tree.choose(better, params, now.best)
        best_loss = jnp.where(better, reached, now.best_loss)
        return _Walk(params, best, best_loss, jnp.where(better, 0, now.since + 1), now.epochs + 1)

    def goes_on(now: _Walk) -> Array:
        return jnp.logical_and(wanted, jnp.logical_and(now.epochs < epochs, now.since < patience))

    none = jnp.asarray(0, jnp.int32)
    ended = jax.lax.while_loop(goes_on, one_epoch, _Walk(start, start, loss(start, stopping), none, none))
    return Stopped(ended.best, ended.epochs, learning.count, held)
