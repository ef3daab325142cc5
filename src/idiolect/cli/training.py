# SPDX-License-Identifier: Apache-2.0
"""What commands do once they have a spec: train with a live bar, then show what the folder holds."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from idiolect.cli import output
from idiolect.cli.options import Printing, Running
from idiolect.record.errors import RequestError
from idiolect.visible import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from idiolect.experiments.spec import Spec

LIVE_EVERY = 5  # rounds between checkpoints while a page follows them


def train_and_show(
    spec: Spec,
    folder: Path,
    running: Running,
    exploring: bool = False,
    details: bool = True,
    repeats: Path | None = None,
    usual: Path | None = None,
    live: bool = False,
) -> None:
    """Run the spec into its folder, build the report, print the comparison; `live`: with its page served meanwhile.

    `repeats` is the folder of the run that the spec records. A method that diverged makes the run a miss (exit 1);
    while `exploring` settings only if all of them did.
    """
    from idiolect.core.checks import DivergedError
    from idiolect.experiments.execute import execute
    from idiolect.experiments.splits import refuse_splits

    use_cache(running.quiet)
    refuse_splits(folder)
    theory = details or not exploring
    with watched(folder, live) as watch:
        with Bar(running.quiet) as bar:
            ways: dict[str, Any] = {"resume": running.resume, "progress": watch(bar.update), "say": bar.remark}
            done = execute(often_kept(spec) if live else spec, folder, **ways, theory=theory, repeats=repeats)
        show(folder, running, details, usual)
    lost = [f"{entry.method}: {entry.diverged}." for entry in done.summary.methods if entry.diverged]
    if lost and (not exploring or len(lost) == len(done.summary.methods)):
        raise DivergedError(f"{' '.join(lost)} Use a smaller step size.")


Hear = Callable[[str, int, int], None]  # method label, rounds done, rounds in all


@contextlib.contextmanager
def watched(folder: Path, live: bool) -> Iterator[Callable[[Hear], Hear]]:
    """Inside, the page of the run is served where it is asked for; gives the way to tell it of progress, too."""
    if not live:
        yield lambda hear: hear
        return
    from idiolect.report.live_server import served

    with served(folder, output.remark) as page:

        def both(hear: Hear) -> Hear:
            def update(label: str, done: int, total: int) -> None:
                hear(label, done, total)
                page.update(label, done, total)

            return update

        yield both


def refuse_live(live: bool) -> None:
    """RequestError where a page is asked for that would follow several runs."""
    if live:
        raise RequestError("--live follows one run, and --splits makes several; leave one of them out.")


def often_kept(spec: Spec) -> Spec:
    """The spec with checkpoints every few rounds: the live page reads the histories beside them."""
    every = min(spec.output.checkpoint_every, LIVE_EVERY)
    return dataclasses.replace(spec, output=dataclasses.replace(spec.output, checkpoint_every=every))


def split_and_show(spec: Spec, folder: Path, splits: int, running: Running, usual: Path | None = None) -> None:
    """Run the spec on every split and print the means over splits; Ctrl-C says how to go on."""
    from idiolect.core.checks import DivergedError
    from idiolect.experiments.splits import run_splits

    use_cache(running.quiet)
    with Bar(running.quiet) as bar:
        ways: dict[str, Any] = {"resume": running.resume, "progress": bar.update, "say": bar.remark}
        try:
            found = run_splits(spec, folder, splits, **ways, started=bar.next_split)
        except KeyboardInterrupt:
            if bar.remark is not None:
                bar.remark(f"{len(list(folder.glob('split-*/done')))} of {splits} splits are finished in {folder}.")
            raise
    show(folder, running, usual=usual)
    if all(line.diverged == splits for line in found.methods):
        raise DivergedError("Every method diverged in every split. Use a smaller step size.")


def use_cache(quiet: bool) -> None:
    """Keep compiled programs between commands."""
    from idiolect.experiments.compilation import enable_cache

    enable_cache(None if quiet else output.remark)


def show(folder: Path, printing: Printing, details: bool = True, usual: Path | None = None) -> None:
    """Build the report of a finished folder and print what it says.

    A quiet command names its folder only where that is not the `usual` one, so that it could not be known.
    """
    from idiolect.report import report_on

    found = report_on(folder)
    if printing.as_json:
        typer.echo(json.dumps(found.facts()))
        return
    typer.echo(found.text(details))
    if not printing.quiet or folder != (usual or folder):
        typer.echo(f"Run folder: {folder}    Report: {found.page}")


class Bar:
    """A progress bar with the time left on standard error; silent where output is not a terminal."""

    def __init__(self, quiet: bool):
        self.remark: Callable[[str], None] | None = None if quiet else self.say
        self._silent = quiet or not sys.stderr.isatty()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._prefix = ""

    def __enter__(self) -> Bar:
        if not self._silent:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            label = TextColumn("{task.description:>32}", markup=False)
            columns = (label, BarColumn(), MofNCompleteColumn(), TextColumn("rounds"), TimeRemainingColumn())
            # what others print meanwhile stays with the guarded streams: through the bar it would pass as it is
            console = Console(file=output.terminal())
            self._progress = Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, label: str, done: int, total: int) -> None:
        """Move the bar of one method."""
        if self._progress is None:
            return
        if label not in self._tasks:
            self._tasks[label] = self._progress.add_task(one_line(f"{self._prefix}{label}"), total=total)
        self._progress.update(self._tasks[label], completed=done)

    def next_split(self, number: int, splits: int) -> None:
        """Begin with the bars of another split; those of the one before are taken away."""
        if self._progress is not None:
            for task in self._tasks.values():
                self._progress.remove_task(task)
        self._tasks, self._prefix = {}, f"split {number} of {splits}: "

    def say(self, text: str) -> None:
        """A remark above the bar, or on standard error where there is no terminal."""
        if self._progress is not None:
            self._progress.console.print(one_line(text), highlight=False, markup=False, soft_wrap=True)
        else:
            output.remark(text)
