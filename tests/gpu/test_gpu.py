# SPDX-License-Identifier: Apache-2.0
"""The same algorithms on a GPU: run by hand on such a machine with `pytest tests/gpu -m gpu`."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import unset
from idiolect.core.settings import know_population
from idiolect.data import Federation, Split
from idiolect.engines.debug import debug
from idiolect.engines.simulate import Training, simulate
from idiolect.models import MLP
from idiolect.objectives import OBJECTIVES, ClientLoss

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.optimized,
    pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU; there is none on this machine"),
]


@pytest.fixture(scope="module")
def federation():
    draws = np.random.Generator(np.random.Philox(0))
    inputs = draws.normal(size=(300, 12)).astype(np.float32)
    labels = (inputs @ draws.normal(size=(12, 3))).argmax(axis=1)
    return Federation.from_arrays(inputs, labels, draws.integers(0, 8, 300), split=Split(0.6, 0.2, 0.2))


def build(name):
    """The named algorithm on its own objective and a small network, with the batches that it takes."""
    method = ALGORITHMS[name]
    network = MLP(
        12, 3, (16,), normalize="layer" if method.objective_preset else "none"
    )  # a split may name normalisation layers
    objective = OBJECTIVES[method.objective](ClientLoss(model=network), **method.objective_preset)
    for batching in ({"batch_size": 5, "epochs": 1}, {"batch_size": 5}, {}):
        has = {field.name for field in dataclasses.fields(method.algorithm)}
        given = {key: value for key, value in batching.items() if key in has} | dict(method.preset)
        algorithm = know_population(method.algorithm(objective, **given), 8)
        small = {"step_size": 0.05} if "step_size" in {field.name for field in dataclasses.fields(algorithm)} else {}
        algorithm = dataclasses.replace(algorithm, **(dict.fromkeys(unset(algorithm), 0.3) | small))
        if fit_of(algorithm).refused is None:
            return algorithm
    raise AssertionError(name)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_the_gpu_agrees_with_plain_python_on_the_cpu(name, federation):
    algorithm = build(name)
    cohort = 0 if algorithm.fit(chance=0.5).refused else 5
    training = Training(rounds=3, cohort=cohort, executor="batched", record_every=3)
    with jax.default_device(jax.devices("cpu")[0]):
        expected = debug(algorithm, federation, training)
    # float32 products are summed in another order there: a few units in the last place per step
    with jax.default_matmul_precision("highest"):
        for executor, chunk in (("batched", 0), ("chunked", 2), ("looped", 0)):
            run = simulate(
                algorithm,
                federation,
                Training(3, cohort, executor=executor, chunk=chunk, record_every=3),
                scores=("accuracy",),
            )
            for ours, theirs in zip(jax.tree.leaves(run.server), jax.tree.leaves(expected.server)):
                np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)
