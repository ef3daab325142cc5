# SPDX-License-Identifier: Apache-2.0
"""`idiolect verify RUN`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat
from idiolect.cli.output import Format, put
from idiolect.record.errors import RequestError
from idiolect.record.manifest import DONE, KINDS, PAGE, Problem, find_problems, is_run_folder, read_manifest
from idiolect.record.words import counted


def verify(
    run: Annotated[Path, typer.Argument(help="A finished folder of any command.")],
    as_format: AsFormat = Format.text,
) -> None:
    """Check every file of a finished folder against its manifest: says which are damaged, missing or extra."""
    if not run.is_dir():
        raise RequestError(f"There is no folder {run}; give the path of a finished run, such as runs/NAME.")
    if not is_run_folder(run) and not (run / DONE).is_file():
        raise RequestError(f"{run} is no run folder: no command of idiolect wrote it; give one such as runs/NAME.")
    if not (run / DONE).is_file():
        raise RequestError(f"The folder {run} holds no finished run: it has no file {DONE!r}; finish it with --resume.")
    problems = find_problems(run)
    listed = {kind: [one.file for one in problems if one.kind == kind] for kind in KINDS}
    put(
        as_format,
        lambda: _text(run, problems),
        lambda: {"folder": str(run), "sound": not problems} | listed,
        lambda: [{"problem": one.kind, "file": one.file} for one in problems],
        ("problem", "file"),
    )
    if problems:
        raise typer.Exit(1)


def _text(run: Path, problems: list[Problem]) -> str:
    if not problems:
        return f"All {len(read_manifest(run) or {})} files are as the run wrote them."
    lines = []
    for one in problems:
        # what a report draws can be drawn again; what a run wrote cannot
        page = any(part in PAGE for part in Path(one.file).parts)
        lines.append(f"{one.kind:8} {one.file}{'    (`idiolect report` builds it again)' if page else ''}")
    return "\n".join([*lines, f"{counted(len(problems), 'problem')}."])
