# SPDX-License-Identifier: Apache-2.0
"""Answers as small pieces of HTML that a notebook shows."""

from __future__ import annotations

from html import escape

from idiolect.report.columns import short_columns
from idiolect.report.table import ComparisonTable, title_of


def comparison_html(table: ComparisonTable) -> str:
    """The methods side by side, the best of each column bold, and the answer in words."""
    columns = short_columns(table.columns)
    head = "".join(f"<th>{escape(title_of(columns, place))}</th>" for place in range(len(columns)))
    lines = ["".join(_cell(text, best) for text, best in line) for line in table.cells(columns)]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    missing = "".join(f"<p>Not found: {escape(sentence)}</p>" for sentence in table.missing)
    return (
        f"<p>{escape(table.answer.sentence)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p><small>{escape(table.legend({column.key for column in columns}))}</small></p>{missing}"
    )


def text_html(text: str) -> str:
    """Text with its line breaks and columns as they are."""
    return f"<pre>{escape(text)}</pre>"


def _cell(text: str, best: bool) -> str:
    return f"<td><b>{escape(text)}</b></td>" if best else f"<td>{escape(text)}</td>"
