# SPDX-License-Identifier: Apache-2.0
"""Sites and the coordinator of a deployment fail in every way, at drawn moments: what is lost, what goes wrong.

Scaffold, whose server holds a sum over what clients hold, on a small problem. A process is killed by an exception that
nothing catches, after which only its files are left. A result is right where server and all states equal rounds of the
same cohorts without messages, files or faults.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.random import Generator

from benchmarks.deploy_problem import Problem
from benchmarks.deploy_split import Split
from benchmarks.measure import Result, Target
from idiolect.core.addressing import address
from idiolect.engines.client import Round
from idiolect.engines.deploy import kept, wire
from idiolect.engines.deploy.coordinator import _opened, _stepped
from idiolect.engines.deploy.saved import Saved, train_saved
from idiolect.engines.deploy.transport import Handler, Loopback
from idiolect.engines.deploy.uploads import _collected
from idiolect.engines.server import server_init

ROUNDS, SITES, TRIALS = 8, 4, 20
SPLITS = 3  # of a minute each
How = Callable[[bytes, Handler], bytes | None]


class KilledError(Exception):
    """A process ends here."""


class Trial(NamedTuple):
    """What one trial came to."""

    lost: int  # uploads that did not count
    wrong: bool
    seconds: float  # from the restart to the next round that counts; 0 where nothing is started again


class Scene:
    """One run with a fault in it."""

    def __init__(self, problem: Problem, folder: Path, draw: Generator):
        self.problem, self.folder, self.draw = problem, folder, draw
        self.site = f"site-{draw.integers(0, SITES)}"
        self.round = int(draw.integers(1, ROUNDS - 1))
        self.cohorts: dict[int, list[int]] = {}
        self.recovered: list[float] = []
        self.transport = Loopback({name: problem.site(name, folder) for name in problem.numbers})

    def train(self) -> Any:
        """The coordinator's process, from its checkpoint where there is one."""
        coordinator = self.problem.coordinator(self.transport)
        count = coordinator.link.count

        def noted(sites: Any, number: int, ending: Any) -> None:
            self.cohorts[number] = sorted(self.problem.numbers[site] for site in sites)
            self.recovered.append(time.perf_counter())
            count(sites, number, ending)

        coordinator.link.count = noted  # type: ignore[method-assign]
        return train_saved(coordinator, Saved(self.folder / "server", lambda text: None))[0]

    def restart_site(self) -> None:
        self.transport.handlers[self.site] = self.problem.site(self.site, self.folder)

    def in_round(self, how: How) -> None:
        """One message of the drawn round to the drawn site."""

        def fault(name: str, now: int, message: bytes, handler: Handler) -> bytes | None:
            hit = name == self.site and now == self.round and wire.decode(message, name).kind == "round"
            return how(message, handler) if hit else handler.handle(message)

        self.transport.fault = fault


def spoilt(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Scene], Any]:
    """An answer whose largest array is another."""

    def how(message: bytes, handler: Handler) -> bytes:
        answer = wire.decode(handler.handle(message), "site")
        name = max(answer.arrays, key=lambda one: answer.arrays[one].size)
        return wire.encode(answer._replace(arrays={**answer.arrays, name: change(answer.arrays[name])}))

    return _with(how)


def _with(how: How) -> Callable[[Scene], Any]:
    def run(scene: Scene) -> Any:
        scene.in_round(how)
        return scene.train()

    return run


def stale(message: bytes, handler: Handler) -> bytes:
    answer = wire.decode(handler.handle(message), "site")
    return wire.encode(answer._replace(round=answer.round - 1, sequence=answer.sequence - 1))


def twice(message: bytes, handler: Handler) -> bytes:
    first = handler.handle(message)
    handler.handle(message)
    return first


def killed_site(scene: Scene) -> Any:
    """Before its step, during it, or after its upload has left: drawn."""
    moment = int(scene.draw.integers(0, 3))

    def how(message: bytes, handler: Handler) -> bytes | None:
        answer = None if moment == 0 else handler.handle(message)
        scene.restart_site()
        return answer if moment == 2 else None

    scene.in_round(how)
    return scene.train()


def full_disk(scene: Scene) -> Any:
    write = kept.write_whole

    def fails(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def how(message: bytes, handler: Handler) -> bytes:
        kept.write_whole = fails
        try:
            return handler.handle(message)
        finally:
            kept.write_whole = write

    scene.in_round(how)
    return scene.train()


def killed_server(scene: Scene) -> Any:
    """After any message of a run."""
    left = [int(scene.draw.integers(SITES, SITES * (ROUNDS + 2)))]

    def fault(name: str, now: int, message: bytes, handler: Handler) -> bytes | None:
        answer = handler.handle(message)
        left[0] -= 1
        if left[0] == 0:
            raise KilledError
        return answer

    scene.transport.fault = fault
    try:
        return scene.train()
    except KilledError:
        scene.recovered.append(-time.perf_counter())
        return scene.train()


def damaged_checkpoint(scene: Scene) -> Any:
    """Killed, and its newest checkpoint is torn as well: sites go back by one round."""

    def fault(name: str, now: int, message: bytes, handler: Handler) -> bytes | None:
        if now == scene.round + 1 and wire.decode(message, name).kind == "round":
            raise KilledError
        return handler.handle(message)

    scene.transport.fault = fault
    try:
        return scene.train()
    except KilledError:
        scene.transport.fault = lambda name, now, message, handler: handler.handle(message)
        (scene.folder / "server" / "latest.npz").write_bytes(b"torn")
        scene.recovered.append(-time.perf_counter())
        return scene.train()


def split_network(scene: Scene) -> Any:
    """Half of the sites are cut off for some rounds."""
    gone = set(scene.draw.permutation(SITES)[: SITES // 2].tolist())
    last = scene.round + int(scene.draw.integers(1, 4))

    def fault(name: str, now: int, message: bytes, handler: Handler) -> bytes | None:
        cut = scene.problem.numbers[name] in gone and scene.round <= now < last
        return None if cut else handler.handle(message)

    scene.transport.fault = fault
    return scene.train()


def joins_later(scene: Scene) -> Any:
    """A site is not there before the drawn round: it has no folder and has said nothing."""
    comes = scene.transport.handlers.pop(scene.site)

    def fault(name: str, now: int, message: bytes, handler: Handler) -> bytes | None:
        if now >= scene.round:
            scene.transport.handlers.setdefault(scene.site, comes)
        return handler.handle(message)

    scene.transport.fault = fault
    return scene.train()


KINDS: dict[str, Callable[[Scene], Any]] = {
    "the server is killed and started again": killed_server,
    "a site is killed and started again": killed_site,
    "the server is killed, its newest checkpoint torn": damaged_checkpoint,
    "half of the sites are cut off for some rounds": split_network,
    "a site joins in the middle": joins_later,
    "a site vanishes before its step": _with(lambda message, handler: None),
    "a site vanishes after its step, or is late": _with(lambda message, handler: handler.handle(message) and None),
    "a site's disk is full": full_disk,
    "an upload with not-a-number": spoilt(lambda array: np.full_like(array, np.nan)),
    "an upload with infinity": spoilt(lambda array: np.full_like(array, np.inf)),
    "an upload of another shape": spoilt(lambda array: array.reshape(-1)[:1]),
    "an upload of another type": spoilt(lambda array: array.astype(np.float64)),
    "an upload of a huge norm": spoilt(lambda array: array + np.float32(1e12)),
    "an answer of an older round": _with(stale),
    "a message that comes twice": _with(twice),
}


def replay(problem: Problem, cohorts: list[list[int]], folder: Path) -> tuple[Any, list[Any]]:
    """The same rounds without messages, files or faults."""
    from idiolect.engines.deploy.worker import Worker

    workers = [Worker(problem.site(name, folder).desk.post) for name in problem.numbers]  # type: ignore[attr-defined]
    people, root = [worker.start()[0] for worker in workers], workers[0].root
    server = server_init(problem.admitted, root)
    for number, cohort in enumerate(cohorts):
        sent = _opened(problem.admitted, root, np.int32(number), server)
        done = {client: workers[client].work(number, address(sent, client), people[client]) for client in cohort}
        uploads = jax.tree.map(lambda *leaves: np.stack(leaves), *(one[0] for one in done.values()))
        now = Round(problem.admitted, root, np.int32(number), sent)
        server, _ = _stepped(now, server, _collected(problem.admitted, uploads, np.array(cohort, np.int32)))
        for client, one in done.items():
            people[client] = one[1]
    return server, people


def distance(one: Any, other: Any) -> float:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max((float(np.max(np.abs(np.asarray(a) - np.asarray(b)), initial=0)) for a, b in leaves), default=0.0)


def is_wrong(problem: Problem, standing: Any, sites: dict[str, Any], cohorts: list[list[int]], folder: Path) -> bool:
    """Whether the server or a site's state differs from the same rounds without messages, files or faults."""
    server, people = replay(problem, cohorts, folder)
    entries = [sites[name].running.kept.entries for name in problem.numbers]
    states = [found[max(found)].state for found in entries]
    unlike = distance(standing.server, server) > 1e-6 or distance(states, people) > 1e-6
    return unlike or standing.round != problem.training.rounds


def attempt(kind: str, folder: Path, draw: Generator) -> Trial:
    """One trial of one kind."""
    scene = Scene(Problem(ROUNDS, clients=SITES, scaffold=True), folder, draw)
    standing = KINDS[kind](scene)
    cohorts = [scene.cohorts[number] for number in range(ROUNDS)]
    wrong = is_wrong(scene.problem, standing, scene.transport.handlers, cohorts, folder / "replay")
    starts = [place for place, moment in enumerate(scene.recovered) if moment < 0]
    after = scene.recovered[starts[0] + 1 :] if starts else []
    seconds = after[0] + scene.recovered[starts[0]] if after else 0.0
    return Trial(sum(SITES - len(cohort) for cohort in cohorts), wrong, seconds)


def attempt_split(folder: Path, seconds: float) -> Trial:
    """Over TLS and by the clock."""
    run = Split(folder, seconds)
    standing = run.train()
    cohorts = [run.cohorts[number] for number in sorted(run.cohorts)]
    wrong = is_wrong(run.problem, standing, run.sites, cohorts, folder / "replay")
    return Trial(sum(SITES - len(cohort) for cohort in cohorts), wrong or not run.whole_again, run.whole_again)


def parts(quick: bool) -> Iterator[Result]:
    """Every kind, many times; what is known so far after each of them."""
    draw, trials = np.random.default_rng(0), 1 if quick else TRIALS
    found: dict[str, Any] = {}
    minute, splits = (4.0, 1) if quick else (60.0, SPLITS)
    kinds = {kind: (trials, lambda folder, kind=kind: attempt(kind, folder, draw)) for kind in KINDS}
    kinds["the network splits for a minute, over TLS"] = (splits, lambda folder: attempt_split(folder, minute))
    for kind, (times, run) in kinds.items():
        with tempfile.TemporaryDirectory() as name:
            each = [run(Path(name) / str(number)) for number in range(times)]
        found[kind] = {
            "trials": times,
            "uploads lost, mean": float(np.mean([trial.lost for trial in each])),
            "wrong": sum(trial.wrong for trial in each),
            "seconds to recover": max(trial.seconds for trial in each),
        }
        yield Result(dict(found), (Target("wrong results", sum(one["wrong"] for one in found.values()), 0),))
