# SPDX-License-Identifier: Apache-2.0
"""`idiolect sweep SPEC.toml --over 'step_size = [0.1, 0.3]'`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import Details, Running, Seeds, command, parse_seeds
from idiolect.cli.training import Request, train_and_show


@command
def sweep(
    spec: Annotated[Path, typer.Argument(help="A spec file.")],
    running: Running,
    over: list[str] | None = typer.Option(None, help="TOML, repeatable: 'step_size = [0.1, 0.3]'."),
    seeds: Seeds = None,
    details: Details = False,
) -> None:
    """Train every combination of settings and seeds; those that differ in floats or seeds run as one program."""
    from idiolect.experiments import spec as specs
    from idiolect.experiments.sweeping import expand, parse_over

    loaded = specs.load(spec, running.overrides)
    if seeds is not None:
        loaded = dataclasses.replace(loaded, seeds=tuple(parse_seeds(seeds)))
    expanded = expand(loaded, parse_over(over or []))
    folder = running.out or Path("runs") / f"{loaded.name}-sweep"
    train_and_show(expanded, folder, running, Request(exploring=True, details=details))
