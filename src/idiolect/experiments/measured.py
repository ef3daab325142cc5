# SPDX-License-Identifier: Apache-2.0
"""What summary.json says of a method beyond its scores: before and after adaptation, routes, bytes, operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from idiolect.engines.run import Run
from idiolect.metrics.personalization import Personalization
from idiolect.metrics.routing import Routing


def measured(runs: list[Run], flops: bool) -> dict[str, Any]:
    """Entries `personalization`, `routing`, `storage` and `flops`; None for what the method does not have.

    Numbers are means over seeds; types and operations are the same for every seed.
    """
    return {
        "personalization": mean_personalization([run.personalization() for run in runs]),
        "routing": _mean_routing([run.routing() for run in runs]),
        "storage": runs[0].storage()._asdict(),
        "flops": runs[0].flops()._asdict() if flops else None,
    }


def mean_personalization(found: list[Personalization | None]) -> dict[str, Any] | None:
    """The mean over seeds, entry by entry."""
    known = [one.to_dict() for one in found if one is not None]
    return _mean(known) if known else None


def _mean_routing(found: list[Routing | None]) -> dict[str, Any] | None:
    """The mean over seeds of the shares; rows are added up."""
    known = [one._asdict() for one in found if one is not None]
    if not known:
        return None
    names, rows = known[0]["names"], [one.pop("rows") for one in known]
    shares = _mean([{name: _plain(value) for name, value in one.items() if name != "names"} for one in known])
    total = {name: sum(one[name] for one in rows) for name in rows[0]}
    return {"names": list(names)} | shares | {"rows": total}


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
