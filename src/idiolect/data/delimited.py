# SPDX-License-Identifier: Apache-2.0
"""Delimited text (CSV, TSV): the separator is recognised, and every cell comes back as it is written."""

from __future__ import annotations

import contextlib
import csv
import io
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow

from idiolect.core.checks import RequestError
from idiolect.data.compressed import read_bytes
from idiolect.data.encoding import utf8_bytes
from idiolect.record.words import first_line

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SAMPLE_BYTES = 1 << 16
SAMPLE_RECORDS = 50
LARGEST_BLOCK = 2**31 - 1  # that Arrow reads at once
MALFORMED = (pa.ArrowException, OverflowError, ValueError)


class Delimited(NamedTuple):
    """A file's cells as texts, "" where empty."""

    table: pa.Table
    separator: str
    quoted: frozenset[int]  # positions of columns that stand in quotes where others do not
    notes: tuple[str, ...]


def read_delimited(path: str | Path, usual: str = ",") -> Delimited:
    """The cells of a text file with a header line; `usual` is what its name promises as a separator."""
    content = utf8_bytes(read_bytes(path), path)
    separator, content = _announced(content)
    if not content.strip():
        raise RequestError(f"{path} is empty; it needs a header line and rows.")
    records = _sample(content)  # the separator and the header are found by Python's reader, the cells by Arrow's
    if separator is None:
        separator = find_separator(records, usual)
    header = _cells(records[:1], separator)
    names = header[0] if header else [""]
    table = _parse(content, separator, len(names), path).slice(1)
    notes = []
    if separator != usual:
        notes.append(f"The columns of {Path(path).name} are separated by {SEPARATORS.get(separator, repr(separator))}.")
    quoted = _quoted_columns(content, separator, len(names))
    return Delimited(table.rename_columns([name.strip() for name in names]), separator, quoted, tuple(notes))


def find_separator(records: list[str], usual: str) -> str:
    """The usual separator if it cuts every record alike, else the one that does so into most fields."""
    widths = {mark: {len(row) for row in _cells(records, mark)} for mark in (usual, *SEPARATORS)}
    alike = {mark: next(iter(found)) for mark, found in widths.items() if len(found) == 1 and min(found) > 1}
    if usual in alike:
        return usual
    if alike:
        return max(alike, key=lambda mark: alike[mark])
    header = records[0]
    return usual if usual in header else max(SEPARATORS, key=lambda mark: (header.count(mark), mark == usual))


def _announced(content: bytes) -> tuple[str | None, bytes]:
    """Excel's first line 'sep=;', taken off."""
    first, _, rest = content.partition(b"\n")
    word = first.strip().decode("utf-8", "replace")
    if len(word) == 5 and word.lower().startswith("sep=") and word[4] in SEPARATORS:
        return word[4], rest
    return None, content


def _sample(content: bytes) -> list[str]:
    """The first records, without one that the sample cuts off."""
    text = content[:SAMPLE_BYTES].decode("utf-8", "ignore")
    lines = [line for line in io.StringIO(text, newline=None) if line.strip()]
    # the sample may have cut the last record, and a short one would look like another separator
    if len(content) > SAMPLE_BYTES and len(lines) > 1:
        lines.pop()
    return lines[: SAMPLE_RECORDS + 1]


def _cells(records: list[str], separator: str) -> list[list[str]]:
    rows: list[list[str]] = []
    with contextlib.suppress(csv.Error):  # a cell over the module's limit: what was read so far must do
        rows.extend(row for row in csv.reader(records, delimiter=separator) if row)
    return rows[:SAMPLE_RECORDS]


def _parse(content: bytes, separator: str, width: int, path: str | Path) -> pa.Table:
    with contextlib.suppress(*MALFORMED):  # in threads first: nearly every file is well formed
        return _arrow_csv(content, separator, width, threads=True)
    try:
        # only without threads the parser knows the row at fault, and only as one block it reads a row of any length
        return _arrow_csv(content, separator, width, threads=False, whole=True)
    except MALFORMED as error:
        raise RequestError(
            f"{path} is not a well-formed table: {first_line(error)[:300]}; correct that row."
        ) from error


def _arrow_csv(
    content: bytes, separator: str, width: int, threads: bool, whole: bool = False, **parsing: Any
) -> pa.Table:
    names = [f"f{position}" for position in range(width)]
    block = min(len(content), LARGEST_BLOCK) if whole else None  # None: a megabyte, which no row may exceed
    return arrow.read_csv(
        io.BytesIO(content),
        read_options=arrow.ReadOptions(column_names=names, use_threads=threads, block_size=block),
        parse_options=arrow.ParseOptions(delimiter=separator, **({"newlines_in_values": b'"' in content} | parsing)),
        convert_options=arrow.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, check_utf8=False
        ),
    )


def _quoted_columns(content: bytes, separator: str, width: int) -> frozenset[int]:
    """Columns whose every value stands in quotes, in a file that does not put everything in quotes.

    Rows with separators or line ends inside quotes are passed over: they cannot be cut without reading the quotes.
    """
    if b'"' not in content:
        return frozenset()
    raw = _cut_at_separators(content, separator, width)
    if raw is None:
        return frozenset()
    quoted, filled = set(), 0
    for position, column in enumerate(raw.slice(1).columns):
        cells = pc.utf8_trim_whitespace(column)
        cells = cells.filter(pc.not_equal(cells, ""))
        filled += len(cells) > 0
        if len(cells) and pc.all(pc.starts_with(cells, '"')).as_py():
            quoted.add(position)
    return frozenset(quoted) if filled > len(quoted) else frozenset()


def _cut_at_separators(content: bytes, separator: str, width: int) -> pa.Table | None:
    """The cells with their quotes, which the parser drops where it knows of them; None where it cannot read them."""
    options: dict[str, Any] = {"quote_char": False, "newlines_in_values": False}
    options["invalid_row_handler"] = lambda row: "skip"
    for whole in (False, True):
        with contextlib.suppress(*MALFORMED):
            return _arrow_csv(content, separator, width, threads=False, whole=whole, **options)
    return None
