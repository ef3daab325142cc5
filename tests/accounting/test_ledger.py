# SPDX-License-Identifier: Apache-2.0
"""The ledger adds exactly."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from idiolect.accounting import Ledger
from idiolect.accounting.ledger import FIELDS
from idiolect.core.checks import RequestError
from idiolect.core.tally import Tally

ledgers = st.builds(Ledger, **{name: st.integers(0, 10**30) for name in FIELDS})


@settings(max_examples=40, deadline=None)
@given(a=ledgers, b=ledgers, c=ledgers)
def test_addition(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Ledger() == a
    assert (a + b) - b == a  # exact at any size: no float in between
    assert Ledger.from_dict(json.loads(json.dumps(a.to_dict()))) == a
    assert (a + b).total_bytes == a.total_bytes + b.total_bytes
    assert all(type(count) is int for count in a.to_dict().values())


def test_two_rounds_by_hand():
    # 5 clients, 100 bytes down, 60 up, twice; one of the rounds settles with 40 more bytes down
    ledger = Ledger()
    for _ in range(2):
        ledger = ledger.charge_rounds().charge_download(5, 100).charge_upload(5, 60)
        ledger = ledger.charge_work(Tally(both=jnp.int32(320), samples=np.int64(320)), 10, 12)
    ledger = ledger.charge_download(5, 40).charge_delivery(8, 100)
    assert ledger == Ledger(
        rounds=2,
        download_bytes=2 * 500 + 200,
        upload_bytes=600,
        delivery_bytes=800,
        messages_down=15,
        messages_up=10,
        gradients_both=640,
        samples=640,
        useful_steps=20,
        executed_steps=24,
    )
    assert ledger.total_bytes == 1200 + 600 + 800
    assert ledger.gradients == 640


def test_tally_fields_land_where_they_belong():
    ledger = Ledger().charge_work(Tally(1, 2, 3, 4, 5), useful_steps=6, executed_steps=7)
    assert (ledger.gradients_shared, ledger.gradients_personal, ledger.gradients_both) == (1, 2, 3)
    assert (ledger.forward_passes, ledger.samples) == (4, 5)
    assert ledger.gradients == 6


def test_products_do_not_wrap():
    # int32 inputs whose product needs 42 bits
    ledger = Ledger().charge_upload(np.int32(10**6), np.int32(4 * 10**6))
    assert ledger.upload_bytes == 4 * 10**12


def test_charging_leaves_the_old_ledger_alone():
    before = Ledger(rounds=3)
    assert before.charge(rounds=1).rounds == 4
    assert before.rounds == 3


@pytest.mark.parametrize("wrong", [1.0, jnp.float32(2), "3", None, jnp.asarray([1, 2])])
def test_only_integers(wrong):
    with pytest.raises(RequestError, match=r"Ledger\.samples must be an integer"):
        Ledger(samples=wrong)


def test_bad_requests():
    with pytest.raises(RequestError, match="at least 0, got -1"):
        Ledger(rounds=1) - Ledger(rounds=2)
    with pytest.raises(RequestError, match="Did you mean 'upload_bytes'"):
        Ledger().charge(uploadbytes=3)
    counts = Ledger().to_dict()
    del counts["samples"]
    with pytest.raises(RequestError, match="none for samples"):
        Ledger.from_dict(counts)
    with pytest.raises(RequestError, match="no count 'sample'"):
        Ledger.from_dict(counts | {"sample": 1})
