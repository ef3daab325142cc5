# SPDX-License-Identifier: Apache-2.0
"""`idiolect run SPEC.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Format, Out, Quiet, Resume, Set


def run(
    spec: Annotated[Path, typer.Argument(help="A spec file, or a run folder together with --resume.")],
    out: Out = None,
    override: Set = None,
    resume: Resume = False,
    as_format: AsFormat = Format.text,
    quiet: Quiet = False,
) -> None:
    """Train what a spec describes and leave a complete run folder."""
    from idiolect.cli.training import train_and_show
    from idiolect.experiments import spec as specs

    folder = spec if spec.is_dir() else out
    if resume and folder is not None and (folder / "spec.toml").is_file():
        spec = folder / "spec.toml"  # the resolved spec: the same executor, chunk and block as before
    elif spec.is_dir():
        spec = spec / "spec.toml"
    loaded = specs.load(spec, override or [])
    if resume and folder is None and (Path("runs") / loaded.name / "spec.toml").is_file():
        folder = Path("runs") / loaded.name
        loaded = specs.load(folder / "spec.toml", override or [])
    train_and_show(loaded, folder, resume, as_format, quiet)
