# SPDX-License-Identifier: Apache-2.0
"""What all-for-all methods share: a model per client on the server, gradients at them, and who uses whose.

Lambda is row-stochastic, lambda_ij how much client i listens to j: `neighbours`, or without them alpha I + (1 - alpha)
11^T/N with alpha `own_share`. W = Lambda Lambda^T mixes gradients. Rows are drawn, or walked in order as a stream.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.algorithms.one_point import OnePoint, Upload, Working
from idiolect.core import NOTHING, Fit, RowReads, batches, beyond_theory, mixing, population, setting, settings, tree
from idiolect.core.kinds import Listens, Messages
from idiolect.core.mixing import Neighbours, misses_agents
from idiolect.core.reduction import gather
from idiolect.core.types import Array, Batch, ClientData, Key, Params, PerClient, StartKeys, Tally

_FEW = 8  # cohorts up to this size use their columns of W instead of mixing all gradients


class ServerState(NamedTuple):
    """Every client's model, stacked."""

    models: Params


class ClientState(NamedTuple):
    """Where the walk through the client's rows stands; nothing when batches are drawn."""

    place: Any


class Broadcast(NamedTuple):
    """Every client gets its own model."""

    model: PerClient


@settings
class ModelPerAgent(OnePoint, Listens):
    """A model per client, and gradients that go to several of them; still abstract."""

    server_only: ClassVar[tuple[str, ...]] = ("neighbours",)
    reduction = gather  # gradients are mixed by a matrix

    step_size: float = setting(
        default=0.1, above=0, way_out="Try 1/(2 L rho(W)) for L-smooth losses.", doc="step eta on every x_i"
    )
    own_share: float = setting(
        default=0.5,
        at_least=0,
        at_most=1,
        doc="alpha: the weight of a client's own gradient, where neighbours are unset",
    )
    neighbours: Neighbours | None = setting(default=None, doc="who listens to whom (Lambda); from [collaboration]")
    target_accuracy: float | None = setting(
        default=None, above=0, doc="eps of the step from theory; unset: the largest stable step"
    )
    order: str = setting(
        default="drawn", choices=("drawn", "stream"), doc="batches drawn, or rows walked in order, each used once"
    )
    route: str = setting(
        default="server",
        choices=("server", "peers"),
        doc="what is billed: one relay, or every client that uses a gradient",
    )

    cohorts = "the paper treats one client or all of them per round; eta is not adapted to a cohort in between"

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs a personal block and nothing else."""
        if self.objective.has_shared or not self.objective.has_personal:
            return Fit("every client has a model of its own and nothing is shared; use the local_only objective")
        if self.order == "stream" and (self.batch_size == 0 or self.epochs):
            return Fit("a stream of rows needs batch_size above 0, and no epochs")
        if missed := misses_agents("neighbours", self.neighbours, self.clients):
            return Fit(missed)
        return beyond_theory(chance, self.cohorts)

    @property
    def row_reads(self) -> RowReads:
        """Those of the batches, where they are drawn."""
        walked = "a stream takes rows in an order that is no secret, so that no draw hides them; set order = 'drawn'"
        return RowReads(exact=walked if self.order == "stream" else None)

    def init_server(self, key: Key) -> Any:
        """A common start."""
        return ServerState(self.everywhere(self.objective.init_personal(key)))

    def init_client(self, keys: StartKeys, data: ClientData) -> tuple[Any, Tally]:
        """The first row, for a stream."""
        return (ClientState(jnp.zeros((), jnp.int32)) if self.order == "stream" else ()), NOTHING

    def broadcast(self, key: Key, server: Any) -> Any:
        """x_i to client i."""
        return Broadcast(PerClient(server.models))

    def gradient(self, key: Key, sent: Any, batch: Batch) -> tuple[Params, Tally]:
        """grad f_i(x_i) on a batch."""
        return self.objective.gradient_personal(key, (), sent.model, batch)

    def receive(self, key: Key, sent: Any, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """No gradient yet; a stream goes on where it stood."""
        working, tally = super().receive(key, sent, client, data)
        return (working._replace(drawn=client.place) if self.order == "stream" else working), tally

    def send(self, key: Key, sent: Any, working: Working, client: Any, data: ClientData) -> tuple[Upload, Any, Tally]:
        """The mean gradient; a stream moves on."""
        upload, client, tally = super().send(key, sent, working, client, data)
        if self.order == "stream":
            used = self.local_steps * self.batch_size
            client = ClientState((client.place + used) % data.count.astype(jnp.int32))
        return upload, client, tally

    def draw_batches(self, key: Key, data: ClientData) -> Any:
        """Nothing is drawn for a stream."""
        return () if self.order == "stream" else super().draw_batches(key, data)

    def batch(self, t: Array, drawn: Any, data: ClientData) -> Batch:
        """The rows of step t."""
        if self.order == "stream":
            return batches.take_in_turn(data, drawn + t * self.batch_size, self.batch_size)
        return super().batch(t, drawn, data)

    def point(self, sent: Any, client: Any) -> tuple[Params, Params]:
        """x_i is the client's own block."""
        return (), sent.model

    def bill(
        self, sent: Any, upload: Any, rounds: np.ndarray, clients: np.ndarray, present: np.ndarray
    ) -> Messages | None:
        """Peer to peer, a gradient goes to every other client with W_ij > 0; through a server types tell."""
        if self.route == "server":
            return None
        others = self.reach(rounds)[np.arange(len(rounds))[:, None], clients] - 1
        number, each = int(others[present].sum()), tree.size_in_bytes(upload.gradient)
        return Messages(number, number, number * each, number * each)

    @property
    def delivers(self) -> bool:
        """Peers hold their models already."""
        return self.route == "server"

    def everywhere(self, start: Params) -> Params:
        """The same start for all clients."""
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (population(self), *leaf.shape)), start)

    def mixed(self, neighbours: Neighbours | None, received: Any) -> Params:
        """W g, g zero for absent clients."""

        def spread(values: Params) -> Params:
            return self._mix(neighbours, self._mix(neighbours, values, back=True))

        agents, gradients = population(self), received.uploads.gradient
        if received.clients.shape[0] > _FEW:  # nobodies, who pad a chunk, have numbers beyond every client's

            def placed(leaf: Array) -> Array:
                return jnp.zeros((agents, *leaf.shape[1:]), leaf.dtype).at[received.clients].set(leaf, mode="drop")

            return spread(jax.tree.map(placed, gradients))
        whose = received.clients[None] == jnp.arange(agents, dtype=received.clients.dtype)[:, None]
        columns = spread(whose.astype(jnp.result_type(float)))  # of W: (clients, cohort)
        return jax.tree.map(lambda leaf: jnp.tensordot(columns.astype(leaf.dtype), leaf, axes=1), gradients)

    def _mix(self, neighbours: Neighbours | None, values: Params, back: bool = False) -> Params:
        """Lambda v, or Lambda^T v."""
        if neighbours is not None:
            return mixing.mix_back(neighbours, values) if back else mixing.mix(neighbours, values)

        def toward_mean(leaf: Array) -> Array:
            share = jnp.asarray(self.own_share, leaf.dtype)
            return share * leaf + (1 - share) * jnp.mean(leaf, axis=0, keepdims=True)

        return jax.tree.map(toward_mean, values)

    def reach(self, rounds: np.ndarray) -> np.ndarray:
        """(rounds, clients): how many clients use each one's gradient, itself included."""
        return np.broadcast_to(self._constant_reach, (len(rounds), population(self)))

    @functools.cached_property
    def _constant_reach(self) -> np.ndarray | int:
        if self.neighbours is not None:
            return mixing.reach(self.neighbours)
        return population(self) if float(self.own_share) < 1 else 1
