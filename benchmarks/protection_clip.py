# SPDX-License-Identifier: Apache-2.0
"""What clipping costs without any noise, and epsilon with a clip that follows the norms; beside `protection`.

A fixed clip that does not suit the scale of a problem costs more than the noise: then a score against epsilon shows
the clip. The adaptive one is the same request for every data set, so that none is chosen by its scores.
"""

from __future__ import annotations

import importlib.util

from benchmarks.measure import Result
from benchmarks.protection import EPSILONS, METHODS, SETS, cell, score_of, scores_of, spec_of

CLIP = 0.5


def run(quick: bool) -> Result:
    """A row per data set and method."""
    if importlib.util.find_spec("dp_accounting") is None:
        epsilons: tuple[float, ...] = ()  # without the extra `privacy` nothing can be accounted
    else:
        epsilons = EPSILONS
    rounds, seeds = (4, (0,)) if quick else (40, (0, 1, 2))
    numbers: dict[str, dict[str, dict[str, float]]] = {}
    for source in ("heart_disease",) if quick else tuple(SETS):
        for method in ("fedavg",) if quick else METHODS:
            fixed = spec_of(source, method, rounds, seeds, privacy={"noise_multiplier": 0.0, "clip": CLIP})
            adaptive: list[dict[str, object]] = [{"noise_multiplier": 0.0}, *({"epsilon": one} for one in epsilons)]
            common = {"clip": CLIP, "clipping": "adaptive"}
            found = scores_of([spec_of(source, method, rounds, seeds, privacy=one | common) for one in adaptive])
            names = ["adaptive, no noise", *(f"adaptive, epsilon {one:g}" for one in epsilons)]
            numbers[f"{source} {method}"] = {"fixed, no noise": score_of(fixed)} | dict(zip(names, found))
    return Result(dict(numbers), text=table_text(numbers))


def table_text(numbers: dict[str, dict[str, dict[str, float]]]) -> str:
    """The table for the documentation."""
    columns = list(next(iter(numbers.values())))
    lines = ["| data, method | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row, found in numbers.items():
        lines.append(f"| {row} | " + " | ".join(cell(found[column], False) for column in columns) + " |")
    return "\n".join(lines)
