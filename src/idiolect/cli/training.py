# SPDX-License-Identifier: Apache-2.0
"""What commands do once they have a spec: train with a bar, then show what the folder holds."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from idiolect.cli import output
from idiolect.cli.bar import Bar
from idiolect.cli.options import Printing, Running
from idiolect.record.errors import DivergedError, RequestError

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec
    from idiolect.report.live_server import LivePage

EVERY = 5  # rounds between checkpoints while a page follows them


class Request(NamedTuple):
    """What a command asks of one training beside its spec."""

    exploring: bool = False  # settings are tried out: the run is a miss only if all of them diverged
    details: bool = False
    theory: bool = True  # print how theory chose settings
    repeats: Path | None = None  # the folder of the run that the spec records
    usual: Path | None = None  # the folder that needs no naming, see `show`
    live: bool = False  # serve the page meanwhile


@contextlib.contextmanager
def watched(folder: Path, live: bool) -> Iterator[LivePage | None]:
    """Inside, the page of the run is served where it is asked for."""
    if not live:
        yield None
        return
    from idiolect.report.live_server import served

    with served(folder, output.remark) as page:
        yield page


def refuse_live(live: bool) -> None:
    """RequestError where a page is asked for that would follow several runs, or one of several hosts."""
    if live:
        raise RequestError("--live follows one run on one host, not --splits and not --hosts; leave one of them out.")


def train_and_show(spec: Spec, folder: Path, running: Running, request: Request) -> None:
    """Run the spec into its folder, build the report, print the comparison; exit 1 where a method diverged."""
    from idiolect.experiments.execute import execute

    use_cache(running.quiet)
    if request.live:
        # the live page reads the histories beside checkpoints; what decides the numbers is the same: a run with and one
        # without a page can resume one another
        every = min(spec.output.checkpoint_every, EVERY)
        spec = dataclasses.replace(spec, output=dataclasses.replace(spec.output, checkpoint_every=every))
    # the page is served before training begins and until the report is there: a reader sees both
    with watched(folder, request.live) as page:
        with Bar(running.quiet) as bar:
            ways: dict[str, Any] = {"resume": running.resume, "overall": bar.follow, "say": bar.remark}
            ways |= {"theory": request.theory, "repeats": request.repeats, "progress": page.update if page else None}
            done = execute(spec, folder, **ways)
        show(folder, running, request.details, request.usual)
    # the report comes first: what the other methods answer is worth having also where the command fails
    lost = [f"{entry.method}: {entry.diverged}." for entry in done.summary.methods if entry.diverged]
    if lost and (not request.exploring or len(lost) == len(done.summary.methods)):
        raise DivergedError(f"{' '.join(lost)} Use a smaller step size.")


def split_and_show(spec: Spec, folder: Path, splits: int, running: Running, usual: Path | None = None) -> None:
    """Run the spec on every split and print the means over splits; Ctrl-C says how to go on."""
    from idiolect.experiments.splits import run_splits

    use_cache(running.quiet)
    with Bar(running.quiet) as bar:
        ways: dict[str, Any] = {"resume": running.resume, "overall": bar.follow, "say": bar.remark}
        try:
            found = run_splits(spec, folder, splits, **ways, started=bar.next_split)
        except KeyboardInterrupt:
            # finished splits are kept whole; only the one at work goes back to its last checkpoint
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


def show(folder: Path, printing: Printing, details: bool = False, usual: Path | None = None) -> None:
    """Build the report of a finished folder and print what it says.

    A quiet command names its folder only where that is not the `usual` one, so that it could not be known.
    """
    from idiolect.report import report_on
    from idiolect.report.text import terminal_width

    found = report_on(folder)
    named = not printing.quiet or folder != (usual or folder)

    def text() -> str:
        where = f"\n\nRun folder: {folder}    Report: {found.page}" if named else ""
        return found.text(details, terminal_width()).rstrip("\n") + where

    output.put(printing.as_format, text, found.facts, found.rows)
