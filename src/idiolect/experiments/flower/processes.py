# SPDX-License-Identifier: Apache-2.0
"""Flower's stock commands around a kit: a SuperLink and a run at the server, a SuperNode at a site; all ended again."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from idiolect.core.checks import RequestError
from idiolect.engines.deploy.tls import Papers
from idiolect.experiments.deploy.demo import free_port, running
from idiolect.experiments.deploy.desk import make_site
from idiolect.experiments.deploy.kits import RESULT, Connect, read_certified, read_connect, read_server_file
from idiolect.experiments.flower import local
from idiolect.experiments.flower.kits import APP, HOME, LOOPBACK, NODE_KEY, write_connection
from idiolect.experiments.flower.relay import HANDLER
from idiolect.experiments.flower.server import FOLDER, NODES, OUTCOME
from idiolect.record import standing

SECONDS_TO_START, LOOK_EVERY = 120.0, 0.2
AGAIN = 3.0  # seconds before a node that has ended is started again
PARTING = 2.0  # seconds for the last answer to leave a site
Say = Callable[[str], None]


def serve(kit: Path, say: Say, out: Path | None = None) -> Path:
    """The server of a kit, until the run is done: a SuperLink that knows the sites' keys, and one run on it."""
    own = read_server_file(kit)
    home = write_connection(kit, own.port)
    outcome = kit / FOLDER / OUTCOME
    outcome.unlink(missing_ok=True)
    with running(_superlink(kit, own.host, own.port), environment(home), kit / FOLDER / "superlink.log") as superlink:
        _wait_for_port(superlink, own.port)
        # before the run: a node that asks without being registered is refused, and its process ends
        sites = [*own.sites, *own.later]
        for site in sites:
            _flower(["supernode", "register", str(kit / FOLDER / NODES / f"{site}.pub"), "--name", site], home)
        say(f"Flower listens at {own.host}:{own.port} for {', '.join(sites)}.")
        paths = {"kit": str(kit.resolve()), "out": "" if out is None else str(out.resolve())}
        settings = " ".join(f"{name}={json.dumps(path)}" for name, path in paths.items())
        _flower(["run", str(kit / FOLDER / APP), "--run-config", settings], home)
        _wait_for_outcome(superlink, outcome)
    return out or kit / RESULT


def join(kit: Path, say: Say) -> None:
    """A site of a kit, until the run is over: the process that answers, and a SuperNode beside it."""
    where, own = read_connect(kit), read_certified(kit)
    if not own.consent.shipped_code:
        raise RequestError(
            "Flower's open version lets everyone who reaches the server's port run code of their own at this site; "
            "use the transport tls or flare, or agree by shipped_code = true under [allows] in site.toml."
        )
    site = make_site(own)
    # a short path: that of a socket has at most a hundred letters
    with tempfile.TemporaryDirectory(prefix="idiolect-") as folder, standing.at(site.folder, f"join {kit} goes on"):
        path = Path(folder) / HANDLER
        home = kit / FOLDER / HOME
        home.mkdir(parents=True, exist_ok=True)
        log, noted = kit / FOLDER / "supernode.log", False
        say(f"A SuperNode of Flower connects to {where.host}:{where.port}.")
        # it ends where the server does not know its key yet: parties start in any order
        while not _answers(_supernode(kit, where, path), home, log, path, site.handle):
            if not noted:
                say(f"Flower's SuperNode has ended and is started again; {log} says why.")
                noted = True
            time.sleep(AGAIN)


def _answers(words: Sequence[str], home: Path, log: Path, path: Path, handle: local.Handle) -> bool:
    """Answer what a SuperNode brings, until the run is over (True) or the node has ended."""
    with running(words, environment(home), log) as node:
        # the node's end is looked for between messages: a site must not wait for one that is gone
        over = local.serve(path, handle, lambda: node.poll() is not None)
        if over:
            time.sleep(PARTING)
        return over


def _superlink(kit: Path, host: str, port: int) -> list[str]:
    papers = Papers.of(kit)
    return [
        *("flower-superlink", "--host", host, "--port", str(port)),
        *("--ssl-certfile", str(papers.certificate), "--ssl-keyfile", str(papers.key)),
        *("--ssl-ca-certfile", str(papers.authority)),
        # only nodes whose key is registered, and no app may install packages here
        *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
    ]


def _supernode(kit: Path, where: Connect, handler: Path) -> list[str]:
    return [
        *("flower-supernode", "--superlink", f"{where.host}:{where.port}"),
        *("--root-certificates", str(Papers.of(kit).authority)),
        *("--auth-supernode-private-key", str(kit / FOLDER / NODE_KEY)),
        *("--host", LOOPBACK, "--port", str(free_port())),  # where its own processes find it
        *("--node-config", f"{HANDLER}={json.dumps(str(handler))}"),
    ]


def environment(home: Path) -> dict[str, str]:
    """For Flower's commands: this Python's come first, no telemetry, no waiting for tasks."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {
        **os.environ,
        "PATH": path,
        "FLWR_HOME": str(home.resolve()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
    }


def _flower(words: Sequence[str], home: Path) -> None:
    """One of Flower's own short commands; RequestError with what it said where it fails."""
    done = subprocess.run(
        ["flwr", *words], env=environment(home), capture_output=True, text=True, timeout=SECONDS_TO_START
    )
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())
        raise RequestError(f"`flwr {words[0]}` failed: {said[-400:]}")


def _wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1.0):
            return
        time.sleep(LOOK_EVERY)
    raise RequestError(f"Flower's SuperLink does not listen at port {port}; superlink.log in the kit says why.")


def _wait_for_outcome(superlink: subprocess.Popen[bytes], outcome: Path) -> None:
    """Until the run has ended; RequestError with its sentence where it failed."""
    begins_until = time.monotonic() + SECONDS_TO_START
    while True:
        noted = json.loads(outcome.read_text(encoding="utf-8")) if outcome.is_file() else {}
        if noted.get("done"):
            return
        late = not noted and time.monotonic() > begins_until
        if "error" in noted or late or superlink.poll() is not None or not _is_alive(noted.get("process")):
            why = noted.get("error") or f"The run ended without a result; {outcome.parent / 'superlink.log'} says why."
            raise RequestError(why)
        time.sleep(LOOK_EVERY)


def _is_alive(number: int | None) -> bool:
    """Whether the process still runs; one that has not begun yet is no reason to give up."""
    if number is None:
        return True
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True
