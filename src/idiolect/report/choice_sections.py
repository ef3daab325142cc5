# SPDX-License-Identifier: Apache-2.0
"""A choice as parts of a page: values side by side, then every client at every value, with what it paid."""

from __future__ import annotations

from typing import Any

from idiolect.report.choice import Choice, chosen_of, shown
from idiolect.report.choice_table import answer, file_of, interval, legend
from idiolect.report.sections import LIMIT, e, scrolling, table_head
from idiolect.report.wording import NONE, absent, count, megabytes, plural


def values_table(choice: Choice) -> str:
    """One line per value, sortable."""
    words = choice.words
    unit = f" ({words.unit})" if words.unit else ""
    titles = [f"validation mean{unit}", "worst 10 %", f"test mean{unit}", "worst 10 %", "chosen by", "rounds", "MB"]
    titles += ["MB in all", "MB per client", "gradients", "gradients in all"]
    head = table_head([(choice.found["setting"], "", True), *((title, "", False) for title in titles)])
    clients = max(len(choice.found["clients"]), 1)
    lines = []
    for entry in choice.found["values"]:
        spent, so_far = entry["spent"], entry["spent_so_far"]
        cells = [(entry["validation"][part], words.bare(entry["validation"][part])) for part in _PARTS]
        cells += [(entry["test"][part], words.bare(entry["test"][part])) for part in _PARTS]
        cells[2] = (cells[2][0], cells[2][1] + interval(words, entry["test"]))
        cells += [(entry["chosen_by"], str(entry["chosen_by"])), (entry["rounds"], count(entry["rounds"]))]
        for paid in (spent["total_bytes"], so_far["total_bytes"], spent["total_bytes"] / clients):
            cells.append((paid, megabytes(paid)))
        cells += [(one["gradients"], count(one["gradients"])) for one in (spent, so_far)]
        star = "*" if entry["value"] == choice.found["best_fixed"] else ""
        lines.append(_line(choice.named(entry["value"]), star, cells))
    return scrolling("Values side by side", head, lines)


_PARTS = ("mean", "worst_decile")


def _line(title: str, star: str, cells: list[tuple[Any, str]]) -> str:
    parts = [f'<th scope="row" data-value="{e(title)}">{e(title + star)}</th>']
    parts += [f'<td data-value="{"" if absent(value) else e(value)}">{e(text)}</td>' for value, text in cells]
    return f"<tr>{''.join(parts)}</tr>"


def clients_table(choice: Choice) -> str:
    """One line per client: its test score and its bytes at every value, its choice marked."""
    words = choice.words
    columns = [(f"at {value}", f"test {words.title}, and the client's own kB", False) for value in choice.values]
    head = table_head(
        [("client", "", True), ("training rows", "", False), *columns, ("chooses", "", True), ("own choice", "", True)]
    )
    lines, clients = [], choice.of_clients()
    for name, rows in list(clients.items())[:LIMIT]:
        _, chosen = chosen_of(rows)
        cells = [
            f'<td{" class=best" if row["chosen"] else ""} data-value="{"" if absent(row["test"]) else e(row["test"])}">'
            f"{'<span class=skip>chosen: </span>' if row['chosen'] else ''}{e(words.bare(row['test']))}"
            f"{_paid(row['traffic_bytes'])}</td>"
            for row in rows
        ]
        value, own = shown(chosen["value"]), "yes" if chosen["own_choice"] else "no score: best on average"
        trained = choice.training_rows(rows[0])
        lines.append(
            f'<tr><th scope="row" data-value="{e(name)}">{e(name)}</th>'
            f'<td data-value="{trained}">{count(trained)}</td>{"".join(cells)}'
            f'<td class="words" data-value="{e(value)}">{e(value)}</td>'
            f'<td class="words" data-value="{e(own)}">{e(own)}</td></tr>'
        )
    more = f"<p>{plural(len(clients) - LIMIT, 'more client')} in {file_of(choice)}.</p>" if len(clients) > LIMIT else ""
    return scrolling("Every client at every value", head, lines) + more


def _paid(number: float | None) -> str:
    return f" <small>{NONE if number is None else f'{number / 1e3:.3g}'} kB</small>"


_BESIDE = " Beside a client's score: what it itself sent and was sent."


def choices_section(choices: list[Choice]) -> str:
    """The section of a sweep's page; nothing where nobody had to choose."""
    parts = []
    for choice in choices:
        parts.append(
            f"<h3>{e(choice.found['method'])}: {e(choice.found['setting'])}</h3><p>{e(answer(choice))}</p>"
            f'<p class="about">{e(legend(choice) + _BESIDE)}</p>{values_table(choice)}{clients_table(choice)}'
        )
    if not parts:
        return ""
    title = '<h2 id="choices-title">Each client&#39;s own choice</h2>'
    return f'<section id="choices" aria-labelledby="choices-title">{title}{"".join(parts)}</section>'
