# SPDX-License-Identifier: Apache-2.0
"""A whole FLARE system on one machine: kits, server, sites, a run, and everything stopped at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
from nvflare.fuel.flare_api.flare_api import Session

from idiolect.core.checks import RequestError
from idiolect.experiments.deploy.demo import free_port, one_thread
from idiolect.experiments.deploy.kits import RESULT
from idiolect.experiments.flare import jobs, processes
from idiolect.experiments.flare.kits import SERVER, Federation, make_flare_kits
from idiolect.experiments.spec import Spec

LEAD = "lead@idiolect.local"
START = 120.0  # seconds that server and sites have to come up on a busy machine
LOOK_EVERY = 0.3
Say = Callable[[str], None]


def run_flare_demo(folder: Path, spec: Spec, tables: Mapping[str, pa.Table], say: Say, seconds: float = 3600.0) -> Path:
    """Make kits, start a server and a process for each site, train, stop them; the run folder."""
    sites = tuple(tables)
    kits = make_flare_kits(folder, spec, Federation(sites, port=free_port(), leads=(LEAD,)))
    for name, table in tables.items():
        pacsv.write_csv(table, kits[name] / "rows.csv")
    with running({name: kits[name] for name in (SERVER, *sites)}), jobs.session(kits[LEAD], START) as lead:
        wait_for(lead, sites)
        say(f"{len(sites)} sites and a FLARE server started, from their kits in {folder}.")
        _wait_for_result(lead, jobs.submit(lead, "demo", len(sites)), kits[SERVER], seconds)
    return kits[SERVER] / RESULT


def _wait_for_result(opened: Session, job: str, server: Path, seconds: float) -> None:
    """Until the run folder is whole; FLARE itself takes some ten seconds more to end a job."""
    until = time.monotonic() + seconds
    # looked for in the folder, which is whole before FLARE says so
    while not (server / RESULT / "done").is_file():
        ended = jobs.how_it_ended(opened, job)
        if ended is not None or time.monotonic() > until:
            raise RequestError(f"The run has no result ({ended or 'it takes too long'}); see {server / 'flare.log'}.")
        time.sleep(LOOK_EVERY)


@contextlib.contextmanager
def running(kits: Mapping[str, Path]) -> Iterator[None]:
    """These servers and sites, stopped at the end; what each prints is in its kit's flare.log."""
    started = []
    try:
        for kit in kits.values():
            with (kit / "flare.log").open("wb") as log:
                started.append(processes.start(kit, log, one_thread()))
        yield
    finally:
        processes.stop(started)


def wait_for(opened: Session, sites: tuple[str, ...], seconds: float = START) -> None:
    """Until all sites are connected."""
    until = time.monotonic() + seconds
    while missing := set(sites) - set(jobs.connected(opened)):
        if time.monotonic() > until:
            raise RequestError(f"Not all sites have come: {', '.join(sorted(missing))}; see flare.log in their kits.")
        time.sleep(LOOK_EVERY)
