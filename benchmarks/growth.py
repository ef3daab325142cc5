# SPDX-License-Identifier: Apache-2.0
"""How time and memory of a round grow: powers of clients, parameters, rows, local steps and cohort, around one base.

FedAvg with a perceptron 256-h-10, executor `batched`. One factor at a time is halved and doubled; each point is a
process of its own, its time the least of a few blocks of rounds, its memory the peak above that of a tiny problem. The
power is that of a straight line through the logarithms, with its 95 % interval.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from scipy import stats

from benchmarks.apart import measured_apart, say
from benchmarks.measure import Result

SECONDS = 120.0  # for one point
LEAST_MB = 4.0  # less than this above the tiny problem is the allocator's mood


class Point(NamedTuple):
    """A problem by its factors; parameters are counted from `hidden`."""

    clients: int
    hidden: int
    rows: int
    steps: int
    cohort: int


BASE = Point(clients=400, hidden=128, rows=100, steps=12, cohort=40)
TINY = Point(clients=4, hidden=2, rows=10, steps=1, cohort=2)
TIMES = (1 / 4, 1 / 2, 1, 2, 4)
LABELS = {
    "clients": "clients",
    "hidden": "parameters",
    "rows": "rows of a client",
    "steps": "local steps",
    "cohort": "clients per round",
}


def parts(quick: bool) -> Iterator[Result]:
    """After each factor: its points and the powers fitted to them."""
    base, times, factors = (TINY, (1, 2), ("clients",)) if quick else (BASE, TIMES, tuple(LABELS))
    floor = _measured(TINY)
    # the base is a point of every fit
    known = {TINY: floor} if base == TINY else {TINY: floor, base: _least(base, 3)}
    numbers: dict[str, Any] = {"base": base._asdict(), "peak of a tiny problem, MB": _number(floor, "peak MB")}
    for factor in factors:
        points = []
        for times_base in times:
            point = base._replace(**{factor: int(getattr(base, factor) * times_base)})
            if point not in known:
                known[point] = _measured(point)
            points.append((getattr(point, factor), known[point]))
        numbers[LABELS[factor]] = summary(points, _number(floor, "peak MB"))
        say(f"{LABELS[factor]}: {numbers[LABELS[factor]]}")
        yield Result(dict(numbers) | {"load": os.getloadavg()[0]})


def summary(points: list[tuple[int, Any]], floor: float) -> dict[str, Any]:
    """The points of one factor and its two powers; what could not be measured is said and left out of both."""
    failed = {str(value): found for value, found in points if isinstance(found, str)}
    sound = [(value, found) for value, found in points if not isinstance(found, str)]
    values = [found["parameters"] if found["hidden"] == value else value for value, found in sound]
    seconds = [found["seconds of a round"] for _, found in sound]
    memory = [found["peak MB"] - floor for _, found in sound]
    return {
        "values": values,
        "seconds of a round": seconds,
        "MB above a tiny problem": memory,
        "power of time": power(values, seconds),
        "power of memory": power(*zip(*kept)) if len(kept := _above(values, memory)) > 1 else None,
    } | ({"not measured": failed} if failed else {})


def power(values: Any, costs: Any) -> list[float]:
    """Slope of log cost over log value, and the ends of its 95 % interval (none with two points)."""
    fit = stats.linregress([math.log(value) for value in values], [math.log(cost) for cost in costs])
    if len(values) < 3:
        return [float(fit.slope)] * 3
    half = stats.t.ppf(0.975, len(values) - 2) * fit.stderr
    return [float(end) for end in (fit.slope, fit.slope - half, fit.slope + half)]


def _above(values: list[float], memory: list[float]) -> list[tuple[float, float]]:
    return [(value, spent) for value, spent in zip(values, memory) if spent >= LEAST_MB]


def _measured(point: Point) -> Any:
    command = ["-m", "benchmarks.growth_child", *map(str, point)]
    found = measured_apart(command, SECONDS)
    return found if isinstance(found, str) else found | {"hidden": point.hidden}


def _least(point: Point, processes: int) -> Any:
    """The fastest of so many processes; the first that failed where one did."""
    found = [_measured(point) for _ in range(processes)]
    failed = [each for each in found if isinstance(each, str)]
    return failed[0] if failed else min(found, key=lambda each: each["seconds of a round"])


def _number(found: Any, name: str) -> float:
    if isinstance(found, str):
        raise SystemExit(f"growth: the tiny problem was {found}")
    return found[name]
