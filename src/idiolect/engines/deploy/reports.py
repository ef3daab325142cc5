# SPDX-License-Identifier: Apache-2.0
"""Reports: the plain numbers that a site sends beside its arrays. All of them are declared here; no other is accepted.

An upload comes with a `Work`: what the round cost, in counts. At a record, scores on the site's own validation rows; at
the end, scores on validation and test rows. Their bytes are counted apart from those of training.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from idiolect.core.tally import Tally
from idiolect.engines.deploy.wire import Facts, WireError

LARGEST_COUNT = 2**62
MOST_SCORES = 64  # of one model in a report
Scores = dict[str, dict[str, float]]  # model -> score -> one client's number; not-a-number: it has none


class Work(NamedTuple):
    """What a part in a round, a start or a model cost: eight counts, steps, and whether all numbers are finite."""

    tally: Tally
    steps: int
    finite: bool

    def to_facts(self) -> Facts:
        """Plain values."""
        return {"tally": [int(count) for count in self.tally], "steps": int(self.steps), "finite": bool(self.finite)}


def work_of(facts: object, sender: str) -> Work:
    """The report in a message; WireError for anything else."""
    if not isinstance(facts, dict) or set(facts) != {"tally", "steps", "finite"}:
        raise WireError(f"{sender} sent no report of its work.")
    # a count that is huge or below 0 would spoil the ledger of all sites
    counts, finite = facts["tally"], facts["finite"]
    whole = isinstance(counts, list) and len(counts) == len(Tally._fields) and isinstance(finite, bool)
    if not whole or not all(type(one) is int and 0 <= one < LARGEST_COUNT for one in [*counts, facts["steps"]]):
        raise WireError(f"{sender} sent a report whose counts are not {len(Tally._fields)} whole numbers, at least 0.")
    return Work(Tally(*counts), facts["steps"], finite)


def scores_to_facts(scores: Scores) -> Facts:
    """Scores of one client as plain values; not-a-number becomes null."""
    return {
        model: {name: value if math.isfinite(value) else None for name, value in named.items()}
        for model, named in scores.items()
    }


def scores_of(facts: object, names: tuple[str, ...], sender: str) -> Scores:
    """The scores in a message; WireError where one that was asked for is missing, or one is there that was not."""
    if not isinstance(facts, dict) or not {"personal"} <= set(facts) <= {"personal", "shared", "instances"}:
        raise WireError(f"{sender} sent scores of other models than were asked for.")
    # "instances" counts rows by who is right on them: its names are not scores
    return {model: _named(named, names if model != "instances" else None, sender) for model, named in facts.items()}


def _named(facts: object, names: tuple[str, ...] | None, sender: str) -> dict[str, float]:
    """Numbers by name, those that were asked for; null is not-a-number."""
    if not isinstance(facts, dict) or set(facts) != set(names or facts):
        raise WireError(f"{sender} sent other scores than {', '.join(names or ('counts',))}.")
    if len(facts) > MOST_SCORES or not all(map(_is_score, facts.values())):
        raise WireError(f"{sender} sent a score that is not a finite number.")
    return {str(name): math.nan if value is None else float(value) for name, value in facts.items()}


def _is_score(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value))
