# SPDX-License-Identifier: Apache-2.0
"""New clients: init_client, one local round whose upload is discarded, `models`."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from idiolect.core.data import ClientData
from idiolect.engines.block import Lane
from idiolect.engines.client import Number
from idiolect.engines.evaluate import Judging, Moment, Scores, score_clients
from idiolect.engines.round import Clients, Cohort, local_work
from idiolect.engines.server import open_round
from idiolect.engines.start import init_clients


@functools.partial(jax.jit, static_argnames=("names",))
def evaluate_new_clients(
    at: Lane, round_number: Number, data: ClientData, rows: ClientData, *, names: tuple[str, ...]
) -> Scores:
    """Scores of clients that never trained, numbered after the last training client so that no key is used twice."""
    algorithm, root = at.algorithm, at.root
    clients = algorithm.clients + jnp.arange(data.count.shape[0], dtype=jnp.int32)
    states, _ = init_clients(algorithm, root, clients, data)
    cohort = Cohort(clients, clients, jnp.ones(clients.shape, bool))
    now = open_round(algorithm, root, round_number, at.server)
    _, states, _ = local_work(now, cohort, Clients(states, data), uniform=False)
    moment = Moment(algorithm, root, round_number, at.server, clients, states, data)
    return score_clients(moment, rows, Judging(names))[0]
