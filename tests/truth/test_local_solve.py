# SPDX-License-Identifier: Apache-2.0
"""Early stopping of a client's own solve, against a plain loop: where it ends, what it keeps, what it is billed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from idiolect.core import batches, keys
from idiolect.core.data import Batch, ClientData
from idiolect.core.tree import take
from idiolect.objectives import FLIX


def test_early_stopping_keeps_the_best_point_on_rows_it_does_not_learn_from(lab):
    """Labels drawn at random cannot be learnt: more epochs fit them and lose on the held-out rows."""
    client_loss, _, _ = lab.softmax_problem()
    draw = np.random.default_rng(5)
    inputs, targets = draw.normal(size=(12, 3)), draw.integers(0, 3, 12).astype(np.int32)
    inputs[10:] = 1e6  # padding that would be seen
    count, share, most = 10, 0.3, 60  # two rows are padding; three of ten are held out
    data = ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(count, jnp.int32))
    given = {"solver": "early_stopping", "solver_batch_size": 3, "solver_step_size": 0.5, "stopping_share": share}
    objective = FLIX(client_loss, **given, solver_epochs=most, patience=4)
    key = keys.root_key(4)
    prepared, tally = jax.jit(lambda: objective.prepare(key, data))()
    # by hand: the same lots, one epoch after another, losses of the held-out rows
    lot = np.asarray(batches.draw_orders(keys.step_key(key, most), 1, data)[0])
    learning, held = lot[:7], lot[7:10]
    assert sorted(lot[:10]) == list(range(10))
    orders = np.asarray(batches.draw_orders(key, most, data._replace(count=jnp.asarray(7, jnp.int32))))
    held_out = Batch(data.inputs[held], data.targets[held])
    model = client_loss.init(key)
    read = ravel_pytree(model)[1]
    points = [np.asarray(ravel_pytree(model)[0])]
    value = jax.jit(lambda v: client_loss.value(key, read(v), held_out)[0])
    losses = [float(value(points[0]))]
    while len(losses) <= most and len(losses) - 1 - int(np.argmin(losses)) < 4:
        v = points[-1]
        for first in (0, 3, 6):
            rows = learning[orders[len(points) - 1][first : min(first + 3, 7)]]
            v = v - 0.5 * lab.softmax_gradient(v, inputs[rows], targets[rows])
        points.append(v)
        losses.append(float(value(v)))
    epochs, best = len(points) - 1, int(np.argmin(losses))
    assert 0 < best < epochs == best + 4 < most  # it learnt something, then stopped, well before the end
    np.testing.assert_allclose(lab.flat(prepared.optimum), points[best], rtol=1e-11, atol=1e-13)
    assert (int(tally.personal), int(tally.forward)) == (7 * epochs, 3 * (epochs + 1))
    assert (int(tally.samples), int(tally.full_personal)) == (7 * epochs + 3 * (epochs + 1), 0)
    assert bool(prepared.reached)


def test_early_stopping_with_one_row_and_without_need(lab):
    client_loss, data, _ = lab.softmax_problem()
    chosen = {"solver": "early_stopping", "solver_epochs": 5, "solver_batch_size": 0}
    one = take(data, 0)._replace(count=jnp.asarray(1, jnp.int32))
    _, tally = FLIX(client_loss, **chosen).prepare(keys.root_key(0), one)
    assert (int(tally.personal), int(tally.forward)) == (5, 0)  # nothing to stop by
    prepared, tally = FLIX(client_loss, **chosen, personalization=1.0).prepare(keys.root_key(0), take(data, 0))
    assert all(int(count) == 0 for count in tally)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(prepared.optimum))
