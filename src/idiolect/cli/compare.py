# SPDX-License-Identifier: Apache-2.0
"""`idiolect compare TABLE --client COLUMN --target COLUMN`: the one question, answered on the user's own table."""

from __future__ import annotations

from pathlib import Path

import typer

from idiolect.cli.data_options import Columns
from idiolect.cli.options import Details, Live, Running, Seeds, Table, command, free_folder, in_options, parse_seeds
from idiolect.cli.training import Request, refuse_live, split_and_show, train_and_show
from idiolect.experiments.contest import Contest


@command
def compare(
    columns: Columns,
    contest: Contest,
    running: Running,
    table: Table = None,
    seeds: Seeds = None,
    splits: int = typer.Option(
        1, help="Repeat all on so many random splits of the rows; answers are means over splits."
    ),
    name: str | None = typer.Option(None, help="Name of the run folder under runs/."),
    details: Details = False,
    live: Live = False,
) -> None:
    """Train alone, share one model, or personalize? Trains the candidates side by side and answers per client."""
    from idiolect.experiments import spec as specs
    from idiolect.experiments.candidates import comparison
    from idiolect.experiments.splits import check_splits

    label = name or (table.stem if table else columns.data or "compare")
    spec = comparison(columns.data_table("compare", table), contest) | {"name": label}
    if seeds is not None:
        spec["seeds"] = parse_seeds(seeds)
    # a spec refuses its own settings by their names; who gave options hears of the options
    with in_options(running.overrides):
        wanted = specs.from_table(specs.override(spec, running.overrides))
        check_splits(wanted, splits)
        usual = running.out or Path("runs") / label
        # a folder that was named is never left for another one: what is in it is refused, or gone on with
        folder = usual if running.out or running.resume else free_folder(usual)
        if splits > 1:
            refuse_live(live)
            split_and_show(wanted, folder, splits, running, usual)
        else:
            request = Request(exploring=True, details=details, theory=details, usual=usual, live=live)
            train_and_show(wanted, folder, running, request)
