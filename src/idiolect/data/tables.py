# SPDX-License-Identifier: Apache-2.0
"""Tables in: CSV, Parquet and Feather files, and any frame that speaks Arrow, as one pyarrow Table."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idiolect.core.checks import RequestError, nearest
from idiolect.data.columns import is_text
from idiolect.data.compressed import existing, inner_suffix, read_bytes

if TYPE_CHECKING:
    import pyarrow as pa

MISSING_MARKS = ("", "?", "NA", "N/A", "NaN", "nan")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
READABLE = (".csv", ".tsv", ".parquet", ".feather", ".arrow")


def read_table(source: Any) -> pa.Table:
    """A table from a path (.csv, .tsv, also packed as .gz, .bz2, .xz; .parquet; .feather) or from a frame.

    Frames: a pyarrow Table, a pandas DataFrame, a mapping of columns, anything with `__arrow_c_stream__`.
    Empty cells, '?', 'NA' and not-a-number are missing values.
    """
    if isinstance(source, (str, Path)):
        table = _read_file(Path(source))
        what = str(source)
    else:
        table = _from_frame(source)
        what = "The table"
    doubled = [name for name, times in Counter(table.column_names).items() if times > 1]
    if doubled:
        raise RequestError(f"{what} has more than one column named {doubled[0]!r}; rename one of them.")
    if table.num_rows == 0:
        raise RequestError(f"{what} has no rows; a federation needs at least one row per client.")
    return _mark_missing(table)


def require_columns(table: pa.Table, names: Sequence[str], purpose: str) -> None:
    """Raise RequestError with the nearest column name unless every name is a column."""
    for name in names:
        if name not in table.column_names:
            raise RequestError(f"The {purpose} column {name!r} is not in the table.{nearest(name, table.column_names)}")


def read_csv(path: str | Path, column_names: Sequence[str] | None = None, delimiter: str = ",") -> pa.Table:
    """A delimited text file; `column_names` where the file has no header line."""
    from pyarrow import ArrowInvalid, csv

    content = read_bytes(path)

    def parse(threads: bool) -> pa.Table:
        return csv.read_csv(
            io.BytesIO(content),
            read_options=csv.ReadOptions(column_names=column_names, use_threads=threads),
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(null_values=list(MISSING_MARKS), strings_can_be_null=True),
        )

    if not content.strip():
        raise RequestError(f"{path} is empty; it needs a header line and rows.")
    try:
        return parse(True)
    except ArrowInvalid:
        pass
    try:
        return parse(False)  # one thread, because only then does the parser know which row is at fault
    except ArrowInvalid as error:
        raise RequestError(f"{path} is not a well-formed table: {error}; mend that row.") from error


def _read_file(path: Path) -> pa.Table:
    suffix = inner_suffix(path)
    if suffix not in READABLE:
        raise RequestError(
            f"{path} has the extension {suffix or 'none'!r}, which is not one of {', '.join(READABLE)} "
            "(the text ones also with .gz, .bz2, .xz); save the table as one of these."
        )
    if suffix in DELIMITERS:
        return read_csv(path, delimiter=DELIMITERS[suffix])
    from pyarrow import ArrowException, feather, parquet

    content = read_bytes(existing(path))
    try:
        source = io.BytesIO(content)
        return parquet.read_table(source) if suffix == ".parquet" else feather.read_table(source)
    except (ArrowException, OSError) as error:
        first = str(error).splitlines()[0]
        raise RequestError(
            f"{path} ({len(content)} bytes) is not a whole {suffix[1:]} file: {first}; write it again."
        ) from error


def _from_frame(source: Any) -> pa.Table:
    import pyarrow as pa

    if isinstance(source, pa.Table):
        return source
    try:
        if type(source).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(source, preserve_index=False)
        if isinstance(source, Mapping):
            return pa.table(dict(source))
        if hasattr(source, "__arrow_c_stream__"):
            return pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise RequestError(f"The {type(source).__name__} cannot become a table: {error}.") from error
    raise RequestError(
        f"A table must be a path or an Arrow-compatible frame, got {type(source).__name__}; "
        "use Federation.from_arrays for plain arrays."
    )


def _mark_missing(table: pa.Table) -> pa.Table:
    """Text cells that hold a missing mark become null; a column of numbers with marks becomes numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for position, name in enumerate(table.column_names):
        column = table.column(position)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if is_text(column):
            text = pc.utf8_trim_whitespace(column.cast(pa.string()))
            marked = pc.is_in(text, value_set=pa.array(MISSING_MARKS))
            column = pc.if_else(marked, pa.scalar(None, pa.string()), text)
            if pc.any(marked).as_py() and column.null_count < len(column):
                column = _numbers_or_text(column)
        table = table.set_column(position, name, column)
    return table


def _numbers_or_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers where every text left is one (they were read as text because of the marks among them)."""
    import pyarrow as pa

    for kind in (pa.int64(), pa.float64()):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column
