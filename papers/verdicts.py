# SPDX-License-Identifier: Apache-2.0
"""Measured numbers against expected ones: a number that misses is an outcome, not an exception.

A number without an expectation, or an expectation without a number, is an error.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from idiolect import RequestError
from idiolect.core import setting
from idiolect.core.checks import nearest

KINDS = {"equal": "=", "at_most": "<=", "at_least": ">="}


@dataclasses.dataclass(frozen=True)
class Expectation:
    """One line of expected.toml. A tolerance is `absolute` or `relative` to the value; bounds may do without."""

    name: str
    value: float
    source: str
    kind: str = setting("equal", choices=tuple(KINDS))
    absolute: float | None = setting(None, at_least=0)
    relative: float | None = setting(None, at_least=0)
    size: str | None = None  # the only size of the experiment that has this number; unset: all

    @property
    def slack(self) -> float:
        """The tolerance as a distance."""
        return (self.absolute or 0.0) + (self.relative or 0.0) * abs(self.value)

    def admits(self, measured: float) -> bool:
        """Whether a measured number is as expected; one that is not finite never is."""
        if not math.isfinite(measured):
            return False
        above, below = measured <= self.value + self.slack, measured >= self.value - self.slack
        return {"equal": above and below, "at_most": above, "at_least": below}[self.kind]

    def belongs_to(self, spec: Mapping[str, Any]) -> bool:
        """Whether the number is one of the chosen size and, where only some columns of a table are computed, of one."""
        columns = spec.get("data", ()) if "size" in spec else ()
        return self.size in (None, spec.get("size")) and (
            not columns or any(self.name.startswith(f"{column}_") for column in columns)
        )

    def judge(self, measured: float) -> Row:
        """The row of the table for a measured number."""
        relative = self.relative is not None
        tolerance = (self.relative if relative else self.absolute) or 0.0
        verdict = "pass" if self.admits(measured) else "miss"
        kind = "relative" if relative else "absolute"
        return Row(self.name, self.kind, self.value, measured, tolerance, kind, verdict, self.source)


@dataclasses.dataclass(frozen=True)
class Row:
    """One number: what was expected, what came out, and whether that is a "pass" or a "miss"."""

    name: str
    kind: str
    expected: float
    measured: float
    tolerance: float
    tolerance_kind: str  # absolute, relative
    verdict: str
    source: str


def compare(slug: str, expected: Sequence[Expectation], measured: Mapping[str, float]) -> tuple[Row, ...]:
    """One row per number, in the order of expected.toml. Both sides must name exactly the same numbers."""
    names = [expectation.name for expectation in expected]
    for name in names:
        if names.count(name) > 1:
            raise RequestError(f"The expected.toml of {slug} must name a number once, got {name!r} twice; delete one.")
        if name not in measured:
            raise RequestError(
                f"{slug} expects {name!r}, which was not measured.{nearest(name, measured)} "
                "An override may have changed which numbers there are; leave it out."
            )
    for name in measured:
        if name not in names:
            raise RequestError(
                f"{slug} measured {name!r}, of which its expected.toml says nothing.{nearest(name, names)} "
                "Add an expectation, or leave out the override that made it."
            )
    return tuple(expectation.judge(float(measured[expectation.name])) for expectation in expected)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A finished reproduction."""

    slug: str
    title: str
    paper: str
    shows: str
    rows: tuple[Row, ...]
    folder: Path
    table: str = ""

    @property
    def passed(self) -> bool:
        """Whether every number is as expected."""
        return not self.misses

    @property
    def misses(self) -> tuple[Row, ...]:
        """The numbers that are not."""
        return tuple(row for row in self.rows if row.verdict != "pass")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        rows = [dataclasses.asdict(row) for row in self.rows]
        facts = {"slug": self.slug, "title": self.title, "paper": self.paper, "shows": self.shows}
        return facts | {"passed": self.passed, "numbers": rows}

    def to_text(self) -> str:
        """Expected, measured, tolerance and verdict, one line per number."""
        width = max(len(row.name) for row in self.rows)
        lines = [f"{self.title} ({self.paper}; {self.shows})", "", *([self.table, ""] if self.table else [])]
        lines.append(f"{'number':<{width}}     {'expected':>12} {'measured':>12} {'tolerance':>10}  verdict")
        for row in self.rows:
            numbers = f"{KINDS[row.kind]:>2} {row.expected:>12.7g} {row.measured:>12.7g} {row.tolerance:>10.2g}"
            lines.append(f"{row.name:<{width}}  {numbers}  {row.verdict}")
        passed = len(self.rows) - len(self.misses)
        return "\n".join([*lines, "", f"{passed} of {len(self.rows)} numbers as expected."])
