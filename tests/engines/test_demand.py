# SPDX-License-Identifier: Apache-2.0
"""Numbers that ask for more steps or memory than there is are refused before anything is taken."""

from __future__ import annotations

import dataclasses

import pytest

from idiolect.core import RequestError
from idiolect.engines import demand
from idiolect.engines.demand import block_length, check_demand
from idiolect.engines.door import Training
from idiolect.models import MLP
from idiolect.objectives import ClientLoss, GlobalModel


def test_steps_must_be_countable(bench, ragged):
    many = dataclasses.replace(bench.stateful, epochs=2**30, batch_size=1)
    with pytest.raises(RequestError, match=r"epochs = 1073741824 makes .* below 2\^31"):
        check_demand(many, ragged.train, Training())
    check_demand(bench.stateful, ragged.train, Training())


def test_rows_that_are_drawn_at_once_must_fit(bench, ragged, monkeypatch):
    monkeypatch.setattr(demand, "free_on_device", lambda: 10**9)
    many = dataclasses.replace(bench.stateful, epochs=2**24, batch_size=2)
    with pytest.raises(RequestError, match="epochs = 16777216 with batch_size = 2 needs about"):
        check_demand(many, ragged.train, Training(executor="batched"))
    check_demand(many, ragged.train, Training())  # auto: one client at a time may do
    still_more = dataclasses.replace(many, epochs=2**27)
    with pytest.raises(RequestError, match="epochs = 134217728 with batch_size = 2 needs about"):
        check_demand(still_more, ragged.train, Training())


def test_a_model_must_fit(bench, ragged, monkeypatch):
    monkeypatch.setattr(demand, "free_on_device", lambda: 10**9)
    wide = GlobalModel(ClientLoss(model=MLP(3, 3, (10**9,)), criterion="cross_entropy", l2=0.1))
    with pytest.raises(RequestError, match="use smaller or fewer layers"):
        check_demand(dataclasses.replace(bench.stateful, objective=wide), ragged.train, Training())
    middle = GlobalModel(ClientLoss(model=MLP(3, 3, (10**7,)), criterion="cross_entropy", l2=0.1))
    algorithm = dataclasses.replace(bench.stateless, objective=middle)
    with pytest.raises(RequestError, match="chunked"):
        check_demand(algorithm, ragged.train, Training())


def test_a_block_is_no_longer_than_the_run_and_memory_bears():
    assert block_length(Training(rounds=5, record_every=2**30), 10, 1) == 5
    assert block_length(Training(rounds=2**30, record_every=2**30), 10, 1) * 10 <= demand.MOST_COSTS
    assert block_length(Training(rounds=100, record_every=10), 10**9, 1) == 1
    with pytest.raises(RequestError, match=r"training\.block = 1000000000000 needs"):
        demand.check_block(Training(block=10**12), 10, 1)
