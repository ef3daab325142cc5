# SPDX-License-Identifier: Apache-2.0
"""Long short-term memory with a hand-written reverse pass.

z_t = x_t . W + h_{t-1} . R + b, cut into i, f, g, o;  c_t = s(f) c_{t-1} + s(i) tanh(g);  h_t = s(o) tanh(c_t).

The products with W stand outside the loop, before it. The reverse loop keeps the gradients of z_t; that of R is one
product of all h_{t-1} with all of them, after the loop, not a sum of an (n x 4n) product at every step, which is what
differentiating the loop does: 0.034 s instead of 0.053 s for a step of two layers of 256, 4 x 80 characters, two busy
cores. What of a reverse step needs no later one is formed before the loop (`gates.gate_gradients`): another 0.038 s to
0.014 s, less busy.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.models.layers.gates import UNROLL, Gates, gate_gradients, gates_of
from idiolect.models.layers.lstm_mixed import recur_chosen, recur_mixed
from idiolect.models.layers.precision import lowered, product
from idiolect.models.model import Params


class State(NamedTuple):
    """h and c, (rows, width) each."""

    hidden: Array
    cell: Array


@dataclasses.dataclass(frozen=True)
class LSTM:
    """(rows, time, inside) -> (rows, time, width), from a state that starts at zero unless given."""

    inside: int
    width: int
    compute: str = "float32"

    def init(self, key: Array) -> Params:
        """Uniform in +-width^(-1/2), as customary; bias 1 on the forget gate, so that memory lasts at the start."""
        limit = self.width**-0.5
        of_input, of_state = (jax.random.fold_in(key, place) for place in range(2))
        # four gates side by side, i, f, g, o: the second one forgets
        bias = jnp.zeros((4, self.width)).at[1].set(1.0).reshape(-1)
        return {
            "input": jax.random.uniform(of_input, (self.inside, 4 * self.width), minval=-limit, maxval=limit),
            "recurrent": jax.random.uniform(of_state, (self.width, 4 * self.width), minval=-limit, maxval=limit),
            "bias": bias,
        }

    def apply(self, params: Params, inputs: Array) -> Array:
        """h_t of every step."""
        return self.run(params, inputs)[0]

    def run(self, params: Params, inputs: Array, state: State | None = None) -> tuple[Array, State]:
        """h_t of every step, and the last state."""
        if state is None:
            zeros = jnp.zeros((inputs.shape[0], self.width), params["bias"].dtype)
            state = State(zeros, zeros)
        projected = product(jnp.swapaxes(inputs, 0, 1), params["input"], self.compute) + params["bias"]
        hidden, last = _recur(self.compute, projected, params["recurrent"], state)
        return jnp.swapaxes(hidden, 0, 1), last

    def mixed(self, shared: Params, local: Params, shares: tuple[Array, Array], inputs: Array) -> Array:
        """h_t where the states of two versions are mixed at every step; shares are (), (rows,) or (rows, time)."""
        swapped = jnp.swapaxes(inputs, 0, 1)
        projected = jnp.stack(
            [product(swapped, params["input"], self.compute) + params["bias"] for params in (shared, local)], axis=1
        )
        recurrent = jnp.stack([shared["recurrent"], local["recurrent"]])
        timed = jnp.stack([_by_time(share, inputs) for share in shares], axis=1)
        return jnp.swapaxes(recur_mixed(self.compute, projected, recurrent, timed), 0, 1)

    def chosen(self, shared: Params, local: Params, picked: Array, inputs: Array) -> Array:
        """h_t where every row follows one version at every step, `shared` where `picked` holds."""
        swapped = jnp.swapaxes(inputs, 0, 1)
        hidden = recur_chosen(self.compute, (shared, local), swapped, _by_time(picked, inputs))
        return jnp.swapaxes(hidden, 0, 1)


def _by_time(values: Array, inputs: Array) -> Array:
    """(time, rows, 1) from one value, one per row, or one per row and step."""
    rows, time = inputs.shape[:2]
    values = jnp.reshape(values, (*values.shape, *(1,) * (2 - values.ndim)))
    return jnp.broadcast_to(values, (rows, time)).T[..., None]


Kept = tuple[Array, Array, Gates, Array, State]  # h_t, c_t and gates of every step, the weights, the first state


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recur(compute: str, projected: Array, recurrent: Array, state: State) -> tuple[Array, State]:
    return _forward(compute, projected, recurrent, state)[0]


def _forward(compute: str, projected: Array, recurrent: Array, state: State) -> tuple[tuple[Array, State], Kept]:
    weights = lowered(recurrent, compute)

    def step(now: State, arrived: Array) -> tuple[State, tuple[Array, Array, Gates]]:
        i, f, g, o = gates = gates_of(arrived + (lowered(now.hidden, compute) @ weights).astype(arrived.dtype))
        cell = f * now.cell + i * g
        hidden = o * jnp.tanh(cell)
        return State(hidden, cell), (hidden, cell, gates)

    last, (hidden, cell, gates) = jax.lax.scan(step, state, projected, unroll=UNROLL)
    return (hidden, last), (hidden, cell, gates, recurrent, state)


def _backward(compute: str, kept: Kept, gradients: tuple[Array, State]) -> tuple[Array, Array, State]:
    hidden, cell, gates, recurrent, state = kept
    # h and c that each step began with: the first state, then what all steps but the last gave
    before = State(*(jnp.concatenate([first[None], rest[:-1]]) for first, rest in zip(state, (hidden, cell))))
    back = lowered(recurrent, compute).T

    def step(gradient: State, at: tuple[Array, ...]) -> tuple[State, Array]:
        arrived, local, on_to_cell, forget = at
        on_hidden = gradient.hidden + arrived
        on_cell = gradient.cell + on_hidden * on_to_cell
        # one product, not four: see `gate_gradients`
        summed = jnp.concatenate([on_cell, on_cell, on_cell, on_hidden], axis=-1) * local
        return State((lowered(summed, compute) @ back).astype(summed.dtype), on_cell * forget), summed

    of_hidden, of_last = gradients
    at = (of_hidden, *gate_gradients(gates, cell, before.cell), gates[1])
    first, summed = jax.lax.scan(step, of_last, at, reverse=True, unroll=UNROLL)
    seen, wanted = (lowered(part, compute).reshape(-1, part.shape[-1]) for part in (before.hidden, summed))
    return summed, (seen.T @ wanted).astype(recurrent.dtype), first


_recur.defvjp(_forward, _backward)
