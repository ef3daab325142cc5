# SPDX-License-Identifier: Apache-2.0
"""`idiolect verify RUN`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Format


def verify(
    run: Annotated[Path, typer.Argument(help="A finished folder of any command.")],
    as_format: AsFormat = Format.text,
) -> None:
    """Check every file of a finished folder against its manifest: says which are damaged, missing or extra."""
    from idiolect.record.errors import RequestError
    from idiolect.record.manifest import DONE, PAGE, find_problems, read_manifest

    if not run.is_dir():
        raise RequestError(f"There is no folder {run}; give the path of a finished run, such as runs/NAME.")
    if not (run / DONE).is_file():
        raise RequestError(f"The folder {run} holds no finished run: it has no file {DONE!r}; finish it with --resume.")
    problems = find_problems(run)
    if as_format is Format.json:
        listed = {kind: [one.file for one in problems if one.kind == kind] for kind in ("damaged", "missing", "extra")}
        typer.echo(json.dumps({"folder": str(run), "sound": not problems} | listed))
    else:
        for one in problems:
            page = any(part in PAGE for part in Path(one.file).parts)
            typer.echo(f"{one.kind:8} {one.file}" + ("    (`idiolect report` builds it again)" if page else ""))
        count = len(read_manifest(run) or {})
        found = "1 problem." if len(problems) == 1 else f"{len(problems)} problems."
        typer.echo(found if problems else f"All {count} files are as the run wrote them.")
    if problems:
        raise typer.Exit(1)
