# SPDX-License-Identifier: Apache-2.0
"""FedAvg by idiolect and by other libraries: same rows, settings and initial parameters, rounds in turns.

Each library has a virtual environment and a process of its own, which trains so many rounds when it is told to. What
could not be installed, failed or ended elsewhere is said with its reason. A run that was stopped goes on with the
problems that it has not finished.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import peers_environments as environments
from benchmarks.apart import say
from benchmarks.measure import Result, Target
from benchmarks.peers_contest import Child, NotMeasuredError, Way, choose, contest, judge
from benchmarks.peers_environments import OURS, PEERS, Environment
from benchmarks.peers_problem import CNN, MEMORY, SOFTMAX, Problem, smaller, write
from benchmarks.peers_table import table

PROBLEMS = (SOFTMAX, CNN, MEMORY)
CACHE = "IDIOLECT_PEERS"  # the folder of environments, problems and logs
PFLLIB_SECONDS = 73.0  # stated with the target, of a machine of this kind; PFLlib is no package and not run here
PFL_LEAST, PFLLIB_LEAST = 16.0, 24.0


def cache_folder() -> Path:
    """Where `--cache` says, else in the user's cache."""
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get(CACHE) or Path(user) / "idiolect-peers")
    for name in ("problems", "logs", "parts"):
        (cache / name).mkdir(parents=True, exist_ok=True)
    return cache


def parts(quick: bool) -> Iterator[Result]:
    """After each problem: what all libraries needed for it."""
    cache = cache_folder()
    found = [environments.here(OURS), *(environments.prepare(library, cache) for library in PEERS)]
    numbers: dict[str, Any] = {"environments": described(found)}
    finished = []
    for problem in PROBLEMS:
        kept = cache / "parts" / f"{problem.name}{'-quick' if quick else ''}.json"
        sized = smaller(problem) if quick else problem
        numbers[problem.name] = _resumed(kept, sized, lambda sized=sized: side_by_side(sized, found, cache))
        finished.append(kept)
        yield Result(dict(numbers), tuple(targets(numbers)), text=table(numbers))
    for kept in finished:
        kept.unlink()


def targets(numbers: dict[str, Any]) -> Iterator[Target]:
    """What is promised of softmax regression, and that everybody who was measured came to the same loss."""
    softmax = numbers[SOFTMAX.name]["libraries"]
    pfl, ours = softmax.get("pfl"), softmax[OURS.name]
    ratio = None if pfl is None or isinstance(pfl, str) else pfl["seconds of a round, ratio"]
    yield Target("softmax: pfl / idiolect", ratio, PFL_LEAST, at_least=True)
    hundred = 100 * ours["seconds of a round, median"]
    what = f"softmax: PFLlib's stated {PFLLIB_SECONDS:g} s / 100 rounds of idiolect"
    yield Target(what, PFLLIB_SECONDS / hundred, PFLLIB_LEAST, at_least=True)
    yield same_loss(numbers)


def same_loss(numbers: dict[str, Any]) -> Target:
    """All that were measured came to our loss."""
    measured = [
        each for part in numbers.values() for each in part.get("libraries", {}).values() if not isinstance(each, str)
    ]
    same = sum(each["same loss"] for each in measured) / len(measured)
    return Target("same loss as ours, of all that were measured", same, 1.0, "", at_least=True)


def described(found: list[Environment]) -> dict[str, Any]:
    """What is known of the environments, by library."""
    return {
        each.library.name: {
            "installed": each.python is not None,
            "MB on disk": each.megabytes,
            "notes": list(each.notes),
        }
        for each in found
    }


def _resumed(kept: Path, problem: Problem, work: Any) -> dict[str, Any]:
    """What an unfinished run has found for the same problem, or what `work` finds."""
    settings = json.loads(json.dumps(dataclasses.asdict(problem)))
    if kept.is_file():
        content = json.loads(kept.read_text(encoding="utf-8"))
        if content["problem"] == settings:
            say(f"{problem.name}: as an earlier run has found")
            return content["part"]
    part = work()
    kept.write_text(json.dumps({"problem": settings, "part": part}), encoding="utf-8")
    return part


def side_by_side(problem: Problem, found: list[Environment], cache: Path) -> dict[str, Any]:
    """One problem, by all libraries that are installed."""
    from benchmarks.peers_idiolect import initial

    say(f"{problem.name}:")
    load, path = os.getloadavg()[0], write(cache / "problems", problem, initial(problem))
    ways, tried, failed, start = {}, {}, {}, 0.0
    for environment in found:
        name = environment.library.name
        if environment.python is None:
            failed[name] = "; ".join(environment.notes)
            continue
        own = [_way(environment, variant, path, cache) for variant in environment.library.variants]
        try:
            start = start or _loss_at_start(own[0])
            ways[name], tried[name] = choose(own, problem, start)
        except NotMeasuredError as failure:
            failed[name] = f"not measured: {failure}"
    libraries = contest(ways, problem) | failed
    judge(libraries, problem, start)
    path.unlink()
    return {
        "libraries": libraries,
        "loss at the start": start,
        "seconds of a round before the turns, by way": tried,
        "rounds": problem.turns.rounds,
        "steps of a round": problem.steps,
        "load before and after": [load, os.getloadavg()[0]],
    }


def _loss_at_start(way: Way) -> float:
    child = Child(way)
    try:
        return child.loss()
    finally:
        child.close()


def _way(environment: Environment, variant: str, path: Path, cache: Path) -> Way:
    return Way(environment, variant, path, cache / "logs" / f"{environment.library.name}-{path.stem}.txt")
