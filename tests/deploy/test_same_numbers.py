# SPDX-License-Identifier: Apache-2.0
"""The same algorithm file over messages: every registered method equals the simulation, and its bytes the ledger."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.core import tree
from idiolect.core.algorithm import fit_of
from idiolect.core.mixing import from_pairs
from idiolect.engines.deploy.wire import HEADER_BYTES, HEADER_BYTES_OF_ARRAY
from idiolect.engines.door import Training
from idiolect.engines.simulate import open_session

ROUNDS = 5
TRAINING = Training(rounds=ROUNDS, record_every=ROUNDS, executor="batched", block=ROUNDS, precision="float64")


LISTENING = ("all_for_all_naive with neighbours", "all_for_one with neighbours")
LISTENERS = (np.repeat(np.arange(6), 2), np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0]), np.full(12, 0.5))


@pytest.fixture(scope="module", params=[*sorted(ALGORITHMS), *LISTENING])
def trained(request, workbench, make_bench, uniform, tmp_path_factory):
    name = request.param.partition(" ")[0]
    wished = [workbench.build(name, local_steps=2, batch_size=size) for size in (2, 1, 0)]
    algorithm = next(one for one in wished if fit_of(one).refused is None)
    if request.param in LISTENING:
        algorithm = dataclasses.replace(algorithm, neighbours=from_pairs(6, *LISTENERS))
    bench = make_bench(algorithm, uniform, TRAINING, 4, tmp_path_factory.mktemp(request.param))
    coordinator, standing = bench.train()
    (run,) = open_session([algorithm], uniform, TRAINING, [4], ("log_loss",)).run()
    return bench, coordinator, coordinator.finish(standing), run


def distance(one, other):
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(
        (float(np.max(np.abs(np.asarray(a, float) - np.asarray(b, float)), initial=0)) for a, b in leaves), default=0
    )


def test_every_method_equals_the_simulation(trained):
    bench, _, (standing, ends), run = trained
    assert standing.round == ROUNDS
    assert bench.said == []
    assert distance(standing.server, run.last.server) < 1e-12
    states = [bench.state_of(site) for site in bench.numbers]
    for client, state in enumerate(states):
        assert distance(state, tree.take(run.last.states, client)) < 1e-12
    assert all(post.algorithm.neighbours is None for post in bench.posts.values() if post.algorithm.server_only)
    assert standing.selected_round == run.recorder.selected_round
    for when in ("last", "selected"):
        recorded = getattr(run.recorder, when)
        for split in ("validation", "test"):
            ours, theirs = ends.scores[when][split], recorded[split]
            assert distance(ours["personal"], theirs["personal"]) < 1e-10
            assert set(ours) == set(theirs)
    models = [bench.desks[site].finished.personal for site in bench.numbers]
    assert (
        distance(jax.tree.map(lambda *rows: np.concatenate(rows), *models), run.personal_models(run.selected)) < 1e-10
    )


def test_the_ledger_is_the_simulations_and_the_bytes_are_the_ledgers(trained):
    _, coordinator, (standing, _), run = trained
    ours, theirs = standing.account.ledger.to_dict(), run.ledger.to_dict()
    ours.pop("executed_steps"), theirs.pop("executed_steps")  # padding is idle in one program for all alone
    assert ours == theirs
    traffic = coordinator.link.traffic["round"]
    arrays = len(jax.tree.leaves(coordinator.forms.sent)) + len(jax.tree.leaves(coordinator.forms.upload))
    headers = traffic.down_bytes + traffic.up_bytes - traffic.down_arrays - traffic.up_arrays
    assert headers <= traffic.messages * (2 * HEADER_BYTES + arrays * HEADER_BYTES_OF_ARRAY)
