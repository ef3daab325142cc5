# SPDX-License-Identifier: Apache-2.0
"""Measured numbers against expected ones: a number that misses is an outcome, not an exception.

A number without an expectation, or an expectation without a number, is an error.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from idiolect import RequestError
from idiolect.core import setting
from idiolect.core.checks import nearest

KINDS = {"equal": "=", "at_most": "<=", "at_least": ">="}
ORIGINS = ("paper", "theory", "released", "independent", "regression")  # as the last line counts them
OUTCOMES = ("hold", "miss")


@dataclasses.dataclass(frozen=True)
class Expectation:
    """One line of expected.toml. A tolerance is `absolute` or `relative` to the value; bounds may do without.

    `origin` is who states the number (the paper, theory, the released code, an independent implementation, or our own
    earlier output), `source` the place. A claim that is known not to reproduce has the outcome "miss", and `because`.
    """

    name: str
    value: float
    source: str
    origin: str = setting(choices=ORIGINS)
    kind: str = setting("equal", choices=tuple(KINDS))
    absolute: float | None = setting(None, at_least=0)
    relative: float | None = setting(None, at_least=0)
    outcome: str = setting("hold", choices=OUTCOMES)
    because: str = ""
    size: str | None = None  # the only size of the experiment that has this number; unset: all

    def __post_init__(self) -> None:
        if (self.outcome == "miss") != bool(self.because):
            raise RequestError(f'Expectation {self.name!r} must have both outcome = "miss" and because, or neither.')

    @property
    def slack(self) -> float:
        """The tolerance as a distance."""
        return (self.absolute or 0.0) + (self.relative or 0.0) * abs(self.value)

    def admits(self, measured: float) -> bool:
        """Whether a measured number is as stated; one that is not finite never is."""
        if not math.isfinite(measured):
            return False
        above, below = measured <= self.value + self.slack, measured >= self.value - self.slack
        return {"equal": above and below, "at_most": above, "at_least": below}[self.kind]

    def belongs_to(self, spec: Mapping[str, Any]) -> bool:
        """Whether the number is one of the chosen size and, where only some columns or data sets are here, of one."""
        columns = spec.get("data", ()) if "size" in spec else ()
        return (
            self.size in (None, spec.get("size"))
            and (not columns or any(self.name.startswith(f"{column}_") for column in columns))
            and not any(self.name.startswith(f"{absent}_") for absent in spec.get("left_out", ()))
        )

    def verdict(self, measured: float) -> str:
        """`holds`, `misses` where that is documented, and `changed` for every other outcome."""
        if not math.isfinite(measured) or self.admits(measured) != (self.outcome == "hold"):
            return "changed"
        return {"hold": "holds", "miss": "misses"}[self.outcome]

    def judge(self, measured: float) -> Row:
        """The row of the table for a measured number."""
        relative = self.relative is not None
        return Row(
            name=self.name,
            kind=self.kind,
            expected=self.value,
            measured=measured,
            tolerance=(self.relative if relative else self.absolute) or 0.0,
            tolerance_kind="relative" if relative else "absolute",
            origin=self.origin,
            verdict=self.verdict(measured),
            source=self.source,
            because=self.because,
        )


@dataclasses.dataclass(frozen=True)
class Row:
    """One number: what was expected, what came out, and its verdict: `holds`, `misses` or `changed`."""

    name: str
    kind: str
    expected: float
    measured: float
    tolerance: float
    tolerance_kind: str  # absolute, relative
    origin: str
    verdict: str
    source: str
    because: str  # of a documented miss


def compare(slug: str, expected: Sequence[Expectation], measured: Mapping[str, float]) -> tuple[Row, ...]:
    """One row per number, in the order of expected.toml. Both sides must name exactly the same numbers."""
    names = [expectation.name for expectation in expected]
    stated = [(one.name, one.origin, one.kind) for one in expected]  # the paper may claim what theory knows better
    for name, origin, kind in stated:
        if stated.count((name, origin, kind)) > 1:
            raise RequestError(
                f"The expected.toml of {slug} must state a number once by each origin, got {name!r} twice from "
                f"{origin!r}; delete one."
            )
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
