# SPDX-License-Identifier: Apache-2.0
"""One run over two hosts, here two processes: the same numbers, one folder, and a lost host costs but some rounds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from idiolect.experiments import hosts, packing
from idiolect.experiments import spec as specs
from idiolect.experiments.execute import execute
from idiolect.record.errors import RequestError

SPEC = """
name = "two"
[data]
source = "digits"
settings = { clients = 5 }
[training]
rounds = 400
cohort = 3
record_every = 200
block = 20
executor = "batched"
[output]
checkpoint_every = 20
[methods.scaffold]
local_steps = 2
batch_size = 4
step_size = 0.05
"""
PATIENCE = 240  # seconds, for a machine that has other work


@pytest.fixture
def start(environment, tmp_path):
    """Starts a host of the run in `tmp_path / "run"`."""
    (tmp_path / "two.toml").write_text(SPEC, encoding="utf-8")
    started = []

    def host(port, number, *more, count=2, place=tmp_path):
        command = [sys.executable, "-m", "idiolect", "run", "two.toml", "--out", "run", "-q", *more]
        command += ["--hosts", f"127.0.0.1:{port},{count},{number}"]
        ways = {"cwd": place, "env": environment, "text": True}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **ways))
        return started[-1]

    yield host
    for process in started:
        process.kill()
        process.communicate()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_lost_host_ends_the_run_which_goes_on_as_if_nothing_had_happened(start, tmp_path):
    saved, port = tmp_path / "run" / "checkpoint" / "scaffold" / "latest.npz", free_port()
    first, second = (start(port, number) for number in (0, 1))
    ends = time.monotonic() + PATIENCE
    while not saved.exists() and first.poll() is None and time.monotonic() < ends:
        time.sleep(0.02)
    second.kill()
    said, _ = first.communicate(timeout=PATIENCE)
    assert second.wait() == -signal.SIGKILL
    assert first.returncode == 1, said
    # one line, whatever JAX's runtime would say beside; its transport greets on standard output
    (line,) = [line for line in said.splitlines() if not line.startswith("[Gloo]")]
    assert line.startswith("Error: Another host of this run was lost. What was finished is kept in run; ")
    assert line.endswith("Give every host its command with --resume.")

    port = free_port()
    both = [start(port, number, "--resume") for number in (0, 1)]
    said = [process.communicate(timeout=PATIENCE)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "scaffold" in said[0]
    assert "scaffold" not in said[1]  # one host shows and writes
    expected = execute(specs.load(tmp_path / "two.toml"), tmp_path / "alone").summary.methods[0]
    found = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))["methods"][0]
    assert found["rounds"] == expected.rounds == 400
    assert specs.load(tmp_path / "run" / "spec.toml").resolved["scaffold"].devices == 2
    assert found["upload_bytes"] == expected.upload_bytes
    assert found["useful_steps"] == expected.useful_steps
    for name in ("choosing_mean", "last_mean", "shared_mean"):
        assert found[name] == pytest.approx(getattr(expected, name), rel=1e-3), name


def poison(pack, kept):
    """Make the rows of all other clients useless, under the files' times: a pack is read whole where these differ."""
    for split in ("train", "validation", "test"):
        offsets = np.load(pack / split / "offsets.npy")
        written = (pack / split / "inputs.npy").stat()
        inputs = np.load(pack / split / "inputs.npy", mmap_mode="r+")
        for client in set(range(len(offsets) - 1)) - kept:
            inputs[offsets[client] : offsets[client + 1]] = np.nan
        inputs.flush()
        os.utime(pack / split / "inputs.npy", ns=(written.st_atime_ns, written.st_mtime_ns))


def test_four_hosts_compute_what_one_does_and_read_their_own_clients_rows_alone(start, tmp_path):
    """Also smoothness, by which theory chooses the step. Of 5 clients two devices have two, and two the last one."""
    load, method = specs.load, "personalized_local_sgd"
    wanted = SPEC.replace("rounds = 400", "rounds = 20").replace("scaffold", method).replace("0.05", '"theory"')
    (tmp_path / "two.toml").write_text(wanted, encoding="utf-8")
    packing.pack(load(tmp_path / "two.toml"), tmp_path / "rows")
    packed = wanted.replace('"digits"', '"pack"').replace("settings = { clients = 5 }", 'path = "rows"')
    port, four = free_port(), []
    for number, kept in enumerate(({0, 1}, {2, 3}, {4}, {4})):
        place = tmp_path / str(number)
        shutil.copytree(tmp_path / "rows", place / "rows")
        poison(place / "rows", kept)
        (place / "two.toml").write_text(packed, encoding="utf-8")
        four.append(start(port, number, count=4, place=place))
    said = [process.communicate(timeout=PATIENCE)[0] for process in four]
    assert [process.returncode for process in four] == [0] * 4, said
    expected = execute(load(tmp_path / "two.toml"), tmp_path / "alone").summary.methods[0]
    found = json.loads((tmp_path / "0" / "run" / "summary.json").read_text(encoding="utf-8"))["methods"][0]
    resolved = [load(folder / "spec.toml").resolved[method] for folder in (tmp_path / "0" / "run", tmp_path / "alone")]
    assert [one.devices for one in resolved] == [4, 1]
    assert resolved[0].chosen == resolved[1].chosen != {}
    assert found["useful_steps"] == expected.useful_steps
    assert found["last_mean"] == pytest.approx(expected.last_mean, rel=1e-3)


@pytest.mark.parametrize(
    "asked",
    [
        *("here", "10.0.0.1,2,0", "10.0.0.1:4000,2,2", "10.0.0.1:4000,2", "10.0.0.1:99999,2,0"),
        *("10.0.0.1:4000:4104,1,0", "::1:4000,2,0", "[::1]:4000:1,2,0", "a,b:4000,2,0", "10.0.0.1:4000,99999999999,0"),
        *("10.0.0.1:\uff14000,2,0", "\uff11\uff10.0.0.1:4000,2,0", "10.0.0.1:4000,\u0662,0", "10.0.0.1:4000,2,\u0661"),
    ],
)
def test_hosts_that_make_no_sense_are_refused(asked):
    with pytest.raises(RequestError, match="--hosts must be 'auto' or ADDRESS:PORT,HOSTS,NUMBER") as refused:
        hosts.join(asked, specs.from_table({"name": "two", "methods": {"fedavg": {}}}))
    assert repr(asked) in str(refused.value)


@pytest.mark.parametrize("address", ["10.0.0.1:4000", "node-1.cluster:4000", "[::1]:4000", "[fe80::1%eth0]:4000"])
def test_an_address_is_a_name_or_numbers_and_of_ipv6_in_brackets(address):
    assert hosts._parse(f"{address},3,1") == (address, 3, 1)


def test_a_host_that_waits_in_vain_ends_with_one_sentence(environment):
    spec = "spec.from_table({'name': 'two', 'methods': {'fedavg': {}}})"
    program = "from idiolect.experiments import hosts, spec; hosts.PATIENCE = 1; "
    program += f"hosts.join('127.0.0.1:{free_port()},2,0', {spec})"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("Error: After 1 s not all hosts of --hosts")


def test_a_host_that_waits_ends_at_once_when_it_is_told_to(start):
    port = free_port()
    waiting, ends = start(port, 0), time.monotonic() + PATIENCE
    with socket.socket() as probe:  # it listens when it waits
        while probe.connect_ex(("127.0.0.1", port)) and time.monotonic() < ends:
            time.sleep(0.02)
    waiting.send_signal(signal.SIGTERM)
    said, _ = waiting.communicate(timeout=20)
    assert waiting.returncode == 1
    assert said.startswith("Error: Interrupted (SIGTERM). Nothing was written")


def test_a_budget_of_minutes_is_refused():
    wanted = specs.from_table({"name": "two", "methods": {"fedavg": {}}, "tuning": {"minutes": 2.0}})
    with pytest.raises(RequestError, match=r"tuning.minutes = 2 is for one host, since clocks differ"):
        hosts.join("10.0.0.1:4000,2,0", wanted)
