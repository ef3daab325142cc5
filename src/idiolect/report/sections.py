# SPDX-License-Identifier: Apache-2.0
"""The parts of a run's page as values that its template shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from idiolect.report.clients import VERDICTS, ClientTable
from idiolect.report.folder import Run
from idiolect.report.html import LIMIT, facts
from idiolect.report.wording import (
    NONE,
    ScoreWords,
    absent,
)


class ClientLine(NamedTuple):
    """One client before the page's script takes over."""

    client: str
    new: bool
    rows: str
    scores: Sequence[str]
    gain: str
    interval: str
    verdict: str


class ClientsShown(NamedTuple):
    """Controls and the first rows of one method's clients."""

    methods: Sequence[str]
    shown: int
    verdicts: Sequence[str]
    heads: Sequence[tuple[str, int | None]]  # with the place in the script's rows; None: the drawn gain
    lines: Sequence[ClientLine]


def clients(tables: Sequence[ClientTable], shown: int, words: ScoreWords) -> ClientsShown | None:
    """The table of one method's clients; None where there are no scores of single clients."""
    if not tables:
        return None
    unit = f" ({words.unit})" if words.unit else ""
    titles = ("client", "training rows", f"alone{unit}", f"shared{unit}", f"personal{unit}", "expected gain [95 %]")
    heads = (*((title, place) for place, title in enumerate(titles)), ("", None), ("verdict", 8))
    table = tables[shown]
    lines = [_client_line(table, m, words) for m in table.order()[:LIMIT]]
    return ClientsShown([one.method for one in tables], shown, ("", *VERDICTS), heads, lines)


def _client_line(table: ClientTable, m: int, words: ScoreWords) -> ClientLine:
    return ClientLine(
        client=str(table.client[m]),
        new=bool(table.held_out[m]),
        rows=NONE if absent(table.train_rows[m]) else f"{table.train_rows[m]:.0f}",
        scores=[words.bare(scores[m]) for scores in (table.alone, table.shared, table.personal)],
        gain=words.signed(table.expected[m]),
        interval=words.interval(table.expected_low[m], table.expected_high[m]),
        verdict=str(table.verdict[m]),
    )


class MethodFacts(NamedTuple):
    """One method with its settings and reference."""

    label: str
    summary: str
    facts: Sequence[tuple[str, str]]


def settings(run: Run) -> list[MethodFacts]:
    """Each method with its settings and reference."""
    shown = []
    for entry in run.methods:
        unknown = f"not recorded in the run folder; `idiolect explain {entry.algorithm}` prints it"
        values = {
            "algorithm": entry.algorithm,
            "objective": entry.objective,
            **entry.settings,
            "seeds": entry.seeds,
            "tuned": entry.tuned,
            "diverged": entry.diverged and str(entry.diverged),
            "reference": entry.reference or unknown,
        }
        shown.append(MethodFacts(entry.method, entry.summary, facts(values)))
    return shown
