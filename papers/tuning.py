# SPDX-License-Identifier: Apache-2.0
"""How reproductions choose step sizes: on validation rows, by seeds of their own, among steps of one ratio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from papers.cells import Cell, Cells
from papers.lanes import Curves

EXTENSIONS = 2  # how often a grid of steps grows where its best stands at an edge
Named = Callable[[float, int], tuple[str, Mapping[str, Any]]]  # (step, seed) -> a cell's name, and what it is made of


def search(grid: Sequence[float], tried: Callable[[Sequence[float]], Mapping[float, float]]) -> tuple[float, str]:
    """The best of a grid, and where it stood; where it stands at an edge, as many steps again are tried beyond."""
    steps = sorted(float(step) for step in grid)
    ratio, found = steps[1] / steps[0], dict(tried(steps))
    for _ in range(EXTENSIONS):
        best = max(found, key=lambda step: found[step])
        if best not in (min(found), max(found)):
            break
        edge, way = (min(found), 1 / ratio) if best == min(found) else (max(found), ratio)
        found |= tried([float(f"{edge * way ** (place + 1):.2g}") for place in range(len(steps))])
    best = max(found, key=lambda step: found[step])
    place = "inside" if best not in (min(found), max(found)) else "at the edge of"
    return best, f"{place} {min(found):g} to {max(found):g}"


def try_steps(
    steps: Sequence[float],
    seeds: Sequence[int],
    cells: Cells,
    named: Named,
    run: Callable[[Sequence[float], int], Curves],
) -> dict[float, float]:
    """Validation accuracy after the last round with each step, mean over seeds; -1 if one of them diverges."""
    found: dict[tuple[float, int], Cell | None] = {}
    # one seed after another: all at once would need as many times the memory
    for seed in seeds:
        known = {step: named(step, seed) for step in steps}
        found |= {(step, seed): cells.find(*known[step]) for step in steps}
        if all(found[step, seed] for step in steps):
            continue
        curves = run(steps, seed)
        for step, last, diverged in zip(steps, curves.last("validation_personal_accuracy_mean"), curves.diverged):
            lost = diverged is not None or not np.isfinite(last)
            found[step, seed] = cells.keep(*known[step], {"validation": -1.0 if lost else float(last)})
    values = {step: [one["validation"] for pair, one in found.items() if one and pair[0] == step] for step in steps}
    return {step: min(own) if min(own) < 0 else float(np.mean(own)) for step, own in values.items()}
