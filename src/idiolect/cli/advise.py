# SPDX-License-Identifier: Apache-2.0
"""`idiolect advise TABLE --client COLUMN --target COLUMN`: who should learn with whom, client by client."""

from __future__ import annotations

from pathlib import Path

import typer

from idiolect.cli.bar import Bar
from idiolect.cli.data_options import EqualRows
from idiolect.cli.options import Seed, Table, Writing, command, free_folder, in_options, parse_seeds
from idiolect.cli.training import show


@command
def advise(
    columns: EqualRows,
    writing: Writing,
    table: Table = None,
    verify: bool = typer.Option(False, "--verify", help="Train all three ways and judge the advice on test rows."),
    details: bool = typer.Option(False, "--details", help="Print every client and the numbers for specialists."),
    seed: Seed = None,
    seeds: str | None = typer.Option(None, help="Splits such as 0,1,2 or 0-9 to verify on. Default: --seed."),
) -> None:
    """Train alone, join all clients, or join these neighbours? Measures the clients and advises each of them."""
    from idiolect.experiments import spec as specs
    from idiolect.experiments.advise import advise_on

    name = table.stem if table else columns.data or "advise"
    drawn = {} if seed is None else {"seed": seed}
    spec = specs.override({"data": columns.data_table("advise", table) | drawn}, writing.overrides)
    usual = writing.out or Path("runs") / f"{name}-advise"
    folder = writing.out or free_folder(usual)
    splits = None if seeds is None else parse_seeds(seeds)
    with in_options(writing.overrides), Bar(writing.quiet) as bar:
        advise_on(spec, folder, name=name, verify=verify, seeds=splits, progress=bar.update, say=bar.remark)
    show(folder, writing, details, usual)
