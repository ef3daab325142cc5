# SPDX-License-Identifier: Apache-2.0
"""What an override of a spec may be: a known name, the type of what the spec has there, a number in its range.

Ranges go by name, as one name means the same in every spec. What must fit together is the reproduction's own `check`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from idiolect import RequestError
from idiolect.core.checks import Range, check, nearest
from idiolect.experiments.strict import LARGEST

ANY, COUNT, POSITIVE, FRACTION = Range(), Range(at_least=1), Range(above=0), Range(above=0, at_most=1)
FROM_ZERO, UNIT = Range(at_least=0), Range(at_least=0, at_most=1)
# of the names for which neither `COUNT` (whole numbers) nor `POSITIVE` (others) is right
RANGES = {
    **dict.fromkeys(("center", "start", "horizontal", "vertical", "contours"), ANY),
    # 0: none of it
    **dict.fromkeys(("held_out", "chunk", "epochs", "growth_from"), FROM_ZERO),
    **dict.fromkeys(("penalty", "routing_penalty", "split"), FROM_ZERO),
    **dict.fromkeys(("relabelled", "apfl_share", "vote_share", "values"), UNIT),
    **dict.fromkeys(("alpha", "alphas", "least_alpha", "p", "step_share", "mixing_per_label"), FRACTION),
    "shared_probabilities": Range(above=0, below=1),
    **dict.fromkeys(("kappas", "condition_number"), Range(at_least=1)),
}
LENGTHS = {
    "horizontal": 2,
    "vertical": 2,
    "radii.1": 2,
    "radii.2": 2,
    "counted.cases": 2,
    "threshold.server_step_size": 2,
}
WORDS = {int: "whole numbers", float: "numbers", str: "texts"}
MAY_BE_EMPTY = ("data", "only", "as_released")


def check_overrides(table: Mapping[str, Any], changed: Mapping[str, Any], where: str) -> None:
    """RequestError for the first entry of `changed` that could not stand in `table`."""
    for name, value in changed.items():
        if name not in table:
            raise RequestError(f"[{where}] has no setting {name!r}.{nearest(name, table)}")
        known = table[name]
        if known == {} and isinstance(value, Mapping):
            known = value  # names of the user's choice, which the experiment checks
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            check_overrides(known, value, f"{where}.{name}")
        elif not _is_like(value, known):
            raise RequestError(
                f"[{where}] {name} must be of type {_kind(known).__name__} like {known!r}, got {value!r}."
            )
        elif isinstance(value, list):
            _check_list(known, value, where, name)
        else:
            _check_number(known, value, where, name, listed=False)


def _check_list(known: list[Any], value: list[Any], where: str, name: str) -> None:
    """Entries are like those that the spec has there; a table in a list has all settings of the first one."""
    place = f"{where}.{name}"
    if not value and known and name not in MAY_BE_EMPTY:
        raise RequestError(f"{place} must have at least one entry, got []; write one such as {known[0]!r}.")
    for one in value:
        model = known[0] if known else one
        if not _is_like(one, model):
            raise RequestError(f"{place} must be {_words(model)}, got {value!r}.")
        if isinstance(one, Mapping):
            if lacking := [key for key in model if key not in one]:
                raise RequestError(f"[{place}] must have {lacking[0]!r} in each of its tables, got {one!r}; add it.")
            check_overrides(model, one, place)
        elif isinstance(one, list):
            _check_list(model, one, where, name)
        else:
            _check_number(model, one, where, name, listed=True)
    _check_length(value, place)


def _check_length(value: list[Any], place: str) -> None:
    wanted = next((length for ending, length in LENGTHS.items() if place.endswith(f".{ending}")), None)
    if wanted is not None and not isinstance(value[0], list) and len(value) != wanted:
        raise RequestError(f"{place} must have {wanted} entries, got {value!r}.")


def _check_number(known: Any, value: Any, where: str, name: str, listed: bool) -> None:
    """RequestError for a number that is not finite, too large for a device, or out of the range of its name."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not math.isfinite(value):
        raise RequestError(f"{where}.{name} must be a finite number, got {value}; write one such as 0.1.")
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise RequestError(f"{where}.{name} must be below 2^31, got {value}; use a smaller number.")
    check(where, name, value, _range_of(name, isinstance(known, int), listed))


def _range_of(name: str, whole: bool, listed: bool) -> Range:
    if name in RANGES:
        return RANGES[name]
    if name.endswith("seed") or (listed and name.endswith("seeds")):  # a list of seeds, not how many there are
        return FROM_ZERO
    return COUNT if whole else POSITIVE


def _is_like(value: Any, known: Any) -> bool:
    return _kind(value) is _kind(known) or (isinstance(known, float) and type(value) is int)


def _words(entry: Any) -> str:
    return f"a list of {WORDS.get(_kind(entry), f'entries like {entry!r}')}"


def _kind(value: Any) -> type:
    return dict if isinstance(value, Mapping) else type(value)
