# SPDX-License-Identifier: Apache-2.0
"""FedAvg rounds of the networks as one would write them without idiolect: `vmap` over clients, `scan` over batches.

Convolutions are patches and one product, as in the engine's networks. The LSTM is a plain scan, differentiated by JAX.
The orders of the rows are the engine's own, so that both must end at the same parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.core.batches import draw_orders
from idiolect.core.data import ClientData
from idiolect.core.keys import Purpose, client_key


def cnn_loss(params: Any, images: Any, labels: Any) -> Any:
    """Cross entropy of two 3 x 3 convolutions, 2 x 2 maxima and two dense layers."""
    flow = jax.nn.relu(_convolution(params["conv_0"], images))
    flow = _convolution(params["conv_1"], flow)
    rows, height, width, channels = flow.shape
    flow = jax.nn.relu(flow.reshape(rows, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4)))
    flow = jax.nn.relu(_dense(params["dense_0"], flow.reshape(rows, -1)))
    return _cross_entropy(_dense(params["dense_1"], flow), labels)


def lstm_loss(params: Any, tokens: Any, targets: Any) -> Any:
    """Cross entropy of the next character after two LSTM layers."""
    flow = params["embedding"]["vectors"][tokens]
    for layer in ("lstm_0", "lstm_1"):
        flow = _lstm(params[layer], flow)
    return _cross_entropy(_dense(params["dense"], flow), targets)


@functools.partial(jax.jit, static_argnames=("loss", "batch_size"))
def fedavg_round(
    loss: Callable[[Any, Any, Any], Any],
    root: Any,
    round_number: Any,
    shared: Any,
    data: ClientData,
    step_size: float,
    batch_size: int,
) -> Any:
    """The mean of all clients' parameters after one epoch each; every client has as many rows."""

    def client(number: Any, own: ClientData) -> Any:
        order = draw_orders(client_key(root, Purpose.RECEIVE, round_number, number), 1, own)[0]

        def step(params: Any, rows: Any) -> tuple[Any, None]:
            gradient = jax.grad(loss)(params, own.inputs[rows], own.targets[rows])
            return jax.tree.map(lambda leaf, along: leaf - step_size * along, params, gradient), None

        return jax.lax.scan(step, shared, order.reshape(-1, batch_size))[0]

    ends = jax.vmap(client)(jnp.arange(data.count.shape[0], dtype=jnp.int32), data)
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), ends)


def _convolution(params: Any, images: Any) -> Any:
    height, width = images.shape[1] - 2, images.shape[2] - 2
    seen = jnp.concatenate([images[:, i : i + height, j : j + width] for i in range(3) for j in range(3)], axis=-1)
    return seen @ params["weights"] + params["bias"]


def _dense(params: Any, inputs: Any) -> Any:
    return inputs @ params["weights"] + params["bias"]


def _lstm(params: Any, inputs: Any) -> Any:
    def step(state: tuple[Any, Any], arrived: Any) -> tuple[Any, Any]:
        hidden, cell = state
        i, f, g, o = jnp.split(arrived @ params["input"] + hidden @ params["recurrent"] + params["bias"], 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    zeros = jnp.zeros((inputs.shape[0], params["recurrent"].shape[0]), inputs.dtype)
    return jnp.swapaxes(jax.lax.scan(step, (zeros, zeros), jnp.swapaxes(inputs, 0, 1))[1], 0, 1)


def _cross_entropy(outputs: Any, targets: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(outputs), targets[..., None], axis=-1).mean()
