# SPDX-License-Identifier: Apache-2.0
"""How far a command is, on standard error: a bar over all methods in a terminal, a short line per method elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from idiolect.cli import output
from idiolect.record.words import counted
from idiolect.visible import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from idiolect.experiments.work import Stage

LABEL = 24  # letters of what is under way
SURE = 0.02  # part of the work from which on the time left is worth a guess


class Bar:
    """One bar for everything that a command does, with the time that is left of all of it.

    Where standard error is no terminal, nothing moves: every method that is trained is one line.
    """

    def __init__(self, quiet: bool):
        self.remark: Callable[[str], None] | None = None if quiet else self.say
        self._quiet = quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._began = time.monotonic()
        self._split, self._splits = 1, 1
        self._trained: Stage | None = None  # in a pipe: what a line is due for

    def __enter__(self) -> Bar:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            label = TextColumn("{task.description}", markup=False)
            columns = (label, BarColumn(24), TaskProgressColumn(), TextColumn("{task.fields[left]}", markup=False))
            # what others print meanwhile stays with the guarded streams: through the bar it would pass as it is
            console = Console(file=output.terminal())
            self._progress = Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False)
            self._task = self._progress.add_task("starting", total=1.0, left="")
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._line(None)
        if self._progress is not None:
            self._progress.stop()

    def update(self, label: str, done: int, total: int) -> None:
        """Move the bar of a command that is one piece of work."""
        self._move(label, f"{done} of {total}", done / max(total, 1))

    def follow(self, stage: Stage) -> None:
        """Move the bar of a run of several methods."""
        # splits are taken for equally long: they train the same methods on as many rows
        overall = (self._split - 1 + stage.overall) / self._splits
        doing = "" if stage.trains else "choosing, "
        split = "" if self._splits == 1 else f"split {self._split}, "
        self._line(stage._replace(overall=overall))
        self._move(stage.method, f"{split}{doing}round {stage.rounds} of {stage.of}", overall)

    def next_split(self, number: int, splits: int) -> None:
        """All that follows is of another split."""
        self._line(None)
        self._split, self._splits = number, splits

    def say(self, text: str) -> None:
        """A remark above the bar, or on standard error where there is no terminal."""
        if self._progress is not None:
            self._progress.console.print(one_line(text), highlight=False, markup=False, soft_wrap=True)
        else:
            output.remark(text)

    def _move(self, label: str, standing: str, overall: float) -> None:
        if self._progress is not None and self._task is not None:
            from idiolect.report.wording import shortened

            words = f"{shortened(one_line(label), LABEL)}: {standing}"
            self._progress.update(self._task, description=words, completed=overall, left=self._left(overall))

    def _line(self, stage: Stage | None) -> None:
        """Print the line of a method whose training is over, and keep what the next one will be about."""
        # in a pipe nothing can be moved: a method's line is printed when the next one begins, with all of its rounds
        done, trained = self._trained, stage if stage is not None and stage.trains else None
        if done is not None and (trained is None or trained.method != done.method):
            split = "" if self._splits == 1 else f"split {self._split}: "
            left = self._left(done.overall)
            rounds, part = counted(done.rounds, "round"), f"{100 * done.overall:.0f} % of all"
            output.remark(f"{split}{done.method}: {rounds}; {part}{left and ', '}{left}.")
        self._trained = None if self._quiet or self._progress is not None else trained

    def _left(self, overall: float) -> str:
        """The time that is left, if it goes on as it did; nothing at the very start, where it would be a guess."""
        if not SURE <= overall < 1:
            return ""
        seconds = round((time.monotonic() - self._began) * (1 - overall) / overall)
        hours, minutes = divmod(seconds // 60, 60)
        return f"{hours}:{minutes:02d}:{seconds % 60:02d} left" if hours else f"{minutes}:{seconds % 60:02d} left"
