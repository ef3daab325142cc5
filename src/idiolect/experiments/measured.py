# SPDX-License-Identifier: Apache-2.0
"""Means over seeds of what a method does before and after adaptation, and of the routes that rows take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from idiolect.record.codec import from_json, to_json
from idiolect.record.schema import Personalization, Routing

if TYPE_CHECKING:
    from idiolect.metrics import personalization, routing


def mean_personalization(found: list[personalization.Personalization | None]) -> Personalization | None:
    """The mean over seeds, entry by entry."""
    known = [one.to_dict() for one in found if one is not None]
    return from_json(Personalization, _mean(known), "personalization") if known else None


def mean_routing(found: list[routing.Routing | None]) -> Routing | None:
    """The mean over seeds of the fractions; rows are added up."""
    known = [one._asdict() for one in found if one is not None]
    if not known:
        return None
    names, rows = known[0]["names"], [one.pop("rows") for one in known]
    fractions = _mean([{name: _plain(value) for name, value in one.items() if name != "names"} for one in known])
    total = {name: sum(one[name] for one in rows) for name in rows[0]}
    return from_json(Routing, {"names": list(names), **fractions, "rows": to_json(total)}, "routing")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [None if np.isnan(part) else float(part) for part in value]


def _mean(values: list[Any]) -> Any:
    """The mean of numbers, lists or dictionaries of one form; a seed without a number does not count."""
    first = values[0]
    if isinstance(first, dict):
        return {name: _mean([one[name] for one in values]) for name in first}
    if isinstance(first, list):
        return [_mean(list(parts)) for parts in zip(*values)]
    known = [value for value in values if value is not None]
    if not known:
        return None
    same_count = isinstance(known[0], int) and len(set(known)) == 1
    return known[0] if same_count else float(np.mean(known))
