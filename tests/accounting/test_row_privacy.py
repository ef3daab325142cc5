# SPDX-License-Identifier: Apache-2.0
"""Epsilon of rows is that of dp-accounting, called as its own documentation does; noise is found for an epsilon."""

from __future__ import annotations

import pytest

from idiolect.accounting.row_privacy import RowReading, noise_for_rows, spent_on_rows

COINS, PASSES = RowReading(8, 5, "rdp"), RowReading(0, 2, "rdp")


@pytest.mark.parametrize("reading", [COINS, PASSES, COINS._replace(accountant="pld")])
@pytest.mark.parametrize("rows", [6, 40])
def test_it_equals_dp_accounting(reading, rows):
    package = pytest.importorskip("dp_accounting")
    accountant = package.pld.PLDAccountant() if reading.accountant == "pld" else package.rdp.RdpAccountant()
    event = package.GaussianDpEvent(2.5)
    if reading.batch_size and rows > 8:  # a client with fewer rows has all of them in every batch
        event = package.PoissonSampledDpEvent(8 / rows, event)
    wanted = accountant.compose(package.SelfComposedDpEvent(event, 3 * reading.gradients)).get_epsilon(1e-5)
    assert spent_on_rows(reading, rows, 3, 2.5, 1e-5) == pytest.approx(wanted, rel=1e-9)


def test_noise_for_an_epsilon_spends_just_that():
    pytest.importorskip("dp_accounting")
    for reading in (COINS, PASSES):
        noise = noise_for_rows(reading, 40, 10, 2.0, 1e-5)
        assert 1.98 < spent_on_rows(reading, 40, 10, noise, 1e-5) <= 2.0
