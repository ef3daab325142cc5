# SPDX-License-Identifier: Apache-2.0
"""Cells of one method on one column of Flow 2023's tables, summarised over clients and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from idiolect.metrics import Breakdown, gains
from papers.cells import Cell


class Summary(NamedTuple):
    """Several seeds of one method on one column; accuracies are per cent, means over clients."""

    personal: np.ndarray  # (seeds,)
    shared: np.ndarray  # (seeds,); not-a-number where there is no shared model
    each: np.ndarray  # (seeds, clients): personal accuracy
    new_personal: float
    new_shared: float
    helped: float  # per cent of clients with personal > shared, mean over seeds
    hurt: float
    rows: Breakdown | None
    megabytes: float  # of all rounds, down and up, without the delivery of final models; mean over seeds
    step: float
    tuned: str

    @property
    def clients(self) -> np.ndarray:
        """(clients,): personal accuracy, mean over seeds."""
        return _mean(self.each, 0)

    def above(self, other: Summary) -> np.ndarray:
        """(clients,): points over another method, of the seeds that both have, which are the first ones."""
        seeds = min(len(self.each), len(other.each))
        return _mean(self.each[:seeds], 0) - _mean(other.each[:seeds], 0)

    def shared_above(self, other: Summary) -> float:
        """The same of the shared models, mean over those seeds."""
        return float(np.mean([own - its for own, its in zip(self.shared, other.shared)]))

    @property
    def worst_tenth(self) -> float:
        """Mean over the worst tenth of the clients."""
        ordered = np.sort(self.clients[np.isfinite(self.clients)])
        return float(ordered[: max(1, len(ordered) // 10)].mean())


def summarise(found: Sequence[Cell]) -> Summary:
    """The cells of a method's seeds, together."""
    personal = 100 * np.array([one["personal"] for one in found], float)
    nothing = np.full_like(personal, np.nan)
    shared = nothing if found[0]["shared"] is None else 100 * np.array([one["shared"] for one in found], float)
    known = np.isfinite(personal) & np.isfinite(shared)
    total = max(int(known.sum()), 1)
    gain = gains(personal, shared, higher_is_better=True)
    rows = None
    if "rows" in found[0]:
        rows = Breakdown(*(np.sum([np.sum(one["rows"][name]) for one in found]) for name in Breakdown._fields))
    return Summary(
        personal=_mean(personal, 1),
        shared=_mean(shared, 1),
        each=personal,
        new_personal=_new(found, "new_personal"),
        new_shared=_new(found, "new_shared"),
        helped=100 * float((gain > 0)[known].sum()) / total if known.any() else float("nan"),
        hurt=100 * float((gain < 0)[known].sum()) / total if known.any() else float("nan"),
        rows=rows,
        megabytes=float(np.mean([one["download_bytes"] + one["upload_bytes"] for one in found])) / 1e6,
        step=found[0]["step"],
        tuned=found[0]["tuned"] + "".join(", diverged" for one in found if one["diverged"]),
    )


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of what is known; not-a-number where nothing is."""
    known = np.isfinite(values)
    return np.where(known.any(axis), np.where(known, values, 0).sum(axis) / np.maximum(known.sum(axis), 1), np.nan)


def _new(found: Sequence[Cell], key: str) -> float:
    values = [one[key] for one in found if one[key] is not None]
    return 100 * float(np.nanmean(np.array(values, float))) if values else float("nan")
