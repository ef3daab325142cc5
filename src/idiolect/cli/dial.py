# SPDX-License-Identifier: Apache-2.0
"""`idiolect dial SPEC.toml --setting personalization --values 1,0.5,0.1,0`, or the same on a table."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    given_flags,
)
from idiolect.cli.options import (
    AsFormat,
    DialOut,
    Format,
    Plugins,
    Quiet,
    Resume,
    Seeds,
    Set,
    free_folder,
    imports_own_code,
    parse_seeds,
)
from idiolect.cli.output import remark

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec


@imports_own_code
def dial(
    source: Annotated[
        Path | None, typer.Argument(help="A spec (.toml), or a CSV, Parquet or Feather file, one row per example.")
    ] = None,
    setting: Annotated[
        str, typer.Option(help="personalization (alpha of flix) or penalty (lambda of mx2 and mt2).")
    ] = "personalization",
    values: Annotated[
        str | None,
        typer.Option(
            help="Values, in the order of the path. Default: 1,0.5,0.2,0.1,0, or for a penalty 30,5,1,0.2,0.03,0.003."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds for every value. Default: the spec's; for a table enough to converge.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="The spec's method to walk with; for a table an algorithm. Default: by setting.")
    ] = None,
    client: Annotated[str | None, typer.Option(help="Table: column that names the client.")] = None,
    target: Annotated[str | None, typer.Option(help="Table: column to predict.")] = None,
    data: Annotated[str | None, typer.Option(help="A known data set instead (`idiolect list data`).")] = None,
    features: Features = None,
    drop: Drop = None,
    categorical: Categorical = None,
    split_column: SplitColumn = None,
    group: Group = None,
    time: Time = None,
    weight: RefusedWeight = None,
    task: Task = None,
    l2: Annotated[
        float | None, typer.Option(help="Table or data set: weight of the ridge. Default: chosen on validation rows.")
    ] = None,
    refit: Annotated[
        bool, typer.Option(help="Train the models that are tested on training and validation rows, after the choice.")
    ] = True,
    seeds: Seeds = None,
    out: DialOut = None,
    override: Set = None,
    resume: Resume = False,
    plugins: Plugins = None,
    as_format: AsFormat = Format.text,
    quiet: Quiet = False,
) -> None:
    """Walk a personalization setting along one warm-started path: score and price of values, and who wants which."""
    from idiolect.cli.option_names import in_options
    from idiolect.cli.training import Bar
    from idiolect.experiments.compilation import enable_cache
    from idiolect.experiments.dial import parse_values, values_of, walk
    from idiolect.experiments.spec import check_seeds

    wanted = values_of(setting) if values is None else parse_values(values)
    remarks: list[str] = []
    reading = {
        "features": features,
        "drop": drop,
        "categorical": categorical,
        "split_column": split_column,
        "group": group,
        "time": time,
        "weight": weight,
        "task": task,
    }
    by_spec = source is not None and source.suffix == ".toml"
    if by_spec:
        assert source is not None
        spec, label = _from_spec(source, given_flags(client, target, data, **reading), override or []), method
    else:
        rows = data_table("dial", source, client, target, data, **reading)
        with in_options(override or []):
            spec, label = _from_data(source, rows, setting, method, l2, override or [], remarks), None
    if rounds is not None:
        spec = dataclasses.replace(spec, training=_training(spec, rounds))
    if seeds is not None:
        spec = dataclasses.replace(spec, seeds=tuple(check_seeds(parse_seeds(seeds))))
    enable_cache(None if quiet else remark)
    folder = out or Path("runs") / f"{spec.name}-dial"
    if out is None and not resume and (folder / "done").exists():
        folder = free_folder(folder)
    own_rounds = by_spec or rounds is not None or any("training.rounds" in text for text in override or [])
    named = in_options(override or [], {setting: "--values"}, ridge="" if l2 is None else "--l2")
    with named, Bar(quiet or not sys.stderr.isatty()) as bar:
        walk(
            spec,
            folder,
            setting,
            wanted,
            label=label,
            resume=resume,
            refit=refit,
            to_the_end=not own_rounds,
            by_loss=not by_spec,
            ridge_chosen=bool(remarks),
            remarks=remarks,
            progress=bar.update,
            say=None if quiet else bar.say,
        )
    show_dial(folder, as_format, quiet)


def show_dial(folder: Path, as_format: Format, quiet: bool) -> None:
    """Draw a finished dial's figure, build its page and print its tables."""
    from idiolect.record.codec import to_json
    from idiolect.report.choice import read_dial
    from idiolect.report.choice_table import choice_text
    from idiolect.report.dial_page import build_dial_report

    page, choice = build_dial_report(folder), read_dial(folder)
    if as_format is Format.json:
        files = {"folder": str(folder), "figure": str(folder / "figures" / "dial.png"), "report": str(page)}
        typer.echo(json.dumps(to_json(choice.found) | files))
        return
    typer.echo(choice_text(choice))
    if not quiet:
        typer.echo(f"Run folder: {folder}    Report: {page}")


def _training(spec: Spec, rounds: int) -> Any:
    # one record per stretch is enough to say where it ended; a spec may ask for more
    return dataclasses.replace(
        spec.training, rounds=rounds, record_every=min(spec.training.record_every, max(rounds, 1))
    )


def _from_spec(path: Path, given: dict[str, str], overrides: list[str]) -> Spec:
    from idiolect.core.checks import RequestError
    from idiolect.experiments import spec as specs

    for flag, value in given.items():
        raise RequestError(f"dial SPEC.toml takes its data from the spec, got {flag} {value}; leave it out.")
    return specs.load(path, overrides)


def _from_data(
    table: Path | None,
    data: dict[str, Any],
    setting: str,
    method: str | None,
    l2: float | None,
    overrides: list[str],
    remarks: list[str],
) -> Spec:
    from idiolect.experiments import spec as specs
    from idiolect.experiments.dial import METHODS, PLAIN_ROUNDS
    from idiolect.experiments.ridge import choose_ridge

    table_of: dict[str, Any] = {
        "name": table.stem if table else data["source"],
        "data": data,
        "model": {} if l2 is None else {"l2": l2},
        "training": {"rounds": PLAIN_ROUNDS},
        "methods": {method or METHODS.get(setting, "scafflix"): {}},
    }
    spec = specs.from_table(specs.override(table_of, overrides))
    if spec.model.l2 is not None:
        return spec
    ridge, sentence = choose_ridge(spec)
    remarks.append(sentence)
    return dataclasses.replace(spec, model=dataclasses.replace(spec.model, l2=ridge))
