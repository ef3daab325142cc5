# SPDX-License-Identifier: Apache-2.0
"""Secure aggregation over sites: the simulation's numbers, the ledger's bytes, and no upload that anyone could read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from idiolect.core.checks import RequestError
from idiolect.engines.deploy.wire import decode
from idiolect.engines.door import Training
from idiolect.engines.simulate import open_session
from idiolect.protection import Protection, SecureAggregation, protect

pytest.importorskip("cryptography")
MASKS = Protection(secure_aggregation=SecureAggregation(threshold=4, cohort=6))
TRAINING = Training(rounds=2, record_every=2, executor="batched", precision="float64")


@pytest.fixture(scope="module")
def masked(workbench):
    return protect(workbench.build("scaffold", local_steps=1, batch_size=2), MASKS)


@pytest.fixture
def bench(masked, make_bench, uniform, tmp_path):
    return make_bench(masked, uniform, TRAINING, 3, tmp_path)


def test_sites_under_masks_equal_the_simulation_and_the_ledger(bench, masked, uniform, workbench):
    coordinator, standing = bench.train()
    run = open_session([masked], uniform, TRAINING, [3], ("log_loss",)).run()[0]
    assert workbench.distance(standing.server, run.server) < 1e-12
    kinds = ("keys", "shares", "round", "unmask")
    traffic = [coordinator.link.traffic[kind] for kind in kinds]
    ledger = standing.account.ledger
    assert sum(one.up_arrays for one in traffic) == ledger.upload_bytes > 0
    assert sum(one.down_arrays for one in traffic) == ledger.download_bytes
    assert [one.messages for one in traffic] == [12] * 4


def test_what_leaves_a_site_tells_nothing_and_differs_each_time(bench):
    """Two runs of one seed send the same uploads: under masks no number of them is alike, and all bits are even."""
    seen = []

    def look(site, round, message, handler):
        answer = handler.handle(message)
        found = decode(answer, site)
        if found.kind == "upload" and site == "site-0" and round == 0:
            assert set(found.arrays) == {"masked"}
            seen.append(found.arrays["masked"])
        return answer

    bench.train(look)
    for site in bench.sites:
        bench.sites[site].running.kept.folder.joinpath("unmasked.json").unlink()
        for path in bench.sites[site].running.kept.folder.iterdir():
            path.unlink()
        bench.restart(site)
    bench.train(look)
    first, second = seen
    assert not (first == second).any()
    bits = np.unpackbits(np.concatenate(seen).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))


@pytest.mark.parametrize("kind", ["keys", "shares", "round", "unmask"])
def test_a_site_that_vanishes_in_any_turn_does_not_stop_the_round(kind, bench, workbench, masked, uniform):
    def fault(site, round, message, handler):
        lost = site == "site-2" and round == 1 and decode(message, "it").kind == kind
        return None if lost else handler.handle(message)

    coordinator, standing = bench.train(fault)
    assert standing.round == 2
    counted = coordinator.link.counted["site-2"]
    assert counted == (2 if kind == "unmask" else 1)  # its numbers were in the sum; its state counts
    total = sum(np.asarray(bench.state_of(site).control["weights"], float) for site in bench.sites)
    held = standing.server
    assert workbench.distance(total / 6, held.control["weights"]) < 1e-8


def test_too_few_sites_end_the_run_with_their_names(bench):
    def fault(site, round, message, handler):
        lost = site in ("site-1", "site-2", "site-5") and decode(message, "it").kind == "round"
        return None if lost else handler.handle(message)

    with pytest.raises(RequestError, match=r"(?s)site-1, site-2, site-5.*vectors of 4 clients, got 3"):
        bench.train(fault)


def test_no_site_helps_to_unmask_two_sums_of_one_round(bench):
    """The difference of two sums is an upload: a coordinator that asks again, for fewer sites, is refused."""
    first = []

    def save(standing):
        if standing.round == 1 and not first:
            first.append(standing)
            raise RequestError("killed before it was saved")

    with pytest.raises(RequestError, match="killed"):
        bench.train(save=save)

    def fault(site, round, message, handler):
        return None if site == "site-4" else handler.handle(message)

    with pytest.raises(RequestError, match="missing: site-4"):
        bench.train(fault)
    assert any("could show one upload" in line for line in bench.said)
    assert bench.train()[1].round == 2  # the same sites again: the same sum


def test_a_changed_share_is_noticed(bench):
    def fault(site, round, message, handler):
        answer = handler.handle(message)
        if site == "site-1" and decode(answer, site).kind == "unmasked":
            return answer[:-5] + bytes([answer[-5] ^ 1]) + answer[-4:]
        return answer

    with pytest.raises(RequestError, match="was changed"):
        bench.train(fault)


def test_numbers_without_room_are_refused_by_the_site(bench, masked):
    small = dataclasses.replace(masked.secure_aggregation, fraction_bits=48)
    bench.algorithm = dataclasses.replace(masked, secure_aggregation=small, step_size=1e6)
    bench.__post_init__()
    with pytest.raises(RequestError, match="round"):
        bench.train()
    assert any("under secure aggregation must be below" in line for line in bench.said)
