# SPDX-License-Identifier: Apache-2.0
"""A reproduced result: numbers.json, and curves.json with what its figure shows."""

from __future__ import annotations

import dataclasses

from idiolect.record.schema import SCHEMA, Numbers

NUMBERS, CURVES = "numbers.json", "curves.json"


@dataclasses.dataclass(frozen=True)
class Count:
    """Numbers of one origin: how many there are, hold, and miss as documented."""

    of: int
    hold: int
    miss: int


@dataclasses.dataclass(frozen=True)
class ReproducedNumber:
    """What was expected, what came out, and its verdict: `holds`, `misses` or `changed`."""

    name: str
    kind: str
    expected: float
    measured: float | None
    tolerance: float
    tolerance_kind: str
    origin: str
    verdict: str
    source: str
    because: str


@dataclasses.dataclass(frozen=True)
class Reproduced:
    """numbers.json."""

    slug: str
    title: str
    paper: str
    shows: str
    counts: dict[str, Count]
    changed: tuple[str, ...]
    left_out: tuple[str, ...]
    numbers: tuple[ReproducedNumber, ...]
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True)
class DrawnLine:
    """One line of a panel; `style` is that of the figure: bounds are dashed or dotted."""

    label: str
    colour: str
    style: str
    across: Numbers
    up: Numbers


@dataclasses.dataclass(frozen=True)
class DrawnPanel:
    """One panel of the figure."""

    title: str
    across: str  # what its axes show
    up: str
    across_log: bool
    up_log: bool
    lines: tuple[DrawnLine, ...]


@dataclasses.dataclass(frozen=True)
class DrawnCurves:
    """curves.json."""

    panels: tuple[DrawnPanel, ...]
    schema: int = SCHEMA
