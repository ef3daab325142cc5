# SPDX-License-Identifier: Apache-2.0
"""Flow (2023): for every input, a net psi chooses layer by layer between the shared model and the client's own.

A round on client m splits its rows into two disjoint random parts Z_l and Z_g, the first with `local_percent` of them:

    w_l <- w_g;                      K_1 passes over Z_l:  w_l <- w_l - eta grad f(w_l; batch)
    K_2 passes over Z_g, per batch:  psi <- psi - eta grad_psi [f(w_p; batch) - (gamma / L) sum_j mean log q_0^(j)]
                                     w_g <- w_g - eta grad f(w_g; batch)

Equation 5 of the paper prints grad_{w_g} f(w_p; batch) in the last line, which does not train networks (E003-8):
`flow_printed`, `shared_loss = "mixture"`.

w_p mixes the outputs (of an LSTM, the states) of layer j as q_0^(j) shared + q_1^(j) local; q^(j), per row, is the
softmax of psi's exit j. w_g and psi go up, weighted by |Z_g|; w_l stays and is made anew every round. w_g is `shared`,
psi `routing`, w_l `local`, L the number of exits, gamma `routing_penalty`. The personal model is a round's w_l, psi_m
and w_g,m that are kept, with one version of each layer for each row: the shared one iff q_0 >= 1/2.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from idiolect.algorithms.halves import Half, first_part, halves, whole
from idiolect.algorithms.local_sgd import LocalSGD
from idiolect.algorithms.optimizers import CLIENT_OPTIMIZERS, OPTIMIZERS, PLAIN, Descent, server_optimizer
from idiolect.algorithms.references import FLOW
from idiolect.algorithms.walk import walk
from idiolect.core import BY_ROWS, NOTHING, Batched, Method, RowReads, gradient_tally, setting, settings, step_key, tree
from idiolect.core.control import repeat
from idiolect.core.data import masked_mean
from idiolect.core.kinds import PredictsWithMore
from idiolect.core.objective import Routable, Routed
from idiolect.core.types import Array, Batch, Changes, ClientData, Fit, Key, Mean, Models, Params, Tally

ORDERS = ("alternating", "routing_first", "shared_first")
ADAPTATIONS = ("both", "routing", "none")
SPLITS = ("always", "training", "never")
SECOND_ROUTES = ("own", "shared")
SHARED_LOSSES = ("own", "mixture")
TOKEN_ROUTINGS = ("states", "frequencies")
_SPLIT, _LOCAL, _SHARED = range(3)  # what the draws of a round are named by


class ServerState(NamedTuple):
    """w_g, psi, the second route where it is shared too, and the server optimizer's memory."""

    shared: Params
    routing: Params
    second: Params
    optimizer: Any


class Broadcast(NamedTuple):
    """w_g and psi go down, and the second route where it is shared."""

    shared: Params
    routing: Params
    second: Params


class Working(NamedTuple):
    """w_g,m and psi_m in training, w_l, and the rows of Z_g with their order."""

    shared: Params
    routing: Params
    local: Params
    half: Half
    drawn: Array
    memory: tuple[Any, Any]  # of the optimizers of w_g and psi


class Upload(NamedTuple):
    """Start minus end of w_g and psi go up, and of the second route where it is shared."""

    drift: Params
    routing: Params
    second: Params
    weight: Array


Move = Callable[[Key, Working, Batch], tuple[Working, Tally]]


@settings
class Flow(Batched[ServerState, Any, Broadcast, Working, Upload], PredictsWithMore):
    """Per-instance routing between shared and local layers."""

    changes = Changes({"drift": None, "routing": None, "second": None})
    row_reads = RowReads(exact="its clients learn to route inputs by gradients of their own")

    step_size: float = setting(default=0.1, above=0, way_out="Try 0.1 or 0.01.", doc="step eta of w_l, psi and w_g")
    routing_penalty: float = setting(
        default=0.001, at_least=0, way_out="0 leaves it out.", doc="pull toward the shared route (gamma)"
    )
    personal_steps: int = setting(default=0, at_least=0, doc="steps on w_l per round (K_1) if epochs is 0; 0: as many")
    personal_epochs: int = setting(default=0, at_least=0, doc="passes over Z_l per round (K_1) with epochs; 0: as many")
    local_percent: int = setting(
        default=50,
        at_least=0,
        below=100,
        doc="percent of a client's rows that train w_l, rounded down; the rest is Z_g",
    )
    split_rows: str = setting(
        default="always", choices=SPLITS, doc="when Z_l and Z_g are disjoint; else both are all of the client's rows"
    )
    training_order: str = setting(default="alternating", choices=ORDERS, doc="of psi and w_g within a round")
    shared_loss: str = setting(
        default="own", choices=SHARED_LOSSES, doc="what w_g descends: f(w_g), or f(w_p) as in equation 5"
    )
    adaptation: str = setting(
        default="both",
        choices=ADAPTATIONS,
        doc="what a client adapts on Z_g before it predicts: psi and w_g, psi, none",
    )
    soft_inference: bool = setting(default=False, doc="predict with the mixture instead of one version of each layer")
    second_route: str = setting(
        default="own", choices=SECOND_ROUTES, doc="own: w_l starts from w_g every round; shared: it is averaged as well"
    )
    fixed_share: float | None = setting(
        default=None, at_least=0, at_most=1, doc="q_0 of every layer and row; unset: from psi, else there is none"
    )
    routed: str = setting(
        default="", doc='layers with two versions, an exit each; empty: all but normalisation; "model": the whole'
    )
    routing_widths: tuple[int, ...] = setting(
        default=(350, 150, 50), at_least=1, doc="widths of psi's trunk (Flow 2023: handwriting)"
    )
    token_routing: str = setting(
        default="states",
        choices=TOKEN_ROUTINGS,
        doc="of a text psi reads vector and hidden states, or token frequencies",
    )
    client_optimizer: str = setting(
        default=PLAIN,
        choices=CLIENT_OPTIMIZERS,
        doc="of w_l, psi and w_g, anew in every round: any optax optimizer, by name; momentum: sgd with 0.9",
    )
    server_step_size: float = setting(
        default=1.0, above=0, way_out="1 averages the clients' models.", doc="outer step beta"
    )
    server_optimizer: str = setting(
        default="sgd", choices=OPTIMIZERS, doc="any optax optimizer, by name; it sees the mean drift as a gradient"
    )

    def fit(self, chance: float = 1.0) -> Fit:
        """Needs one model's plain loss."""
        if not isinstance(self.objective, Routable):
            return Fit("it routes between two versions of one shared model; use the global_model objective")
        _ = self._routes  # refuses layers that the model has not
        return Fit()

    def init_server(self, key: Key) -> ServerState:
        """The objective's start, and psi's."""
        shared = self.objective.init_shared(key)
        # psi has its own draw: that of the model's first layer must not come twice
        routing = self._routes.init_routing(jax.random.fold_in(key, 2**31 - 1))
        second = self._routes.start_local(shared) if self.second_route == "shared" else ()
        return ServerState(shared, routing, second, self._optimizer.init((shared, routing, second)))

    def broadcast(self, key: Key, server: ServerState) -> Broadcast:
        """w_g and psi."""
        return Broadcast(server.shared, server.routing, server.second)

    def steps(self, sent: Any, rows: Array) -> Any:
        """Batches of Z_g."""
        first = 0 if self.split_rows == "never" else first_part(rows, self.local_percent)
        return super().steps(sent, rows - first)

    def receive(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Working, Tally]:
        """Split the rows and make w_l; with another order than alternating, train what comes first."""
        working, tally = self._begin(key, sent, data, self.split_rows != "never")
        if self.training_order == "alternating" or self._fixed:  # with fixed shares there is no psi to train
            return working, tally
        first = self._move_routing if self.training_order == "routing_first" else self._move_shared
        working, more = self._walk(key, working, data, first)
        return working, tally.plus(more)

    def step(self, key: Key, t: Array, sent: Broadcast, working: Working, data: ClientData) -> tuple[Working, Tally]:
        """One batch of Z_g: psi, then w_g with the new psi; or what comes second."""
        batch = self._batch(t, working, data)
        if self.training_order == "alternating":
            return self._move_both(step_key(key, t), working, batch)
        routing = self.training_order == "shared_first" and not self._fixed
        return (self._move_routing if routing else self._move_shared)(step_key(key, t), working, batch)

    def send(
        self, key: Key, sent: Broadcast, working: Working, client: Any, data: ClientData
    ) -> tuple[Upload, Any, Tally]:
        """The drifts, weighted by |Z_g|; w_l stays behind and is forgotten."""
        second = tree.subtract(sent.second, working.local) if self.second_route == "shared" else ()
        shared, routing = tree.subtract((sent.shared, sent.routing), (working.shared, working.routing))
        weight = working.half.count.astype(jnp.result_type(float))
        return Upload(shared, routing, second, weight), client, NOTHING

    def server_step(self, key: Key, server: ServerState, sent: Broadcast, received: Mean) -> ServerState:
        """One step of the server optimizer along the mean drifts."""
        mean, parts = received.mean, (server.shared, server.routing, server.second)
        updates, optimizer = self._optimizer.update((mean.drift, mean.routing, mean.second), server.optimizer, parts)
        shared, routing, second = tree.add(parts, updates)
        return ServerState(shared, routing, second, optimizer)

    def shared_model(self, server: ServerState) -> Params:
        """w_g, before any adaptation."""
        return server.shared

    def models(self, key: Key, sent: Broadcast, client: Any, data: ClientData) -> tuple[Models, Tally]:
        """The client's own w_l, psi and w_g."""
        if self.second_route == "shared":  # no parameter is the client's own
            return Models(_personal(sent.shared, sent.second, sent.routing)), NOTHING
        working, tally = self._begin(key, sent, data, self.split_rows == "always")
        if self.adaptation == "both" or (self.adaptation == "routing" and not self._fixed):
            move = self._move_both if self.adaptation == "both" else self._move_routing
            working, more = self._walk(key, working, data, move)
            tally = tally.plus(more)
        return Models(_personal(working.shared, working.local, working.routing)), tally

    def predict(self, model: Params, inputs: Any) -> Array:
        """Outputs of w_g, or of a personal model by its routes."""
        # psi is missing where shares are fixed and the model was read from a file
        if isinstance(model, dict) and {"shared", "local"} <= set(model) <= {"shared", "local", "routing"}:
            return self._answer(model, inputs)[0]
        return self.objective.predict(model, inputs)

    def shared_shares(self, model: Params, inputs: Any) -> Array:
        """q_0 of a personal model: (rows, exits), or (rows, time, exits) for tokens."""
        shares = self._answer(model, inputs)[1].shared
        return jnp.broadcast_to(shares, (inputs.shape[0], *shares.shape)) if self._fixed else shares

    @property
    def route_names(self) -> tuple[str, ...]:
        """What each exit routes."""
        return self._routes.names

    @property
    def _routes(self) -> Routed:
        objective = cast(Routable, self.objective)  # the door refused others
        return objective.routed(self.routed, self.routing_widths, self._fixed, self.token_routing)

    @property
    def _fixed(self) -> bool:
        return self.fixed_share is not None

    @property
    def _descent(self) -> Descent:
        return Descent(self.client_optimizer, self.step_size)

    @property
    def _optimizer(self) -> optax.GradientTransformation:
        return server_optimizer(self.server_optimizer, self.server_step_size)

    def _begin(self, key: Key, sent: Broadcast, data: ClientData, disjoint: bool) -> tuple[Working, Tally]:
        """w_l made, w_g and psi as sent, and Z_g with the orders in which it is read."""
        parted = jax.random.fold_in(key, _SPLIT)
        own, half = halves(parted, data, self.local_percent) if disjoint else (whole(data), whole(data))
        start = sent.second if self.second_route == "shared" else self._routes.start_local(sent.shared)
        local, tally = self._fit_local(jax.random.fold_in(key, _LOCAL), sent.shared, start, own, data)
        drawn = self.draw_batches(jax.random.fold_in(key, _SHARED), half.as_data())
        memory = (self._descent.start(sent.shared), self._descent.start(sent.routing))
        return Working(sent.shared, sent.routing, local, half, drawn, memory), tally

    def _fit_local(self, key: Key, shared: Params, start: Params, own: Half, data: ClientData) -> tuple[Params, Tally]:
        """K_1 passes, or steps, of SGD on w_l over Z_l; none where Z_l has no row."""
        epochs, steps = self.personal_epochs or self.epochs, self.personal_steps or self.local_steps

        def gradient(at: Key, local: Params, numbers: Batch) -> tuple[Params, Tally]:
            batch = own.take(numbers, data)
            cost = gradient_tally(batch, "shared" if self.second_route == "shared" else "personal")
            return jax.grad(lambda v: self._routes.local_value(at, shared, v, batch))(local), cost

        rows, how = own.as_data(), self._descent
        return walk(self, key, start, rows, gradient, how, steps=steps, epochs=epochs, may_be_empty=True)

    def _walk(self, key: Key, working: Working, data: ClientData, move: Move) -> tuple[Working, Tally]:
        """`move` on every batch of Z_g."""

        def one_step(t: ArrayLike, carried: tuple[Working, Tally]) -> tuple[Working, Tally]:
            moved, cost = move(step_key(key, t), carried[0], self._batch(t, working, data))
            return moved, carried[1].plus(cost.counters())

        return repeat(super().steps(cast(Any, ()), working.half.count), one_step, (working, NOTHING.counters()))

    def _batch(self, t: ArrayLike, working: Working, data: ClientData) -> Batch:
        return working.half.take(self.batch(t, working.drawn, working.half.as_data()), data)

    def _move_routing(self, key: Key, working: Working, batch: Batch) -> tuple[Working, Tally]:
        """One step on psi."""

        def value(routing: Params) -> Array:
            loss, shares = self._routes.mixed_value(key, routing, working.shared, working.local, batch)
            return loss - self.routing_penalty * masked_mean(_row_means(shares.log_shared, batch.targets), batch.mask)

        gradient = jax.grad(value)(working.routing)
        routing, memory = self._descent.step(working.routing, working.memory[1], gradient)
        return working._replace(routing=routing, memory=(working.memory[0], memory)), gradient_tally(batch, "shared")

    def _move_shared(self, key: Key, working: Working, batch: Batch) -> tuple[Working, Tally]:
        """One step on w_g."""
        if self.shared_loss == "own":
            gradient, _ = self.objective.gradient_shared(key, working.shared, (), batch)
        else:
            weights = self._weights(working.routing)
            mixed = jax.grad(lambda w: self._routes.mixed_value(key, weights, w, working.local, batch)[0])
            gradient = mixed(working.shared)
        shared, memory = self._descent.step(working.shared, working.memory[0], gradient)
        return working._replace(shared=shared, memory=(memory, working.memory[1])), gradient_tally(batch, "shared")

    def _move_both(self, key: Key, working: Working, batch: Batch) -> tuple[Working, Tally]:
        """One step on psi, then one on w_g with the new psi."""
        spent = NOTHING
        if not self._fixed:
            working, spent = self._move_routing(key, working, batch)
        working, more = self._move_shared(key, working, batch)
        return working, spent.plus(more)

    def _answer(self, model: Params, inputs: Any) -> tuple[Any, Any]:
        """What a personal model predicts, and its shares."""
        predict = self._routes.predict_mixed if self.soft_inference else self._routes.predict_chosen
        return predict(self._weights(model.get("routing", ())), model["shared"], model["local"], inputs)

    def _weights(self, routing: Params) -> Any:
        """What versions are weighed by: psi, or the fixed share."""
        return routing if self.fixed_share is None else self.fixed_share


def _row_means(log_shared: Any, targets: Any) -> Array:
    """(rows,): mean log q_0 over exits and, of a sequence, over the positions that have a target, as in the loss."""
    values = log_shared.mean(axis=-1)
    if values.ndim == 1:
        return values
    known = jnp.ones(values.shape, bool) if targets.shape != values.shape else targets >= 0
    known = known.astype(values.dtype)
    return jnp.sum(values * known, axis=1) / jnp.maximum(jnp.sum(known, axis=1), 1)


def _personal(shared: Params, local: Params, routing: Params) -> dict[str, Params]:
    return {"shared": shared, "local": local, "routing": routing}


_TUNED = BY_ROWS | {"fine_tuning_steps": 10}
_ERRATA = ("E003-1", "E003-2", "E003-3", "E003-4", "E003-6", "E003-8")
_method = functools.partial(Method, Flow, "global_model", errata=_ERRATA)
METHODS = {
    "flow": _method({}, FLOW, "every input chooses, layer by layer, the shared or the own model"),
    "flow_printed": _method({"shared_loss": "mixture"}, FLOW, "Flow by the letter of its equation 5"),
    "pi_flow": _method({"second_route": "shared"}, FLOW, "Flow by instance alone: both routes are shared"),
    "pc_flow": Method(LocalSGD, "global_model", _TUNED, FLOW, "Flow by client alone: FedAvg, then own steps"),
}
