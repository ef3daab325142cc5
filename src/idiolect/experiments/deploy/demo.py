# SPDX-License-Identifier: Apache-2.0
"""A whole deployment on one machine: certificates, a server, a process for each site, all stopped at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from idiolect.core.checks import RequestError
from idiolect.data.columns import Column
from idiolect.data.shared_files import HEART_CATEGORIES, heart_table
from idiolect.data.tables import read
from idiolect.engines.deploy.tls import Papers, TlsServer
from idiolect.experiments.deploy.agreement import check_deployable
from idiolect.experiments.deploy.kits import CONNECT_FILE, coordinate_kit, make_kits, read_server_file
from idiolect.experiments.deploy.rows import table_request
from idiolect.experiments.spec import Spec, from_table
from idiolect.record.memory import check_bytes

LOOPBACK = "127.0.0.1"
SECONDS_TO_STOP = 10.0
BYTES_OF_SITE = 310 * 10**6  # that the process of a small site takes
Say = Callable[[str], None]


def demo_spec(rounds: int) -> Spec:
    """Heart disease at hospitals: alone, one model for all, and personal models."""
    table = {
        "name": "deploy-demo",
        "data": {
            "source": "table",
            "client": "hospital",
            "target": "disease",
            "task": "classification",
            "categorical": list(HEART_CATEGORIES),
        },
        "model": {"l2": 0.01},
        "training": {"rounds": rounds, "record_every": max(1, rounds // 4)},
        "evaluation": {"scores": ["log_loss", "accuracy"]},
        "methods": {
            "local": {"step_size": 0.5},
            "fedavg": {"local_steps": 5, "step_size": 0.2},
            "ditto": {"local_steps": 5, "step_size": 0.2},
        },
    }
    return from_table(table)


def check_processes(sites: int, asked: str) -> None:
    """RequestError where `asked`, what says how many sites there are, needs more processes than memory holds."""
    check_bytes(sites * BYTES_OF_SITE, f"{asked}, a process for each site,", "use fewer sites")


def demo_tables(sites: int) -> dict[str, pa.Table]:
    """The rows of so many sites: the four hospitals, fewer of them, or parts of them."""
    if sites < 2:
        raise RequestError(f"--sites must be at least 2, got {sites}.")
    check_processes(sites, f"--sites {sites}")
    each = _by_client(heart_table(), "hospital")
    names, found = list(each), dict[str, pa.Table]()
    if sites <= len(names):
        return {name: each[name] for name in names[:sites]}
    for place in range(sites):
        name, part = names[place % len(names)], place // len(names)
        parts = len(range(place % len(names), sites, len(names)))
        # every so-many-th row: parts of a hospital are alike
        found[f"{name}-{part + 1}"] = each[name].take(pa.array(range(part, each[name].num_rows, parts)))
    return found


def spec_tables(spec: Spec) -> dict[str, pa.Table]:
    """The pooled table of a spec, site by site: what each would bring."""
    if spec.data.path is None or spec.data.client is None:
        raise RequestError("A rehearsal needs data.path and data.client: the table with all rows, and who owns them.")
    check_deployable(spec)
    found = _by_client(read(spec.data.path, table_request(spec.data).kinds).table, spec.data.client)
    check_processes(len(found), f"A rehearsal of {len(found)} clients")
    return found


def _by_client(table: pa.Table, client: str) -> dict[str, pa.Table]:
    """Every client's rows, without the column that names it."""
    owners = Column(client, table.column(client)).texts
    names = sorted({name for name in owners if name is not None})
    column = pa.array(owners, pa.string())
    return {name: table.filter(pc.equal(column, name)).drop_columns([client]) for name in names}


def run_demo(folder: Path, spec: Spec, tables: dict[str, pa.Table], say: Say) -> Path:
    """Make kits, start a process for each site, train, stop them; the run folder."""
    kits = make_kits(folder / "kits", spec, list(tables), LOOPBACK, 0)
    for name, table in tables.items():
        pacsv.write_csv(table, kits[name] / "rows.csv")
    # kits come before the server, which has the system choose a free port: the sites' files are written last
    own = read_server_file(kits["server"])
    server = TlsServer((LOOPBACK, 0), Papers.of(kits["server"]), own.sites)
    for name in tables:
        (kits[name] / CONNECT_FILE).write_text(f'host = "{LOOPBACK}"\nport = {server.address[1]}\n', encoding="utf-8")
    with site_processes([kits[name] for name in tables]) as processes, server:
        say(f"{len(tables)} sites started, a process each; the server listens at {LOOPBACK}:{server.address[1]}.")
        return coordinate_kit(Watched(server, processes), kits["server"], say, folder / "result")


class Watched:
    """The server's transport, which ends the run where a site's process has ended before it ever came."""

    def __init__(self, server: TlsServer, processes: Sequence[subprocess.Popen[bytes]]):
        self.server, self.processes = server, processes
        self.exchange = server.exchange

    @property
    def sites(self) -> Sequence[str]:
        """Who is connected."""
        if all(process.poll() is not None for process in self.processes):
            raise RequestError("All sites have ended; their kits' join.log says why.")
        return self.server.sites


@contextlib.contextmanager
def site_processes(kits: Sequence[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`idiolect deploy join` for each kit; all of them have ended when this does."""
    command, environment = [sys.executable, "-m", "idiolect", "deploy", "join"], os.environ | one_thread()
    with contextlib.ExitStack() as ended:
        started = [running([*command, str(kit)], environment, kit / "join.log") for kit in kits]
        processes = [ended.enter_context(one) for one in started]
        try:
            yield processes
            _wait(processes)
        finally:
            _stop(processes)  # all at once: one after another, sites that do not hear would each take their time


@contextlib.contextmanager
def running(words: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command and what it starts, in a group of its own; all of it has ended when this does."""
    with open(log, "wb") as file:
        process = subprocess.Popen(words, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        _stop([process])


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    # both, whatever the first one does: what a command started may outlive it
    for how in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)
        _wait(processes)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + SECONDS_TO_STOP
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))


def one_thread() -> dict[str, str]:
    """Variables for many processes on one machine: none of them may take all of its cores."""
    # one core each: threads of many processes would wait for one another
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    return {"OMP_NUM_THREADS": "1", "XLA_FLAGS": flags}


def free_port() -> int:
    """A port of this machine where nothing listens just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
