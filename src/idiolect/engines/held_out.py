# SPDX-License-Identifier: Apache-2.0
"""New clients: init_client, one local round whose upload is discarded, `models`."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from idiolect.core import keys
from idiolect.core.algorithm import Algorithm
from idiolect.core.data import ClientData
from idiolect.core.keys import Key, Purpose
from idiolect.engines.evaluate import Moment, Scores, evaluate
from idiolect.engines.round import Cohort, local_work
from idiolect.engines.start import init_clients


@functools.partial(jax.jit, static_argnames=("names",))
def evaluate_new_clients(
    algorithm: Algorithm,
    root: Key,
    round_number: Any,
    server: Any,
    data: ClientData,
    rows: ClientData,
    *,
    names: tuple[str, ...],
) -> Scores:
    """Scores of clients that never trained, numbered after the last training client so that no key is used twice."""
    clients = algorithm.clients + jnp.arange(data.count.shape[0], dtype=jnp.int32)
    states, _ = init_clients(algorithm, root, clients, data)
    cohort = Cohort(clients, clients, jnp.ones(clients.shape, bool))
    sent = algorithm.broadcast(keys.round_key(root, Purpose.BROADCAST, round_number), server)
    _, states, _ = local_work(algorithm, root, round_number, cohort, sent, states, data, uniform=False)
    now = Moment(algorithm, root, round_number, server, clients, states, data)
    scores, _ = evaluate(now, rows, names=names, lanes="one")
    return scores
