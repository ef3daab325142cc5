# SPDX-License-Identifier: Apache-2.0
"""The network between the server and half of the sites is split, over real TLS connections and by the clock.

A forwarder stands between: while the network is split it reads nothing, so that connections stay open and silent, as
they do where a cable is cut. Rounds close on their deadline; when the network is whole again, all sites count again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.deploy_problem import Problem
from idiolect.engines.deploy.link import Rules
from idiolect.engines.deploy.saved import Saved, train_saved
from idiolect.engines.deploy.tls import TlsServer, serve_site
from idiolect.experiments.deploy.certificates import make_authority, make_papers

SITES, ROUNDS, FIRST = 4, 14, 2
ROUNDS_IN_IT = 8  # that close on their deadline while the network is split


class Forwarder:
    """Passes connections on to a server, unless the network is split."""

    def __init__(self, target: tuple[str, int]):
        self.target, self.whole = target, threading.Event()
        self.whole.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self.target)
                self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 16):
                self.whole.wait()
                sink.sendall(block)
            sink.shutdown(socket.SHUT_WR)

    def split(self, seconds: float) -> None:
        """From now on, for so long."""
        self.whole.clear()
        threading.Timer(seconds, self.whole.set).start()

    def close(self) -> None:
        self.whole.set()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.close()


class Split:
    """One run over TLS whose second half of sites is cut off for `seconds`, from round FIRST on."""

    def __init__(self, folder: Path, seconds: float):
        self.folder, self.seconds = folder, seconds
        self.problem = Problem(ROUNDS, clients=SITES, scaffold=True)
        self.sites = {name: self.problem.site(name, folder) for name in self.problem.numbers}
        self.cohorts: dict[int, list[int]] = {}
        self.whole_again = 0.0  # seconds from the end of the split to the first round with all sites
        self._ends = 0.0

    def train(self) -> Any:
        """Where the run stands at its end."""
        authority = make_authority("split")
        papers = make_papers(self.folder / "papers" / "server", authority, "server", server=True)
        server = TlsServer(("127.0.0.1", 0), papers, list(self.sites))
        forwarder, threads = Forwarder(server.address), []
        try:
            for place, (name, site) in enumerate(self.sites.items()):
                own = make_papers(self.folder / "papers" / name, authority, name, server=False)
                where = server.address if place < SITES // 2 else forwarder.address
                threads.append(threading.Thread(target=serve_site, args=(where, own, site), daemon=True))
                threads[-1].start()
            until = time.monotonic() + 60
            while len(server.sites) < SITES and time.monotonic() < until:
                time.sleep(0.01)
            return self._train(server, forwarder)
        finally:
            forwarder.whole.set()
            server.close()
            for thread in threads:
                thread.join(10)
            forwarder.close()

    def _train(self, server: TlsServer, forwarder: Forwarder) -> Any:
        coordinator = self.problem.coordinator(server)
        link = coordinator.link
        link.rules = Rules(deadline=self.seconds / ROUNDS_IN_IT, wait=0.0)
        count = link.count

        def noted(sites: Any, number: int, ending: Any) -> None:
            self.cohorts[number] = sorted(self.problem.numbers[site] for site in sites)
            if self._ends and len(sites) == SITES and not self.whole_again:
                self.whole_again = max(0.0, time.monotonic() - self._ends)
            count(sites, number, ending)
            if number == FIRST:
                self._ends = time.monotonic() + self.seconds
                forwarder.split(self.seconds)

        link.count = noted  # type: ignore[method-assign]
        return train_saved(coordinator, Saved(self.folder / "server", lambda text: None))[0]
