# SPDX-License-Identifier: Apache-2.0
"""`idiolect verify RUN`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Format
from idiolect.record.errors import RequestError
from idiolect.record.manifest import DONE, KINDS, PAGE, Problem, find_problems, is_run_folder, read_manifest


def verify(
    run: Annotated[Path, typer.Argument(help="A finished folder of any command.")],
    as_format: AsFormat = Format.text,
) -> None:
    """Check every file of a finished folder against its manifest: says which are damaged, missing or extra."""
    _check_finished(run)
    problems = find_problems(run)
    if as_format is Format.json:
        listed = {kind: [one.file for one in problems if one.kind == kind] for kind in KINDS}
        typer.echo(json.dumps({"folder": str(run), "sound": not problems} | listed))
    else:
        _print_problems(problems)
        found = "1 problem." if len(problems) == 1 else f"{len(problems)} problems."
        typer.echo(found if problems else f"All {len(read_manifest(run) or {})} files are as the run wrote them.")
    if problems:
        raise typer.Exit(1)


def _print_problems(problems: list[Problem]) -> None:
    for one in problems:
        page = any(part in PAGE for part in Path(one.file).parts)
        typer.echo(f"{one.kind:8} {one.file}" + ("    (`idiolect report` builds it again)" if page else ""))


def _check_finished(folder: Path) -> None:
    if not folder.is_dir():
        raise RequestError(f"There is no folder {folder}; give the path of a finished run, such as runs/NAME.")
    if (folder / DONE).is_file():
        return
    if not is_run_folder(folder):
        raise RequestError(f"{folder} is no run folder: no command of idiolect wrote it; give one such as runs/NAME.")
    raise RequestError(f"The folder {folder} holds no finished run: it has no file {DONE!r}; finish it with --resume.")
