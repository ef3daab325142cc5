# SPDX-License-Identifier: Apache-2.0
"""What a column of texts holds - numbers, true/false, dates or texts - by one rule over the whole column."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from idiolect.core.checks import RequestError

if TYPE_CHECKING:
    import pyarrow as pa

NUMBER, TRUTH, DATE, TEXT = "number", "truth", "date", "text"
KINDS = (NUMBER, TRUTH, DATE, TEXT)
MISSING_MARKS = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
EXACT = 2**53  # whole numbers beyond it cannot be told apart in double precision

_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[iI]nf(?:inity)?|INF)")
_COMMA_NUMBER = re.compile(r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_DATE = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_AMBIGUOUS_DATE = re.compile(r"[0-9]{1,4}([/.-])[0-9]{1,2}\1[0-9]{1,4}(?:[T ].*)?")
_TRUTHS = {"true": True, "false": False}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Decision(NamedTuple):
    """A column's kind, and the sentence about it where it is a guess: a note, or a warning if it may be a slip."""

    kind: str
    note: str = ""
    warning: str = ""


def decide(name: str, distinct: Sequence[str], quoted: bool = False, decimal_comma: bool = False) -> Decision:
    """The kind of a column with these different values (trimmed, none missing).

    All true or false: truth. All dates as 2024-01-31: dates. All numbers: numbers, unless the column stands in quotes
    (and others do not), has leading zeros, or has whole numbers beyond 2^53, which are names. Otherwise: texts.
    """
    if all(value.lower() in _TRUTHS for value in distinct):
        return Decision(TRUTH)
    numbers = [value for value in distinct if is_number(value, decimal_comma)]
    if len(numbers) == len(distinct):
        return _numbers_or_names(name, distinct, quoted)
    if all(_DATE.fullmatch(value) and _moment(value) is not None for value in distinct):
        return Decision(DATE)
    if all(_AMBIGUOUS_DATE.fullmatch(value) for value in distinct):
        return Decision(
            TEXT,
            warning=f"Column {name!r} looks like dates but is read as text, because {distinct[0]!r} can be read in "
            "more than one way; write them as 2024-01-31.",
        )
    if len(numbers) > 1 and len(numbers) >= 0.8 * len(distinct):
        other = next(value for value in distinct if not is_number(value, decimal_comma))
        return Decision(
            TEXT,
            warning=f"Column {name!r} is read as text, because {other!r} is not a number although most of its values "
            "are; correct it, or leave such cells empty.",
        )
    return Decision(TEXT)


def is_number(text: str, decimal_comma: bool = False) -> bool:
    """Whether a trimmed text is a number, with a point or (where commas do not separate columns) a comma."""
    return bool(_NUMBER.fullmatch(text) or (decimal_comma and _COMMA_NUMBER.fullmatch(text)))


def _numbers_or_names(name: str, distinct: Sequence[str], quoted: bool) -> Decision:
    if quoted:
        return Decision(TEXT, f"Column {name!r} is read as text, because its values stand in quotes.")
    zeros = next((value for value in distinct if _LEADING_ZERO.match(value)), None)
    if zeros is not None:
        return Decision(TEXT, f"Column {name!r} is read as text, because of leading zeros as in {zeros!r}.")
    long = next((value for value in distinct if _WHOLE.fullmatch(value) and beyond_exact(value)), None)
    if long is not None:
        return Decision(
            TEXT, f"Column {name!r} is read as text, because {long} has more digits than a number can keep."
        )
    comma = next((value for value in distinct if "," in value), None)
    if comma is None:
        return Decision(NUMBER)
    mixed = next((value for value in distinct if "." in value), None)
    if mixed is not None:
        return Decision(
            TEXT, warning=f"Column {name!r} is read as text, because it writes numbers both as {comma!r} and {mixed!r}."
        )
    return Decision(NUMBER, f"Column {name!r} is read as numbers with a decimal comma, such as {comma}.")


def beyond_exact(whole: str) -> bool:
    """Whether a whole number in digits is beyond 2^53."""
    digits = whole.lstrip("+-").lstrip("0")
    return len(digits) > 16 or (bool(digits) and int(digits) > EXACT)


def convert(column: pa.ChunkedArray, kind: str, name: str, decimal_comma: bool = False) -> pa.ChunkedArray:
    """Texts (null where missing) as the kind's Arrow type; a text that is not of that kind is refused with its row."""
    import pyarrow as pa

    if kind == TEXT:
        return column
    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    values, read = encoded.dictionary.to_pylist(), _READERS[kind]
    found = [read(value.strip(), decimal_comma) for value in values]
    if None in found:
        wrong = values[found.index(None)]
        row = encoded.indices.to_pylist().index(found.index(None))
        words = {NUMBER: "numbers", TRUTH: "true or false", DATE: "dates such as 2024-01-31"}[kind]
        raise RequestError(
            f"Column {name!r} must hold {words}, but row {row} has {_short(wrong)}; correct it, or leave the cell "
            f"empty to count it as missing."
        )
    arrow_type = _arrow_type(kind, values)
    if arrow_type == pa.float64():
        found = [float(value) for value in found]
    return pa.chunked_array([pa.array(found, arrow_type).take(encoded.indices)])


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _number(text: str, decimal_comma: bool) -> float | int | None:
    if not is_number(text, decimal_comma):
        return None
    if _WHOLE.fullmatch(text) and not beyond_exact(text):
        return int(text)
    return float(text.replace(",", "."))


def _truth(text: str, decimal_comma: bool) -> float | None:
    value = _TRUTHS.get(text.lower())
    return _number(text, decimal_comma) if value is None else value


def _moment(text: str, decimal_comma: bool = False) -> int | None:
    """Microseconds since 1970; a time without a zone is taken as it stands."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


_READERS: dict[str, Callable[[str, bool], Any]] = {NUMBER: _number, TRUTH: _truth, DATE: _moment}


def _arrow_type(kind: str, values: Sequence[str]) -> Any:
    import pyarrow as pa

    if kind == DATE:
        return pa.timestamp("us")
    if kind == TRUTH and all(value.strip().lower() in _TRUTHS for value in values):
        return pa.bool_()
    whole = kind == NUMBER and all(
        _WHOLE.fullmatch(value.strip()) and not beyond_exact(value.strip()) for value in values
    )
    return pa.int64() if whole else pa.float64()
