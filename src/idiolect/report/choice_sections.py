# SPDX-License-Identifier: Apache-2.0
"""A choice as tables of a page: values side by side, then every client at every value, with what it paid."""

from __future__ import annotations

from typing import NamedTuple

from idiolect.report.choice import ChoiceFound, chosen_of, shown
from idiolect.report.choice_table import answer, file_of, interval, legend
from idiolect.report.html import (
    LIMIT,
    Grid,
    Head,
    Row,
    counted,
    left_out,
    number,
    number_heads,
    text_cell,
    word_heads,
)
from idiolect.report.wording import kilobytes, megabytes


class ChoiceSection(NamedTuple):
    """One method's choice in the page of a sweep."""

    title: str
    answer: str
    legend: str
    by_value: Grid
    by_client: Grid


def choice_section(choice: ChoiceFound) -> ChoiceSection:
    """The part of a sweep's page on one method."""
    title = f"{choice.found.method}: {choice.found.setting}"
    return ChoiceSection(title, answer(choice), legend(choice), values_grid(choice), clients_grid(choice))


def values_grid(choice: ChoiceFound) -> Grid:
    """One line per value."""
    words = choice.words
    unit = f" ({words.unit})" if words.unit else ""
    titles = [f"validation mean{unit}", "worst 10 %", f"test mean{unit}", "worst 10 %", "chosen by", "rounds", "MB"]
    titles += ["MB in all", "MB per client", "gradients", "gradients in all"]
    clients = max(len(choice.found.clients), 1)
    rows = []
    for entry in choice.found.values:
        spent, so_far = entry.spent, entry.spent_so_far
        scores = [value for one in (entry.validation, entry.test) for value in (one.mean, one.worst_decile)]
        cells = [number(value, words.bare(value)) for value in scores]
        cells[2] = cells[2]._replace(text=cells[2].text + interval(words, entry.test))
        cells += [number(entry.chosen_by, str(entry.chosen_by)), counted(entry.rounds)]
        paid = (spent.traffic_bytes, so_far.total_bytes, spent.traffic_bytes / clients)
        cells += [
            *(number(value, megabytes(value)) for value in paid),
            counted(spent.gradients),
            counted(so_far.gradients),
        ]
        title = choice.named(entry.value)
        rows.append(Row(title + ("*" if entry.value == choice.found.best_fixed else ""), cells, title))
    return Grid("Values side by side", [*word_heads((choice.found.setting,)), *number_heads(titles)], rows)


def clients_grid(choice: ChoiceFound) -> Grid:
    """One line per client: its test score and its bytes at every value, its choice marked."""
    words, clients = choice.words, choice.of_clients()
    about = f"test {words.title}, and the client's own kB"
    heads = [Head("client", words=True), Head("training rows")]
    heads += [Head(f"at {value}", about) for value in choice.values]
    heads += word_heads(("chooses", "own choice"))
    lines = []
    for name, rows in list(clients.items())[:LIMIT]:
        trained, (_, chosen) = choice.training_rows(rows[0]), chosen_of(rows)
        cells = [counted(trained)]
        for row in rows:
            cell = number(row.test, words.bare(row.test))
            cells.append(cell._replace(small=f"{kilobytes(row.traffic_bytes)} kB", mark="chosen" if row.chosen else ""))
        own = "yes" if chosen.own_choice else "no score: best on average"
        lines.append(Row(name, [*cells, text_cell(shown(chosen.value)), text_cell(own)]))
    return Grid("Every client at every value", heads, lines, left_out(len(clients), file_of(choice)))
