# SPDX-License-Identifier: Apache-2.0
"""A search over a grid of settings that widens itself while the best point stands at its edge, then looks closer.

Only the order of scores is read: what a point is scored by, and how it is trained, is the caller's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from idiolect.core.checks import Range

Point = dict[str, float]  # one value per axis

WORTH = 0.001  # a wider grid must better the best score by this part of it, or the search ends
WIDENINGS = 3  # of a whole search


class Axis(NamedTuple):
    """Values of one setting, ascending and evenly spaced on a logarithmic scale where it may widen."""

    name: str
    values: tuple[float, ...]
    limits: Range = Range()
    widens: bool = True
    in_rows: bool = False  # the setting is the value divided by a client's training rows
    refines: bool = False  # values between the best one and its neighbours are tried at the end

    def around(self, value: float) -> list[float]:
        """Two values on each side of one of these, a third and two thirds of the way to its neighbour."""
        place = self.values.index(value)
        ratio = self.values[1] / self.values[0] if len(self.values) > 1 else 4.0
        below = self.values[place - 1] if place else value / ratio
        above = self.values[place + 1] if place + 1 < len(self.values) else value * ratio
        between = [value * (other / value) ** part for other, part in itertools.product((below, above), (1 / 3, 2 / 3))]
        return sorted(float(f"{found:.3g}") for found in between if self.limits.admits(found))

    def beyond(self, upward: bool, count: int) -> Axis:
        """So many values on one side of these, as far as the setting's range admits them."""
        ratio = self.values[1] / self.values[0] if len(self.values) > 1 else 4.0
        if upward:
            further = [self.values[-1] * ratio ** (place + 1) for place in range(count)]
        else:
            further = [self.values[0] / ratio ** (place + 1) for place in reversed(range(count))]
        return self._replace(values=tuple(value for value in further if self.limits.admits(value)))


class Trial(NamedTuple):
    """A point, the score that it reached (larger is better; minus infinity: none) and what that took."""

    point: Point
    score: float
    cost: float = 0.0


Try = Callable[[Sequence[Point]], Sequence[tuple[float, float]]]  # points -> (score, cost) of each


def grid(axes: Sequence[Axis]) -> list[Point]:
    """Every combination of the axes' values; one empty point without an axis."""
    names = [axis.name for axis in axes]
    return [dict(zip(names, values)) for values in itertools.product(*(axis.values for axis in axes))]


def search(axes: Sequence[Axis], attempt: Try) -> list[Trial]:
    """All points that were tried, in the order they were: the grid, then wider ones on the side of the best point."""

    def attempted(points: Sequence[Point]) -> list[Trial]:
        return [Trial(point, *found) for point, found in zip(points, attempt(points))] if points else []

    trials, tried = attempted(grid(axes)), list(axes)
    for _ in range(WIDENINGS):
        before = best_of(trials)
        wider = _wider(tried, before, [len(axis.values) for axis in axes])
        if wider is None:
            break
        place, beyond = wider
        trials += attempted(grid([*tried[:place], beyond, *tried[place + 1 :]]))
        tried[place] = beyond._replace(values=tuple(sorted({*tried[place].values, *beyond.values})))
        # a flat score keeps the best at the edge for ever: the search would widen as often as it may
        if not worth_it(before.score, best_of(trials).score):
            break
    return trials + attempted(_closer(tried, best_of(trials)))


def _closer(axes: Sequence[Axis], best: Trial) -> list[Point]:
    """Points around the best one, along each axis that asks for it."""
    if math.isinf(best.score):
        return []
    around = {axis.name: axis.around(best.point[axis.name]) for axis in axes if axis.refines}
    return [best.point | {name: value} for name, values in around.items() for value in values]


def best_of(trials: Sequence[Trial]) -> Trial:
    """The cheapest of the trials that are as good as the best, but for a part of its score that is not worth it."""
    best = max(trials, key=lambda trial: trial.score)
    # scores differ in the last digits by rounding alone; without a tolerance the dearest of equals could win
    as_good = [trial for trial in trials if trial is best or not worth_it(trial.score, best.score)]
    return min(as_good, key=lambda trial: trial.cost)


def worth_it(before: float, after: float) -> bool:
    """Whether a score got better by more than a part of it; from nothing to anything it does."""
    return math.isinf(before) or after - before > WORTH * abs(before)


def _wider(axes: Sequence[Axis], best: Trial, counts: Sequence[int]) -> tuple[int, Axis] | None:
    """(place, new values) of the first axis at whose edge the best point stands; None where it stands inside.

    As many values as the axis had at first, so that as many lanes train. Where every point failed, the first axis, the
    step size, goes down.
    """
    for place, (axis, count) in enumerate(zip(axes, counts)):
        value, failed = best.point[axis.name], math.isinf(best.score)
        at_edge = len(axis.values) > 1 and value in (axis.values[0], axis.values[-1])  # one value was chosen elsewhere
        if axis.widens and (failed or at_edge):
            beyond = axis.beyond(not failed and value == axis.values[-1], count)
            if beyond.values:
                return place, beyond
    return None
