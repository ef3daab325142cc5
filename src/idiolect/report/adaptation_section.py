# SPDX-License-Identifier: Apache-2.0
"""The part of the page on what adaptation changes: accuracy before and after, deciles, and where inputs are routed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from idiolect.record.schema import Personalization, Routing
from idiolect.report.columns import INSTANCES
from idiolect.report.folder import Run
from idiolect.report.html import Grid, Head, Row, number, number_heads, text_cell, word_heads
from idiolect.report.sections import methods_grid
from idiolect.report.table import ComparisonTable
from idiolect.report.wording import count, score_words

_SHARE = score_words("accuracy")


class Adaptation(NamedTuple):
    """Before and after adaptation, deciles over clients, routes."""

    about: str
    methods: Grid
    deciles: Grid
    routes: Sequence[Grid]


def adaptation_section(run: Run, table: ComparisonTable) -> Adaptation | None:
    """What adaptation changes; None where no method has a received model."""
    if not table.adaptation:
        return None
    return Adaptation(
        about=table.adaptation_legend(),
        methods=methods_grid(table, table.adaptation, "Before and after adaptation"),
        deciles=_deciles(run),
        routes=[_routing(entry.method, entry.routing) for entry in run.methods if entry.routing],
    )


def _deciles(run: Run) -> Grid:
    heads = [Head("method", words=True), Head("accuracy %", "Of the received or of the own model.", words=True)]
    heads += number_heads(f"p{percent}" for percent in range(10, 100, 10))
    rows = []
    for entry in run.methods:
        found = entry.personalization or Personalization()
        for words, values in (("before", found.deciles_g), ("after", found.deciles_p)):
            if values and any(value is not None for value in values):
                cells = [number(value, _SHARE.bare(value)) for value in values]
                rows.append(Row(entry.method, [text_cell(words), *cells]))
    return Grid("Deciles over clients", heads, rows)


def _routing(method: str, found: Routing) -> Grid:
    groups = {"all": (found.shared_share, found.taken)}
    groups |= {name: (found.by_category[name], found.taken_by_category[name]) for name in INSTANCES}
    rows = {"all": sum(found.rows.values())} | found.rows
    heads = [*word_heads(("layer",)), Head("one way %", "Clients all of whose rows go the same way.")]
    for name in groups:
        words = f"{name.replace('_', ' ').replace('shared', 'received')} ({count(rows[name])} rows)"
        heads += [Head(f"q0 %, {words}", "Mean probability of the shared version."), Head("taken %", words)]
    lines = []
    for layer, name in enumerate(found.names):
        values = [found.one_way[layer], *(part[layer] for pair in groups.values() for part in pair)]
        lines.append(Row(name, [number(value, _SHARE.bare(value)) for value in values]))
    return Grid(f"Routes of {method}", heads, lines)
