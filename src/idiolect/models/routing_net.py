# SPDX-License-Identifier: Apache-2.0
"""Who weighs the two versions of a layer: the routing net psi, or a constant.

psi is a perceptron over an input (Flow 2023, eq. 2): the trunk's layer j, rectified, is the input of its next layer and
of exit j, a two-way softmax (q_0, q_1); where the trunk is shorter than the routes, the last exits all read its last
layer. Of a text it reads what its model has seen so far (`stepped_pass`), or the frequencies of the tokens so far: then
its first layer is a mean of vectors, and all shares are known before any layer is computed.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from idiolect.models.layers import Dense
from idiolect.models.model import Params


class Shares(NamedTuple):
    """q_0 of the shared and q_1 of the local version, and log q_0, each with an entry per exit on the last axis."""

    shared: Array
    local: Array
    log_shared: Array


@dataclasses.dataclass(frozen=True)
class RoutingNet:
    """psi: inputs of `features` numbers, or of tokens out of as many, -> the shares of every exit."""

    features: int
    exits: int
    widths: tuple[int, ...]
    tokens: bool = False

    @property
    def _trunk(self) -> list[Dense]:
        return [Dense(*pair) for pair in itertools.pairwise((self.features, *self.widths))]

    @property
    def _exits(self) -> list[Dense]:
        # small weights: at the start no route is much preferred
        return [Dense(self.widths[min(place, len(self.widths) - 1)], 2, gain=1 / 3) for place in range(self.exits)]

    def init(self, key: Array) -> Params:
        """Start parameters."""
        layers = {f"trunk_{place}": layer for place, layer in enumerate(self._trunk)}
        layers |= {f"exit_{place}": layer for place, layer in enumerate(self._exits)}
        return {name: layer.init(jax.random.fold_in(key, place)) for place, (name, layer) in enumerate(layers.items())}

    def shares(self, params: Params, inputs: Array) -> Shares:
        """(rows, exits) each, or (rows, time, exits) for tokens; formed from the difference of an exit's logits."""
        margins = self._margins(params, inputs)
        # q_1 as the sigmoid of -margin, not as 1 - q_0: where q_0 is near 1 that difference would be rounding
        return Shares(jax.nn.sigmoid(margins), jax.nn.sigmoid(-margins), jax.nn.log_sigmoid(margins))

    def _margins(self, params: Params, inputs: Array) -> Array:
        """log q_0 - log q_1."""
        flow = inputs if self.tokens else inputs.reshape(inputs.shape[0], self.features)
        trunk, found = self._trunk, []
        for place, way_out in enumerate(self._exits):
            if place < len(trunk):
                layer, own = trunk[place], params[f"trunk_{place}"]
                counted = self.tokens and place == 0
                flow = jax.nn.relu(_mean_so_far(own, flow) if counted else layer.apply(own, flow))
            logits = way_out.apply(params[f"exit_{place}"], flow)
            found.append(logits[..., 0] - logits[..., 1])
        return jnp.stack(found, axis=-1)


@dataclasses.dataclass(frozen=True)
class FixedShares:
    """The same q_0 for every exit and input; it stands where psi's parameters would."""

    exits: int

    def init(self, key: Array) -> Params:
        """Nothing."""
        return ()

    def shares(self, share: Array, inputs: Array) -> Shares:
        """(exits,) each."""
        share = jnp.full(self.exits, share)
        return Shares(share, 1 - share, jnp.log(share))


def _mean_so_far(params: Params, tokens: Array) -> Array:
    """(rows, time, width): a dense layer on the frequencies of the tokens up to each position."""
    vectors = jnp.cumsum(params["weights"][tokens], axis=1)
    # position t has seen t + 1 tokens
    length = jnp.arange(1, tokens.shape[1] + 1, dtype=jnp.int32).astype(vectors.dtype)
    return vectors / length[None, :, None] + params["bias"][None, None]
