# SPDX-License-Identifier: Apache-2.0
"""`idiolect predict RUN TABLE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.options import AsFormat, Format


def predict(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    table: Annotated[Path, typer.Argument(help="New rows: a CSV, Parquet or Feather file with the run's columns.")],
    method: Annotated[str | None, typer.Option(help="Method of the run; needed when it has several.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run; default: its first.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the answers to this .csv or .parquet file.")] = None,
    as_format: AsFormat = Format.text,
) -> None:
    """Predict new rows with a run's models: each client's own where it was kept, otherwise the shared one."""
    from idiolect.experiments.predict import predict as answer
    from idiolect.experiments.predict import write_answers

    answers = answer(run, table, method, seed)
    if out is not None:
        write_answers(answers, out)
        typer.echo(f"{answers.num_rows} rows answered in {out}.", err=True)
    elif as_format is Format.json:
        typer.echo(json.dumps(answers.to_pylist(), default=str))
    else:
        import sys

        from pyarrow import csv

        csv.write_csv(answers, sys.stdout.buffer)
