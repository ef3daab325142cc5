# SPDX-License-Identifier: Apache-2.0
"""One column of a table: what it holds is found once, and read by types, warnings and preparation alike."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from idiolect.core.checks import RequestError
from idiolect.data.kinds import DATE, DATES, EXACT, NUMBER, TEXT, TRUTH, WORDS
from idiolect.data.task import label_name
from idiolect.record.words import first_line, nth_row, option

DAY_MICROSECONDS = 86_400_000_000
_TYPES = {  # kind -> tests of pyarrow.types; a column of nulls is one of numbers that are all missing
    TEXT: ("string", "large_string", "string_view"),
    TRUTH: ("boolean",),
    DATE: ("date", "timestamp"),
    NUMBER: ("integer", "floating", "decimal", "null"),
}


class Column:
    """A column with its name, for sentences; readings of it are made when asked for, and kept."""

    def __init__(self, name: str, data: pa.ChunkedArray):
        self.name, self.data = name, data

    def __len__(self) -> int:
        return len(self.data)

    def take(self, chosen: np.ndarray) -> Column:
        """The chosen rows alone, by a mask."""
        return Column(self.name, self.data.filter(pa.array(chosen)))

    @cached_property
    def kind(self) -> str | None:
        """Number, truth, date or text; None for what cannot be an input (lists, bytes, durations)."""
        for kind, tests in _TYPES.items():
            if any(getattr(pa.types, f"is_{test}")(self.data.type) for test in tests):
                return kind
        return None

    @property
    def present(self) -> int:
        """Rows that have a value."""
        return len(self.data) - self.data.null_count

    @cached_property
    def numbers(self) -> np.ndarray:
        """float64, not-a-number where missing. true / false become 1 / 0, dates become days since 1970."""
        data = self.data
        if self.kind is None or self.kind == TEXT:
            raise RequestError(
                f"Column {self.name!r} must hold numbers, got the type {data.type}; convert it, or leave it out with "
                f"{option('--drop', self.name)} (data.drop in a spec)."
            )
        try:
            if self.kind == TRUTH:
                data = data.cast(pa.int8())
            if self.kind == DATE:
                # days and all time units alike; the zone stays, or Arrow refuses the cast
                zone = getattr(data.type, "tz", None)
                data = data.cast(pa.timestamp("us", tz=zone), safe=False).cast(pa.int64())
            values = np.asarray(data.cast(pa.float64(), safe=False).to_numpy(), np.float64)
        except pa.ArrowException as error:
            raise RequestError(f"Column {self.name!r} cannot be read as numbers: {first_line(error)}.") from None
        # one infinite value would make the mean infinite, and every scaled value not-a-number
        infinite = np.flatnonzero(np.isinf(values))
        if infinite.size:
            raise RequestError(
                f"Column {self.name!r} is infinite in {nth_row(infinite[0])}; correct it or mark it as missing."
            )
        return values / DAY_MICROSECONDS if self.kind == DATE else values

    @cached_property
    def has_long_integers(self) -> bool:
        """Whether whole numbers beyond 2^53 are among the values: names rather than magnitudes."""
        if not pa.types.is_integer(self.data.type) or not self.present:
            return False
        extremes = pc.min_max(self.data).as_py()
        return bool(max(-extremes["min"], extremes["max"]) > EXACT)

    @cached_property
    def _encoded(self) -> pa.DictionaryArray:
        """Codes and the different values, in the order in which they come."""
        # of one piece: pieces would have dictionaries of their own, and codes that mean different values
        whole = self.data.combine_chunks()
        return (whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole).dictionary_encode()

    @property
    def distinct(self) -> int:
        """How many different values there are, missing ones aside."""
        return len(self._encoded.dictionary)

    @property
    def codes(self) -> np.ndarray:
        """The number of each row's value; missing ones count as a value of their own, the last."""
        return np.asarray(self._encoded.indices.fill_null(self.distinct), np.int64)

    @cached_property
    def texts(self) -> list[str | None]:
        """Texts exactly as written, None where missing; whole numbers as digits, truths as true or false."""
        if self.kind is None and not pa.types.is_binary(self.data.type):
            raise RequestError(
                f"Column {self.name!r} must hold texts or numbers, got the type {self.data.type}; convert it or choose "
                "another."
            )
        try:
            # once per different value, not per row
            values = self._encoded.dictionary.to_pylist()
            names = [None if value is None or value != value else label_name(value) for value in values]
        except (ValueError, OverflowError) as error:
            raise RequestError(f"Column {self.name!r} cannot be read as text: {error}.") from None
        return [None if code is None else names[code] for code in self._encoded.indices.to_pylist()]

    @property
    def labels(self) -> np.ndarray:
        """Labels without missing values: texts, booleans, or numbers that sort as numbers."""
        if self.kind not in (NUMBER, TRUTH) or pa.types.is_null(self.data.type):
            return np.array(self.texts, dtype=str)
        # NumPy has no decimals and would keep an object per row
        decimal = pa.types.is_decimal(self.data.type)
        return (self.data.cast(pa.float64(), safe=False) if decimal else self.data).to_numpy()

    def conform(self, kind: str) -> pa.ChunkedArray:
        """A typed column as a kind that is known from elsewhere; what cannot be read so is refused."""
        if kind == TEXT:
            return pa.chunked_array([pa.array(self.texts, pa.string())])
        # true and false are the numbers 1 and 0
        if (
            self.kind == kind
            or (self.kind == DATE and kind in DATES)
            or (self.kind is not None and {self.kind, kind} == {NUMBER, TRUTH})
        ):
            return self.data
        raise RequestError(f"Column {self.name!r} must hold {WORDS[kind]}, got the type {self.data.type}; convert it.")


def columns_of(table: pa.Table) -> dict[str, Column]:
    """Every column of a table, in order."""
    return {name: Column(name, table.column(name)) for name in table.column_names}


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without dictionary, run-length or extension around its values."""
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
