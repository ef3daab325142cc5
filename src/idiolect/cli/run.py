# SPDX-License-Identifier: Apache-2.0
"""`idiolect run SPEC.toml`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Details, Format, Out, Plugins, Quiet, Resume, Set, imports_own_code


@imports_own_code
def run(
    spec: Annotated[Path, typer.Argument(help="A spec file, or a run folder with --resume or a new --out.")],
    out: Out = None,
    override: Set = None,
    resume: Resume = False,
    plugins: Plugins = None,
    as_format: AsFormat = Format.text,
    details: Details = False,
    quiet: Quiet = False,
) -> None:
    """Train what a spec describes and leave a complete run folder."""
    from idiolect.cli.splits import split_and_show
    from idiolect.cli.training import train_and_show
    from idiolect.experiments import spec as specs
    from idiolect.experiments.splits import asked_splits

    splits, repeats = asked_splits(spec), None
    if spec.is_dir():  # a run's resolved spec: the same choices, executor, chunk and block as before
        repeats = None if resume or out is None else spec
        out = out or spec
        spec = spec / "spec.toml"
    wanted = specs.load(spec, override or [])
    if override and not resume and not specs.is_same_run(specs.load(spec), wanted):  # it was chosen for another run
        wanted = dataclasses.replace(wanted, resolved={})
    if splits is not None and out is not None:
        split_and_show(wanted, out, splits, resume, as_format, quiet)
        return
    train_and_show(wanted, out, resume, as_format, quiet, details=details, repeats=repeats)
