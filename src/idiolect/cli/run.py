# SPDX-License-Identifier: Apache-2.0
"""`idiolect run SPEC.toml`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import Details, Live, Running, command


@command
def run(
    spec: Annotated[Path, typer.Argument(help="A spec file, or a run folder with --resume or a new --out.")],
    running: Running,
    details: Details = False,
    live: Live = False,
) -> None:
    """Train what a spec describes and leave a complete run folder."""
    from idiolect.cli.live import refuse_live
    from idiolect.cli.training import split_and_show, train_and_show
    from idiolect.experiments import spec as specs
    from idiolect.experiments.splits import asked_splits

    splits, out, repeats = asked_splits(spec), running.out, None
    if spec.is_dir():  # a run's resolved spec: the same choices, executor, chunk and block as before
        repeats = None if running.resume or out is None else spec
        out, spec = out or spec, spec / "spec.toml"
    wanted = specs.load(spec, running.overrides)
    if running.override and not running.resume and not specs.is_same_run(specs.load(spec), wanted):
        wanted = dataclasses.replace(wanted, resolved={})  # it was chosen for another run
    if splits is not None and out is not None:
        refuse_live(live)
        split_and_show(wanted, out, splits, running)
    else:
        train_and_show(wanted, out or Path("runs") / wanted.name, running, details=details, repeats=repeats, live=live)
