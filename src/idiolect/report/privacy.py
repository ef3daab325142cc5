# SPDX-License-Identifier: Apache-2.0
"""What left each client: a run's privacy.json in lines of text and as a section of the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.record.manifest import check_report_files
from idiolect.report.html import Grid, Head, Row, number, text_cell
from idiolect.report.wording import count, plural, size

STATEMENT = "privacy.json"
TITLE = "What left each client"
EACH_SPLIT = (
    "Each split trained on other rows of the same clients and has a statement of its own, in its folder; what all of "
    "them state has left the clients."
)
_COUNTED = (
    Head("bytes of an upload", "Of one client in one round."),
    Head("uploads", "Of all clients, in the fit that is delivered."),
    Head("rounds to choose", "Of all candidates and folds, before that fit."),
    Head("rows at least", "That an upload of the client with the fewest rows is computed from."),
)


def read_statement(folder: Path) -> dict[str, Any] | None:
    """The statement of a finished folder, as its manifest has it; None in folders from before there was one."""
    check_report_files(folder)
    path = folder / STATEMENT
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def statement_lines(statement: dict[str, Any]) -> list[str]:
    """The statement as text, for a terminal."""
    lines = [TITLE, "", *_common_lines(statement)]
    if statement.get("exchange"):
        lines += [f"  {_parcel(one)}" for one in statement["exchange"]["arrays"]]
        lines.append(f"  protection: {statement['exchange']['protection']}")
    for entry in statement["methods"]:
        lines += ["", f"{entry['method']}: {_method_line(entry)}"]
        lines += [f"  up    {_array(one)}" for one in entry["uploads"]]
        lines += [f"  down  {_array(one)}" for one in entry["downloads"]]
        lines += [f"  at the end  {_array(one)}" for one in entry["deliveries"]]
        if entry["uploads"]:
            lines.append(f"  protection: {entry['protection']}")
    return lines


class PrivacySection(NamedTuple):
    """The statement as sentences and tables: of what finding out who is alike sent, and of the methods."""

    title: str
    sentences: Sequence[str]
    tables: Sequence[Grid]


def privacy_section(statement: dict[str, Any] | None) -> PrivacySection | None:
    """The statement for a page; None for folders from before there was one."""
    if not statement:
        return None
    tables = [_exchange_table(statement["exchange"])] if statement.get("exchange") else []
    tables += [_methods_table(statement["methods"])] if statement["methods"] else []
    return PrivacySection(TITLE, _common_lines(statement), tables)


def _exchange_table(found: dict[str, Any]) -> Grid:
    heads = [Head("array", "Shape and type.", words=True), Head("bytes", "Of one.")]
    heads += [Head("sent", "By all clients."), Head("received", "By all clients.")]
    rows = [
        Row(_name(one), [number(one[key], count(one[key])) for key in ("bytes", "uploads", "downloads")])
        for one in found["arrays"]
    ]
    return Grid(found["what"], heads, rows)


def _methods_table(methods: list[dict[str, Any]]) -> Grid:
    heads = [Head("method", words=True), Head("arrays up", "Name, shape and type.", words=True), *_COUNTED]
    rows = []
    for entry in methods:
        numbers = (
            sum(one["bytes"] for one in entry["uploads"]),
            entry["uploads_in_all"],
            entry["rounds_to_choose"],
            entry["rows_at_least"]["rows"],
        )
        arrays = "; ".join(map(_array, entry["uploads"])) or "nothing"
        cells = [number(value, count(value)) for value in numbers]
        rows.append(Row(entry["method"], [text_cell(arrays), *cells, text_cell(entry["protection"])]))
    return Grid(TITLE, [*heads, Head("protection", words=True)], rows)


def _common_lines(statement: dict[str, Any]) -> list[str]:
    """Preparation, what is not counted in bytes, and what finding out who is alike sent."""
    lines = [_preparation_line(statement["preparation"])] if statement.get("preparation") else []
    lines += [f"Also, not counted in bytes: {_numbered(part)}." for part in statement["also"]]
    found = statement.get("exchange")
    if found:
        lines.append(
            f"Once, for {found['what']}: {size(found['upload_bytes'])} up and {size(found['download_bytes'])} down, "
            f"each array up from {plural(found['rows_at_least'] or 0, 'row')} at least. {found['reveals']}"
        )
    return lines


def _numbered(part: dict[str, Any]) -> str:
    return part["what"] + (f" ({plural(part['numbers'], 'number')})" if "numbers" in part else "")


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
    chosen += f", for each of {entry['seeds']} seeds" if entry.get("seeds", 1) > 1 else ""
    return (
        f"{plural(entry['uploads_in_all'], 'upload')} in {plural(entry['rounds'], 'round')}{chosen}, "
        f"{size(entry['upload_bytes'])}, each from {least['rows']} rows at least (client {least['client']})"
    )


def _array(one: dict[str, Any]) -> str:
    return f"{_name(one)}, {size(one['bytes'])}"


def _parcel(one: dict[str, Any]) -> str:
    return f"{_array(one)}, {count(one['uploads'])} times up, {count(one['downloads'])} down"


def _name(one: dict[str, Any]) -> str:
    return f"{one['array'] or 'value'} {tuple(one['shape'])} {one['dtype']}"
