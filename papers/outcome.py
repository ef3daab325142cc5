# SPDX-License-Identifier: Apache-2.0
"""A finished reproduction: its rows, how many claims of each origin hold, and all of it as text and as plain values."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from idiolect.record.reproduced import Count
from papers.verdicts import KINDS, ORIGINS, Row

# of each origin: the words behind a count, and behind the first count of the sentence
WORDS = {
    "paper": ("claims of the paper", "claims of the paper hold"),
    "theory": ("of theory", "numbers of theory hold"),
    "released": ("of released code", "numbers of released code hold"),
    "independent": ("independent", "independent numbers hold"),
}


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
    left_out: tuple[str, ...] = ()  # data sets that are not here, with their numbers

    @property
    def changed(self) -> tuple[Row, ...]:
        """The numbers that did not come out as documented."""
        return tuple(row for row in self.rows if row.verdict == "changed")

    @property
    def counts(self) -> dict[str, Count]:
        """By origin, those that there are."""
        return count(self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        facts = {"slug": self.slug, "title": self.title, "paper": self.paper, "shows": self.shows}
        counts = {origin: dataclasses.asdict(found) for origin, found in self.counts.items()}
        changed = [row.name for row in self.changed]
        return facts | {
            "counts": counts, "changed": changed, "left_out": list(self.left_out),
            "numbers": [dataclasses.asdict(row) for row in self.rows],
        }  # fmt: skip

    def to_text(self) -> str:
        """Expected, measured, tolerance, origin and verdict, one line per number; misses with their reasons; counts."""
        width = max(len(row.name) for row in self.rows)
        lines = [f"{self.title} ({self.paper}; {self.shows})", "", *([self.table, ""] if self.table else [])]
        head = f"{'expected':>12} {'measured':>12} {'tolerance':>10}  {'origin':<11}"
        lines.append(f"{'number':<{width}}     {head}  verdict")
        for row in self.rows:
            numbers = f"{KINDS[row.kind]:>2} {row.expected:>12.7g} {row.measured:>12.7g} {row.tolerance:>10.2g}"
            lines.append(f"{row.name:<{width}}  {numbers}  {row.origin:<11}  {row.verdict}")
        for name in self.left_out:
            lines += [
                "",
                f"Left out: the numbers of {name}, which is not here; `idiolect datasets fetch {name}` gets it.",
            ]
        return "\n".join([*lines, *_explanations(self.rows), "", count_line(self.rows)])


def count(rows: Sequence[Row]) -> dict[str, Count]:
    """By origin, those that there are."""
    found = {}
    for origin in ORIGINS:
        verdicts = [row.verdict for row in rows if row.origin == origin]
        if verdicts:
            found[origin] = Count(len(verdicts), verdicts.count("holds"), verdicts.count("misses"))
    return found


def count_line(rows: Sequence[Row]) -> str:
    """One sentence: how many hold, by origin; our own earlier output apart, which proves nothing."""
    counts = count(rows)
    kept = counts.pop("regression", None)
    parts = [_part(origin, found, first=place == 0) for place, (origin, found) in enumerate(counts.items())]
    sentences = [", ".join(parts)] if parts else []
    if kept is not None:
        number = str(kept.of) if kept.hold == kept.of else f"{kept.hold} of {kept.of}"
        sentences.append(f"{number} regression value{'s' * (kept.of != 1)} unchanged")
    return "; ".join(sentences) + "."


def _part(origin: str, found: Count, first: bool) -> str:
    known = f" ({found.miss} known not to, listed above)" if found.miss else ""
    return f"{found.hold} of {found.of} {WORDS[origin][first]}{known}"


def _explanations(rows: Sequence[Row]) -> list[str]:
    """Why documented misses miss, each reason once, and what changed."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == "misses":
            reasons.setdefault(row.because, []).append(row.name)
    lines = ["", "Known not to reproduce:"] if reasons else []
    for because, names in reasons.items():
        lines.append(textwrap.fill(f"{', '.join(names)}: {because}", 100, initial_indent="- ", subsequent_indent="  "))
    lost = [row.name for row in rows if not math.isfinite(row.measured)]
    if lost:
        said = "no such number comes out: a target was not reached, or the settings leave none"
        lines += ["", textwrap.fill(f"Not finite: {', '.join(lost)}: {said}.", 100, subsequent_indent="  ")]
    changed = [row.name for row in rows if row.verdict == "changed"]
    if changed:
        lines += ["", textwrap.fill(f"Changed: {', '.join(changed)}.", 100, subsequent_indent="  ")]
    return lines
