# SPDX-License-Identifier: Apache-2.0
"""`idiolect dial SPEC.toml --setting personalization --values 1,0.5,0.1,0`, or the same on a table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from idiolect.cli.bar import Bar
from idiolect.cli.data_options import EqualRows, flag
from idiolect.cli.options import Running, Seed, Seeds, command, free_folder, in_options, parse_seeds
from idiolect.cli.training import show, use_cache
from idiolect.experiments.contest import option
from idiolect.record.errors import RequestError

if TYPE_CHECKING:
    from idiolect.experiments.spec import Spec


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Which setting is walked along, by which method."""

    setting: str = option("personalization (alpha of flix) or penalty (lambda of mx2 and mt2).", "personalization")
    values: str | None = option(
        "Values, in the order of the path. Default: 1,0.5,0.2,0.1,0, or for a penalty 30,5,1,0.2,0.03,0.003."
    )
    rounds: int | None = option("Rounds for every value. Default: the spec's; for a table enough to converge.")
    method: str | None = option("The spec's method to walk with; for a table an algorithm. Default: by setting.")
    l2: float | None = option("Table or data set: weight of the ridge. Default: chosen on validation rows.")
    seed: Seed = None


@command
def dial(
    way: Stretch,
    columns: EqualRows,
    running: Running,
    source: Path | None = typer.Argument(
        None, help="A spec (.toml), or a CSV, Parquet or Feather file, one row per example."
    ),
    refit: bool = typer.Option(
        True, help="Train the models that are tested on training and validation rows, after the choice."
    ),
    seeds: Seeds = None,
) -> None:
    """Walk a personalization setting along one warm-started path: score and price of values, and who wants which."""
    from idiolect.experiments.dial import parse_values, walk

    values = parse_values(way.values, way.setting)
    by_spec = source is not None and source.suffix == ".toml"
    spec, ridge = _read(source, columns, way, running.overrides)
    spec = _with_options(spec, way, seeds)
    use_cache(running.quiet)
    folder = usual = running.out or Path("runs") / f"{spec.name}-dial"
    if running.out is None and not running.resume and (usual / "done").exists():
        folder = free_folder(usual)  # a folder that was not named holds a finished path: a second call leaves it
    # where nobody said how many, every value gets as many as theory needs for its optimum
    own_rounds = by_spec or way.rounds is not None or any("training.rounds" in text for text in running.overrides)
    named = in_options(running.overrides, {way.setting: "--values"}, ridge=way.l2 is not None)
    with named, Bar(running.quiet) as bar:
        walk(
            spec,
            folder,
            way.setting,
            values,
            label=way.method if by_spec else None,
            resume=running.resume,
            refit=refit,
            to_the_end=not own_rounds,
            by_loss=not by_spec,
            ridge=ridge,
            progress=bar.update,
            say=bar.remark,
        )
    show(folder, running, usual=usual)


def _with_options(spec: Spec, way: Stretch, seeds: str | None) -> Spec:
    """The spec with the rounds and seeds that were asked for: an option of the command wins."""
    if way.rounds is not None:
        # one record per stretch is enough to say where it ended; a spec may ask for more
        every = min(spec.training.record_every, max(way.rounds, 1))
        training = dataclasses.replace(spec.training, rounds=way.rounds, record_every=every)
        spec = dataclasses.replace(spec, training=training)
    return spec if seeds is None else dataclasses.replace(spec, seeds=tuple(parse_seeds(seeds)))


def _read(source: Path | None, columns: EqualRows, way: Stretch, overrides: list[str]) -> tuple[Spec, str | None]:
    """The spec of a file, a table or a known data set, and for rows alone how their ridge was chosen."""
    from idiolect.experiments import spec as specs
    from idiolect.experiments.dial import METHODS, PLAIN_ROUNDS
    from idiolect.experiments.ridge import choose_ridge

    drawn = {} if way.seed is None else {"seed": way.seed}
    if source is not None and source.suffix == ".toml":
        for name, value in {**columns.given(), **drawn}.items():
            raise RequestError(f"dial SPEC.toml takes its data from the spec, got {flag(name)} {value}; leave it out.")
        return specs.load(source, overrides), None
    data = columns.data_table("dial", source)
    asked: dict[str, object] = {
        "name": source.stem if source else str(data["source"]),
        "data": {**data, **drawn},
        "seeds": [way.seed or 0],
        "model": {} if way.l2 is None else {"l2": way.l2},
        "training": {"rounds": PLAIN_ROUNDS},
        "methods": {way.method or METHODS.get(way.setting, "scafflix"): {}},
    }
    with in_options(overrides):
        spec = specs.from_table(specs.override(asked, overrides))
        if spec.model.l2 is not None:
            return spec, None
        # theory needs strongly convex losses, and a table brings none: a ridge makes them so
        ridge, sentence = choose_ridge(spec)
        return dataclasses.replace(spec, model=dataclasses.replace(spec.model, l2=ridge)), sentence
