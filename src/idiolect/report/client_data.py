# SPDX-License-Identifier: Apache-2.0
"""Every method's clients for the page's script: names once, then a column per number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from idiolect.report.clients import VERDICTS, ClientTable
from idiolect.report.figure_data import packed
from idiolect.report.folder import laid_out
from idiolect.report.html import LIMIT
from idiolect.report.style import page_colour
from idiolect.report.wording import ScoreWords

_COLUMNS = {
    "rows": "train_rows",
    "alone": "alone",
    "shared": "shared",
    "personal": "personal",
    "gain": "expected",
    "low": "expected_low",
    "high": "expected_high",
}
ABSENT, NOTHING = " ", "-"  # no such client of the method; nothing to compare it with


def score_facts(words: ScoreWords, higher: bool) -> dict[str, object]:
    """How the script writes a score."""
    return {
        "title": words.title,
        "scale": words.scale,
        "decimals": int(words.specification[1]) if words.specification.endswith("f") else None,
        "higher": higher,
    }


def client_data(tables: Sequence[ClientTable], shown: int, colours: dict[str, str]) -> dict[str, object]:
    """The clients of all methods, in one order."""
    names = dict.fromkeys(str(name) for table in tables for name in table.client)
    places = {name: place for place, name in enumerate(names)}
    # packed columns and their numbers: one that several methods share, rows of each client say, is kept once
    pool, new = dict[str, int](), set[int]()
    methods = []
    for table in tables:
        # methods may have other clients, or another order: columns are by client, not by row
        at = np.asarray([places[str(name)] for name in table.client], int)
        new |= set(at[table.held_out].tolist())
        verdicts = [ABSENT] * len(places)  # a character per client: the place of its verdict, or why there is none
        for place, verdict in zip(at, table.verdict):
            verdicts[place] = str(VERDICTS.index(verdict)) if verdict in VERDICTS else NOTHING
        entry: dict[str, object] = {"method": table.method, "colour": page_colour(colours[table.method])}
        entry["verdict"] = "".join(verdicts)
        for key, name in _COLUMNS.items():
            column = laid_out(getattr(table, name), at, len(places))
            # a method without such numbers, as one without a shared model: the page leaves the column out
            entry[key] = pool.setdefault(packed(column), len(pool)) if np.isfinite(column).any() else None
        methods.append(entry)
    facts = {"limit": LIMIT, "shown": shown, "verdicts": VERDICTS, "names": list(names), "fresh": sorted(new)}
    return facts | {"columns": list(pool), "methods": methods}
