# SPDX-License-Identifier: Apache-2.0
"""What left each client: a run's privacy.json in lines of text and as a section of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from idiolect.record.privacy import Array, Aside, LikenessSent, MethodSent, PreparationSent, Statement
from idiolect.report.html import Grid, Head, Row, counted, text_cell
from idiolect.report.wording import count, plural, size

TITLE = "What left each client"
EACH_SPLIT = (
    "Each split trained on other rows of the same clients and has a statement of its own, in its folder; what all of "
    "them state has left the clients."
)
_SENT = (
    Head("array", "Shape and type.", words=True),
    Head("bytes", "Of one."),
    Head("sent", "By all clients."),
    Head("received", "By all clients."),
)
_TRAINED = (
    Head("method", words=True),
    Head("arrays up", "Name, shape and type.", words=True),
    Head("bytes of an upload", "Of one client in one round."),
    Head("uploads", "Of all clients, in the fit that is delivered."),
    Head("rounds to choose", "Of all candidates and folds, before that fit."),
    Head("rows at least", "That an upload of the client with the fewest rows is computed from."),
    Head("protection", words=True),
)


def statement_lines(statement: Statement) -> list[str]:
    """The statement as text, for a terminal."""
    lines = [TITLE, "", *_common_lines(statement)]
    found = statement.exchange
    if found:
        times = [f", {count(one.uploads)} times up, {count(one.downloads)} down" for one in found.arrays]
        lines += [f"  {_array(one)}{often}" for one, often in zip(found.arrays, times)]
        lines.append(f"  protection: {found.protection}")
    for entry in statement.methods:
        lines += ["", f"{entry.method}: {_method_line(entry)}"]
        ways = {"up    ": entry.uploads, "down  ": entry.downloads, "at the end  ": entry.deliveries}
        lines += [f"  {way}{_array(one)}" for way, arrays in ways.items() for one in arrays]
        if entry.uploads:
            lines.append(f"  protection: {entry.protection}")
    return lines


class PrivacySection(NamedTuple):
    """The statement as sentences and tables: of what finding out who is alike sent, and of the methods."""

    title: str
    sentences: Sequence[str]
    tables: Sequence[Grid]


def privacy_section(statement: Statement | None) -> PrivacySection | None:
    """The statement for a page; None for folders from before there was one."""
    if statement is None:
        return None
    tables = [_exchange_table(statement.exchange)] if statement.exchange else []
    tables += [Grid(TITLE, _TRAINED, list(map(_method_row, statement.methods)))] if statement.methods else []
    return PrivacySection(TITLE, _common_lines(statement), tables)


def _exchange_table(found: LikenessSent) -> Grid:
    rows = [Row(_name(one), list(map(counted, (one.bytes, one.uploads, one.downloads)))) for one in found.arrays]
    return Grid(found.what, _SENT, rows)


def _method_row(entry: MethodSent) -> Row:
    arrays = "; ".join(map(_array, entry.uploads)) or "nothing"
    upload = sum(one.bytes for one in entry.uploads)
    numbers = (upload, entry.uploads_in_all, entry.rounds_to_choose, entry.rows_at_least.rows)
    return Row(entry.method, [text_cell(arrays), *map(counted, numbers), text_cell(entry.protection)])


def _common_lines(statement: Statement) -> list[str]:
    """Preparation, what is not counted in bytes, and what finding out who is alike sent."""
    lines = [_preparation_line(statement.preparation)] if statement.preparation else []
    lines += [f"Also, not counted in bytes: {_numbered(part)}." for part in statement.also]
    found = statement.exchange
    if found:
        lines.append(
            f"Once, for {found.what}: {size(found.upload_bytes)} up and {size(found.download_bytes)} down, "
            f"each array up from {plural(found.rows_at_least or 0, 'row')} at least. {found.reveals}"
        )
    return lines


def _numbered(part: Aside) -> str:
    return part.what + (f" ({plural(part.numbers, 'number')})" if part.numbers is not None else "")


def _preparation_line(found: PreparationSent) -> str:
    if not found.columns:
        return f"Preparation, {found.way}: {found.meaning}."
    least, rest = found.rows_at_least, len(found.columns) - 3
    columns = "; ".join(f"{part.column}: {part.content}" for part in found.columns[:3])
    more = f"; and likewise for {plural(rest, 'more column')}" if rest > 0 else ""
    return (
        f"Preparation, {found.way} ({found.meaning}), once before round 0, {size(found.total_bytes)} in all, "
        f"from {least.rows} training rows at least (client {least.client}): {columns}{more}."
    )


def _method_line(entry: MethodSent) -> str:
    if not entry.uploads:
        return "nothing is sent"
    least, choosing = entry.rows_at_least, entry.rounds_to_choose
    chosen = f", after {plural(choosing, 'round')} to choose settings" if choosing else ""
    chosen += f", for each of {entry.seeds} seeds" if entry.seeds > 1 else ""
    return (
        f"{plural(entry.uploads_in_all, 'upload')} in {plural(entry.rounds, 'round')}{chosen}, "
        f"{size(entry.upload_bytes)}, each from {least.rows} rows at least (client {least.client})"
    )


def _array(one: Array) -> str:
    return f"{_name(one)}, {size(one.bytes)}"


def _name(one: Array) -> str:
    return f"{one.array or 'value'} {one.shape} {one.dtype}"
