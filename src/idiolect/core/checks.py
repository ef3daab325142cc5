# SPDX-License-Identifier: Apache-2.0
"""Settings that carry their own range, and the sentence for a wrong value.

Constructors only store. Values are checked once, at an engine's door, because a dataclass that is a pytree is
rebuilt with tracers inside compiled code.
"""

from __future__ import annotations

import dataclasses
import difflib
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from idiolect.record.errors import AbsentDataError as AbsentDataError
from idiolect.record.errors import DivergedError as DivergedError
from idiolect.record.errors import NeedsRidgeError as NeedsRidgeError
from idiolect.record.errors import RequestError as RequestError

LARGEST = float(np.finfo(np.float32).max)
FEW = 4  # entries that a sentence can show
_OBEYS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}


class Range(NamedTuple):
    """The values a setting may take; `way_out` tells a user what to write instead."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    choices: tuple[object, ...] = ()
    way_out: str = ""

    def rule(self) -> str:
        """The rule in words, to follow 'must be'."""
        if self.choices:
            return "one of " + ", ".join(repr(choice) for choice in self.choices)
        return " and ".join(f"{word} {bound:g}" for word, bound, _ in self._bounds())

    def admits(self, value: object) -> bool:
        """Whether every entry of `value` obeys the rule; not-a-number never does."""
        if self.choices:
            return value in self.choices
        entries = np.asarray(value)
        real = ~np.isnan(entries) if entries.dtype.kind == "f" else True
        return bool(np.all(real & np.all([obeys(entries, bound) for _, bound, obeys in self._bounds()], axis=0)))

    def _bounds(self) -> list[tuple[str, float, Callable[[np.ndarray, float], np.ndarray]]]:
        """(word, bound, comparison) of those that are set."""
        every = ((name.replace("_", " "), getattr(self, name), obeys) for name, obeys in _OBEYS.items())
        return [rule for rule in every if rule[1] is not None]


def setting(
    default: Any = dataclasses.MISSING,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    choices: tuple[object, ...] = (),
    way_out: str = "",
    doc: str = "",
    theory: bool = False,
    strengths: tuple[float, ...] = (),
    in_rows: bool = False,
) -> Any:
    """A dataclass field with a declared range and one line of documentation.

    `theory` marks a number that the constants of the problem decide where it is left out (None). `strengths` marks the
    number that says how personal a method is, and holds the values to try first on validation rows, ascending;
    `in_rows` where these are divided by a client's training rows, as a prior's strength is.
    """
    limits = Range(above, at_least, below, at_most, choices, way_out)
    metadata = {"range": limits, "doc": doc, "theory": theory, "strengths": strengths, "in_rows": in_rows}
    return dataclasses.field(default=default, metadata=metadata)


def unset(owner: Any) -> list[str]:
    """The settings of `owner` that are still left to theory."""
    fields = dataclasses.fields(owner)
    return [field.name for field in fields if field.metadata.get("theory") and getattr(owner, field.name) is None]


def check(owner: str, name: str, value: Any, limits: Range) -> None:
    """Raise RequestError unless `value` obeys `limits`."""
    if isinstance(value, float) and LARGEST < abs(value) < float("inf"):  # it would become infinite in single precision
        raise RequestError(f"{owner}.{name} must be at most {LARGEST:g} in size, got {shown(value)}.")
    if value is None or limits.admits(value):
        return
    way_out = limits.way_out
    if isinstance(value, str) and not way_out:
        close = difflib.get_close_matches(value, map(str, limits.choices), n=1)
        way_out = f"Did you mean {close[0]!r}?" if close else ""
    raise RequestError(f"{owner}.{name} must be {limits.rule()}, got {_fault(value, limits)}. {way_out}".rstrip())


def _fault(value: Any, limits: Range) -> str:
    """What breaks the rule: in a long list the entry, which a reader could not find."""
    if limits.choices or np.ndim(value) != 1 or len(value) <= FEW:
        return shown(value)
    place = next(place for place, entry in enumerate(value) if not limits.admits(entry))
    return f"{shown(value[place])} as entry {place + 1} of {len(value)}"


def shown(value: object) -> str:
    """A value short enough for a sentence."""
    if isinstance(value, str):
        return repr(value)
    entries = np.asarray(value)
    if entries.size == 1 and entries.dtype.kind in "fiu":
        return f"{entries.item():g}"
    return str(value.tolist() if hasattr(value, "tolist") else value)


def nearest(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' for a misspelt name, or the list of names when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1) or [one for one in names if one.lower() == name.lower()]
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Known: {', '.join(names)}." if names else ""
