# SPDX-License-Identifier: Apache-2.0
"""Long short-term memory with a hand-written reverse pass.

z_t = x_t . W + h_{t-1} . R + b, cut into i, f, g, o;  c_t = s(f) c_{t-1} + s(i) tanh(g);  h_t = s(o) tanh(c_t).

The products with W stand outside the loop, before it. The reverse loop keeps the gradients of z_t; that of R is one
product of all h_{t-1} with all of them, after the loop, not a sum of an (n x 4n) product at every step, which is what
differentiating the loop does: 0.034 s instead of 0.053 s for a step of two layers of 256, 4 x 80 characters, two busy
cores. What of a reverse step needs no later one is formed before the loop (`gate_gradients`): another 0.038 s to
0.014 s, less busy.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.core.control import cond
from idiolect.models.layers.precision import lowered, product
from idiolect.models.model import Params

UNROLL = 8  # steps per turn of the loop: the dispatch of a turn costs as much as a small product

Gates = tuple[Array, Array, Array, Array]  # i, f, g, o


def gates_of(summed: Array) -> Gates:
    """s(i), s(f), tanh(g), s(o) from z_t, which has i, f, g, o side by side."""
    i, f, g, o = jnp.split(summed, 4, axis=-1)
    return jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)


def gate_gradients(gates: Gates, cell: Array, earlier: Array) -> tuple[Array, Array]:
    """What a reverse step multiplies by: d z_t per gradient on (c, c, c, h), side by side, and d c_t per gradient on h.

    For all steps at once, before the reverse loop, so that a step there has one product. With one for each of i, f, g,
    XLA on a CPU makes each a fusion that follows the gradient on c through all steps of an unrolled turn again.
    """
    i, f, g, o = gates
    squashed = jnp.tanh(cell)
    parts = (g * i * (1 - i), earlier * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o))
    return jnp.concatenate(parts, axis=-1), o * (1 - squashed * squashed)


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
            state = self.begin(inputs.shape[0], params)
        projected = product(jnp.swapaxes(inputs, 0, 1), params["input"], self.compute) + params["bias"]
        hidden, last = _recur(self.compute, projected, params["recurrent"], state)
        return jnp.swapaxes(hidden, 0, 1), last

    def begin(self, rows: int, params: Params) -> State:
        """The state before the first step: zeros, in the precision of the parameters."""
        zeros = jnp.zeros((rows, self.width), params["bias"].dtype)
        return State(zeros, zeros)

    def side_by_side(self, versions: Sequence[Params]) -> Params:
        """What `step` multiplies by: a row per entry of an input and of the hidden state, columns version by version.

        Made before a loop: XLA would put the weights together at every step of it.
        """
        weights = [jnp.concatenate([params["input"], params["recurrent"]]) for params in versions]
        bias = jnp.concatenate([params["bias"] for params in versions])
        return {"weights": jnp.concatenate(weights, axis=1), "bias": bias}

    def step(self, beside: Params, inputs: Array, state: State) -> list[State]:
        """The next state by every version, from one position's inputs (rows, inside) and one state."""
        seen = jnp.concatenate([inputs, state.hidden], axis=-1)
        summed = product(seen, beside["weights"], self.compute) + beside["bias"][None]
        parts = jnp.split(summed, summed.shape[-1] // (4 * self.width), axis=-1)
        return [_next(gates_of(part), state.cell) for part in parts]

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


def _next(gates: Gates, cell: Array) -> State:
    """h_t and c_t from the gates of a step and c_{t-1}."""
    i, f, g, o = gates
    cell = f * cell + i * g
    return State(o * jnp.tanh(cell), cell)


Kept = tuple[Array, Array, Gates, Array, State]  # h_t, c_t and gates of every step, the weights, the first state


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recur(compute: str, projected: Array, recurrent: Array, state: State) -> tuple[Array, State]:
    return _forward(compute, projected, recurrent, state)[0]


def _forward(compute: str, projected: Array, recurrent: Array, state: State) -> tuple[tuple[Array, State], Kept]:
    weights = lowered(recurrent, compute)

    def step(now: State, arrived: Array) -> tuple[State, tuple[Array, Array, Gates]]:
        gates = gates_of(arrived + (lowered(now.hidden, compute) @ weights).astype(arrived.dtype))
        after = _next(gates, now.cell)
        return after, (*after, gates)

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


Pair = tuple[Array, Array]  # hidden and cell states, or what belongs to either version


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur_mixed(compute: str, projected: Array, recurrent: Array, shares: Array) -> Array:
    """h_t (time, rows, width) from projected (time, 2, rows, 4 width), recurrent (2, width, 4 width) and shares.

    `shares` is (time, 2, rows, 1). The state starts at zero. With branches b = 0, 1 and shares q_b,t per row:
    (h_b, c_b) = step of version b from the mixed (h_{t-1}, c_{t-1});  h_t = sum_b q_b,t h_b,  c_t = sum_b q_b,t c_b.
    Both versions are one recurrence with a branch axis, and its reverse pass is written by hand as that of one.
    """
    return _mixed_forward(compute, projected, recurrent, shares)[0]


def _mixed_forward(compute: str, projected: Array, recurrent: Array, shares: Array) -> tuple[Array, tuple[Any, ...]]:
    weights = lowered(recurrent, compute)
    zeros = jnp.zeros((projected.shape[2], projected.shape[3] // 4), projected.dtype)

    def step(now: Pair, at: Pair) -> tuple[Pair, tuple[Any, ...]]:
        arrived, share = at
        hidden, cell = now
        gates = gates_of(arrived + jnp.matmul(lowered(hidden, compute)[None], weights).astype(arrived.dtype))
        hiddens, cells = _next(gates, cell[None])
        # both versions go on from the mixture: there is one state, not one per version
        mixed = (jnp.sum(share * hiddens, axis=0), jnp.sum(share * cells, axis=0))
        return mixed, (*mixed, hiddens, cells, gates)

    _, (hidden, cell, hiddens, cells, gates) = jax.lax.scan(step, (zeros, zeros), (projected, shares), unroll=UNROLL)
    return hidden, (hidden, cell, hiddens, cells, gates, recurrent, shares)


def _mixed_backward(compute: str, kept: tuple[Any, ...], gradients: Array) -> tuple[Array, Array, Array]:
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


recur_mixed.defvjp(_mixed_forward, _mixed_backward)


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

        def version(branch: int) -> State:
            def work() -> State:
                summed = arrived[branch] + (lowered(hidden, compute) @ weights[branch]).astype(hidden.dtype)
                return _next(gates_of(summed), cell)

            return cond(jnp.any(wanted[branch]), work, lambda: State(zeros, zeros))

        ours, theirs = version(0), version(1)
        hidden, cell = (jnp.where(wanted[0], mine, other) for mine, other in zip(ours, theirs))
        return (hidden, cell), hidden

    return jax.lax.scan(step, (zeros, zeros), (projected, follows))[1]
