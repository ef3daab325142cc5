# SPDX-License-Identifier: Apache-2.0
"""How much of a run is done, over all of its methods: the time that is left is reckoned from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Progress = Callable[[str, int, int], None]  # method label, rounds done, rounds in all
CHOOSING = 4.0  # trainings that the choice of a method's settings takes as long as, roughly


class Stage(NamedTuple):
    """Where a run stands: the method it is at, and how much of all its work is done."""

    method: str
    rounds: int  # done
    of: int  # rounds of this stage
    trains: bool  # False: settings of the method are being chosen
    overall: float  # part of all work that is done, 0 to 1


Overall = Callable[[Stage], None]


class Work:
    """Counts the stages of a run, which follow one another: choices of settings, and trainings of methods."""

    def __init__(self, progress: Progress | None, overall: Overall | None, methods: int, searched: int):
        self._progress, self._overall = progress, overall
        self._whole = methods + CHOOSING * searched
        self._before = self._now = 0.0

    def stage(self, method: str, trained: int) -> Callable[[int, int], None]:
        """Begin a stage: so many methods are trained in it, or with 0 the settings of one are chosen."""
        self._before, self._now = self._before + self._now, trained or CHOOSING
        label = method if trained else f"{method} (choosing)"

        def report(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress(label, done, total)
            if self._overall is not None:
                # at most all of it: a choice may take longer than was reckoned
                part = (self._before + self._now * done / max(total, 1)) / self._whole
                self._overall(Stage(method, done, total, trained > 0, min(part, 1.0)))

        return report
