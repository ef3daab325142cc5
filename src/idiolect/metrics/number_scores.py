# SPDX-License-Identifier: Apache-2.0
"""Scores of numbers, quantiles and counts: outputs and targets are (rows,) or (rows, k) values of ONE client.

Errors of several target columns are summed, not averaged. A count's output is its predicted rate, above 0: the loss
takes its logarithm, predictions and scores the rate itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp

from idiolect.core.checks import RequestError
from idiolect.core.data import Array
from idiolect.metrics.masked import divided, floating, mean_over_rows, row_weights, worst_if_nan


def squared_error_rows(outputs: Array, targets: Array, mask: Array) -> Array:
    """Per row: squared error summed over output columns; 0 on padding."""
    predicted, wanted, real = _values(outputs, targets, mask)
    return _losses(jnp.square(predicted - wanted), real)


def absolute_error_rows(outputs: Array, targets: Array, mask: Array) -> Array:
    """Per row: absolute error summed over output columns; 0 on padding."""
    predicted, wanted, real = _values(outputs, targets, mask)
    return _losses(jnp.abs(predicted - wanted), real)


def pinball_rows(percent: int) -> Callable[[Array, Array, Array], Array]:
    """Per row: t (y - q) where y is above the predicted quantile q, (1 - t) (q - y) below; t = percent / 100."""

    def rows(outputs: Array, targets: Array, mask: Array) -> Array:
        predicted, wanted, real = _values(outputs, targets, mask)
        above = wanted - predicted
        return _losses(jnp.maximum(percent / 100 * above, (percent / 100 - 1) * above), real)

    return rows


def poisson_deviance_rows(outputs: Array, targets: Array, mask: Array) -> Array:
    """Per row: 2 (y log(y / r) - y + r) for the count y and the predicted rate r; infinite for a rate below 0."""
    rate, count, real = _values(outputs, targets, mask)
    seen = count > 0
    surprise = jnp.where(seen, count * (jnp.log(jnp.where(seen, count, 1)) - jnp.log(jnp.where(seen, rate, 1))), 0)
    deviance = jnp.where(rate >= 0, 2 * (surprise - count + rate), jnp.inf)
    return _losses(jnp.where(real[:, None], deviance, 0), real)


def squared_error(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Mean over rows of the squared error, *summed* over output columns (not averaged)."""
    return mean_over_rows(squared_error_rows(outputs, targets, mask), mask, weights)


def mae(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Mean over rows of the absolute error, summed over output columns."""
    return mean_over_rows(absolute_error_rows(outputs, targets, mask), mask, weights)


def rmse(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Square root of the mean squared error of a client's rows."""
    return jnp.sqrt(squared_error(outputs, targets, mask, weights))


def r2(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """1 - squared error / that of the client's own mean; not-a-number where its targets are all alike."""
    _, wanted, real = _values(outputs, targets, mask)
    if weights is not None:
        counted = row_weights(mask, weights, wanted.dtype)
        away = wanted - wanted[jnp.argmax(counted > 0)]  # targets that are all alike are exactly so
        middle = divided(jnp.sum(counted[:, None] * away, axis=0), jnp.sum(counted))
        total = jnp.sum(counted[:, None] * jnp.square(away - middle))
        losses = squared_error_rows(outputs, targets, mask)
        return 1 - divided(jnp.sum(jnp.where(counted > 0, counted * losses, 0)), total)
    number = jnp.maximum(jnp.sum(real, dtype=jnp.int32), 1).astype(wanted.dtype)
    away = jnp.where(real[:, None], wanted - jnp.sum(wanted, axis=0) / number, 0)
    total = jnp.sum(jnp.square(away))
    left = jnp.sum(squared_error_rows(outputs, targets, mask))
    return jnp.where(total > 0, 1 - left / jnp.where(total > 0, total, 1), jnp.nan)


def poisson_deviance(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
    """Mean over rows of the Poisson deviance of a count from its predicted rate."""
    return mean_over_rows(poisson_deviance_rows(outputs, targets, mask), mask, weights)


def pinball(percent: int) -> Callable[..., Array]:
    """The score pinball_NN: mean over rows of the pinball loss of the NN % quantile, summed over output columns."""
    per_row = pinball_rows(percent)

    def score(outputs: Array, targets: Array, mask: Array, weights: Array | None = None) -> Array:
        return mean_over_rows(per_row(outputs, targets, mask), mask, weights)

    score.__doc__ = f"Mean pinball loss of the {percent} % quantile; pinball_1 to pinball_99 are all there."
    return score


def _losses(entries: Array, real: Array) -> Array:
    return jnp.where(real, worst_if_nan(jnp.sum(entries, axis=1)), 0)


def _values(outputs: Array, targets: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Values and targets as (rows, columns), padding replaced by zeros, and the mask."""
    rows = mask.shape[0]
    predicted, wanted = (
        values.astype(floating(outputs)).reshape(rows, math.prod(values.shape[1:])) for values in (outputs, targets)
    )
    if predicted.shape != wanted.shape:
        raise RequestError(
            f"Regression scores need as many outputs per row as targets, got outputs {tuple(outputs.shape)} "
            f"and targets {tuple(targets.shape)}. Give the model one output per target column."
        )
    real = mask.astype(bool)
    return jnp.where(real[:, None], predicted, 0), jnp.where(real[:, None], wanted, 0), real
