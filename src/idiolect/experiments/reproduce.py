# SPDX-License-Identifier: Apache-2.0
"""Reproduce a published result: measure, hold every number against what is expected, write a complete folder.

`papers/<slug>/spec.toml` defines the experiment, `expected.toml` what must come out. A number that misses is an
outcome, not an exception; a number without an expectation, or the reverse, is an error.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import tomli_w

from idiolect.core.checks import RequestError, nearest, setting
from idiolect.experiments.papers import REPRODUCTIONS, Reproduction
from idiolect.experiments.papers.cells import Cells
from idiolect.experiments.papers.drawing import drawing, to_bytes
from idiolect.experiments.run_folder import RunFolder, machine_facts
from idiolect.experiments.spec import override
from idiolect.experiments.strict import fill
from idiolect.record.files import make_writable
from idiolect.record.schema import SCHEMA

KINDS = ("equal", "at_most", "at_least")
Progress = Callable[[str, int, int], None]  # what is measured, parts done, parts in all


@dataclasses.dataclass(frozen=True)
class Expectation:
    """One line of expected.toml. A tolerance is `absolute` or `relative` to the value; bounds may do without."""

    name: str
    value: float
    source: str
    kind: str = setting("equal", choices=KINDS)
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
        return all(row.verdict == "pass" for row in self.rows)

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
        signs = {"equal": "=", "at_most": "<=", "at_least": ">="}
        width = max(len(row.name) for row in self.rows)
        lines = [f"{self.title} ({self.paper}; {self.shows})", "", *([self.table, ""] if self.table else [])]
        lines.append(f"{'number':<{width}}     {'expected':>12} {'measured':>12} {'tolerance':>10}  verdict")
        for row in self.rows:
            numbers = f"{signs[row.kind]:>2} {row.expected:>12.7g} {row.measured:>12.7g} {row.tolerance:>10.2g}"
            lines.append(f"{row.name:<{width}}  {numbers}  {row.verdict}")
        passed = len(self.rows) - len(self.misses)
        return "\n".join([*lines, "", f"{passed} of {len(self.rows)} numbers as expected."])


def reproduce(
    slug: str,
    folder: Path,
    progress: Progress | None = None,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    cells: Path | None = None,
) -> Outcome:
    """Measure the named result and leave numbers, figure, spec and machine facts at `folder`.

    A result that is made of cells keeps them in `cells` (default: a folder of that name in `folder`) and finds there
    what an earlier command computed; with `resume`, `folder` is one that an earlier command left unfinished.
    """
    wanted = find_reproduction(slug)
    spec = load_spec(slug, overrides)
    expected = [entry for entry in load_expected(slug) if _is_asked_for(entry, spec)]
    if wanted.check is not None:
        wanted.check(spec)
    target = RunFolder(folder, "reproduce --resume" if wanted.in_cells else "reproduce")
    if cells is not None and (cells.is_file() or cells == Path()):
        raise RequestError(f"--cells must name a folder, got {str(cells)!r}; it will be made if need be.")
    if not wanted.in_cells and (resume or cells is not None):
        raise RequestError(f"{slug} is not made of cells, which could be found again; leave out --resume and --cells.")
    target.check(resume)
    if cells is not None:
        make_writable(cells, "folder of cells", "--cells")
    if resume and (folder / "spec.toml").read_text(encoding="utf-8") != tomli_w.dumps(spec):
        raise RequestError(
            f"The folder {folder} was begun with another request; repeat that one, or choose another --out."
        )
    with target.open(resume, {"command": target.command, "slug": slug}):
        target.write_text("spec.toml", tomli_w.dumps(spec))  # begun: what is computed from here on can be found again
        tell = progress or (lambda label, done, total: None)
        kept = (Cells(cells or folder / "cells"),) if wanted.in_cells else ()
        measured = wanted.measure(spec, tell, *kept)
        rows = compare(slug, expected, measured.numbers)
        outcome = Outcome(slug, wanted.title, wanted.paper, wanted.shows, rows, folder, measured.table)
        with drawing(slug):
            figure = wanted.draw(spec, measured.curves)
            images = {kind: to_bytes(figure, kind) for kind in ("png", "svg")}
        _write(target, outcome, images)
    return outcome


def find_reproduction(slug: str) -> Reproduction:
    """The named reproduction; RequestError with the nearest name otherwise."""
    if slug not in REPRODUCTIONS:
        raise RequestError(f"There is no reproduction {slug!r}.{nearest(slug, REPRODUCTIONS)}")
    return REPRODUCTIONS[slug]


def load_spec(slug: str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The experiment's own settings, with `a.b = value` overrides of settings it has."""
    table = tomllib.loads((_home(slug) / "spec.toml").read_text(encoding="utf-8"))
    if "like" in table:  # the same experiment, looked at in another way
        table = load_spec(table.pop("like")) | table
    changed = override(table, overrides)
    _refuse_strangers(table, changed, slug)
    return changed


def load_expected(slug: str) -> tuple[Expectation, ...]:
    """What expected.toml says must come out."""
    table = tomllib.loads((_home(slug) / "expected.toml").read_text(encoding="utf-8"))
    return tuple(fill(Expectation, entry, f"{slug} expected.toml") for entry in table["expectation"])


def _is_asked_for(entry: Expectation, spec: Mapping[str, Any]) -> bool:
    """Whether a number belongs to the chosen size and, where only some columns of a table are computed, to one."""
    columns = spec.get("data", ()) if "size" in spec else ()
    return entry.size in (None, spec.get("size")) and (
        not columns or any(entry.name.startswith(f"{column}_") for column in columns)
    )


def read_me(slug: str) -> str:
    """The reproduction's README: claim, data, settings, expected result, errata."""
    find_reproduction(slug)
    return (_home(slug) / "README.md").read_text(encoding="utf-8")


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
    return tuple(_row(expectation, float(measured[expectation.name])) for expectation in expected)


def _row(expectation: Expectation, measured: float) -> Row:
    relative = expectation.relative is not None
    tolerance = expectation.relative if relative else expectation.absolute
    return Row(
        expectation.name,
        expectation.kind,
        expectation.value,
        measured,
        tolerance or 0.0,
        "relative" if relative else "absolute",
        "pass" if expectation.admits(measured) else "miss",
        expectation.source,
    )


def _home(slug: str) -> Traversable:
    return resources.files("idiolect.experiments.papers") / slug


def _refuse_strangers(table: Mapping[str, Any], changed: Mapping[str, Any], where: str) -> None:
    """An override must name a setting that exists and keep its type."""
    for name, value in changed.items():
        if name not in table:
            raise RequestError(f"[{where}] has no setting {name!r}.{nearest(name, table)}")
        known = table[name]
        if known == {} and isinstance(value, Mapping):
            continue  # names of the user's choice, which the experiment checks
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            _refuse_strangers(known, value, f"{where}.{name}")
        elif _kind(value) is not _kind(known) and not (isinstance(known, float) and type(value) is int):
            raise RequestError(
                f"[{where}] {name} must be of type {_kind(known).__name__} like {known!r}, got {value!r}."
            )


def _kind(value: Any) -> type:
    return dict if isinstance(value, Mapping) else type(value)


def _write(target: RunFolder, outcome: Outcome, images: Mapping[str, bytes]) -> None:
    rows = [dataclasses.asdict(row) for row in outcome.rows]
    summary = {"schema": SCHEMA, "slug": outcome.slug, "title": outcome.title, "paper": outcome.paper}
    summary |= {"shows": outcome.shows, "passed": outcome.passed, "numbers": rows}
    target.write_table("numbers.parquet", rows)
    for kind, content in images.items():
        target.write_bytes(f"figure.{kind}", content)
    facts = machine_facts("")
    facts.pop("time_model")  # nothing is modelled: no bytes are sent anywhere slow
    target.write_json("machine.json", facts)
    target.write_json("numbers.json", summary)
    target.finish()
