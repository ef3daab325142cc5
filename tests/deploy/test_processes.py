# SPDX-License-Identifier: Apache-2.0
"""Real processes over TLS: a server and a site that are killed and started again end with the same result."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from idiolect.experiments.deploy.demo import spec_tables
from idiolect.experiments.deploy.kits import CONNECT_FILE, make_kits
from idiolect.experiments.deploy.look import check_site, status_of
from idiolect.experiments.execute import execute
from idiolect.experiments.spec import load

SECONDS = 240.0
SPEC = """
name = "study"
[data]
source = "table"
path = "all.csv"
client = "site"
target = "outcome"
features = ["age", "dose"]
[model]
l2 = 0.1
[training]
rounds = 30
record_every = 15
executor = "looped"
[methods.scaffold]
local_steps = 2
step_size = 0.1
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two sites' rows, their spec, and what a simulation makes of them."""
    folder = tmp_path_factory.mktemp("processes")
    draw, lines = np.random.default_rng(5), ["age,dose,outcome,site"]
    for row in range(60):
        age, dose = draw.normal(size=2)
        lines.append(
            f"{age:.3f},{dose:.3f},{'yes' if age + (row % 2) * dose > 0 else 'no'},{('north', 'south')[row % 2]}"
        )
    (folder / "all.csv").write_text("\n".join(lines) + "\n")
    (folder / "spec.toml").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        spec = load(folder / "spec.toml")
        tables = spec_tables(spec)
        execute(spec, folder / "simulated")
    return folder, spec, tables


def start(kit, command, environment, log):
    with open(log, "ab") as file:
        words = [sys.executable, "-m", "idiolect", "deploy", command, str(kit)]
        return subprocess.Popen(words, stdout=file, stderr=file, env=environment)


def wait_for(condition, what):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(what)


def rounds_done(kit):
    try:
        return int(status_of(kit).lines[0].split(": ")[1].split(" ")[0])
    except Exception:
        return -1


def test_killed_and_started_again_ends_with_the_simulations_numbers(study, environment, tmp_path):
    folder, spec, tables = study
    kits = make_kits(tmp_path / "kits", spec, list(tables), "127.0.0.1", 0)
    for name, table in tables.items():
        pacsv.write_csv(table, kits[name] / "rows.csv")
    assert any("train" in line for line in check_site(kits["north"]).lines)
    port = free_port()
    rules = "[rules]\nminimum = 2\nretries = 1000\nwait = 0.2\ndeadline = 60.0\n"
    text = f'sites = ["north", "south"]\nhost = "127.0.0.1"\nport = {port}\n{rules}'
    (kits["server"] / "server.toml").write_text(text)
    running = {}
    try:
        for name in ("server", "north", "south"):
            (kits[name] / CONNECT_FILE).write_text(f'host = "127.0.0.1"\nport = {port}\n')
            running[name] = begin(kits, name, environment)
        wait_for(lambda: rounds_done(kits["server"]) > 5, "rounds before they are killed")
        for name in ("north", "server"):
            running[name].send_signal(signal.SIGKILL)
            running[name].wait(30)
        for name in ("north", "server"):
            running[name] = begin(kits, name, environment)
        wait_for(lambda: (kits["server"] / "result" / "done").is_file(), (kits["server"] / "log.txt").read_text())
        for process in running.values():
            process.wait(60)
    finally:
        for process in running.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    ours, theirs = (
        pq.read_table(at / "clients.parquet").to_pandas() for at in (kits["server"] / "result", folder / "simulated")
    )
    for name in ("score", "validation_personal_log_loss_last", "test_shared_log_loss_selected"):
        if name in ours:
            np.testing.assert_allclose(
                ours[name].to_numpy(float), theirs[name].to_numpy(float), atol=1e-6, err_msg=name
            )
    assert [process.returncode for process in running.values()] == [0, 0, 0]


def begin(kits, name, environment):
    return start(kits[name], "serve" if name == "server" else "join", environment, kits[name] / "log.txt")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
