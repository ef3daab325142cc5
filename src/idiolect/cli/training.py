# SPDX-License-Identifier: Apache-2.0
"""What commands do once they have a spec: train with a bar, then show what the folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from idiolect.cli import output
from idiolect.cli.bar import Bar
from idiolect.cli.live import often_kept, watched
from idiolect.cli.options import Printing, Running

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec


def train_and_show(
    spec: Spec,
    folder: Path,
    running: Running,
    exploring: bool = False,
    details: bool = False,
    theory: bool = True,
    repeats: Path | None = None,
    usual: Path | None = None,
    live: bool = False,
) -> None:
    """Run the spec into its folder, build the report, print the comparison; `live`: with its page served meanwhile.

    `repeats` is the folder of the run that the spec records; with `theory` it is said how theory chose settings. A
    method that diverged makes the run a miss (exit 1); while `exploring` settings only if all of them did.
    """
    from idiolect.core.checks import DivergedError
    from idiolect.experiments.execute import execute
    from idiolect.experiments.splits import refuse_splits

    use_cache(running.quiet)
    refuse_splits(folder)
    with watched(folder, live) as page:
        with Bar(running.quiet) as bar:
            ways: dict[str, Any] = {"resume": running.resume, "overall": bar.follow, "say": bar.remark}
            ways |= {"theory": theory, "repeats": repeats, "progress": page.update if page else None}
            done = execute(often_kept(spec) if live else spec, folder, **ways)
        show(folder, running, details, usual)
    lost = [f"{entry.method}: {entry.diverged}." for entry in done.summary.methods if entry.diverged]
    if lost and (not exploring or len(lost) == len(done.summary.methods)):
        raise DivergedError(f"{' '.join(lost)} Use a smaller step size.")


def split_and_show(spec: Spec, folder: Path, splits: int, running: Running, usual: Path | None = None) -> None:
    """Run the spec on every split and print the means over splits; Ctrl-C says how to go on."""
    from idiolect.core.checks import DivergedError
    from idiolect.experiments.splits import run_splits

    use_cache(running.quiet)
    with Bar(running.quiet) as bar:
        ways: dict[str, Any] = {"resume": running.resume, "overall": bar.follow, "say": bar.remark}
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
