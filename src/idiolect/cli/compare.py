# SPDX-License-Identifier: Apache-2.0
"""`idiolect compare TABLE --client COLUMN --target COLUMN`: the one question, answered on the user's own table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from idiolect.cli.data_options import Columns
from idiolect.cli.options import Details, Live, Running, Seed, Seeds, Table, command, free_folder, parse_seeds
from idiolect.record.errors import RequestError


@dataclasses.dataclass(frozen=True)
class Contest:
    """What is compared, and how it is trained: the arguments of `comparison` by their names."""

    methods: Annotated[
        str | None, typer.Option(help="Methods, comma-separated (`idiolect list algorithms`), or all. Default: seven.")
    ] = None
    score: Annotated[
        str | None, typer.Option(help="Score to show (`idiolect list scores`). Default: by task and balance.")
    ] = None
    model: Annotated[
        str, typer.Option(help="linear or mlp; with --data images or texts also a network (`idiolect list models`).")
    ] = "linear"
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of every method. Default: until validation rows show no more progress.")
    ] = None
    minutes: Annotated[
        float | None, typer.Option(help="Time for all methods together; one that it cuts short is marked.")
    ] = None
    cohort: Annotated[int, typer.Option(help="Clients per round; 0: all.")] = 0
    batch_size: Annotated[
        int | None, typer.Option(help="Rows per local step; 0: all. Default: all for a linear model, else 20.")
    ] = None
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over a client's rows per round. Default: 5 for a linear model, else 1."),
    ] = None
    step_sizes: Annotated[
        str | None,
        typer.Option(help="Step sizes to choose from on validation rows. Default: around those that theory knows."),
    ] = None
    refit: Annotated[
        bool, typer.Option(help="Fit the delivered models on training and validation rows with what was chosen.")
    ] = True
    held_out: Annotated[float, typer.Option(help="Clients that never train: a number, or a fraction below 1.")] = 0
    seed: Seed = None
    epsilon: Annotated[
        float | None, typer.Option(help="Compare under client-level differential privacy with this budget per method.")
    ] = None

    def spec(self, rows: dict[str, object], name: str) -> dict[str, object]:
        """The spec, as a table, of this comparison on `rows`, a spec's [data]."""
        from idiolect.experiments.candidates import check_epochs, check_methods, check_step_sizes, comparison

        check_methods(self.methods)
        check_epochs(self.epochs)
        sizes = check_step_sizes(None if self.step_sizes is None else _floats(self.step_sizes))
        return comparison(rows, **(vars(self) | {"step_sizes": sizes})) | {"name": name}


@command
def compare(
    columns: Columns,
    contest: Contest,
    running: Running,
    table: Table = None,
    seeds: Seeds = None,
    splits: Annotated[
        int, typer.Option(help="Repeat all on so many random splits of the rows; answers are means over splits.")
    ] = 1,
    name: Annotated[str | None, typer.Option(help="Name of the run folder under runs/.")] = None,
    details: Details = False,
    live: Live = False,
) -> None:
    """Train alone, share one model, or personalize? Trains the candidates side by side and answers per client."""
    from idiolect.cli.live import refuse_live
    from idiolect.cli.option_names import in_options
    from idiolect.cli.training import Request, split_and_show, train_and_show
    from idiolect.experiments import spec as specs
    from idiolect.experiments.splits import check_splits

    label = name or (table.stem if table else columns.data or "compare")
    spec = contest.spec(columns.data_table("compare", table), label)
    if seeds is not None:
        spec["seeds"] = parse_seeds(seeds)
    with in_options(running.overrides):
        wanted = specs.from_table(specs.override(spec, running.overrides))
        check_splits(wanted, splits)
        usual = running.out or Path("runs") / label
        folder = usual if running.out or running.resume else free_folder(usual)
        if splits > 1:
            refuse_live(live)
            split_and_show(wanted, folder, splits, running, usual)
        else:
            request = Request(exploring=True, details=details, theory=details, usual=usual, live=live)
            train_and_show(wanted, folder, running, request)


def _floats(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"--step-sizes needs numbers such as 0.01,0.1,1, got {text!r}.") from None
