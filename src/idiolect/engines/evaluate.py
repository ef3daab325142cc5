# SPDX-License-Identifier: Apache-2.0
"""Evaluation: every client's shared and personal model on its own held-back rows, in one compiled program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from idiolect.core import keys, tree
from idiolect.core.addressing import address, axes
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key, Purpose
from idiolect.core.tally import Tally
from idiolect.core.tree import Params
from idiolect.engines.block import TRACES
from idiolect.metrics.scores import SCORES

Scores = dict[str, dict[str, Any]]  # "shared" | "personal" -> score -> (clients,)


class Moment(NamedTuple):
    """A run between two rounds, as far as the named clients see it."""

    algorithm: Algorithm
    root: Key
    round: Any
    server: Any
    clients: Any  # their numbers
    states: Any  # one row per client
    train: ClientData  # one row per client


class Standing(NamedTuple):
    """Where a run stands: its point (w, beta) in F, and the models that the clients predict with."""

    shared: Params  # w; the empty tuple where the method keeps none
    personal: Params  # beta_m, stacked over clients; the empty tuple where there is none
    models: Params  # stacked over clients


def _over_lanes(function: Callable[[Moment], Any], now: Moment, lanes: str) -> Any:
    """`function` of one run, or of every lane: then algorithm, root, server and states have a lane axis."""
    if lanes == "one":
        return function(now)

    def lane(own: tuple[Algorithm, Key, Any, Any]) -> Any:
        algorithm, root, server, states = own
        return function(now._replace(algorithm=algorithm, root=root, server=server, states=states))

    run_lanes = jax.vmap(lane) if lanes == "together" else functools.partial(jax.lax.map, lane)
    return run_lanes((now.algorithm, now.root, now.server, now.states))


def _delivered(now: Moment) -> Any:
    return now.algorithm.deliver(keys.round_key(now.root, Purpose.DELIVER, now.round), now.server)


def personal_models(now: Moment) -> tuple[Params, Tally]:
    """What each of the clients would predict with now, stacked, and what that costs them."""
    seen = (now.algorithm, _delivered(now))

    def one(own: Any, key: Key, state: Any, rows: ClientData) -> tuple[Params, Tally]:
        model, cost = own[0].personal_model(key, own[1], state, rows)
        return model, cost.counters()

    model_keys = keys.client_keys(now.root, Purpose.PERSONAL_MODEL, now.round, now.clients)
    in_axes = (axes(seen), 0, 0, 0)
    return jax.vmap(one, in_axes=in_axes)(address(seen, now.clients), model_keys, now.states, now.train)


def _for_both(
    now: Moment,
    personal: Params,
    function: Callable[[Algorithm, Params, Any], Any],
    rows: Any,
    one_by_one: bool = False,
) -> Any:
    """`function(algorithm, model, rows)` of every client's personal model, and of the shared one where there is one.

    One client after another, a branch that depends on a client's rows is taken or not; side by side, both are computed.
    """
    shared = now.algorithm.shared_model(now.server)
    if one_by_one:

        def alone(of: tuple[Any, Params, Any]) -> dict[str, Any]:
            client, model, held = of
            models = {"personal": model} if shared is None else {"personal": model, "shared": shared}
            own = address(now.algorithm, client)
            return {name: function(own, one, held) for name, one in models.items()}

        return jax.lax.map(alone, (now.clients, personal, rows))
    own, own_axes = address(now.algorithm, now.clients), axes(now.algorithm)
    answers = {"personal": jax.vmap(function, in_axes=(own_axes, 0, 0))(own, personal, rows)}
    if shared is not None:
        answers["shared"] = jax.vmap(function, in_axes=(own_axes, None, 0))(own, shared, rows)
    return answers


def _filled(inputs: Any, mask: Any) -> Any:
    """The rows, with the first in place of padding: padding then takes no branch of its own."""
    return jnp.where(mask.reshape(-1, *(1,) * (inputs.ndim - 1)), inputs, inputs[:1])


def _in_chunks(function: Callable[[Moment, ClientData], Any], now: Moment, rows: ClientData, chunk: int) -> Any:
    """`function` of all clients at once (`chunk` 0), or of so many at a time, so that memory is theirs alone."""
    size = now.clients.shape[0]
    if not 0 < chunk < size:
        return function(now, rows)
    own = (now.clients, now.states, now.train, rows)

    def one_chunk(places: Any) -> Any:
        clients, states, train, held = tree.take(own, places)
        return function(now._replace(clients=clients, states=states, train=train), held)

    # the last chunk is filled up with the last client again
    places = jnp.minimum(jnp.arange(-(-size // chunk) * chunk, dtype=jnp.int32), size - 1).reshape(-1, chunk)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:size], jax.lax.map(one_chunk, places))


@functools.partial(jax.jit, static_argnames=("names", "lanes", "one_by_one", "chunk"))
def evaluate(
    now: Moment, rows: ClientData, *, names: tuple[str, ...], lanes: str, one_by_one: bool = False, chunk: int = 0
) -> tuple[Scores, Tally]:
    """Scores of both models on the clients' `rows`, one number per client, and what each personal model cost.

    `chunk` clients at a time, all of them if 0.
    """
    TRACES["evaluate"] += 1

    def score(own: Algorithm, model: Params, held: ClientData) -> dict[str, Any]:
        mask = held.batch().mask
        outputs = own.predict(model, _filled(held.inputs, mask) if one_by_one else held.inputs)
        return {name: SCORES[name].function(outputs, held.targets, mask) for name in names}

    def some(now: Moment, held: ClientData) -> tuple[Scores, Tally]:
        personal, cost = personal_models(now)
        return _for_both(now, personal, score, held, one_by_one), cost

    return _over_lanes(lambda lane: _in_chunks(some, lane, rows, chunk), now, lanes)


@functools.partial(jax.jit, static_argnames=("lanes",))
def standing(now: Moment, *, lanes: str) -> Standing:
    """Where every lane stands."""

    def one_run(now: Moment) -> Standing:
        models, _ = personal_models(now)
        seen = (now.algorithm, _delivered(now))
        shared, personal = jax.vmap(
            lambda own, state: own[0].point(own[1], state), in_axes=(axes(seen), 0), axis_size=now.clients.shape[0]
        )(address(seen, now.clients), now.states)
        return Standing(tree.take(shared, 0), personal, models)

    return _over_lanes(one_run, now, lanes)


@jax.jit
def models_and_outputs(now: Moment, rows: ClientData) -> tuple[Params, dict[str, Any]]:
    """The clients' personal models, stacked, and what both models answer on each client's `rows`."""
    personal, _ = personal_models(now)
    outputs = _for_both(now, personal, lambda own, model, inputs: own.predict(model, inputs), rows.inputs)
    return jax.tree.map(jnp.asarray, personal), outputs
