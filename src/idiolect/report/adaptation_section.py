# SPDX-License-Identifier: Apache-2.0
"""The part of the page on what adaptation changes: accuracy before and after, deciles, and where inputs are routed."""

from __future__ import annotations

from typing import Any

from idiolect.report.columns import INSTANCES
from idiolect.report.folder import Run
from idiolect.report.sections import e, method_line, methods_table, scrolling, table_head
from idiolect.report.table import ComparisonTable
from idiolect.report.wording import count, score_words

_SHARE = score_words("accuracy")
_WHO = {"g": "before", "p": "after"}
_ROUTING = (
    "Mean probability of the shared version (q0) on test rows, and the share of rows that take it (q0 of at least one "
    "half), by layer and by which model gets the row right. One way: clients all of whose rows go the same way."
)


def adaptation_section(run: Run, table: ComparisonTable) -> str:
    """Before and after adaptation, deciles over clients, routes; nothing where no method has a received model."""
    if not table.adaptation:
        return ""
    title = "Before and after adaptation"
    parts = [
        f'<h2 id="adaptation-title">{title}</h2>',
        f'<p class="about">{e(table.adaptation_legend())}</p>',
        methods_table(table, table.adaptation, title),
        f"<details><summary>Deciles over clients</summary>{_deciles(run)}</details>",
        *(_routing(entry) for entry in run.methods if entry.get("routing")),
    ]
    return f'<section id="adaptation" aria-labelledby="adaptation-title">{"".join(parts)}</section>'


def _deciles(run: Run) -> str:
    head = [("method", "", True), ("accuracy %", "Of the received or of the own model.", True)]
    head += [(f"p{percent}", "", False) for percent in range(10, 100, 10)]
    lines = []
    for entry in run.methods:
        found = entry.get("personalization") or {}
        for model, words in _WHO.items():
            values = found.get(f"deciles_{model}") or [None] * 9
            if any(value is not None for value in values):
                cells = [(value, _SHARE.bare(value)) for value in values]
                lines.append(method_line(entry["method"], cells, before=(words,)))
    return scrolling("Deciles over clients", table_head(head), lines)


def _routing(entry: dict[str, Any]) -> str:
    found = entry["routing"]
    groups = {"all": (found["shared_share"], found["taken"])}
    groups |= {name: (found["by_category"][name], found["taken_by_category"][name]) for name in INSTANCES}
    rows = {"all": sum(found["rows"].values())} | found["rows"]
    head = [("layer", "", True), ("one way %", "Clients all of whose rows go the same way.", False)]
    for name in groups:
        words = f"{name.replace('_', ' ').replace('shared', 'received')} ({count(rows[name])} rows)"
        head += [(f"q0 %, {words}", "Mean probability of the shared version.", False), ("taken %", words, False)]
    lines = []
    for layer, name in enumerate(found["names"]):
        values = [found["one_way"][layer], *(part[layer] for pair in groups.values() for part in pair)]
        lines.append(method_line(name, [(value, _SHARE.bare(value)) for value in values]))
    label = f"Routes of {entry['method']}"
    return f'<h3>{e(label)}</h3><p class="about">{e(_ROUTING)}</p>' + scrolling(label, table_head(head), lines)
