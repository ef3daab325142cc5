# SPDX-License-Identifier: Apache-2.0
"""Tables in: CSV, Parquet and Feather files, and any frame that speaks Arrow, as one pyarrow Table."""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import feather, parquet

from idiolect.core.checks import RequestError, nearest
from idiolect.data.columns import Column, decoded
from idiolect.data.compressed import existing, inner_suffix, read_bytes
from idiolect.data.delimited import Delimited, read_delimited
from idiolect.data.kinds import (
    DATES,
    DAY_FIRST,
    KINDS,
    MISSING_MARKS,
    MONTH_FIRST,
    NUMBER,
    TEXT,
    Decision,
    convert,
    decide,
)
from idiolect.record.words import first_line

DELIMITERS = {".csv": ",", ".tsv": "\t"}
READABLE = (".csv", ".tsv", ".parquet", ".feather", ".arrow")
Kinds = Mapping[str, str]
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # what Arrow calls an index of pandas that has no name


class Reading(NamedTuple):
    """A table and what had to be guessed to read it: about the file, and by column."""

    table: pa.Table
    notes: tuple[str, ...]
    decisions: dict[str, Decision]  # about columns of texts
    written: pa.Table  # the cells before anything was guessed
    of_text: bool  # whether they come from a text file
    unnamed: tuple[str, ...] = ()  # columns of `written` that are an index of pandas without a name, not in `table`

    @property
    def dates(self) -> dict[str, str]:
        """The kinds of columns whose dates have the year last: in which order day and month stand."""
        return {name: one.kind for name, one in self.decisions.items() if one.kind in (DAY_FIRST, MONTH_FIRST)}


def read_table(source: object, kinds: Kinds | None = None) -> pa.Table:
    """A table from a path (.csv, .tsv, also packed as .gz, .bz2, .xz; .parquet; .feather) or from a frame.

    Frames: a pyarrow Table, a pandas DataFrame, a mapping of columns, anything with `__arrow_c_stream__`.
    `kinds` says what columns hold ("number", "truth", "date", "text"; see `Preprocessing.kinds`), so that a row is
    read alike whatever else is in the file; the kind of other columns of a text file is decided by `kinds.decide`.
    Empty cells, '?', 'NA' and not-a-number are missing values. An index of pandas is a column where it has a name.
    """
    return read(source, kinds).table


def read(source: object, kinds: Kinds | None = None) -> Reading:
    """What `read_table` reads, with the sentences about what had to be guessed."""
    kinds = kinds or {}
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise RequestError(f"The kind of column {name!r} must be one of {', '.join(KINDS)}, got {kind!r}.")
    if isinstance(source, (str, Path)):
        content, what = _read_file(Path(source)), str(source)
    else:
        content, what = _from_frame(source), "The table"
    written = content if isinstance(content, Delimited) else None
    cells = content.table if isinstance(content, Delimited) else content
    index = _unnamed_index(cells, kinds)
    table, notes = _name_columns(cells, what)
    if table.num_rows == 0:
        raise RequestError(f"{what} has no rows; add at least one.")
    notes.extend(f"Column {name!r} is the unnamed index of a pandas frame, and was left out." for name in index)
    found = _read_columns(table.drop_columns(index), kinds, written)
    # answers are written beside all that a file has, its index too
    return found._replace(notes=(*(written.notes if written else ()), *notes), written=table, unnamed=tuple(index))


def require_columns(table: pa.Table, names: Sequence[str], purpose: str) -> None:
    """Raise RequestError with the nearest column name unless every name is a column."""
    for name in names:
        if name not in table.column_names:
            index = _UNNAMED_INDEX.fullmatch(name)
            hint = " A pandas index without a name is left out." if index else nearest(name, table.column_names)
            raise RequestError(f"The {purpose} column {name!r} is not in the table.{hint}")


def check_roles(
    table: pa.Table, client: str, targets: Sequence[str], others: Mapping[str, str | None]
) -> dict[str, str]:
    """Columns that are no inputs, by what they are; RequestError where one is not there, or is to be two things.

    `others` are further roles with their column, None where no column has the role.
    """
    roles = {client: "client"}
    require_columns(table, [client], "client")
    require_columns(table, targets, "target")
    if client in targets:
        raise RequestError(f"The client and the target must be two columns, got {client!r} for both; name another one.")
    roles |= dict.fromkeys(targets, "target")
    for role, name in others.items():
        if name is None:
            continue
        require_columns(table, [name], role)
        if name in roles:
            raise RequestError(
                f"The {role} column must have no other role, but {name!r} is also the {roles[name]}; name another one."
            )
        roles[name] = role
    return roles


def _name_columns(table: pa.Table, what: str) -> tuple[pa.Table, list[str]]:
    """Columns without a name are named by their place; names that occur twice are refused."""
    names, notes = list(table.column_names), []
    for position, name in enumerate(names):
        if not name.strip():
            names[position] = f"column {position + 1}"
            notes.append(f"Column {position + 1} has no name and is called {names[position]!r}.")
    doubled = [name for name, times in Counter(names).items() if times > 1]
    if doubled:
        raise RequestError(f"{what} has more than one column named {doubled[0]!r}; rename one of them.")
    return table.rename_columns(names), notes


def _unnamed_index(table: pa.Table, kinds: Kinds) -> list[str]:
    """Columns that hold an index of pandas without a name; not those whose kind is known, which were inputs before."""
    try:
        index = (table.schema.pandas_metadata or {}).get("index_columns", ())
    except (ValueError, AttributeError):  # metadata that something else than pandas wrote
        return []
    # an index of consecutive numbers is no column but a description
    named = {name for name in index if isinstance(name, str) and _UNNAMED_INDEX.fullmatch(name)}
    return [name for name in table.column_names if name in named and name not in kinds]


def _read_columns(table: pa.Table, kinds: Kinds, written: Delimited | None) -> Reading:
    """Each column as the kind that is known, that its type says, or that its texts decide."""
    columns, decisions = [], {}
    for position, name in enumerate(table.column_names):
        column = Column(name, decoded(table.column(position)))
        if column.kind == TEXT:
            data, decisions[name] = _read_texts(column, kinds.get(name), position, written)
        else:
            data = column.conform(kinds[name]) if name in kinds and column.present else column.data
        columns.append(data)
    return Reading(pa.table(columns, names=table.column_names), (), decisions, table, of_text=written is not None)


def _read_texts(
    column: Column, kind: str | None, position: int, written: Delimited | None
) -> tuple[pa.ChunkedArray, Decision]:
    name = column.name
    data, marks = _without_marks(column.data)
    decision = _decide(name, data, marks, position, written) if kind is None else Decision(kind)
    if decision.kind == TEXT and marks and not decision.note:
        said = f"Cells of column {name!r} that say {', '.join(map(repr, marks))} are read as missing."
        decision = decision._replace(note=said)
    if data.null_count < len(data):
        return convert(data, decision.kind, name, written is not None and written.separator != ","), decision
    # a text file has no types: a column without values is of none
    return (data if written is None else pa.chunked_array([pa.nulls(len(data))])), decision


def _decide(name: str, data: pa.ChunkedArray, marks: list[str], position: int, written: Delimited | None) -> Decision:
    """The kind of a column of texts: by the rule for text files, or of a typed file, dates and numbers with marks.

    Other numbers of a typed file stay text: whoever wrote them as texts there may have meant names.
    """
    distinct = pc.unique(pc.utf8_trim_whitespace(pc.unique(data.drop_null())))  # in the order in which they come
    if written is not None:
        return decide(name, distinct, position in written.quoted, written.separator != ",")
    # of no values there is nothing to decide
    decision = decide(name, distinct) if len(distinct) else Decision(TEXT)
    if decision.kind == NUMBER and marks:
        return Decision(NUMBER, f"Column {name!r} is text but holds numbers and {marks[0]!r}: read as numbers.")
    return decision if decision.kind in DATES or decision.warning else Decision(TEXT)


def _without_marks(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, list[str]]:
    """The texts as written, null where they mark a missing value, and the marks found besides empty cells."""
    text = column.cast(pa.string())
    trimmed = pc.utf8_trim_whitespace(text)
    # blanks around a mark do not make it a text; blanks around a text belong to it
    marked = pc.fill_null(pc.is_in(trimmed, value_set=pa.array(MISSING_MARKS)), True)
    marks = sorted(mark for mark in pc.unique(trimmed.filter(marked)).to_pylist() if mark)
    return pc.if_else(marked, pa.scalar(None, pa.string()), text), marks


def _read_file(path: Path) -> pa.Table | Delimited:
    suffix = inner_suffix(existing(path))
    if suffix not in READABLE:
        raise RequestError(
            f"{path} has the extension {suffix or 'none'!r}, which is not one of {', '.join(READABLE)} "
            "(the text ones also with .gz, .bz2, .xz); save the table as one of these."
        )
    if suffix in DELIMITERS:
        return read_delimited(path, DELIMITERS[suffix])
    content = read_bytes(path)
    try:
        source = io.BytesIO(content)
        table = parquet.read_table(source) if suffix == ".parquet" else feather.read_table(source)
        table.validate(full=True)  # a damaged file may hold offsets that point nowhere
        return table
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        first = first_line(error, "it cannot be read")
        raise RequestError(
            f"{path} ({len(content)} bytes) is not a whole {suffix[1:]} file: {first}; write it again."
        ) from error


def _from_frame(source: object) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # column names that are no texts are written as texts
            if type(source).__module__.partition(".")[0] == "pandas":
                # with a named index, as pandas writes it to a file; any other may hold what no column can
                named = any(name is not None for name in source.index.names)  # type: ignore[attr-defined]
                return pa.Table.from_pandas(source, preserve_index=None if named else False)
            if isinstance(source, Mapping):
                return pa.table({str(name): column for name, column in source.items()})
            if hasattr(source, "__arrow_c_stream__"):
                return pa.table(source)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        first = first_line(error, type(error).__name__)
        raise RequestError(f"The {type(source).__name__} cannot become a table: {first}.") from error
    raise RequestError(
        f"A table must be a path or an Arrow-compatible frame, got {type(source).__name__}; "
        "use Federation.from_arrays for plain arrays."
    )
