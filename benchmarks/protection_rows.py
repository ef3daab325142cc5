# SPDX-License-Identifier: Apache-2.0
"""What hiding rows costs: scores of shared and of personal models against the epsilon of a client's rows.

Three data sets whose clients are real and whose inputs are scaled by public numbers alone: sensors of vehicles, people
who move, writers of digits. Every number is a score on test rows, or its difference to training alone over the same
clients: training alone sends nothing, so that it needs no noise. Cells are kept as they are measured.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Result
from benchmarks.protection import METHODS
from benchmarks.protection_attacks import Cell, paired, scores_of
from idiolect.experiments.spec import Spec, from_table

STORE = Path(__file__).parent / "results" / "protection-rows.json"
SETS: dict[str, dict[str, Any]] = {"vehicle": {}, "uci_har": {}, "mnist_writers": {"writers": 50}}
SCORE = "accuracy"
EPSILONS = (30.0, 10.0, 3.0, 1.0)
CLIP = 1.0
ROUNDS, STEPS, STEP_SIZE, SEEDS = 20, 2, 0.1, (0, 1, 2)


def parts(quick: bool) -> Iterator[Result]:
    """All cells so far, after each of them."""
    cells: dict[str, Cell] = {}
    if not quick and STORE.exists():
        cells = json.loads(STORE.read_text())["numbers"]
    for name, measure in plan(quick):
        if name not in cells:
            cells[name] = measure()
            yield Result(cells, text=table_text(cells))
    yield Result(cells, text=table_text(cells))


def plan(quick: bool) -> Iterator[tuple[str, Callable[[], Cell]]]:
    """Every cell by its name, and how it is measured."""
    for source in ("digits",) if quick else SETS:  # bundled
        for method in ("local", "fedavg") if quick else ("local", *METHODS):
            yield f"{source} {method} plain", lambda s=source, m=method: scores_of(spec_of(s, m, quick))
            if method != "local":
                yield f"{source} {method} epsilon", lambda s=source, m=method: hidden(s, m, quick)


def hidden(source: str, method: str, quick: bool) -> Cell:
    """Scores of every client at each epsilon, least hidden first."""
    rows = [{"level": "rows", "epsilon": one, "clip": CLIP} for one in EPSILONS]
    return scores_of(*(spec_of(source, method, quick, privacy=one) for one in rows))


def spec_of(source: str, method: str, quick: bool, **sections: dict[str, Any]) -> Spec:
    """The spec of one run: every step reads all rows of a client once."""
    settings = {"step_size": STEP_SIZE, "local_steps": STEPS, "batch_size": 0} | METHODS.get(method, {})
    rounds, seeds = (2, (0,)) if quick else (ROUNDS, SEEDS)
    return from_table({
        "name": "protection-rows",
        "seeds": list(seeds),
        "data": {"source": source, "settings": SETS.get(source, {})},
        "evaluation": {"scores": [SCORE]},
        "training": {"rounds": rounds, "record_every": rounds, "executor": "batched"},
        "methods": {method: settings},
        **sections,
    })  # fmt: skip


def table_text(cells: dict[str, Cell]) -> str:
    """The tables for the documentation, as far as their cells are measured."""
    heads = ["no noise", *(f"epsilon {one:g}" for one in EPSILONS)]
    titles = {
        "": "Accuracy of personal models",
        "local": "The same, less training alone",
        "fedavg": "The same, less one model for all at the same epsilon",
    }
    lines = []
    for other, title in titles.items():
        lines += [title, "", "| data, method | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for name in cells:
            source, method, kind = name.split(" ")
            if kind == "plain" and method != other and (method == "local") <= (not other):
                lines.append(f"| {source} {method} | " + " | ".join(_row(cells, source, method, other)) + " |")
        lines.append("")
    return "\n".join(lines)


def _row(cells: dict[str, Cell], source: str, method: str, other: str) -> list[str]:
    """Means by column, or mean differences to another method; training alone has one column for all."""
    own, base = (_columns(cells, source, name) for name in (method, other))
    if not other:
        return [f"{np.nanmean(scores):.3f}" for scores in own] + [""] * (len(EPSILONS) + 1 - len(own))
    differences = (paired(np.asarray(one), np.asarray(two)) for one, two in zip(own, itertools.cycle(base)))
    return [f"{mean:+.3f} ± {half:.3f}" for mean, half in differences]


def _columns(cells: dict[str, Cell], source: str, method: str) -> list[Sequence[float]]:
    plain, hidden = (cells.get(f"{source} {method} {kind}", {}).get("personal") for kind in ("plain", "epsilon"))
    return ([] if plain is None else [plain]) + list(hidden or [])
