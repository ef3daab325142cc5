# SPDX-License-Identifier: Apache-2.0
"""Answers as small pieces of HTML that a notebook shows: the top of their page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from idiolect.report import advise_table
from idiolect.report.advise_table import MOST_CLIENTS, Advised
from idiolect.report.table import ComparisonTable
from idiolect.report.text import more_clients

Cell = tuple[str, bool]  # text, and whether it is the best of its column


def comparison_html(table: ComparisonTable) -> str:
    """The methods side by side, the best of each column bold, below the answer in words."""
    columns = table.columns("notebook")
    heads = [column.heading for column in columns]
    legend = table.legend({column.key for column in columns})
    missing = [f"Not found: {sentence}" for sentence in table.missing]
    return _html([table.answer.sentence], heads, table.cells(columns), legend, missing)


def advice_html(advised: Advised) -> str:
    """The advice in words, and one line per client in the natural order of names."""
    found, words = advised.found, advised.words
    shown = found.order[:MOST_CLIENTS]
    heads = [
        "client",
        "training rows",
        f"{advised.score} alone",
        "advice",
        "expected gain [95 %]",
        "with whom (weight)",
    ]
    lines = []
    for entry in (found.clients[place] for place in shown):
        cells = [
            entry.client,
            str(entry.rows),
            words.bare(entry.loss["alone"]),
            advise_table.advice_words(found, entry),
        ]
        cells += [advise_table.gain_words(words, entry), advise_table.with_whom(entry)]
        lines.append([(cell, False) for cell in cells])
    below = more_clients(found.all_clients - len(shown), " in frame()")
    if found.verify is not None:
        below += advise_table.verification(advised, found.verify)
    return _html(advise_table.answer(advised), heads, lines, advise_table.about_alone(advised), below)


def _html(
    above: Sequence[str], heads: Sequence[str], lines: Sequence[Sequence[Cell]], legend: str, below: Sequence[str]
) -> str:
    """Paragraphs, a table, what its columns mean, paragraphs; every name in it is harmless."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(_cell(*cell) for cell in line)}</tr>" for line in lines)
    return (
        "".join(f"<p>{escape(text)}</p>" for text in above)
        + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p><small>{escape(legend)}</small></p>"
        + "".join(f"<p>{escape(text)}</p>" for text in below)
    )


def text_html(text: str) -> str:
    """Text with its line breaks and columns as they are."""
    return f"<pre>{escape(text)}</pre>"


def _cell(text: str, best: bool) -> str:
    return f"<td><b>{escape(text)}</b></td>" if best else f"<td>{escape(text)}</td>"
