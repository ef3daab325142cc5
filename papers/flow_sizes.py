# SPDX-License-Identifier: Apache-2.0
"""What a column of the tables of Flow 2023 may be told: types, ranges, and what must fit together."""

from __future__ import annotations

import dataclasses
from typing import Any

from idiolect import RequestError, Split
from idiolect.algorithms.flow import TOKEN_ROUTINGS
from idiolect.core import setting
from idiolect.core.checks import Range
from idiolect.engines.door import EXECUTORS
from idiolect.experiments.spec import MODEL_NAMES
from idiolect.experiments.strict import fill
from papers.problems import NATURAL

DEALT = ("fashion_mnist", "cifar10", "emnist")  # images that are dealt out


@dataclasses.dataclass(frozen=True)
class ColumnSize:
    """One data set with its network, the length of its runs, and the constants of the methods."""

    source: str = setting(default="", choices=(*NATURAL, *DEALT))
    clients: int = setting(default=0, at_least=2)
    held_out: int = setting(default=0, at_least=0)
    split: list[float] = dataclasses.field(default_factory=list, metadata={"range": Range(at_least=0)})
    rows: int | None = setting(default=None, at_least=1)  # of a client, where images are dealt out
    concentration: float | None = setting(default=None, above=0)
    relabelled: float = setting(default=0.0, at_least=0, at_most=1)  # of every client's rows, where they are dealt out
    merged: int = setting(default=1, at_least=1)  # natural clients that are one client here
    length: int | None = setting(default=None, at_least=1)  # of a text's rows
    model: str = setting(default="", choices=MODEL_NAMES)
    model_settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    rounds: int = setting(default=0, at_least=1)
    cohort: int = setting(default=0, at_least=1)
    gradients: int = setting(default=6, at_least=6)  # batches per client and round, where epochs is 0
    epochs: int = setting(default=0, at_least=0)  # passes over a client's rows per round
    strategy_steps: int = setting(default=1, at_least=1)  # of PartialFed's preferences, with epochs
    batch_size: int = setting(default=0, at_least=1)
    record_every: int = setting(default=0, at_least=1)
    executor: str = setting(default="", choices=EXECUTORS)
    chunk: int = setting(default=0, at_least=0)
    routing_penalty: float = setting(default=0.0, at_least=0)
    routing_widths: list[int] = dataclasses.field(default_factory=list, metadata={"range": Range(at_least=1)})
    routed: str = ""
    token_routing: str = setting(default="states", choices=TOKEN_ROUTINGS)
    apfl_share: float = setting(default=0.0, at_least=0, at_most=1)
    penalty: float = setting(default=0.0, at_least=0)
    neighbours: int = setting(default=0, at_least=1)
    vote_share: float = setting(default=0.0, at_least=0, at_most=1)
    grid: list[float] = dataclasses.field(default_factory=list, metadata={"range": Range(above=0)})
    steps: dict[str, float] = dataclasses.field(default_factory=dict)
    only: list[str] = dataclasses.field(default_factory=list)  # rows that the column has; empty: all
    # rows with the first of the seeds alone, and how many
    first_seeds: dict[str, int] = dataclasses.field(default_factory=dict)


def check_column(table: Any, where: str) -> None:
    """RequestError for a column that no run could be made of; `where` is its place in the spec."""
    size = fill(ColumnSize, table, where)
    dealt = size.source in DEALT
    rules = {
        "gradients must be a multiple of 6, to be divided by 2 and by 3": size.gradients % 6 == 0,
        f"cohort must be at most clients, {size.clients}": size.cohort <= size.clients,
        "grid must have at least two different steps": len(set(size.grid)) > 1,
        "split must be three shares, of train, validation and test": len(size.split) == 3,
        "split must leave every part some rows": min(size.split, default=0) > 0,
        "chunk must be at least 1 with executor 'chunked'": size.executor != "chunked" or size.chunk > 0,
        "routing_widths must have at least one width": len(size.routing_widths) > 0,
        f"rows must be given where {size.source} is dealt out": not dealt or size.rows is not None,
        f"concentration must be given where {size.source} is dealt out": not dealt or size.concentration is not None,
        f"held_out must be 0 where {size.source} is dealt out": not dealt or size.held_out == 0,
        "first_seeds must be at least 1 of each row": all(seeds > 0 for seeds in size.first_seeds.values()),
        "length must be given for texts": size.source != "shakespeare" or size.length is not None,
    }
    for rule, holds in rules.items():
        if not holds:
            name = rule.split()[0]
            raise RequestError(f"{where}.{rule}, got {getattr(size, name)!r}.")
    train, validation, test = size.split
    Split(train, validation, test).check()
    for method, step in size.steps.items():
        if not step > 0:
            raise RequestError(f"{where}.steps must be above 0, got {step:g} for {method}; leave it out to choose one.")
