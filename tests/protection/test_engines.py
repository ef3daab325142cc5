# SPDX-License-Identifier: Apache-2.0
"""The compiled engine makes the same of a protected algorithm as plain Python, in every executor and cohort."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from idiolect.accounting.bytes import bytes_of
from idiolect.core.addressing import PerClient
from idiolect.engines.debug import debug
from idiolect.engines.door import Training
from idiolect.engines.simulate import open_session
from idiolect.protection import Attack, ClientPrivacy, Compression, Protection, Robustness, RowPrivacy, protect

WRONG = PerClient(np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]))
FULL = Training(rounds=3, precision="float64", executor="batched", block=3, record_every=3)
CASES = {
    "adaptive by coins": (
        "fedavg",
        Protection(privacy=ClientPrivacy(clip=0.1, adaptive=True)),
        dataclasses.replace(FULL, dropout=0.4),
    ),
    "top_k of a cohort": ("ditto", Protection(compression=Compression(kind="top_k", one_in=3)), {"cohort": 4}),
    "krum in chunks": (
        "ifca",
        Protection(
            robustness=Robustness(rule="multi_krum"),
            compression=Compression(bits=4),
            attack=Attack(kind="inner_product", attackers=WRONG),
        ),
        {"executor": "chunked", "chunk": 2, "cohort": 5},
    ),
    "rows by coins in chunks": (
        "fedper",
        Protection(rows=RowPrivacy(clip=0.5), compression=Compression(kind="top_k", one_in=2)),
        {"executor": "chunked", "chunk": 4, "cohort": 5},
    ),
    "attack in a loop": (
        "scaffold",
        Protection(attack=Attack(kind="label_flip", attackers=WRONG, classes=3), robustness=Robustness()),
        {"executor": "looped"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_plain_python(case, workbench, ragged):
    name, protection, changes = CASES[case]
    training = changes if isinstance(changes, Training) else dataclasses.replace(FULL, **changes)
    algorithm = protect(workbench.build(name, local_steps=1, batch_size=2), protection)
    run = open_session([algorithm], ragged, training, [4], ("log_loss",)).run()[0]
    plain = debug(algorithm, ragged, training, seed=4)
    assert workbench.distance(run.server, plain.server) < 1e-9
    for client, state in enumerate(plain.clients):
        assert workbench.distance(jax.tree.map(lambda leaf, m=client: leaf[m], run.states), state) < 1e-9


def test_the_ledger_bills_what_is_sent(workbench, uniform):
    plain = workbench.build("fedavg", local_steps=1, batch_size=2)
    training = dataclasses.replace(FULL, precision="float32")
    bills = {}
    for kind in ("quantise", "top_k"):
        algorithm = protect(plain, Protection(compression=Compression(kind=kind, bits=4, one_in=3)))
        run = open_session([algorithm], uniform, training, [0], ("log_loss",)).run()[0]
        bills[kind] = run.ledger.upload_bytes
        assert run.ledger.upload_bytes == 3 * 6 * bytes_of(run.plan.wire.upload)
    # a model of 3 x 3 weights and 3 biases: 36 and 12 bits in whole bytes, two ends each; 3 and 1 entries with places
    assert bills == {"quantise": 18 * (5 + 8 + 2 + 8 + 4), "top_k": 18 * (3 * 6 + 1 * 6 + 4)}


def test_noise_is_the_same_from_one_seed_and_another_from_another(workbench, uniform):
    algorithm = protect(workbench.build("fedavg", local_steps=1, batch_size=0), Protection(privacy=ClientPrivacy()))
    training = dataclasses.replace(FULL, rounds=1)
    first, again, other = (
        open_session([algorithm], uniform, training, [seed], ("log_loss",)).run()[0] for seed in (1, 1, 2)
    )
    assert workbench.same_bits(first.server, again.server)
    assert workbench.distance(first.server, other.server) > 1e-3


def test_robust_means_withstand_what_moves_the_mean(workbench, uniform):
    """A third of the clients send the opposite of their change, a hundred times as long."""
    plain = workbench.build("fedavg", local_steps=1, batch_size=0)
    training = dataclasses.replace(FULL, rounds=1)
    attack = Attack(kind="sign_flip", attackers=WRONG, strength=100.0)

    def moved(protection):
        return open_session([protect(plain, protection)], uniform, training, [0], ("log_loss",)).run()[0].server.shared

    honest = moved(Protection())
    far = workbench.distance(moved(Protection(attack=attack)), honest)
    for rule in ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "norm_bound"):
        robust = Protection(attack=attack, robustness=Robustness(rule=rule, attackers=2))
        assert workbench.distance(moved(robust), honest) < 0.1 * far, rule
