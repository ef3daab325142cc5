# SPDX-License-Identifier: Apache-2.0
"""`idiolect compare TABLE --client COLUMN --target COLUMN`: the one question, answered on the user's own table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from idiolect.cli.data_options import (
    Categorical,
    Drop,
    Features,
    Group,
    SplitColumn,
    Task,
    Time,
    data_table,
)
from idiolect.cli.options import AsFormat, Format, Out, Quiet, Resume, Seeds, Set, parse_seeds

METHODS = "local,fedavg,fedavg_fine_tuning,personalized_local_sgd,fedprox,scaffold"


def compare(
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
    task: Task = None,
    methods: Annotated[str, typer.Option(help="Methods, comma-separated (`idiolect list algorithms`).")] = METHODS,
    model: Annotated[
        str, typer.Option(help="linear or mlp; with --data images or texts also a network (`idiolect list models`).")
    ] = "linear",
    rounds: Annotated[int, typer.Option(help="Exchanges between server and clients.")] = 100,
    cohort: Annotated[int, typer.Option(help="Clients per round; 0: all.")] = 0,
    batch_size: Annotated[int, typer.Option(help="Rows per local step; 0: all.")] = 20,
    epochs: Annotated[int, typer.Option(help="Passes over a client's rows per round.")] = 1,
    step_sizes: Annotated[
        str, typer.Option(help="Step sizes to choose from on validation rows; one number: no tuning.")
    ] = "0.01,0.03,0.1,0.3,1",
    held_out: Annotated[float, typer.Option(help="Clients that never train: a number, or a share below 1.")] = 0,
    seeds: Seeds = None,
    name: Annotated[str | None, typer.Option(help="Name of the run folder under runs/.")] = None,
    out: Out = None,
    override: Set = None,
    resume: Resume = False,
    as_format: AsFormat = Format.text,
    quiet: Quiet = False,
) -> None:
    """Train alone, share one model, or personalize? Trains the candidates side by side and answers per client."""
    from idiolect.cli.training import train_and_show
    from idiolect.experiments import spec as specs

    label = name or (table.stem if table else data or "compare")
    spec: dict[str, Any] = {
        "name": label,
        "data": data_table(
            "compare",
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
            task=task,
        )
        | ({"held_out": _number(held_out)} if held_out else {}),
        "model": {"name": model},
        "training": {"rounds": rounds, "cohort": cohort, "record_every": max(1, rounds // 20)},
        "defaults": {"batch_size": batch_size, "epochs": epochs},
        "methods": {method.strip(): {} for method in methods.split(",") if method.strip()},
    }
    sizes = _floats(step_sizes)
    if len(sizes) == 1:
        spec["defaults"]["step_size"] = sizes[0]
    else:
        spec["tuning"] = {"step_size": sizes}
    if seeds is not None:
        spec["seeds"] = parse_seeds(seeds)
    train_and_show(specs.from_table(specs.override(spec, override or [])), out, resume, as_format, quiet)


def _floats(text: str) -> list[float]:
    from idiolect.core.checks import RequestError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"--step-sizes needs numbers such as 0.01,0.1,1, got {text!r}.") from None


def _number(value: float) -> int | float:
    return int(value) if value >= 1 and value == int(value) else value
