# SPDX-License-Identifier: Apache-2.0
"""Seconds per round and bytes over the reference transport, with real connections, and 64 sites on one machine.

LSGD-PFL on a small logistic problem. Sites are threads of this process, so that what is measured is the transport, the
messages, the files and the engine, not how many processes fit on two cores; `idiolect deploy demo` starts processes.
"""

from __future__ import annotations

import dataclasses
import itertools
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import deploy_frameworks
from benchmarks.deploy_problem import Problem
from benchmarks.measure import Result, Target
from idiolect.engines.deploy.link import MASKING, Traffic
from idiolect.engines.deploy.saved import Saved
from idiolect.engines.deploy.tls import TlsServer, serve_site
from idiolect.engines.deploy.transport import Loopback, Transport
from idiolect.experiments.deploy.certificates import make_authority, make_papers

SECONDS_TO_CONNECT = 60.0


def run(quick: bool) -> Result:
    """Loopback, TLS and, where they are installed, FLARE and Flower with 4 sites; TLS with 64; both under masks."""
    rounds, many, several, long = (3, 8, 4, 2) if quick else (50, 64, 16, 20)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {
            "loopback, 4 sites": _in_process(folder / "loopback", 4, rounds),
            "tls, 4 sites": _over_tls(folder / "few", 4, rounds),
            f"tls, {many} sites": _over_tls(folder / "many", many, long),
            "tls, masks, 4 sites": _over_tls(folder / "masked", 4, rounds, masked=True),
            f"tls, masks, {several} sites": _over_tls(folder / "several", several, long, masked=True),
        }
        # their processes need half a minute to start, and a round of Flower several seconds
        for framework, most in {"flare": rounds, "flower": 6}.items():
            if deploy_frameworks.installed(framework) and not quick:
                found[f"{framework}, 4 sites"] = deploy_frameworks.over(framework, folder / framework, 4, most)
    few, flare = found["tls, 4 sites"], found.get("flare, 4 sites", {})
    targets = (
        Target("seconds per round, flare, 4 sites", flare.get("seconds per round"), 0.3, "s"),
        Target("seconds per round, tls, 4 sites", few["seconds per round"], 0.3),
        Target("bytes of arrays over the ledger's", few["bytes of arrays / ledger"], 1.02),
        Target(f"rounds that {many} sites complete", found[f"tls, {many} sites"]["rounds"], long, at_least=True),
    )
    return Result(found, targets)


def _in_process(folder: Path, sites: int, rounds: int) -> dict[str, Any]:
    problem = Problem(rounds, clients=sites)
    return _trained(problem, Loopback({name: problem.site(name, folder) for name in problem.numbers}), folder)


def _over_tls(folder: Path, sites: int, rounds: int, masked: bool = False) -> dict[str, Any]:
    problem, authority = Problem(rounds, clients=sites, masked=masked), make_authority("benchmark")
    papers = make_papers(folder / "papers" / "server", authority, "server", server=True)
    server = TlsServer(("127.0.0.1", 0), papers, list(problem.numbers))
    threads = []
    try:
        for name in problem.numbers:
            own = make_papers(folder / "papers" / name, authority, name, server=False)
            site = problem.site(name, folder)
            threads.append(threading.Thread(target=serve_site, args=(server.address, own, site), daemon=True))
            threads[-1].start()
        until = time.monotonic() + SECONDS_TO_CONNECT
        while len(server.sites) < sites and time.monotonic() < until:
            time.sleep(0.01)
        return _trained(problem, server, folder)
    finally:
        server.close()
        for thread in threads:
            thread.join(10)


def _trained(problem: Problem, transport: Transport, folder: Path) -> dict[str, Any]:
    """The first round compiles and is not counted; every round is saved, as in a real run."""
    coordinator = problem.coordinator(transport)
    saved, times, memory = Saved(folder / "server"), [], []

    def save(standing: Any) -> None:
        saved.save(standing, coordinator.link)
        times.append(time.perf_counter())
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    coordinator.save = save
    standing = coordinator.train(coordinator.start())
    rounds = problem.training.rounds
    every, ledger = coordinator.link.traffic, standing.account.ledger
    kinds = [every[kind] for kind in ("round", *MASKING) if kind in every]
    traffic = Traffic(*(sum(counts) for counts in zip(*map(dataclasses.astuple, kinds))))
    between = [later - earlier for earlier, later in itertools.pairwise(times[1 : rounds + 1])]
    return {
        "rounds": standing.round,
        "seconds per round": sum(between) / max(1, len(between)),
        "bytes of arrays / ledger": (traffic.down_arrays + traffic.up_arrays)
        / (ledger.download_bytes + ledger.upload_bytes),
        "bytes of a header": (traffic.down_bytes + traffic.up_bytes - traffic.down_arrays - traffic.up_arrays)
        / (2 * traffic.messages),
        "growth of memory after the first rounds, MB": (memory[-1] - memory[min(3, len(memory) - 1)]) / 1024,
    }
