# SPDX-License-Identifier: Apache-2.0
"""`idiolect advise TABLE --client COLUMN --target COLUMN`: who should learn with whom, client by client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from idiolect.cli.data_options import (
    Categorical,
    Drop,
    Features,
    Group,
    RefusedWeight,
    SplitColumn,
    Task,
    Time,
    data_table,
)
from idiolect.cli.options import AdviseOut, AsFormat, Format, Quiet, Set, free_folder, parse_seeds


def advise(
    table: Annotated[Path | None, typer.Argument(help="A CSV, Parquet or Feather file, one row per example.")] = None,
    client: Annotated[str | None, typer.Option(help="Column that names the client.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    data: Annotated[str | None, typer.Option(help="A known data set instead (`idiolect list data`).")] = None,
    features: Features = None,
    drop: Drop = None,
    categorical: Categorical = None,
    split_column: SplitColumn = None,
    group: Group = None,
    time: Time = None,
    weight: RefusedWeight = None,
    task: Task = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Train all three ways and judge the advice on test rows.")
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Print every client and the numbers for specialists.")
    ] = False,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="Splits such as 0,1,2 or 0-9 to verify on. Default: data.seed, or 0.")
    ] = None,
    out: AdviseOut = None,
    override: Set = None,
    as_format: AsFormat = Format.text,
    quiet: Quiet = False,
) -> None:
    """Train alone, join everybody, or join these neighbours? Measures the clients and advises each of them."""
    from idiolect.cli.training import Bar
    from idiolect.experiments import spec as specs
    from idiolect.experiments.advise import advise_on

    name = table.stem if table else data or "advise"
    rows = data_table(
        "advise",
        table,
        client,
        target,
        data,
        features=features,
        drop=drop,
        categorical=categorical,
        split_column=split_column,
        group=group,
        time=time,
        weight=weight,
        task=task,
    )
    spec: dict[str, Any] = specs.override({"data": rows}, override or [])
    folder = out or free_folder(Path("runs") / f"{name}-advise")
    with Bar(quiet or not sys.stderr.isatty()) as bar:
        advise_on(
            spec,
            folder,
            name=name,
            verify=verify,
            seeds=None if seeds is None else parse_seeds(seeds),
            progress=bar.update,
            say=None if quiet else bar.say,
        )
    show_advice(folder, as_format, quiet, details)


def show_advice(folder: Path, as_format: Format, quiet: bool, details: bool = False) -> None:
    """Draw a finished advice's map, build its page and print what it says."""
    from idiolect.record.codec import to_json
    from idiolect.report.advise_page import build_advice_report
    from idiolect.report.advise_table import advice_text, read_advice

    page, found = build_advice_report(folder), read_advice(folder)
    if as_format is Format.json:
        files = {"folder": str(folder), "figure": str(folder / "figures" / "map.png"), "report": str(page)}
        typer.echo(json.dumps(to_json(found.found) | files))
        return
    typer.echo(advice_text(found, details))
    if not quiet:
        typer.echo(f"Folder: {folder}    Report: {page}")
