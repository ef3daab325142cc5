# SPDX-License-Identifier: Apache-2.0
"""One Arrow column as NumPy: numbers with not-a-number for missing, texts with None, or labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.task import label_name

if TYPE_CHECKING:
    import pyarrow as pa

DAY_MICROSECONDS = 86_400_000_000


def is_text(column: pa.ChunkedArray) -> bool:
    """Whether the column holds texts, in any of Arrow's three layouts."""
    import pyarrow as pa

    kind = column.type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def as_numbers(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """float64, not-a-number where missing. true / false become 1 / 0, dates become days since 1970."""
    import pyarrow as pa

    kind = column.type
    types = pa.types
    if types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif types.is_date(kind) or types.is_timestamp(kind):
        moments = column.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        return moments.cast(pa.float64(), safe=False).to_numpy() / DAY_MICROSECONDS
    elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)):
        raise RequestError(
            f"Column {name!r} must hold numbers, got the type {kind}; convert it or leave it out with features=."
        )
    values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        raise RequestError(f"Column {name!r} is infinite in row {infinite[0]}; mend it or mark it as missing.")
    return values


def as_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Texts, None where missing; numbers and booleans as `label_name` writes them."""
    return [None if value is None or value != value else label_name(value) for value in column.to_pylist()]


def as_labels(column: pa.ChunkedArray) -> np.ndarray:
    """Labels or ids without missing values: texts, booleans, or numbers that sort as numbers."""
    import pyarrow as pa

    kind = column.type
    if is_text(column):
        return np.array(column.to_pylist(), dtype=str)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.to_numpy()
    return np.array([str(value) for value in column.to_pylist()])
