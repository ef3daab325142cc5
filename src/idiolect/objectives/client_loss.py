# SPDX-License-Identifier: Apache-2.0
"""f'_m: one model's plain loss on one client's rows, before any personalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.core import RequestError, Settings, setting, settings
from idiolect.core.data import masked_mean
from idiolect.core.statistics import moving, trained
from idiolect.core.tree import squared_norm
from idiolect.core.types import Array, Batch, Key, Params
from idiolect.models import Model


def cross_entropy(outputs: Array, targets: Array) -> Array:
    """-log softmax(outputs)[target], per row; targets are class numbers.

    A row that is a sequence has a target per position, and its loss is the mean over the positions that have one: a
    negative target is none.
    """
    if outputs.ndim != targets.ndim + 1:
        raise RequestError(
            f"cross_entropy needs a column per class for every target, got outputs of shape {outputs.shape} for "
            f"targets of shape {targets.shape}; a language model needs a target per position, other models one per row."
        )
    chosen = jnp.sum(outputs * jax.nn.one_hot(targets, outputs.shape[-1], dtype=outputs.dtype), axis=-1)
    losses = jax.nn.logsumexp(outputs, axis=-1) - chosen
    if targets.ndim == 1:
        return losses
    # one-hot codes of a negative target are all 0, so that its loss is finite, and is then left out
    real = (targets >= 0).astype(losses.dtype)
    return jnp.sum(losses * real, axis=1) / jnp.maximum(jnp.sum(real, axis=1), 1)


def logistic(outputs: Array, targets: Array) -> Array:
    """log(1 + exp(-sign * output)), per row; targets are 0 / 1 class numbers and the model has one plain output."""
    _check_alike("logistic", outputs, targets)
    return _softplus(-(2 * targets - 1).astype(outputs.dtype) * outputs)


@jax.custom_jvp
def _softplus(values: Array) -> Array:
    return jax.nn.softplus(values)


@_softplus.defjvp
def _softplus_gradient(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Array, Array]:
    # one exponential; differentiating log(1 + exp) as it is computed takes two and a logarithm
    return _softplus(primals[0]), tangents[0] * jax.nn.sigmoid(primals[0])


def squared(outputs: Array, targets: Array) -> Array:
    """(1/2) |output - target|^2, per row."""
    _check_alike("squared", outputs, targets)
    half = 0.5 * (outputs - targets) ** 2
    return half.reshape(half.shape[0], -1).sum(axis=1)


def poisson(outputs: Array, targets: Array) -> Array:
    """exp(z) - y z, per row: minus the log-likelihood of the count y at the rate exp(z), up to a constant."""
    _check_alike("poisson", outputs, targets)
    losses = jnp.exp(outputs) - targets.astype(outputs.dtype) * outputs
    return losses.reshape(losses.shape[0], -1).sum(axis=1)


def pinball(outputs: Array, targets: Array, quantile: float = 0.5) -> Array:
    """t (y - q) where the target y is above the output q, (1 - t) (q - y) below, per row: least at the t quantile."""
    _check_alike("pinball", outputs, targets)
    above = targets - outputs
    losses = jnp.maximum(quantile * above, (quantile - 1) * above)
    return losses.reshape(losses.shape[0], -1).sum(axis=1)


def _check_alike(criterion: str, outputs: Array, targets: Array) -> None:
    if outputs.shape != targets.shape:  # they would be spread over each other, every row against every other
        raise RequestError(
            f"{criterion} needs an output for every target, got outputs of shape {outputs.shape} for targets of shape "
            f"{targets.shape}; let the model give one plain number per row, or one column per target."
        )


CRITERIA = {criterion.__name__: criterion for criterion in (cross_entropy, logistic, squared, poisson, pinball)}


@settings
class ClientLoss(Settings):
    """f'_m(v) = mean over rows of weight * criterion(model(v, x), y) + (l2 / 2) |v|^2.

    Weights are 1, or those of the rows, whose mean over the client's training rows is 1. They do not enter running
    statistics: batch norm takes the moments of the rows as they are.
    """

    model: Model
    criterion: str = setting(default="cross_entropy", choices=tuple(CRITERIA), doc="loss of one row")
    l2: float | None = setting(
        default=None, at_least=0, doc="weight of the squared norm of all parameters; unset: none"
    )

    quantile: float | None = setting(default=None, above=0, below=1, doc="of the pinball loss; unset: the median")

    def init(self, key: Key) -> Params:
        """Start parameters of the model."""
        return self.model.init(key)

    def value(self, key: Key, params: Params, batch: Batch) -> tuple[Array, Mapping[str, Array]]:
        """The loss on a batch, and what running statistics become by this pass."""
        outputs, seen = self.model.observe(key, params, batch.inputs, batch.mask)
        return self.value_of(outputs, params, batch), seen

    def value_of(self, outputs: Array, params: Params, batch: Batch) -> Array:
        """The loss of given outputs on a batch, with the l2 term of the parameters that gave them."""
        # the one place where rows are weighed: gradients follow from it
        value = masked_mean(self.row_losses(outputs, batch.targets), batch.mask, batch.weights)
        if self.l2 is not None:
            value = value + 0.5 * self.l2 * squared_norm(trained(params))
        return value

    def row_losses(self, outputs: Array, targets: Array) -> Array:
        """The criterion of every row."""
        if self.criterion == "pinball" and self.quantile is not None:
            return pinball(outputs, targets, self.quantile)
        return CRITERIA[self.criterion](outputs, targets)

    def gradient(self, key: Key, params: Params, batch: Batch) -> Params:
        """grad f'_m on a batch, with the change of running statistics in their places."""
        gradient, seen = jax.grad(lambda v: self.value(key, v, batch), has_aux=True)(params)
        return moving(gradient, params, seen)

    def predict(self, params: Params, inputs: Array) -> Array:
        """Outputs with one column per class (classification) or per target (regression)."""
        return self.answer(self.model.apply(params, inputs))

    def answer(self, outputs: Array) -> Array:
        """A model's outputs as a prediction: the two classes of the logistic loss get a column each, counts their rate.

        The link of counts is applied here and nowhere else: the loss takes z = log rate, scores and `predict` exp(z).
        """
        if self.criterion == "poisson":
            return jnp.exp(outputs)
        return jnp.stack([jnp.zeros_like(outputs), outputs], axis=-1) if self.criterion == "logistic" else outputs
