# SPDX-License-Identifier: Apache-2.0
"""Evaluation: every client's shared and personal model on its own held-back rows, in one compiled program."""

from __future__ import annotations

import functools
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


class Standing(NamedTuple):
    """Where a run stands: its point (w, beta) in F, and the models that the clients predict with."""

    shared: Params  # w; the empty tuple where the method keeps none
    personal: Params  # beta_m, stacked over clients; the empty tuple where there is none
    models: Params  # stacked over clients


def personal_models(
    algorithm: Algorithm,
    root: Key,
    round_number: Any,
    server: Any,
    clients: Any,
    states: Any,
    data: ClientData,
) -> tuple[Params, Tally]:
    """What each of the clients would predict with after `round_number` rounds, stacked, and what that costs them."""
    sent = algorithm.deliver(keys.round_key(root, Purpose.DELIVER, round_number), server)

    def one(seen: Any, key: Key, state: Any, rows: ClientData) -> tuple[Params, Tally]:
        model, cost = seen[0].personal_model(key, seen[1], state, rows)
        return model, cost.counters()

    model_keys = keys.client_keys(root, Purpose.PERSONAL_MODEL, round_number, clients)
    view = address((algorithm, sent), clients)
    return jax.vmap(one, in_axes=(axes((algorithm, sent)), 0, 0, 0))(view, model_keys, states, data)


def _scores(algorithm: Algorithm, model: Params, rows: ClientData, names: tuple[str, ...]) -> dict[str, Any]:
    outputs = algorithm.predict(model, rows.inputs)
    mask = rows.batch().mask
    return {name: SCORES[name].function(outputs, rows.targets, mask) for name in names}


def _evaluate(
    algorithm: Algorithm,
    root: Key,
    round_number: Any,
    server: Any,
    clients: Any,
    states: Any,
    train: ClientData,
    rows: ClientData,
    names: tuple[str, ...],
) -> tuple[Scores, Tally]:
    personal, cost = personal_models(algorithm, root, round_number, server, clients, states, train)
    shared = algorithm.shared_model(server)
    own, own_axes = address(algorithm, clients), axes(algorithm)
    score = functools.partial(_scores, names=names)
    scores: Scores = {"personal": jax.vmap(score, in_axes=(own_axes, 0, 0))(own, personal, rows)}
    if shared is not None:
        scores["shared"] = jax.vmap(score, in_axes=(own_axes, None, 0))(own, shared, rows)
    return scores, cost


@functools.partial(jax.jit, static_argnames=("names", "lanes"))
def evaluate(
    algorithm: Algorithm,
    root: Key,
    round_number: Any,
    server: Any,
    clients: Any,
    states: Any,
    train: ClientData,
    rows: ClientData,
    *,
    names: tuple[str, ...],
    lanes: str,
) -> tuple[Scores, Tally]:
    """Scores of both models on the clients' `rows`, one number per client, and what each personal model cost."""
    TRACES["evaluate"] += 1
    if lanes == "one":
        return _evaluate(algorithm, root, round_number, server, clients, states, train, rows, names)

    def lane(own: tuple[Algorithm, Key, Any, Any]) -> tuple[Scores, Tally]:
        algorithm, root, server, states = own
        return _evaluate(algorithm, root, round_number, server, clients, states, train, rows, names)

    run_lanes = jax.vmap(lane) if lanes == "together" else functools.partial(jax.lax.map, lane)
    return run_lanes((algorithm, root, server, states))


@functools.partial(jax.jit, static_argnames=("lanes",))
def standing(
    algorithm: Algorithm,
    root: Key,
    round_number: Any,
    server: Any,
    clients: Any,
    states: Any,
    train: ClientData,
    *,
    lanes: str,
) -> Standing:
    """Where every lane stands after `round_number` rounds."""

    def lane(own: tuple[Algorithm, Key, Any, Any]) -> Standing:
        algorithm, root, server, states = own
        models, _ = personal_models(algorithm, root, round_number, server, clients, states, train)
        sent = algorithm.deliver(keys.round_key(root, Purpose.DELIVER, round_number), server)
        view = address((algorithm, sent), clients)
        shared, personal = jax.vmap(
            lambda seen, state: seen[0].point(seen[1], state),
            in_axes=(axes((algorithm, sent)), 0),
            axis_size=clients.shape[0],
        )(view, states)
        return Standing(tree.take(shared, 0), personal, models)

    own = (algorithm, root, server, states)
    if lanes == "one":
        return lane(own)
    return (jax.vmap(lane) if lanes == "together" else functools.partial(jax.lax.map, lane))(own)


@jax.jit
def models_and_outputs(
    algorithm: Algorithm,
    root: Key,
    round_number: Any,
    server: Any,
    clients: Any,
    states: Any,
    train: ClientData,
    rows: ClientData,
) -> tuple[Params, dict[str, Any]]:
    """The clients' personal models, stacked, and what both models answer on each client's `rows`."""
    personal, _ = personal_models(algorithm, root, round_number, server, clients, states, train)
    own, own_axes = address(algorithm, clients), axes(algorithm)

    def predict(mine: Algorithm, model: Params, inputs: Any) -> Any:
        return mine.predict(model, inputs)

    outputs = {"personal": jax.vmap(predict, in_axes=(own_axes, 0, 0))(own, personal, rows.inputs)}
    shared = algorithm.shared_model(server)
    if shared is not None:
        outputs["shared"] = jax.vmap(predict, in_axes=(own_axes, None, 0))(own, shared, rows.inputs)
    return jax.tree.map(jnp.asarray, personal), outputs
