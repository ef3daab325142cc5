# SPDX-License-Identifier: Apache-2.0
"""Answers of `predict` into a CSV or Parquet file, or as CSV into a stream; cells of the table as they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from idiolect.core.checks import RequestError
from idiolect.record.files import whole


def check_out(path: Path) -> None:
    """RequestError unless the answers can go into a new file of this name."""
    if path.suffix not in (".csv", ".parquet"):
        raise RequestError(f"--out must end in .csv or .parquet, got {path.name!r}.")
    if path.exists():
        raise RequestError(f"--out must name a new file, and {path} is there already; choose another name.")


def write_answers(answers: pa.Table, path: Path) -> None:
    """Write a CSV or Parquet file, by the name's ending, whole or not at all."""
    from pyarrow import parquet

    check_out(path)
    content = _csv(answers, str(path)) if path.suffix == ".csv" else None
    with whole(path) as unfinished:
        if content is None:
            parquet.write_table(answers, unfinished)
        else:
            Path(unfinished).write_bytes(content)


def print_answers(answers: pa.Table, stream: Any) -> None:
    """CSV into a stream of bytes."""
    stream.write(_csv(answers, "A CSV"))


def _csv(answers: pa.Table, what: str) -> bytes:
    """Comma-separated lines; quotes only where a cell needs them, since a number in quotes would be read as text."""
    try:
        columns = [_cells(column.cast(pa.string())) for column in answers.columns]
    except pa.ArrowException as error:
        first = str(error).partition("\n")[0]
        raise RequestError(f"{what} cannot hold these columns ({first}); write them with --out FILE.parquet.") from None
    heading = ",".join(_cells(pa.chunked_array([pa.array(answers.column_names, pa.string())])).to_pylist())
    lines = pc.binary_join_element_wise(*columns, ",").to_pylist()
    return ("\n".join([heading, *lines]) + "\n").encode()


def _cells(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = pc.fill_null(texts, "")
    quoted = pc.binary_join_element_wise("", pc.replace_substring(texts, '"', '""'), "", '"')
    return pc.if_else(pc.match_substring_regex(texts, '[",\r\n]'), quoted, texts)
