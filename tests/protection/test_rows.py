# SPDX-License-Identifier: Apache-2.0
"""Privacy of rows: every algorithm hides them in its gradients and reads them nowhere else, or is refused."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.algorithms import ALGORITHMS
from idiolect.core import keys, tree
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import RequestError
from idiolect.core.data import Batch, ClientData
from idiolect.core.objective import unprotected
from idiolect.engines import door
from idiolect.engines.client import Task, client_init, steps_of
from idiolect.engines.debug import watched_round
from idiolect.engines.server import open_round, server_init, server_step
from idiolect.protection import Protection, RowPrivacy, protect, row_privacy, with_private_rows
from idiolect.protection.clipping import NOISE
from idiolect.protection.row_privacy import NoisyGradients, flip_coins, take_sampled, width_of

CLIENTS, WATCHED, SEED = 6, 2, 5  # of all clients two do their rounds
PRIVATE = Protection(rows=RowPrivacy(clip=0.3, noise_multiplier=0.8))
OPEN = Protection(rows=RowPrivacy(clip=1e9, noise_multiplier=0.0))
ACCEPTED = (
    "local_sgd",
    "ditto",
    "apfl",
    "fedper",
    "fedrep",
    "fedbabu",
    "scaffold",
    "minibatch_sgd",
    "knn_per",
    "lsgd_pfl",
    "personalized_local_sgd",
    "all_for_all",
    "all_for_all_adaptive",
    "all_for_one",
)
HIDING = {ALGORITHMS[name].algorithm for name in ACCEPTED}
OTHERS = {method.algorithm: name for name, method in ALGORITHMS.items() if method.algorithm not in HIDING}
REFUSED = {
    "local": "nothing leaves",
    "hypcluster": "by their losses",
    "partialfed": "choose layers",
    "pi_flow": "route inputs",
    "per_fedavg": "after a step on the same rows",
    "pfedme": "several steps on the rows of one batch",
    "l2gd": "is drawn",
    "l2sgd_plus": "is drawn",
    "flix_gd": "prepare something",
    "all_for_all_naive": "models of all listeners",
}


def rows_of(federation, moved=0.0):
    """All clients' rows; where moved, other values in as many rows."""
    padded = [federation.train.pad(np.array([m])) for m in range(WATCHED)]
    whole = [ClientData(*(jnp.asarray(leaf[0]) for leaf in one[:3])) for one in padded]
    return [one._replace(inputs=one.inputs * (1 + moved) - moved, targets=one.targets[::-1]) if moved else one
            for one in whole]  # fmt: skip


def uploads_of(algorithm, data, rounds=2):
    """What all clients send in each round, and the steps they take."""
    admitted, root = door.admit(algorithm, CLIENTS, "float64"), keys.root_key(SEED)
    server, sent, steps = server_init(admitted, root), [], 0
    states = [client_init(admitted, root, m, rows)[0] for m, rows in enumerate(data)]
    for number in range(rounds):
        now = open_round(admitted, root, number, server)
        tasks = [Task(now, m, states[m], rows) for m, rows in enumerate(data)]
        done = [watched_round(task)[:2] for task in tasks]
        steps += sum(int(steps_of(task)) for task in tasks)
        states = [state for _, state in done]
        sent.append(jax.tree.map(lambda *leaves: jnp.stack(leaves), *[upload for upload, _ in done]))
        server = server_step(
            now, server, admitted.reduction.collect(sent[-1], jnp.arange(WATCHED), jnp.ones(WATCHED, bool))
        )
    return sent, steps


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_sent_reads_rows_through_noisy_gradients_alone(name, workbench, uniform, monkeypatch):
    """With those replaced by what no row decides, uploads of two rounds are the same whatever the rows are."""
    seen = []

    def rowless(self, key, batch, gradient):
        seen.append(tuple(np.asarray(jax.random.key_data(key)).tolist()))
        like, tally = gradient(key, batch)
        return jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape, leaf.dtype), like), tally

    algorithm = protect(workbench.build(name, local_steps=2, batch_size=2), PRIVATE)
    monkeypatch.setattr(NoisyGradients, "_hide", rowless)
    with door.run_precision("float64"):
        (one, steps), (other, _) = (uploads_of(algorithm, rows_of(uniform, moved)) for moved in (0.0, 3.0))
    assert all(workbench.same_bits(*pair) for pair in zip(one, other))
    # the accountant counts so many gradients, and no two of them get the same noise
    assert len(seen) == 2 * steps * algorithm.row_reads.passes
    assert len(set(seen)) == len(seen) // 2


@pytest.mark.parametrize("name", [name for name in ACCEPTED if name not in ("fedrep", "fedbabu")])
def test_without_clip_and_noise_it_is_the_algorithm_itself(name, workbench, uniform):
    plain = workbench.build(name, local_steps=2, batch_size=0)
    with door.run_precision("float64"):
        (found, _), (wanted, _) = (uploads_of(one, rows_of(uniform), 1) for one in (protect(plain, OPEN), plain))
    assert workbench.distance(found, wanted) < 1e-9


@pytest.mark.parametrize("name", OTHERS.values())
def test_every_other_algorithm_is_refused(name, workbench):
    wished = [workbench.build(name, **batches) for batches in ({"local_steps": 1, "batch_size": 2}, {})]
    algorithm = next(one for one in wished if fit_of(one).refused is None)
    with pytest.raises(RequestError, match=REFUSED.get(name, "cannot hide its clients' rows: it takes gradients at")):
        protect(algorithm, PRIVATE)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("scaffold", {"option": 1}, "set option = 2"),
        ("all_for_all", {"order": "stream", "batch_size": 2}, "set order = 'drawn'"),
        ("flix_sgd", {}, "prepare something"),
    ],
)
def test_settings_that_read_rows_otherwise_are_refused(name, settings, sentence, workbench):
    with pytest.raises(RequestError, match=sentence):
        protect(workbench.build(name, **settings), PRIVATE)


def by_hand(key, batch, gradient, privacy):
    """Row after row, in NumPy."""
    first, total = [np.zeros_like(np.asarray(leaf)[:1]) for leaf in batch[:2]], 0.0
    like = gradient(key, Batch(*first, np.zeros(1, bool)))[0]
    rowless = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(like)])
    for row in np.flatnonzero(np.ones(len(batch.targets)) if batch.mask is None else batch.mask):
        one = Batch(batch.inputs[row][None], batch.targets[row][None])
        own = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(gradient(key, one)[0])]) - rowless
        total = total + own * min(1.0, privacy.clip / np.linalg.norm(own))
    mixed, leaves = jax.random.fold_in(key, NOISE), jax.tree.leaves(like)
    draws = [jax.random.normal(jax.random.fold_in(mixed, n), x.shape, x.dtype) for n, x in enumerate(leaves)]
    noise = np.concatenate([np.asarray(draw).ravel() for draw in draws])
    return rowless + (total + privacy.noise_multiplier * privacy.clip * noise) / int(batch.rows())


@pytest.mark.parametrize("objective", ["global_model", "ws2", "apfl2"])
def test_a_noisy_gradient_equals_numpy(objective, workbench, uniform, monkeypatch):
    plain = workbench.build("lsgd_pfl", objective, batch_size=3)
    with door.run_precision("float64"):
        data, key = rows_of(uniform)[0], keys.root_key(2)
        hidden = door.admit(protect(plain, PRIVATE), CLIENTS, "float64")
        own, privacy = unprotected(hidden.objective), hidden.objective.row_privacy
        shared, personal = own.init_shared(key), own.init_personal(key)
        for batch in (hidden.batch(0, hidden.draw_batches(key, data), data), data.batch()):
            wanted = by_hand(key, batch, lambda at, rows: own.gradients(at, shared, personal, rows), privacy)
            for held in (row_privacy.HELD, 1):  # all rows at once, and one after another
                monkeypatch.setattr(row_privacy, "HELD", held)
                found, tally = hidden.objective.gradients(key, shared, personal, batch)
                vector = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(found)])
                assert np.allclose(vector, wanted, atol=1e-12)
                assert int(tally.samples) == int(own.gradients(key, shared, personal, batch)[1].samples)


def test_coins_are_fair_and_independent():
    data = ClientData(jnp.zeros((40, 1)), jnp.arange(40), jnp.asarray(30))
    for batch_size in (6, 20, 50):
        coins = flip_coins(keys.root_key(1), 20_000, batch_size, data)
        drawn = np.zeros((20_000, 40))
        np.put_along_axis(drawn, np.asarray(coins.rows), np.asarray(coins.heads), axis=1)
        chance = min(1.0, batch_size / 30)
        assert drawn[:, 30:].sum() == 0  # padding
        error = 4.5 * math.sqrt(chance * (1 - chance) / 20_000) + 1e-12
        assert np.abs(drawn[:, :30].mean(axis=0) - chance).max() < error
        if chance < 1:  # two rows are together in a batch as often as two coins are
            assert abs((drawn[:, 0] * drawn[:, 1]).mean() - chance**2) < error
        taken = take_sampled(data, coins, 0, batch_size)
        assert int(taken.rows()) == min(batch_size, 30)
        assert set(np.asarray(taken.targets)[np.asarray(taken.mask)]) == set(np.flatnonzero(drawn[0]))


def test_a_batch_has_room_for_any_number_of_heads():
    scipy_stats = pytest.importorskip("scipy.stats")
    for expected in (1, 10, 64, 1000):
        assert scipy_stats.poisson(expected).sf(width_of(expected) - 1) < 1e-30
        assert width_of(expected) < 3 * expected + 70


def test_a_row_that_is_no_number_adds_nothing(workbench, uniform):
    hidden = protect(workbench.build("local_sgd"), dataclasses.replace(PRIVATE, rows=RowPrivacy(noise_multiplier=0.0)))
    data = rows_of(uniform)[0]
    odd = data._replace(inputs=data.inputs.at[0].set(jnp.inf))
    here = hidden.objective.init_shared(keys.root_key(0))
    gradient, _ = hidden.objective.gradient_shared(keys.root_key(0), here, (), odd.batch())
    assert float(tree.squared_norm(gradient)) < 1.0  # a mean of clipped gradients, and a ridge at zero


def test_a_site_draws_coins_and_noise_that_follow_from_no_seed(workbench, uniform):
    hidden = protect(workbench.build("local_sgd", batch_size=2), PRIVATE)
    data, key = rows_of(uniform)[0], keys.root_key(0)
    sites = [with_private_rows(hidden) for _ in range(2)]
    batches = [np.asarray(site.draw_batches(key, data).heads) for site in sites]
    here = hidden.objective.init_shared(key)
    gradients = [site.objective.gradient_shared(key, here, (), data.batch())[0] for site in sites]
    assert not np.array_equal(*[site.objective.row_secret.words for site in sites])
    assert batches[0].shape == batches[1].shape
    assert workbench.distance(*gradients) > 1e-3
    plain = workbench.build("local_sgd")
    assert with_private_rows(plain).objective is unprotected(plain.objective) is plain.objective


def test_a_membership_attack_on_rows_stays_below_epsilon(workbench):
    """The best test of whether a row was there, on noisy gradients themselves, and what it proves of epsilon.

    The row pulls as far as its clip lets it, the others not at all, and is in a batch by its coin.
    """
    pytest.importorskip("dp_accounting")
    from scipy.stats import beta

    from idiolect.accounting.row_privacy import RowReading, spent_on_rows

    rows, draws, delta, expected = 8, 20_000, 0.01, 4
    hidden = protect(
        workbench.build("local_sgd", kind="regression", batch_size=expected),
        Protection(rows=RowPrivacy(clip=1.0, noise_multiplier=0.6)),
    )
    here = hidden.objective.init_shared(keys.root_key(0))  # zeros: a row of zeros with target 0 has no gradient
    empty = ClientData(jnp.zeros((rows, workbench.features)), jnp.zeros(rows), jnp.asarray(rows))
    canary = empty._replace(inputs=empty.inputs.at[0, 0].set(10.0), targets=empty.targets.at[0].set(-10.0))

    def released(data, key):
        batch = hidden.batch(0, hidden.draw_batches(key, data), data)
        gradient, _ = hidden.objective.gradient_shared(jax.random.fold_in(key, 1), here, (), batch)
        return gradient["weights"][0] * expected  # along the clipped gradient: the most revealing direction

    all_keys = jax.vmap(lambda n: jax.random.fold_in(keys.root_key(7), n))(jnp.arange(2 * draws))
    inside, outside = (
        np.asarray(jax.jit(jax.vmap(lambda key, data=data: released(data, key)))(part))
        for data, part in ((canary, all_keys[:draws]), (empty, all_keys[draws:]))
    )
    found = 0.0
    for threshold in np.linspace(0.4, 2.4, 11):
        right, wrong = (inside > threshold).sum(), (outside > threshold).sum()
        low, high = beta.ppf(0.025, right, draws - right + 1), beta.ppf(0.975, wrong + 1, draws - wrong)
        found = max(found, math.log(max(low - delta, 1e-12) / high))
    spent = spent_on_rows(RowReading(expected, 1, "pld"), rows, 1, 0.6, delta)
    assert 0.5 * spent < found < spent  # the attack works, and no better than it may
    assert found > spent_on_rows(RowReading(1, 1, "pld"), rows, 1, 0.6, delta)  # fewer coins would be too few
