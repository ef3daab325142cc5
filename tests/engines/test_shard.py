# SPDX-License-Identifier: Apache-2.0
"""Clients over several devices. JAX divides a CPU only before it computes, so they are in a process of their own."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from idiolect.core import RequestError
from idiolect.engines.simulate import simulate
from idiolect.record import cores

CHILD = Path(__file__).with_name("on_four_devices.py")


def test_four_devices_compute_what_one_does(environment):
    four = environment | {"XLA_FLAGS": f"{environment['XLA_FLAGS']} --xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", str(CHILD)]
    done = subprocess.run(command, cwd=CHILD.parents[2], env=four, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_devices_that_are_not_there_are_refused(bench, ragged):
    assert len(jax.devices()) == 1  # it has begun to compute: no more can be made
    with pytest.raises(RequestError, match=r"training.devices = 2, and JAX has 1 cpu; use at most 1, or have JAX"):
        simulate(bench.stateless, ragged, dataclasses.replace(bench.full, devices=2))


@pytest.mark.parametrize("devices", [0, 7, "many"])
def test_numbers_of_devices_that_make_no_sense_are_refused(devices, bench, ragged):
    with pytest.raises(RequestError, match=r"training.devices must be 'auto', or at least 1 and at most the number of"):
        simulate(bench.stateless, ragged, dataclasses.replace(bench.full, devices=devices))


def test_auto_stays_on_the_one_device_there_is(bench, ragged):
    run = simulate(bench.stateless, ragged, dataclasses.replace(bench.full, devices="auto"))
    assert run.training.devices == 1


def test_cores_are_counted_without_their_threads(monkeypatch, tmp_path):
    for number in range(4):
        (tmp_path / f"cpu{number}").write_text(f"{number % 2},{number % 2 + 2}\n", encoding="ascii")
    monkeypatch.setattr(cores, "_SIBLINGS", str(tmp_path / "cpu{}"))
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda process: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(cores.os, "cpu_count", lambda: 4)
    assert cores.physical_cores() == 2
    (tmp_path / "cpu.max").write_text("100000 100000\n", encoding="ascii")
    assert cores.physical_cores() == 1
