# SPDX-License-Identifier: Apache-2.0
"""Under secure aggregation every algorithm is the same within rounding, or refused; its messages are billed exactly."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from idiolect.accounting.bytes import bytes_of
from idiolect.algorithms import ALGORITHMS
from idiolect.core import keys
from idiolect.core.algorithm import fit_of
from idiolect.core.checks import RequestError
from idiolect.core.data import ClientData
from idiolect.core.kinds import Bills
from idiolect.core.reduction import Sum
from idiolect.engines import door
from idiolect.engines.client import Round, Task, client_init
from idiolect.engines.debug import debug, watched_round
from idiolect.engines.door import Training
from idiolect.engines.server import open_round, server_init, server_step
from idiolect.engines.simulate import open_session
from idiolect.protection import ClientPrivacy, Compression, Protection, Robustness, SecureAggregation, protect
from idiolect.protection.fixed_point import Digits, digits_to_host, from_digits, from_fixed, to_digits, to_fixed
from idiolect.protection.masked_sums import MaskedReduction
from idiolect.protection.masking import Aggregator, Party, Terms

CLIENTS, SEED = 6, 5
MASKS = SecureAggregation(threshold=4, cohort=CLIENTS)
MASKED = Protection(secure_aggregation=MASKS)
FULL = Training(rounds=3, precision="float64", executor="batched", block=3, record_every=3)
FIRST = {method.algorithm: name for name, method in reversed(ALGORITHMS.items())}


class Upload(NamedTuple):
    move: jax.Array
    weight: jax.Array


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_digits_are_the_numbers_of_the_host(dtype):
    draw = np.random.default_rng(0)
    with door.run_precision(dtype):
        rows = jnp.asarray(draw.normal(size=(40, 30)) * 10.0 ** draw.integers(-11, 7, (40, 30)), dtype)
        digits = jax.jit(lambda leaf: jnp.sum(to_digits(leaf, 32), axis=1, dtype=jnp.uint32))(rows)
        wanted = to_fixed(np.asarray(rows), 32, 40).sum(axis=0)
        assert np.array_equal(digits_to_host(digits), wanted)
        back = jax.jit(lambda total: from_digits(total, 32))(Digits(digits, rows.dtype))
        assert back.dtype == rows.dtype
        assert np.allclose(back, from_fixed(wanted, 32), rtol=4 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("name", FIRST.values())
def test_equals_the_unmasked_algorithm_or_is_refused(name, workbench, uniform):
    wished = [workbench.build(name, **b) for b in ({"local_steps": 1, "batch_size": 2}, {})]
    algorithm = next(one for one in wished if fit_of(one).refused is None)
    refusal = "nothing leaves" if name == "local" else None
    if algorithm.reduction.stacks or isinstance(algorithm, Bills):
        refusal = "hears every client apart"
    if refusal is not None:
        with pytest.raises(RequestError, match=refusal):
            protect(algorithm, MASKED)
        return
    with door.run_precision("float64"):
        plain = door.admit(algorithm, CLIENTS, "float64")
        masked = door.admit(protect(algorithm, MASKED), CLIENTS, "float64")
        root = keys.root_key(SEED)
        server = server_init(plain, root)
        now = open_round(plain, root, 0, server)
        done = []
        for client in range(CLIENTS):
            padded = uniform.train.pad(np.array([client]))[:3]
            rows = ClientData(*(jnp.asarray(leaf[0]) for leaf in padded))
            done.append(watched_round(Task(now, client, client_init(plain, root, client, rows)[0], rows))[0])
        uploads = jax.tree.map(lambda *leaves: jnp.stack(leaves), *done)
        numbers, there = jnp.arange(CLIENTS), jnp.array([True, True, False, True, True, True])
        wanted, found = (
            server_step(Round(one, root, 0, now.sent), server, one.reduction.collect(uploads, numbers, there))
            for one in (plain, masked)
        )
    # each of 5 lifted numbers is off by 2^-33 at most; a mean of weights of at least one is off by no more
    assert workbench.distance(found, wanted) < 1e-7
    assert workbench.distance(wanted, server) > 1e-4 or name in ("l2gd", "l2sgd_plus")


CASES = {
    "a cohort that some leave": ("fedavg", {"cohort": 5, "dropout": 0.2}, 3),
    "in chunks": ("ifca", {"executor": "chunked", "chunk": 2, "cohort": 5}, 3),
    "in a loop": ("scaffold", {"executor": "looped"}, 4),
    "private as well": ("ditto", {}, 4),
}


@pytest.mark.parametrize("case", CASES)
def test_the_engines_compute_the_same(case, workbench, ragged):
    name, changes, threshold = CASES[case]
    training = dataclasses.replace(FULL, **changes)
    masks = SecureAggregation(threshold=threshold, cohort=training.cohort or CLIENTS)
    privacy = ClientPrivacy(clip=0.1, adaptive=True) if case == "private as well" else None
    algorithm = workbench.build(name, local_steps=1, batch_size=2)
    bare = protect(algorithm, Protection(privacy=privacy))
    masked = protect(algorithm, Protection(privacy=privacy, secure_aggregation=masks))
    run = open_session([masked], ragged, training, [4], ("log_loss",)).run()[0]
    plain = debug(bare, ragged, training, seed=4)
    assert 0 < workbench.distance(run.server, plain.server) < 1e-7


def test_the_protocol_unmasks_the_number_of_the_simulation_and_its_bytes_are_billed(workbench, uniform):
    pytest.importorskip("cryptography")
    algorithm = protect(workbench.build("fedavg", local_steps=1, batch_size=2), MASKED)
    training = dataclasses.replace(FULL, rounds=1, precision="float32")
    run = open_session([algorithm], uniform, training, [0], ("log_loss",)).run()[0]
    upload, reduction = run.plan.wire.upload, algorithm.reduction
    assert isinstance(reduction, MaskedReduction)
    draw = np.random.default_rng(1)
    stacked = jax.tree.map(lambda leaf: jnp.asarray(draw.normal(size=(6, *leaf.shape)) ** 2, leaf.dtype), upload)
    there = jnp.array([True] * 5 + [False])
    partial = reduction.collect(stacked, jnp.arange(6), there)
    wanted = np.concatenate([digits_to_host(leaf).reshape(-1) for leaf in jax.tree.leaves(partial.numbers)])

    terms = Terms(b"session", MASKS.threshold)
    parties, server = {n: Party(n, terms) for n in range(6)}, Aggregator(terms, len(wanted))
    adverts = server.collect_keys({n: party.advertise() for n, party in parties.items()})
    sealed = {n: party.share(adverts) for n, party in parties.items()}
    boxes, up = server.route_shares(sealed), []
    for n in range(5):
        lifted = reduction.lift(jax.tree.map(lambda leaf, n=n: leaf[n], stacked), jnp.asarray(n), jnp.asarray(True))
        numbers = np.concatenate([np.asarray(leaf, float).reshape(-1) for leaf in jax.tree.leaves(lifted)])
        up.append(parties[n].mask(to_fixed(numbers, 32, 6), boxes[n]))
        server.add(n, up[-1])
    answers = {n: parties[n].answer(server.survivors()) for n in range(5)}
    assert np.array_equal(server.unmask(answers), wanted)

    # what these messages hold is what the ledger bills: per client of a round of six that all stay
    up_bytes = sum(map(len, adverts[0])) + sum(map(len, sealed[0].values())) + up[0].nbytes
    up_bytes += sum(map(len, answers[0].values()))
    down_bytes = bytes_of(run.plan.wire.sent) + sum(len(text) for n in range(1, 6) for text in adverts[n])
    down_bytes += sum(map(len, boxes[0].values())) + 1
    assert (run.ledger.upload_bytes, run.ledger.download_bytes) == (6 * up_bytes, 6 * down_bytes)
    assert (run.ledger.messages_up, run.ledger.messages_down) == (6 * 4, 6 * 4)
    by_client = run.recorder.client_bytes
    assert by_client == [up_bytes + down_bytes + run.ledger.delivery_bytes // 6] * 6


def test_numbers_without_room_and_rounds_with_too_few_end_the_run():
    reduction = MaskedReduction(Sum(), dataclasses.replace(MASKS, fraction_bits=48))

    def lowered(values, there):
        values = jnp.asarray(values)
        partial = reduction.collect(Upload(values, jnp.ones(6)), jnp.arange(6), jnp.asarray(there))
        return float(reduction.lower(partial).total.move)

    there, most = [True] * 5 + [False], 2.0 ** (60 - 48)
    assert lowered([1.0, 2.0, 3.0, -4.5, 0.0, np.nan], there) == 1.5
    assert lowered([most - 1] * 6, there) == 5 * (most - 1)
    assert lowered([1 - most] * 6, there) == 5 * (1 - most)
    for wrong in (most, -most, np.inf, np.nan):
        assert np.isnan(lowered([0.0] * 4 + [wrong, 0.0], there))
    assert np.isnan(lowered([0.0] * 6, [True] * 3 + [False] * 3))


def test_what_needs_more_than_a_sum_is_refused(workbench):
    pairs = [
        (Protection(robustness=Robustness(), secure_aggregation=MASKS), "need every upload apart"),
        (Protection(compression=Compression(), secure_aggregation=MASKS), "would save nothing"),
        (Protection(secure_aggregation=dataclasses.replace(MASKS, threshold=3)), "more than half of the 6"),
        (Protection(secure_aggregation=dataclasses.replace(MASKS, threshold=7)), "at most all of them, got 7"),
        (Protection(secure_aggregation=dataclasses.replace(MASKS, fraction_bits=60)), "fraction_bits must be"),
    ]
    for protection, sentence in pairs:
        with pytest.raises(RequestError, match=sentence):
            protect(workbench.build("fedavg"), protection)
