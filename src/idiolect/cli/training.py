# SPDX-License-Identifier: Apache-2.0
"""What `run`, `compare` and `sweep` do once they have a spec: train with a live bar, then show the table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from idiolect.cli import output
from idiolect.cli.options import Format
from idiolect.visible import one_line

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec


def train_and_show(
    spec: Spec,
    out: Path | None,
    resume: bool,
    as_format: Format,
    quiet: bool,
    exploring: bool = False,
    details: bool = True,
    repeats: Path | None = None,
) -> None:
    """Run the spec into its folder, build the report, print the comparison.

    `repeats` is the folder of the run that the spec records. A method that diverged makes the run a miss (exit 1);
    while `exploring` settings only if all of them did.
    """
    from idiolect.core.checks import DivergedError
    from idiolect.experiments.compilation import enable_cache
    from idiolect.experiments.execute import execute
    from idiolect.experiments.splits import refuse_splits

    enable_cache(None if quiet else output.remark)
    folder = out or Path("runs") / spec.name
    refuse_splits(folder)
    with Bar(quiet or not sys.stderr.isatty()) as bar:
        remark = None if quiet else bar.say
        theory = details or not exploring
        done = execute(spec, folder, resume=resume, progress=bar.update, say=remark, theory=theory, repeats=repeats)
    show(folder, as_format, quiet, details)
    lost = [f"{entry.method}: {entry.diverged}." for entry in done.summary.methods if entry.diverged]
    if lost and (not exploring or len(lost) == len(done.summary.methods)):
        raise DivergedError(f"{' '.join(lost)} Use a smaller step size.")


def show(folder: Path, as_format: Format, quiet: bool, details: bool = True) -> None:
    """Build the report of a finished run and print its table."""
    from idiolect.record.codec import to_json
    from idiolect.report import build_report, comparison_table
    from idiolect.report.choice import read_choices
    from idiolect.report.choice_table import choice_text

    page = build_report(folder)
    table, choices = comparison_table(folder), read_choices(folder)
    if as_format is Format.json:
        files = {"folder": str(folder), "report": str(page)}
        chosen = {"choices": to_json([choice.found for choice in choices])} if choices else {}
        typer.echo(json.dumps(table.as_dict() | chosen | files))
        return
    typer.echo(table.to_text(details=details))
    for choice in choices:
        typer.echo(choice_text(choice))
    if not quiet:
        typer.echo(f"Run folder: {folder}    Report: {page}")


class Bar:
    """A progress bar with the time left on standard error; silent where nobody watches."""

    def __init__(self, silent: bool):
        self.silent = silent
        self._progress: Any = None
        self._tasks: dict[str, Any] = {}
        self._prefix = ""

    def __enter__(self) -> Bar:
        if not self.silent:
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
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks, self._prefix = {}, f"split {number} of {splits}: "

    def say(self, text: str) -> None:
        """A remark above the bar, or on standard error where there is no terminal."""
        if self._progress is not None:
            self._progress.console.print(one_line(text), highlight=False, markup=False, soft_wrap=True)
        else:
            output.remark(text)
