# SPDX-License-Identifier: Apache-2.0
"""Evaluation: what every client receives and its personal model on its own held-back rows, in one compiled program.

"shared" is the whole model that a client has before its rows move a parameter: the one for all clients, or
`Models.received`. Where neither is, there is no such entry.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.core import tree
from idiolect.core.addressing import address, axes
from idiolect.core.algorithm import Algorithm, Models
from idiolect.core.data import Array, ClientData
from idiolect.core.keys import Key
from idiolect.core.kinds import Routes
from idiolect.core.tally import Tally
from idiolect.core.tree import Params, Tree
from idiolect.engines.block import TRACES, over_lanes
from idiolect.engines.client import Number, Round, Task, client_model, for_clients
from idiolect.engines.compiler import OPTIONS
from idiolect.engines.packed import Packed, pack
from idiolect.engines.round import Clients, Cohort, local_work
from idiolect.engines.server import deliver, open_round
from idiolect.engines.shard import EVERYWHERE, Shards, by_client
from idiolect.engines.start import init_clients
from idiolect.metrics.personalization import instance_shares
from idiolect.metrics.scores import SCORES, correct_positions

# "shared" | "personal" -> score -> (clients,); of classes also "instances" -> who is right -> fraction of rows
Scores = dict[str, dict[str, Array]]


KINDS = ("shared", "personal")
Routed = tuple[jax.Array, jax.Array, jax.Array, jax.Array]  # weights, both models right, real; by client and row


class Delivered(NamedTuple):
    """What a site has of the server between two rounds: never its state."""

    sent: Tree  # what `deliver` made, as the site sees it
    shared: Params | None  # the one model for everybody, if there is one


class Moment(NamedTuple):
    """A run between two rounds, as far as the named clients see it."""

    algorithm: Algorithm
    root: Key
    round: Number
    server: Tree  # at a site `Delivered`
    clients: Array  # their numbers
    states: Tree  # one row per client
    train: ClientData  # one row per client


class Standing(NamedTuple):
    """Where a run stands: its point (w, beta) in F, and the models that the clients predict with."""

    shared: Params  # w; the empty tuple where the method keeps none
    personal: Params  # beta_m, stacked over clients; the empty tuple where there is none
    models: Params  # stacked over clients


def _lanes(function: Callable[[Moment], Tree], now: Moment, lanes: str) -> Tree:
    """`function` of every lane: all of `now` but the clients and their rows has a lane axis."""

    def lane(own: tuple[Algorithm, Key, jax.Array, Tree, Tree]) -> Tree:
        return function(Moment(*own[:4], now.clients, own[4], now.train))

    return over_lanes(lane, (*now[:4], now.states), lanes)


def client_models(now: Moment, common: Params | None = None) -> tuple[Models, Tally]:
    """The models of each of the clients as they are now, stacked, and what making them costs.

    Where every client predicts with `common` itself, `personal` is None: no copy is made of it for each.
    """
    known: tuple[list[Array], Any] = jax.tree.flatten(common)

    def one(task: Task) -> tuple[Models, Tally]:
        models, cost = client_model(task)
        leaves, structure = jax.tree.flatten(models.personal)
        # what no client changed passes through `vmap` as the object that it was
        if common is not None and structure == known[1] and all(map(operator.is_, leaves, known[0])):
            models = models._replace(personal=None)
        return models, cost.counters()

    if isinstance(now.server, Delivered):
        delivered = Round(now.algorithm, now.root, now.round, now.server.sent)
    else:
        delivered = deliver(now.algorithm, now.root, now.round, now.server)
    return for_clients(one, delivered, now.clients, now.states, now.train)


def _for_both(now: Moment, models: Models, function: Callable[..., Tree], rows: Tree, one_by_one: bool = False) -> Tree:
    """`function(algorithm, models, rows)` of every client, whose models are "personal" and, where they are, "shared".

    Without a "personal" one, the client predicts with the shared model. One client after another, a branch that depends
    on a client's rows is taken or not; side by side, both are computed.
    """
    common = _common_model(now)
    own_models: dict[str, Params] = {} if models.personal is None else {"personal": models.personal}
    models_axes: dict[str, int | None] = dict.fromkeys(own_models, 0)
    if common is None and models.received is not None:
        own_models["shared"], models_axes["shared"] = models.received, 0
    if one_by_one:

        def alone(of: tuple[jax.Array, dict[str, Params], Tree]) -> Tree:
            client, models, held = of
            # the common model is closed over: as an argument of `map` it would need a copy per client
            everyone = {} if common is None else {"shared": common}
            return function(address(now.algorithm, client), models | everyone, held)

        return jax.lax.map(alone, (now.clients, own_models, rows))
    if common is not None:
        # without an axis: one product of all clients' rows with one model, instead of one each
        own_models["shared"], models_axes["shared"] = common, None
    own, own_axes = address(now.algorithm, now.clients), axes(now.algorithm)
    return jax.vmap(function, in_axes=(own_axes, models_axes, 0))(own, own_models, rows)


def _common_model(now: Moment) -> Params | None:
    return now.server.shared if isinstance(now.server, Delivered) else now.algorithm.shared_model(now.server)


def _in_chunks(function: Callable[[Moment, ClientData], Tree], now: Moment, rows: ClientData, chunk: int) -> Tree:
    """`function` of all clients at once (`chunk` 0), or of so many at a time, so that memory is theirs alone."""
    size = now.clients.shape[0]
    if not 0 < chunk < size:
        return function(now, rows)
    own = (now.clients, now.states, now.train, rows)

    def one_chunk(places: jax.Array) -> Tree:
        clients, states, train, held = tree.take(own, places)
        return function(now._replace(clients=clients, states=states, train=train), held)

    # the last chunk is filled up with the last client again
    places = jnp.minimum(jnp.arange(-(-size // chunk) * chunk, dtype=jnp.int32), size - 1).reshape(-1, chunk)
    return tree.take(tree.join_axes(jax.lax.map(one_chunk, places)), slice(size))


class Judging(NamedTuple):
    """How clients are scored."""

    names: tuple[str, ...]  # of the scores
    one_by_one: bool = False  # one client after another: a branch on a client's rows stays a branch
    chunk: int = 0  # clients at a time; 0: all of them
    shards: Shards | None = None  # the devices that clients are laid over; None: there is one


@functools.partial(jax.jit, static_argnames=("how", "lanes"), compiler_options=OPTIONS)
def evaluate(now: Moment, rows: ClientData, *, how: Judging, lanes: str) -> tuple[Packed, Tally]:
    """`score_clients` of every lane: all of `now` but the clients and their rows has a lane axis."""
    TRACES["evaluate"] += 1

    def every_lane(now: Moment, rows: ClientData) -> tuple[Scores, Tally]:
        return _lanes(lambda lane: score_clients(lane, rows, how), now, lanes)

    if how.shards is not None:
        of_clients = Moment._make([EVERYWHERE] * 4 + [by_client(0), by_client(1), by_client(0)])
        every_lane = how.shards.over(every_lane, (of_clients, by_client(0)), by_client(1))
    scores, cost = every_lane(now, rows)
    return pack(scores), cost


def score_clients(now: Moment, rows: ClientData, how: Judging) -> tuple[Scores, Tally]:
    """Scores of both models on the clients' `rows`, one number per client, and what each personal model cost."""
    names, one_by_one = how.names, how.one_by_one
    classes = SCORES[names[0]].task == "classification"

    def score(own: Algorithm, models: dict[str, Params], held: ClientData) -> Scores:
        mask, inputs = held.batch().mask, held.inputs
        weights = () if held.weights is None else (held.weights,)
        if one_by_one:  # with the first row in its place, padding takes no branch of its own
            inputs = jnp.where(jnp.asarray(mask).reshape(-1, *(1,) * (inputs.ndim - 1)), inputs, inputs[:1])
        # one pass per model for all scores: predictions cost more than every score of them together
        outputs = {kind: own.predict(model, inputs) for kind, model in models.items()}
        if "personal" not in outputs:  # both are one model
            outputs["personal"] = outputs["shared"]
        found = {
            kind: {name: SCORES[name].function(answer, held.targets, mask, *weights) for name in names}
            for kind, answer in outputs.items()
        }
        return found | {"instances": instance_shares(outputs, held.targets, mask, *weights)} if classes else found

    def some(now: Moment, held: ClientData) -> tuple[Scores, Tally]:
        models, cost = client_models(now, _common_model(now))
        return _for_both(now, models, score, held, one_by_one), cost

    return _in_chunks(some, now, rows, how.chunk)


@functools.partial(jax.jit, static_argnames=("names",))
def evaluate_new_clients(now: Moment, rows: ClientData, *, names: tuple[str, ...]) -> Scores:
    """Scores of clients that never trained: init_client, one local round whose upload is discarded, `models`.

    Of them `now` has numbers from 0 and rows. They come after the last training client, so that no key is used twice.
    """
    algorithm, root, data = now.algorithm, now.root, now.train
    clients = algorithm.clients + now.clients
    states, _ = init_clients(algorithm, root, clients, data)
    cohort = Cohort(clients, clients, jnp.ones(clients.shape, bool))
    opened = open_round(algorithm, root, now.round, now.server)
    _, states, _ = local_work(opened, cohort, Clients(states, data), uniform=False)
    return score_clients(now._replace(clients=clients, states=states), rows, Judging(names))[0]


@functools.partial(jax.jit, static_argnames=("chunk",))
def routes_taken(now: Moment, rows: ClientData, *, chunk: int = 0) -> Routed:
    """`routing_report`'s arguments after the names, for a method that routes; of sequences, position by position.

    `chunk` clients at a time, all of them if 0.
    """

    def of_client(own: Algorithm, models: dict[str, Params], held: ClientData) -> Routed:
        assert isinstance(own, Routes)
        mask, targets = jnp.asarray(held.batch().mask), held.targets
        shares = own.shared_shares(models["personal"], held.inputs)
        gaps = (1,) * (targets.ndim - shares.ndim + 1)  # one share for all positions
        shares = shares.reshape(shares.shape[0], *gaps, *shares.shape[1:])
        shares = jnp.broadcast_to(shares, (*targets.shape, shares.shape[-1]))
        right = [correct_positions(own.predict(models[kind], held.inputs), targets, mask) for kind in KINDS]
        real = mask.astype(bool).reshape(-1, *(1,) * (targets.ndim - 1)) & (targets >= 0)
        return shares, *right, real

    def some(now: Moment, held: ClientData) -> Routed:
        return _for_both(now, client_models(now)[0], of_client, held)

    return _in_chunks(some, now, rows, chunk)


@functools.partial(jax.jit, static_argnames=("lanes",))
def standing(now: Moment, *, lanes: str) -> Standing:
    """Where every lane stands."""
    return _lanes(lane_standing, now, lanes)


@jax.jit
def lane_standing(now: Moment) -> Standing:
    """Where a single run stands."""
    models = client_models(now)[0].personal
    delivered = deliver(now.algorithm, now.root, now.round, now.server)
    shared, personal = for_clients(_point, delivered, now.clients, now.states, now.train)
    # every client was delivered the same w
    return Standing(tree.take(shared, 0), personal, models)


def _point(task: Task) -> tuple[Params, Params]:
    own, sent = task.seen
    return own.point(sent, task.state)


@functools.partial(jax.jit, static_argnames=("chunk",))
def models_and_outputs(now: Moment, rows: ClientData, *, chunk: int = 0) -> tuple[Params, dict[str, jax.Array]]:
    """The clients' personal models, stacked, and what both models answer on each client's `rows`.

    Of `chunk` clients at a time no model is kept, so that memory is theirs alone.
    """

    def answer(own: Algorithm, models: dict[str, Params], held: jax.Array) -> dict[str, jax.Array]:
        return {kind: own.predict(model, held) for kind, model in models.items()}

    def some(now: Moment, held: ClientData) -> tuple[Params, dict[str, jax.Array]]:
        models, _ = client_models(now)
        kept = () if chunk else jax.tree.map(jnp.asarray, models.personal)
        return kept, _for_both(now, models, answer, held.inputs)

    return _in_chunks(some, now, rows, chunk)
