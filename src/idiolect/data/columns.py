# SPDX-License-Identifier: Apache-2.0
"""One Arrow column as NumPy: numbers with not-a-number for missing, texts with None, or labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from idiolect.core.checks import RequestError
from idiolect.data.kinds import DATE, EXACT, NUMBER, TEXT, TRUTH, convert
from idiolect.data.task import label_name

if TYPE_CHECKING:
    import pyarrow as pa

DAY_MICROSECONDS = 86_400_000_000


def is_text(column: pa.ChunkedArray) -> bool:
    """Whether the column holds texts, in any of Arrow's three layouts."""
    import pyarrow as pa

    kind = column.type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without dictionary, run-length or extension around its values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    for _ in range(4):  # one around another
        kind = column.type
        if types.is_dictionary(kind):
            chunks = [chunk.dictionary_decode() for chunk in column.chunks]
            column = pa.chunked_array(chunks, type=kind.value_type)
        elif types.is_run_end_encoded(kind):
            column = pa.chunked_array([pc.run_end_decode(chunk) for chunk in column.chunks], type=kind.value_type)
        elif isinstance(kind, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks], type=kind.storage_type)
        else:
            break
    return column


def kind_of(column: pa.ChunkedArray) -> str | None:
    """What a column holds: number, truth, date or text; None for what cannot be an input (lists, bytes, durations)."""
    import pyarrow as pa

    types, kind = pa.types, column.type
    if is_text(column):
        return TEXT
    if types.is_boolean(kind):
        return TRUTH
    if types.is_date(kind) or types.is_timestamp(kind):
        return DATE
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)
    return NUMBER if numeric else None


def conform(column: pa.ChunkedArray, kind: str, name: str) -> pa.ChunkedArray:
    """The column as a kind that is known from elsewhere; what cannot be read so is refused."""
    import pyarrow as pa

    found = kind_of(column)
    if kind == TEXT:
        return column if found == TEXT else pa.chunked_array([pa.array(as_texts(column, name), pa.string())])
    if found == TEXT:
        return convert(column, kind, name)
    if found == kind or (found is not None and {found, kind} == {NUMBER, TRUTH}):
        return column
    words = {NUMBER: "numbers", TRUTH: "true or false", DATE: "dates"}[kind]
    raise RequestError(f"Column {name!r} must hold {words}, got the type {column.type}; convert it.")


def as_numbers(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """float64, not-a-number where missing. true / false become 1 / 0, dates become days since 1970."""
    import pyarrow as pa

    kind = kind_of(column)
    if kind is None or kind == TEXT:
        raise RequestError(
            f"Column {name!r} must hold numbers, got the type {column.type}; convert it, or leave it out with "
            f"--drop {name} (data.drop in a spec)."
        )
    try:
        if kind == TRUTH:
            column = column.cast(pa.int8())
        if kind == DATE:
            zone = getattr(column.type, "tz", None)
            column = column.cast(pa.timestamp("us", tz=zone), safe=False).cast(pa.int64())
        values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)
    except pa.ArrowException as error:
        raise RequestError(f"Column {name!r} cannot be read as numbers: {str(error).splitlines()[0]}.") from None
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        raise RequestError(f"Column {name!r} is infinite in row {infinite[0]}; correct it or mark it as missing.")
    return values / DAY_MICROSECONDS if kind == DATE else values


def has_long_integers(column: pa.ChunkedArray) -> bool:
    """Whether whole numbers beyond 2^53 are among the values: names rather than magnitudes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_integer(column.type) or column.null_count == len(column):
        return False
    extremes = pc.min_max(column).as_py()
    return max(-extremes["min"], extremes["max"]) > EXACT


def as_texts(column: pa.ChunkedArray, name: str) -> list[str | None]:
    """Texts exactly as written, None where missing; whole numbers as digits, truths as true or false."""
    import pyarrow as pa

    if kind_of(column) is None and not pa.types.is_binary(column.type):
        raise RequestError(
            f"Column {name!r} must hold texts or numbers, got the type {column.type}; convert it or choose another."
        )
    encoded = column.combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    encoded = encoded.dictionary_encode()
    try:
        names = [_written(value) for value in encoded.dictionary.to_pylist()]
    except (ValueError, OverflowError) as error:
        raise RequestError(f"Column {name!r} cannot be read as text: {error}.") from None
    return [None if code is None else names[code] for code in encoded.indices.to_pylist()]


def _written(value: Any) -> str | None:
    if value is None or value != value:
        return None
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else label_name(value)


def as_labels(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Labels without missing values: texts, booleans, or numbers that sort as numbers."""
    import pyarrow as pa

    kind = kind_of(column)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False)
    if kind in (NUMBER, TRUTH) and not pa.types.is_null(column.type):
        return column.to_numpy()
    return np.array(as_texts(column, name), dtype=str)
