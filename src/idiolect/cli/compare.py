# SPDX-License-Identifier: Apache-2.0
"""`idiolect compare TABLE --client COLUMN --target COLUMN`: the one question, answered on the user's own table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.data_options import (
    Categorical,
    Drop,
    Features,
    Group,
    SplitColumn,
    Task,
    Time,
    Weight,
    data_table,
)
from idiolect.cli.options import (
    AsFormat,
    Details,
    Format,
    Out,
    Plugins,
    Quiet,
    Resume,
    Seeds,
    Set,
    free_folder,
    imports_own_code,
    parse_seeds,
)


@imports_own_code
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
    weight: Weight = None,
    task: Task = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, comma-separated (`idiolect list algorithms`), or all. Default: seven.")
    ] = None,
    score: Annotated[
        str | None, typer.Option(help="Score to show (`idiolect list scores`). Default: by task and balance.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="linear or mlp; with --data images or texts also a network (`idiolect list models`).")
    ] = "linear",
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of every method. Default: until validation rows show no more progress.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time for all methods together; one that it cuts short is marked.")
    ] = None,
    cohort: Annotated[int, typer.Option(help="Clients per round; 0: all.")] = 0,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows per local step; 0: all. Default: all for a linear model, else 20.")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over a client's rows per round. Default: 5 for a linear model, else 1."),
    ] = None,
    step_sizes: Annotated[
        str | None,
        typer.Option(help="Step sizes to choose from on validation rows. Default: around those that theory knows."),
    ] = None,
    refit: Annotated[
        bool, typer.Option(help="Fit the delivered models on training and validation rows with what was chosen.")
    ] = True,
    held_out: Annotated[float, typer.Option(help="Clients that never train: a number, or a fraction below 1.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Draws the split and the training. Default: 0.")] = None,
    seeds: Seeds = None,
    splits: Annotated[
        int, typer.Option(help="Repeat all on so many random splits of the rows; answers are means over splits.")
    ] = 1,
    name: Annotated[str | None, typer.Option(help="Name of the run folder under runs/.")] = None,
    out: Out = None,
    override: Set = None,
    resume: Resume = False,
    plugins: Plugins = None,
    as_format: AsFormat = Format.text,
    details: Details = False,
    quiet: Quiet = False,
) -> None:
    """Train alone, share one model, or personalize? Trains the candidates side by side and answers per client."""
    from idiolect.cli.option_names import in_options
    from idiolect.cli.splits import split_and_show
    from idiolect.cli.training import train_and_show
    from idiolect.experiments import spec as specs
    from idiolect.experiments.candidates import check_epochs, check_methods, check_step_sizes, comparison
    from idiolect.experiments.splits import check_splits

    label = name or (table.stem if table else data or "compare")
    rows = data_table(
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
        weight=weight,
        task=task,
    )
    spec = comparison(
        rows,
        model=model,
        methods=check_methods(methods),
        rounds=rounds,
        minutes=minutes,
        cohort=cohort,
        batch_size=batch_size,
        epochs=check_epochs(epochs),
        step_sizes=check_step_sizes(None if step_sizes is None else _floats(step_sizes)),
        refit=refit,
        score=score,
        seed=seed,
        held_out=held_out,
    )
    spec["name"] = label
    if seeds is not None:
        spec["seeds"] = parse_seeds(seeds)
    with in_options(override or []):
        wanted = specs.from_table(specs.override(spec, override or []))
        check_splits(wanted, splits)
        folder = out or (Path("runs") / label if resume else free_folder(Path("runs") / label))
        if splits > 1:
            split_and_show(wanted, folder, splits, resume, as_format, quiet)
            return
        train_and_show(wanted, folder, resume, as_format, quiet, exploring=True, details=details)


def _floats(text: str) -> list[float]:
    from idiolect.core.checks import RequestError

    try:
        sizes = [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"--step-sizes needs numbers such as 0.01,0.1,1, got {text!r}.") from None
    return sizes
