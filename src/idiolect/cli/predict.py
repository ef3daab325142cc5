# SPDX-License-Identifier: Apache-2.0
"""`idiolect predict RUN TABLE`."""

from __future__ import annotations

import enum
import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from idiolect.cli.options import Plugins, Printing, command
from idiolect.cli.output import Format, put
from idiolect.record.errors import RequestError


class Model(enum.StrEnum):
    """Whose model answers."""

    auto = "auto"
    personal = "personal"
    shared = "shared"


@command
def predict(
    run: Annotated[Path, typer.Argument(help="A finished folder of compare, run, sweep or dial, on a table.")],
    table: Annotated[Path, typer.Argument(help="New rows: a CSV, Parquet or Feather file with the run's columns.")],
    printing: Printing,
    method: str | None = typer.Option(
        None, help="Method of the run; default: the one it announced, chosen on validation rows."
    ),
    seed: int | None = typer.Option(None, help="Seed of the run; default: its first."),
    model: Model = typer.Option(
        Model.auto,
        help="personal: each client's own, new clients are refused. shared: one model for all rows. auto: a client's "
        "own where the run kept it, otherwise the shared one.",
    ),
    strict: bool = typer.Option(
        False, "--strict", help="Refuse rows that would bring a warning: new clients, unseen values."
    ),
    trust: list[str] | None = typer.Option(
        None, help="Import this 'package.module:name' of the run; otherwise no code is imported."
    ),
    plugins: Plugins = None,
    out: Path | None = typer.Option(None, help="Write the answers to this .csv or .parquet file."),
) -> None:
    """Predict new rows with a run's models: each client's own where it was kept, otherwise the shared one."""
    from idiolect.core.importing import own_code
    from idiolect.experiments.compilation import enable_cache
    from idiolect.experiments.predict import check_out, write_answers
    from idiolect.experiments.predict import predict as answer
    from idiolect.record.words import counted

    if out is not None:
        check_out(out)
        if printing.as_format is not Format.text:
            raise RequestError(
                f"--format {printing.as_format} prints the answers, and --out {out} writes a file; leave one of them "
                "out."
            )
    enable_cache(printing.say)
    # a date goes into JSON and Parquet as one, into text as it was written
    as_json = printing.as_format is Format.json
    as_csv = not as_json if out is None else out.suffix == ".csv"
    options: dict[str, Any] = {"model": model.value, "strict": strict, "as_written": as_csv, "trust": trust or ()}
    with own_code(plugins, only=trust or ()):
        answers = answer(run, table, method, seed, **options, say=printing.say)
    if out is not None:
        write_answers(answers, out)
        printing.say(f"{counted(answers.num_rows, 'row')} answered in {out}.")
    elif as_json:
        put(printing.as_format, str, answers.to_pylist)
    else:
        _print_table(answers)  # a table is one in text and in CSV alike


def _print_table(answers: Any) -> None:
    """CSV: the bytes as they are for a file or a program, what can be seen of them for a terminal."""
    from idiolect.experiments.predict import print_answers

    if not sys.stdout.isatty():
        print_answers(answers, sys.stdout.buffer)
        return
    content = io.BytesIO()
    print_answers(answers, content)
    sys.stdout.write(content.getvalue().decode(errors="backslashreplace"))
