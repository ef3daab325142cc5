# SPDX-License-Identifier: Apache-2.0
"""What left each client: a run's privacy.json in lines of text and as a part of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from idiolect.report.html import Grid, Head, Row, number, text_cell
from idiolect.report.wording import count, plural, size

TITLE = "What left each client"


def statement_lines(statement: dict[str, Any]) -> list[str]:
    """The statement as text, for a terminal."""
    lines = [TITLE, "", *_about(statement)]
    for entry in statement["methods"]:
        lines += ["", f"{entry['method']}: {_method_line(entry)}"]
        lines += [f"  up    {_array(one)}" for one in entry["uploads"]]
        lines += [f"  down  {_array(one)}" for one in entry["downloads"]]
        lines += [f"  at the end  {_array(one)}" for one in entry["deliveries"]]
        if entry["uploads"]:
            lines.append(f"  protection: {entry['protection']}")
    return lines


class PrivacySection(NamedTuple):
    """The statement as sentences and a table of methods."""

    sentences: Sequence[str]
    table: Grid


def privacy_section(statement: dict[str, Any] | None) -> PrivacySection | None:
    """The statement for a page; None for folders from before there was one."""
    if not statement:
        return None
    heads = [Head("method", words=True), Head("arrays up", "Name, shape and type.", words=True), *_COUNTED]
    rows = []
    for entry in statement["methods"]:
        numbers = (
            sum(one["bytes"] for one in entry["uploads"]),
            entry["uploads_in_all"],
            entry["rounds_to_choose"],
            entry["rows_at_least"]["rows"],
        )
        arrays = "; ".join(map(_array, entry["uploads"])) or "nothing"
        cells = [number(value, count(value)) for value in numbers]
        rows.append(Row(entry["method"], [text_cell(arrays), *cells, text_cell(entry["protection"])]))
    return PrivacySection(_about(statement), Grid(TITLE, [*heads, Head("protection", words=True)], rows))


_COUNTED = (
    Head("bytes of an upload", "Of one client in one round."),
    Head("uploads", "Of all clients, in the fit that is delivered."),
    Head("rounds to choose", "Of all candidates and folds, before that fit."),
    Head("rows at least", "That an upload of the client with the fewest rows is computed from."),
)


def _about(statement: dict[str, Any]) -> list[str]:
    said = [_preparation_line(statement["preparation"])] if statement.get("preparation") else []
    return [*said, *(f"Also: {part['what']}." for part in statement["also"])]


def _preparation_line(found: dict[str, Any]) -> str:
    if not found["columns"]:
        return f"Preparation, {found['way']}: {found['meaning']}."
    least, rest = found["rows_at_least"], len(found["columns"]) - 3
    columns = "; ".join(f"{part['column']}: {part['content']}" for part in found["columns"][:3])
    more = f"; and likewise for {plural(rest, 'more column')}" if rest > 0 else ""
    return (
        f"Preparation, {found['way']} ({found['meaning']}), once before round 0, {size(found['total_bytes'])} in all, "
        f"from {least['rows']} training rows at least (client {least['client']}): {columns}{more}."
    )


def _method_line(entry: dict[str, Any]) -> str:
    if not entry["uploads"]:
        return "nothing is sent"
    least, choosing = entry["rows_at_least"], entry["rounds_to_choose"]
    chosen = f", after {plural(choosing, 'round')} to choose settings" if choosing else ""
    return (
        f"{plural(entry['uploads_in_all'], 'upload')} in {plural(entry['rounds'], 'round')}{chosen}, "
        f"{size(entry['upload_bytes'])}, each from {least['rows']} rows at least (client {least['client']})"
    )


def _array(one: dict[str, Any]) -> str:
    return f"{one['array'] or 'value'} {tuple(one['shape'])} {one['dtype']}, {size(one['bytes'])}"
