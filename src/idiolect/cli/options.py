# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, so that they read and behave alike."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer


class Format(enum.StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


def _out(default: str) -> Any:
    return typer.Option("--out", help=f"Folder to write. Default: {default}.")


Out = Annotated[Path | None, _out("runs/NAME")]
SweepOut = Annotated[Path | None, _out("runs/NAME-sweep")]
DialOut = Annotated[Path | None, _out("runs/NAME-dial")]
AdviseOut = Annotated[Path | None, _out("runs/NAME-advise, or the first free one of ...-2, ...-3")]
ReproduceOut = Annotated[Path | None, _out("runs/SLUG, or the first free one of ...-2, ...-3")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override the spec, as TOML: 'training.rounds = 50'.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder, bit for bit.")]
Plugins = Annotated[
    Path | None,
    typer.Option("--plugins", help="Folder of your own modules that 'module:name' may name, besides installed ones."),
]
AsFormat = Annotated[Format, typer.Option("--format", help="Print text or JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks on standard error.")]
Details = Annotated[
    bool,
    typer.Option(
        "--details", help="Also bytes each way, gradients by block, before and after adaptation, and what theory chose."
    ),
]
Seeds = Annotated[str | None, typer.Option("--seeds", help="Seeds such as 0,1,2 or 0-9.")]


def imports_own_code(command: Callable[..., None]) -> Callable[..., None]:
    """A command that may import what a spec names, from installed packages and from its option `plugins`."""

    @functools.wraps(command)
    def allowed(*, plugins: Path | None, **given: Any) -> None:
        from idiolect.core.importing import own_code

        with own_code(plugins):
            command(plugins=plugins, **given)

    return allowed


def parse_seeds(text: str) -> list[int]:
    """'0,1,5-7' as numbers."""
    import re

    from idiolect.core.checks import RequestError
    from idiolect.experiments.spec import check_seeds

    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise RequestError(f"--seeds needs numbers such as 0,1,2 or 0-9, got {text!r}.")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last - first > 10_000:
            raise RequestError(f"--seeds {text!r} names more than 10000 seeds; use fewer.")
        seeds += range(first, last + 1)
    return list(check_seeds(seeds, "--seeds"))


def free_folder(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, ... that holds nothing: repeating loses nothing."""
    number, free = 2, folder
    while free.exists():
        number, free = number + 1, folder.with_name(f"{folder.name}-{number}")
    return free
