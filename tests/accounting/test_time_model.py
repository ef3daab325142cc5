# SPDX-License-Identifier: Apache-2.0
"""Modelled seconds follow the written formula."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from idiolect.accounting import TIME_MODELS, Ledger, TimeModel, find_time_model
from idiolect.core.checks import RequestError

MODEL = TimeModel(
    download_bits_per_second=8000, upload_bits_per_second=800, latency_seconds=0.5, seconds_per_gradient=0.01
)


def test_one_round_by_hand():
    # 2 messages x 0.5 s + 8 * 2000 / 8000 + 8 * 100 / 800 + 30 * 0.01 = 1 + 2 + 1 + 0.3
    assert MODEL.round_seconds(2000, 100, 30) == pytest.approx(4.3)


def test_history_by_hand():
    # 4 clients. Round 1 as above; round 2 settles: 2 downloads each, so 3 messages and 4000 bytes down:
    # 1.5 + 4 + 1 + 0.3; round 3 is local work only: 0.3
    exchange = Ledger().charge_rounds().charge_download(4, 2000).charge_upload(4, 100)
    increments = [exchange, exchange.charge_download(4, 2000), Ledger(rounds=1)]
    np.testing.assert_allclose(MODEL.history_seconds(increments, 4, 30), [4.3, 6.8, 0.3])


def test_more_clients_in_parallel_take_no_longer():
    small, large = (Ledger().charge_download(n, 2000).charge_upload(n, 100) for n in (1, 1000))
    np.testing.assert_allclose(*MODEL.history_seconds([small, large], [1, 1000], [30, 30]))


def test_blocks_of_rounds_add_up():
    exchange = Ledger().charge_rounds().charge_download(3, 700).charge_upload(3, 500)
    block = exchange + exchange + exchange
    singles = MODEL.history_seconds([exchange] * 3, 3, [10, 40, 20])
    assert MODEL.history_seconds([block], 3, 10 + 40 + 20)[0] == pytest.approx(singles.sum())


def test_an_empty_cohort_takes_no_time():
    assert MODEL.history_seconds([Ledger(rounds=1)], [0], [5]).tolist() == [0]
    assert MODEL.history_seconds([], 4, 0).shape == (0,)


def test_free_links():
    free = TimeModel(math.inf, math.inf, 0, 0.01)
    assert free.round_seconds(10**12, 10**12, 100) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("download_bits_per_second", 0),
        ("upload_bits_per_second", -1),
        ("latency_seconds", -0.1),
        ("seconds_per_gradient", math.nan),
    ],
)
def test_impossible_speeds_are_refused(field, value):
    with pytest.raises(RequestError, match=rf"TimeModel\.{field} must be"):
        dataclasses.replace(MODEL, **{field: value})


def test_presets_are_ordered_by_speed():
    # the same round of 1 MB each way and 1000 gradients slows down from rack to hospital to phone
    seconds = [float(find_time_model(name).round_seconds(1e6, 1e6, 1000)) for name in TIME_MODELS]
    assert list(TIME_MODELS) == ["phone", "hospital", "datacenter"]
    assert seconds == sorted(seconds, reverse=True)
    with pytest.raises(RequestError, match="Did you mean 'phone'"):
        find_time_model("phones")
