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
    missing = [f"Not found: {sentence}" for sentence in table.run.missing]
    return _html([table.answer.sentence], heads, table.cells(columns), legend, missing)


def advice_html(advised: Advised) -> str:
    """The advice in words, and one line per client in the natural order of names."""
    found, words = advised.found, advised.words
    scores = ("training rows", f"{advised.score} alone", "advice", "expected gain [95 %]")
    lines = []
    for entry in (found.clients[place] for place in found.order[:MOST_CLIENTS]):
        alone, advice = words.bare(entry.loss["alone"]), advise_table.advice_words(found, entry)
        gain, others = advise_table.gain_words(words, entry), advise_table.with_whom(entry)
        lines.append([(cell, False) for cell in (entry.client, str(entry.rows), alone, advice, gain, others)])
    below = more_clients(found.all_clients - len(lines), " in frame()")
    if found.verify is not None:
        below += advise_table.verification(advised, found.verify)
    above, legend = advise_table.answer(advised), advise_table.about_alone(advised)
    return _html(above, ("client", *scores, "with whom (weight)"), lines, legend, below)


def _html(
    above: Sequence[str], heads: Sequence[str], lines: Sequence[Sequence[Cell]], legend: str, below: Sequence[str]
) -> str:
    """Paragraphs, a table, what its columns mean, paragraphs; every name in it is harmless."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = ""
    for line in lines:
        cells = (f"<b>{escape(text)}</b>" if best else escape(text) for text, best in line)
        body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    return (
        "".join(f"<p>{escape(text)}</p>" for text in above)
        + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p><small>{escape(legend)}</small></p>"
        + "".join(f"<p>{escape(text)}</p>" for text in below)
    )


def text_html(text: str) -> str:
    """Text with its line breaks and columns as they are."""
    return f"<pre>{escape(text)}</pre>"
