# SPDX-License-Identifier: Apache-2.0
"""Two versions of one LSTM layer whose hidden and cell states are mixed at every step.

With branches b = 0, 1 and shares q_b,t per row:  (h_b, c_b) = step of version b from the mixed (h_{t-1}, c_{t-1});
h_t = sum_b q_b,t h_b,  c_t = sum_b q_b,t c_b.  Both versions are one recurrence with a branch axis, and its reverse
pass is written by hand as in `lstm`: the gradients of both recurrent weights are products after the loop.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.core.control import cond
from idiolect.models.layers.gates import UNROLL, gate_gradients, gates_of
from idiolect.models.layers.precision import lowered, product

Pair = tuple[Array, Array]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur_mixed(compute: str, projected: Array, recurrent: Array, shares: Array) -> Array:
    """h_t (time, rows, width) from projected (time, 2, rows, 4 width), recurrent (2, width, 4 width) and shares.

    `shares` is (time, 2, rows, 1). The state starts at zero.
    """
    return _forward(compute, projected, recurrent, shares)[0]


def _forward(compute: str, projected: Array, recurrent: Array, shares: Array) -> tuple[Array, tuple[Any, ...]]:
    weights = lowered(recurrent, compute)
    zeros = jnp.zeros((projected.shape[2], projected.shape[3] // 4), projected.dtype)

    def step(now: Pair, at: Pair) -> tuple[Pair, tuple[Any, ...]]:
        arrived, share = at
        hidden, cell = now
        summed = arrived + jnp.matmul(lowered(hidden, compute)[None], weights).astype(arrived.dtype)
        i, f, g, o = gates = gates_of(summed)
        cells = f * cell[None] + i * g
        hiddens = o * jnp.tanh(cells)
        # both versions go on from the mixture: there is one state, not one per version
        mixed = (jnp.sum(share * hiddens, axis=0), jnp.sum(share * cells, axis=0))
        return mixed, (*mixed, hiddens, cells, gates)

    _, (hidden, cell, hiddens, cells, gates) = jax.lax.scan(step, (zeros, zeros), (projected, shares), unroll=UNROLL)
    return hidden, (hidden, cell, hiddens, cells, gates, recurrent, shares)


def _backward(compute: str, kept: tuple[Any, ...], gradients: Array) -> tuple[Array, Array, Array]:
    hidden, cell, hiddens, cells, gates, recurrent, shares = kept
    # kept by the forward pass: the reverse loop computes no gate again
    before_hidden, before_cell = (jnp.concatenate([jnp.zeros_like(part[:1]), part[:-1]]) for part in (hidden, cell))
    back = jnp.swapaxes(lowered(recurrent, compute), 1, 2)

    def step(gradient: Pair, at: tuple[Array, ...]) -> tuple[Pair, Pair]:
        arrived, own_hiddens, own_cells, local, on_to_cell, forget, share = at
        on_mixed, on_cell = gradient[0] + arrived, gradient[1]
        on_share = jnp.sum(on_mixed[None] * own_hiddens + on_cell[None] * own_cells, axis=-1, keepdims=True)
        on_hiddens = share * on_mixed[None]
        on_cells = share * on_cell[None] + on_hiddens * on_to_cell
        summed = jnp.concatenate([on_cells, on_cells, on_cells, on_hiddens], axis=-1) * local
        # summed over both versions, since both began with the one mixed state
        back_hidden = jnp.matmul(lowered(summed, compute), back).astype(summed.dtype).sum(axis=0)
        return (back_hidden, jnp.sum(on_cells * forget, axis=0)), (summed, on_share)

    nothing = jnp.zeros_like(hidden[0])
    at = (gradients, hiddens, cells, *gate_gradients(gates, cells, before_cell[:, None]), gates[1], shares)
    _, (summed, on_shares) = jax.lax.scan(step, (nothing, nothing), at, reverse=True, unroll=UNROLL)
    seen, wanted = lowered(before_hidden, compute), lowered(summed, compute)
    # one product over all steps after the loop, instead of one per step added up in it
    on_recurrent = jnp.einsum("trw,tbrv->bwv", seen, wanted).astype(recurrent.dtype)
    return summed, on_recurrent, on_shares


recur_mixed.defvjp(_forward, _backward)


def recur_chosen(compute: str, branches: tuple[Array, Array], inputs: Array, picked: Array) -> Array:
    """h_t (time, rows, width) where every row follows version 0 or 1 at every step; one that no row follows is idle.

    `branches` are the parameters of both versions, inputs (time, rows, inside), `picked` (time, rows, 1) holds
    where version 0 is followed. For inference: no reverse pass.
    """
    follows = (picked, ~picked)
    width = branches[0]["recurrent"].shape[0]
    wide = (*inputs.shape[:2], 4 * width)

    def projection(params: Array, wanted: Array) -> Array:
        def work() -> Array:
            return product(inputs, params["input"], compute) + params["bias"]

        return cond(jnp.any(wanted), work, lambda: jnp.zeros(wide, params["bias"].dtype))

    projected = tuple(projection(params, wanted) for params, wanted in zip(branches, follows))
    weights = tuple(lowered(params["recurrent"], compute) for params in branches)
    zeros = jnp.zeros((inputs.shape[1], width), projected[0].dtype)

    def step(now: Pair, at: tuple[tuple[Array, ...], Pair]) -> tuple[Pair, Array]:
        arrived, wanted = at
        hidden, cell = now

        def version(branch: int) -> tuple[Array, Array]:
            def work() -> tuple[Array, Array]:
                summed = arrived[branch] + (lowered(hidden, compute) @ weights[branch]).astype(hidden.dtype)
                i, f, g, o = gates_of(summed)
                own = f * cell + i * g
                return o * jnp.tanh(own), own

            return cond(jnp.any(wanted[branch]), work, lambda: (zeros, zeros))

        ours, theirs = version(0), version(1)
        hidden, cell = (jnp.where(wanted[0], mine, other) for mine, other in zip(ours, theirs))
        return (hidden, cell), hidden

    return jax.lax.scan(step, (zeros, zeros), (projected, follows))[1]
