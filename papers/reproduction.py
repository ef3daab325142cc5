# SPDX-License-Identifier: Apache-2.0
"""What a reproduction is: a spec to numbers, and numbers to a figure. `papers.runner` compares and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from idiolect import RequestError
from idiolect.core.checks import nearest

Spec = Mapping[str, Any]  # a parsed spec.toml
Progress = Callable[[str, int, int], None]  # what is measured, parts done, parts in all


class Measured(NamedTuple):
    """What measuring brings: named numbers, to be held against expected.toml, and what the figure shows."""

    numbers: dict[str, float]
    curves: Any
    table: str = ""  # further numbers with their intervals, printed above the comparison


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """One published result: where it stands, how it is measured and how it is drawn."""

    title: str
    paper: str
    shows: str  # the figure, table or theorem
    measure: Callable[..., Measured]  # takes Spec and Progress, and Cells where it is made of them
    draw: Callable[[Spec, Any], Figure]  # takes Measured.curves
    check: Callable[[Spec], None] | None = None  # refuses a request before anything is written
    in_cells: bool = False  # whether it is made of cells, so that a command that was cut off can go on


def count_parts(progress: Progress, total: int, label: str = "") -> Callable[..., None]:
    """A function that reports one more of `total` parts done at each call, under this label or its own."""
    done = iter(range(1, total + 1))
    return lambda own=label: progress(own, next(done), total)


def chosen_size(spec: Spec, slug: str) -> Mapping[str, Any]:
    """The settings of the size that the spec names."""
    sizes = [key for key, value in spec.items() if isinstance(value, Mapping)]
    if spec["size"] not in sizes:
        raise RequestError(f"[{slug}] There is no size {spec['size']!r}.{nearest(spec['size'], sizes)}")
    return spec[spec["size"]]
