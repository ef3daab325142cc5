# SPDX-License-Identifier: Apache-2.0
"""What every algorithm promises on every objective that fits it; a new algorithm joins by being registered."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.accounting.bytes import bytes_of, leaves_of
from idiolect.algorithms import ALGORITHMS
from idiolect.core import keys, tree
from idiolect.core.addressing import is_per_client
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import RequestError
from idiolect.engines import door, start
from idiolect.engines.block import TRACES, Lane, Rounds, run_lane
from idiolect.engines.debug import debug, personal_models
from idiolect.engines.door import Training
from idiolect.engines.population import to_device
from idiolect.engines.round import How
from idiolect.engines.simulate import open_session, simulate

SEED = 4
FULL = Training(rounds=2, precision="float64", executor="batched", block=2, record_every=2)
PARTIAL = dataclasses.replace(FULL, cohort=4, dropout=0.3)
SENDS_PERSONAL = {
    "l2gd",
    "l2sgd_plus",
}  # methods whose Upload openly has a field `personal`; `explain` warns about them


def client_of(states, client):
    return tree.take(states, client)


def unpadded(state, like):
    """A table with one entry per row has entries for padding in the compiled engine; plain Python pads nothing."""
    return jax.tree.map(lambda leaf, own: leaf[: own.shape[0]] if np.ndim(own) else leaf, state, like)


def floating(leaves):
    return [leaf for leaf in jax.tree.leaves(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def of_few_steps(workbench, pair):
    """Two local steps, of two rows each where it draws batches."""
    wished = [workbench.build(*pair, local_steps=2, **more) for more in ({"batch_size": 2}, {})]
    return next(algorithm for algorithm in wished if fit_of(algorithm).refused is None)


def test_rounds_equal_plain_python(trial, workbench):
    server, states, costs = trial.outcome
    plain = trial.debugged
    assert workbench.distance(server, plain.server) < 1e-10
    for client, state in enumerate(plain.clients):
        assert workbench.distance(unpadded(client_of(states, client), state), state) < 1e-10, client
    assert trial.spent(trial.session, costs) == plain.tally


def test_full_cohort_equals_plain_python(own_pair, workbench, ragged, tallied):
    algorithm = of_few_steps(workbench, own_pair)
    (run,) = open_session([algorithm], ragged, FULL, [SEED], ("log_loss",)).run()
    plain = debug(algorithm, ragged, FULL, seed=SEED)
    assert workbench.distance(run.server, plain.server) < 1e-10
    models, expected = run.personal_models(), personal_models(plain, SEED, FULL.rounds, "float64")
    for client, state in enumerate(plain.clients):
        assert workbench.distance(unpadded(client_of(run.states, client), state), state) < 1e-10, client
        model = unpadded(client_of(models, client), expected[client])
        assert workbench.distance(model, expected[client]) < 1e-10, client
    before_delivery = run.history[-1]  # the run's ledger also counts what the personal models cost
    assert tuple(before_delivery[name] for name in tallied) == tuple(plain.tally)


def test_one_program_for_all_rounds_seeds_and_floats(trial, workbench):
    first = trial.outcome
    traced = dict(TRACES)
    name = next(name for name in ("step_size", "strong_convexity", "local_step") if hasattr(trial.algorithm, name))
    other = dataclasses.replace(trial.algorithm, **{name: 0.7 * float(getattr(trial.algorithm, name))})
    again = trial.run(trial.open(other, seed=trial.seed + 1))
    later = [trial.run(trial.session, first=place * trial.training.rounds) for place in (1, 2, 3, 4)]
    assert dict(TRACES) == traced
    assert workbench.distance(first[:2], again[:2]) > 0  # the program did read its seed and its floats
    # and its round numbers, if anything is drawn; how long to wait for an exchange may come out the same once
    with door.run_precision("float64"):
        drawn = start.draws_steps(trial.session.plan.algorithms[0], trial.session.plan.population.capacity)
    if drawn or trial.algorithm.batch_size:
        assert max(workbench.distance(first[:2], outcome[:2]) for outcome in later) > 0


def test_same_call_same_bits_and_nothing_mutated(trial, workbench):
    session = trial.session
    with door.run_precision("float64"):
        inputs = (session.state, session.plan.population.data, session.plan.algorithm)
        before = jax.tree.map(lambda leaf: np.array(leaf, copy=True), inputs)
        assert workbench.same_bits(trial.outcome, trial.run(session))
        assert workbench.same_bits(before, jax.tree.map(np.asarray, inputs))


def assert_kept(before, after):
    assert jax.tree.structure(before) == jax.tree.structure(after)
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(before)]
    assert shapes == [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(after)]


def test_a_round_keeps_structure_shapes_and_dtypes_in_float32(own_pair, workbench, ragged):
    """Each class on its own objective, by types alone; all pairs run in float64 below."""
    rows = ragged.train
    with door.run_precision("float32"):
        algorithm = door.admit(of_few_steps(workbench, own_pair), rows.clients, "float32")
        data = to_device(rows.pad(np.arange(rows.clients)), jnp.float32)
        root, everyone = keys.root_key(0), jnp.arange(rows.clients, dtype=jnp.int32)
        server = jax.eval_shape(start.init_server, algorithm, root)
        states, _ = jax.eval_shape(start.init_clients, algorithm, root, everyone, data)

        def block(server, states):
            rounds = Rounds(jnp.arange(1, dtype=jnp.int32), np.int32(1))
            return run_lane(Lane(algorithm, root, server, states, None), data, rounds, how=How(uniform=False, chunk=0))

        moved = jax.eval_shape(block, server, states)
        wire = start.wire_types(algorithm, data)
    assert_kept((server, states), moved[:2])
    for leaf in floating((server, states, wire)):
        assert leaf.dtype == jnp.float32


def test_rounds_keep_structure_shapes_and_dtypes_in_float64(trial):
    _, server, states = trial.session.snapshot()
    assert_kept((server, states), trial.outcome[:2])
    for leaf in floating((server, states, trial.wire)):
        assert leaf.dtype == jnp.float64


def test_only_named_tuples_cross_the_wire(trial):
    _, server, states = trial.session.snapshot()
    wire = trial.wire
    for value, name in (
        (server, "ServerState"),
        (wire.sent, "Broadcast"),
        (wire.delivered, "Broadcast"),
        (wire.upload, "Upload"),
    ):
        assert isinstance(value, tuple)
        assert type(value).__name__ == name
        assert hasattr(value, "_fields")
    assert states == () or type(states).__name__ == "ClientState"
    assert wire.upload.weight.shape == ()
    # a random key or a foreign object would be refused here; what is addressed counts one row
    assert bytes_of(wire.sent) >= 0
    assert bytes_of(wire.upload) > 0
    for node in jax.tree.leaves(wire.upload, is_leaf=is_per_client):
        assert not is_per_client(node)  # addressing is for what goes down


def test_personal_parameters_are_not_on_the_wire(trial, workbench):
    fields = set(trial.wire.upload._fields) | set(trial.wire.sent._fields)
    if trial.name in SENDS_PERSONAL:
        assert "personal" in fields  # an open door has a name on it
        return
    assert "personal" not in fields
    plain, session = trial.debugged, trial.session
    with door.run_precision("float64"):
        drawn = start.draws_steps(session.plan.algorithms[0], session.plan.population.capacity)
    for client, upload in trial.uploads.items():
        kept = getattr(plain.clients[client], "personal", ())
        for mine in jax.tree.leaves(kept):
            moved = np.any(np.asarray(mine))  # away from zero, so that equality tells
            assert moved or drawn  # drawn numbers of local steps may all have been none
            for leaf in jax.tree.leaves(upload):
                assert not moved or leaf.shape != mine.shape or not np.array_equal(leaf, mine)


def test_what_leaves_a_client_is_what_a_run_states(trial):
    """privacy.json lists the wire types; the debug engine sees what is really sent."""
    assert trial.debugged
    stated = [(leaf.path, leaf.shape, leaf.dtype) for leaf in leaves_of(trial.wire.upload)]
    assert trial.uploads
    for upload in trial.uploads.values():
        with door.run_precision("float64"):
            assert [(leaf.path, leaf.shape, leaf.dtype) for leaf in leaves_of(upload)] == stated


def test_absent_clients_keep_their_state_and_move_nobody(trial, workbench):
    if trial.algorithm.fit(chance=0.5).refused:
        with pytest.raises(RequestError, match="needs every client in every round"):
            open_session([trial.algorithm], trial.federation, PARTIAL, [0], ("log_loss",))
        return
    session, absent = trial.session, trial.never_present
    server, states, _ = trial.outcome
    assert absent
    for client in absent:
        before, after = (client_of(table, client) for table in (session.snapshot().states, states))
        assert workbench.same_bits(before, after)

    other = trial.open()
    with door.run_precision("float64"):
        row = jnp.zeros(trial.federation.train.clients).at[jnp.asarray(absent, jnp.int32)].set(1.0)
        moved = jax.tree.map(
            lambda leaf: leaf + row.reshape(1, -1, *(1,) * (leaf.ndim - 2)).astype(leaf.dtype), other.state.clients
        )
        other.state = other.state._replace(clients=moved)
    moved_server, moved_states, _ = trial.run(other)
    assert workbench.same_bits(server, moved_server)
    for client in set(range(trial.federation.train.clients)) - set(absent):
        assert workbench.same_bits(client_of(states, client), client_of(moved_states, client))


def test_a_pair_that_does_not_fit_is_refused_before_compiling(misfit, workbench, ragged):
    name, objective = misfit
    algorithm = workbench.build(name, objective)
    traced = dict(TRACES)
    with pytest.raises(RequestError) as refused:
        simulate(algorithm, ragged, FULL)
    assert dict(TRACES) == traced
    sentence = str(refused.value)
    assert type(algorithm).__name__ in sentence
    assert type(algorithm.objective).__name__ in sentence
    assert fit_of(algorithm).refused in sentence
    assert sentence.endswith(".")


def test_something_is_tested(workbench):
    assert len(ALGORITHMS) >= 11
    fields = {field.name for method in ALGORITHMS.values() for field in dataclasses.fields(method.algorithm)}
    assert "step_size" in fields
