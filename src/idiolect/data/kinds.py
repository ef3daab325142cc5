# SPDX-License-Identifier: Apache-2.0
"""What a column of texts holds - numbers, true/false, dates or texts - by one rule over the whole column."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from idiolect.core.checks import RequestError
from idiolect.record.words import nth_row

NUMBER, TRUTH, DATE, TEXT = "number", "truth", "date", "text"
DAY_FIRST, MONTH_FIRST = "date, day first", "date, month first"  # dates that are written as 31.01.2024 or 01/31/2024
DATES = (DATE, DAY_FIRST, MONTH_FIRST)
KINDS = (NUMBER, TRUTH, *DATES, TEXT)
WORDS = {  # for what must be in a column
    NUMBER: "numbers",
    TRUTH: "true or false",
    DATE: "dates such as 2024-01-31",
    DAY_FIRST: "dates such as 2024-01-31 or 31.01.2024",
    MONTH_FIRST: "dates such as 2024-01-31 or 01/31/2024",
}
MISSING_MARKS = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
MOSTLY = 0.8  # of the different values
EXACT = 2**53  # whole numbers beyond it cannot be told apart in double precision

_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = rf"[+-]?(?:{_DIGITS}|[iI]nf(?:inity)?|INF)"
_COMMA_NUMBER = r"[+-]?[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?"
_WHOLE = r"[+-]?[0-9]+"
_LEADING_ZERO = r"[+-]?0[0-9].*"
_LONG = r"[+-]?0*[1-9][0-9]{15,}"  # sixteen digits or more: perhaps beyond 2^53
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
_CLOCK = "(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?"
_YEAR_LAST = rf"([0-9]{{1,2}})([/.-])([0-9]{{1,2}})([/.-])([0-9]{{4}})({_CLOCK})"
_AMBIGUOUS_DATE = r"[0-9]{1,4}[/.-][0-9]{1,2}[/.-][0-9]{1,4}(?:[T ].*)?"
_TRUTHS = {"true": True, "false": False}
Texts = TypeVar("Texts", pa.Array, pa.ChunkedArray)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Decision(NamedTuple):
    """A column's kind, and the sentence about it where it is a guess: a note, or a warning if it may be a slip."""

    kind: str
    note: str = ""
    warning: str = ""


def decide(name: str, distinct: pa.Array, quoted: bool = False, decimal_comma: bool = False) -> Decision:
    """The kind of a column with these different values (trimmed texts, none missing).

    All true or false: truth. All dates as 2024-01-31, or with the year last in an order of day and month that one of
    them settles for all: dates. All numbers: numbers, unless the column stands in quotes
    (and others do not), has leading zeros, or has whole numbers beyond 2^53, which are names. Otherwise: texts.
    """
    # True, TRUE, true and so on: a column of truths has few different spellings, and longer ones need no look
    if len(distinct) <= len(_TRUTHS) * 4 and all(value.lower() in _TRUTHS for value in distinct.to_pylist()):
        return Decision(TRUTH)
    # by a pattern and not by trying to convert: a converter takes more, as Python takes "1_000"
    numbers = _matches(distinct, _number_pattern(decimal_comma))
    if pc.all(numbers, min_count=0).as_py():
        return _numbers_or_names(name, distinct, quoted)
    if _first(distinct, _DATE, matching=False) is None and None not in map(_moment, distinct.to_pylist()):
        return Decision(DATE)
    return _year_last(name, distinct) or Decision(TEXT, warning=_slip(name, distinct, numbers))


def _year_last(name: str, distinct: pa.Array) -> Decision | None:
    """Dates as 31.01.2024 where all of them can be read in one order of day and month alone; else None."""
    if _first(distinct, _YEAR_LAST, matching=False) is not None:
        return None
    texts = distinct.to_pylist()
    orders = [
        kind for kind in (DAY_FIRST, MONTH_FIRST) if all(_READERS[kind](text, False) is not None for text in texts)
    ]
    if len(orders) == 2:  # where day and month are equal in all of them, the order is not known but not needed
        return None if _either_way(texts) else Decision(DATE)
    if not orders:
        return None
    other = DAY_FIRST if orders == [MONTH_FIRST] else MONTH_FIRST
    shown = next(text for text in texts if _READERS[other](text, False) is None)
    return Decision(orders[0], f"Column {name!r} is read as dates, {orders[0].split(', ')[1]} as in {_short(shown)}.")


def _either_way(texts: Sequence[str]) -> str | None:
    """The first date that is another one with the month first."""
    return next((one for one in texts if None not in (found := _both_ways(one)) and found[0] != found[1]), None)


def _both_ways(text: str) -> tuple[int | None, int | None]:
    return _day_first(text), _month_first(text)


def _slip(name: str, distinct: pa.Array, numbers: pa.Array) -> str:
    """A warning where texts look like something else that was written in an unusual way."""
    if _first(distinct, _AMBIGUOUS_DATE, matching=False) is None:
        texts = distinct.to_pylist()
        shown = _either_way(texts)
        why = f"{_short(shown or texts[0])} can be read in more than one way"
        if shown is None and _first(distinct, _YEAR_LAST, matching=False) is None:
            why = "day and month do not stand in the same order everywhere"
        return f"Column {name!r} looks like dates but is read as text: {why}; write them as 2024-01-31."
    comma = _first(distinct, _COMMA_NUMBER)
    if comma is not None and _first(distinct, _number_pattern(True), matching=False) is None:
        return (
            f"Column {name!r} is read as text, because {comma!r} may be a decimal or a thousands comma; write 1.5 for "
            "the one and 1500 for the other."
        )
    amount = pc.sum(numbers).as_py() or 0
    if amount > 1 and amount >= MOSTLY * len(distinct):
        other = distinct.filter(pc.invert(numbers))[0].as_py()
        return (
            f"Column {name!r} is read as text, because {_short(other)} is not a number although most of its values "
            "are; correct it, or leave such cells empty."
        )
    return ""


def is_number(text: str, decimal_comma: bool = False) -> bool:
    """Whether a trimmed text is a number, with a point or (where commas do not separate columns) a comma."""
    return re.fullmatch(_number_pattern(decimal_comma), text) is not None


def _number_pattern(decimal_comma: bool) -> str:
    return f"(?:{_NUMBER}|{_COMMA_NUMBER})" if decimal_comma else _NUMBER


def _matches(texts: Texts, pattern: str) -> Texts:
    """Which texts match as a whole."""
    return pc.match_substring_regex(texts, rf"\A(?s:{pattern})\z")


def _first(texts: pa.Array, pattern: str, matching: bool = True) -> str | None:
    """The first text that matches, or the first that does not."""
    found = _matches(texts, pattern)
    chosen = texts.filter(found if matching else pc.invert(found))
    return str(chosen[0].as_py()) if len(chosen) else None


def _numbers_or_names(name: str, distinct: pa.Array, quoted: bool) -> Decision:
    # who puts quotes around some columns alone says that these are names
    if quoted:
        return Decision(TEXT, f"Column {name!r} is read as text, because its values stand in quotes.")
    # postcodes, article numbers: read as numbers, 01 and 1 would become one
    zeros = _first(distinct, _LEADING_ZERO)
    if zeros is not None:
        return Decision(TEXT, f"Column {name!r} is read as text, because of leading zeros as in {_short(zeros)}.")
    long = next(filter(beyond_exact, distinct.filter(_matches(distinct, _LONG)).to_pylist()), None)
    if long is not None:
        return Decision(
            TEXT, f"Column {name!r} is read as text, because {_short(long)} has more digits than a number can keep."
        )
    comma = _first(distinct, ".*,.*")
    if comma is None:
        return Decision(NUMBER)
    # 1,5 beside 1.5: one of the two is a thousands separator, and nothing says which
    point = _first(distinct, r".*\..*")
    if point is not None:
        return Decision(
            TEXT, warning=f"Column {name!r} is read as text, because it writes numbers both as {comma!r} and {point!r}."
        )
    return Decision(NUMBER, f"Column {name!r} is read as numbers with a decimal comma, such as {comma}.")


def beyond_exact(whole: str) -> bool:
    """Whether a whole number in digits is beyond 2^53."""
    digits = whole.lstrip("+-").lstrip("0")
    return len(digits) > 16 or (bool(digits) and int(digits) > EXACT)


def convert(column: pa.ChunkedArray, kind: str, name: str, decimal_comma: bool = False) -> pa.ChunkedArray:
    """Texts (null where missing) as the kind's Arrow type; a text that is not of that kind is refused with its row."""
    if kind == TEXT:
        return column
    # nearly every column is plain, and Arrow is ten times as quick as a loop over different texts
    plain = _plain_numbers(column) if kind == NUMBER else None
    if plain is not None:
        return plain
    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    values, read = encoded.dictionary.to_pylist(), _READERS[kind]
    # each different text is read once, however many rows have it
    found = [read(value.strip(), decimal_comma) for value in values]
    if None in found:
        wrong = values[found.index(None)]
        row = encoded.indices.to_pylist().index(found.index(None))
        raise RequestError(
            f"Column {name!r} must hold {WORDS[kind]}, but {nth_row(row)} has {_short(wrong)}; correct it, or "
            "leave the cell empty to count it as missing."
        )
    return pa.chunked_array([_typed(found, kind).take(encoded.indices)])


def _plain_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Numbers by Arrow's own reader, which is quick, where all are written so that it reads them as we do."""
    texts = pc.utf8_trim_whitespace(column)
    if not pc.all(_matches(texts, _NUMBER)).as_py():
        return None
    # fifteen digits are below 2^53 for sure; a longer column becomes floats, or went to names before
    whole = pc.all(_matches(texts, r"[+-]?[0-9]{1,15}")).as_py()
    try:
        return texts.cast(pa.int64() if whole else pa.float64())
    except pa.ArrowException:  # such as '+1'
        return None


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _number(text: str, decimal_comma: bool) -> float | int | None:
    if not is_number(text, decimal_comma):
        return None
    if re.fullmatch(_WHOLE, text) and not beyond_exact(text):
        return int(text)
    return float(text.replace(",", "."))


def _truth(text: str, decimal_comma: bool) -> float | None:
    return _TRUTHS.get(text.lower(), _number(text, decimal_comma))


def _moment(text: str, decimal_comma: bool = False) -> int | None:
    """Microseconds since 1970; a time without a zone is taken as it stands."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    # Python cannot subtract a time without a zone from one that has one
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def _ordered(text: str, day: int, month: int) -> int | None:
    """The moment of a date with the year last whose day and month stand at these places; None where it is none."""
    parts = re.fullmatch(_YEAR_LAST, text)
    if parts is None or parts[2] != parts[4]:
        return None
    return _moment(f"{parts[5]}-{parts[month]:0>2}-{parts[day]:0>2}{parts[6]}")


def _date(text: str, decimal_comma: bool) -> int | None:
    """A date that can be read in one way only: the year first, or day and month equal."""
    found = _moment(text)
    if found is None:
        first, second = _both_ways(text)
        found = first if first == second else None
    return found


def _day_first(text: str, decimal_comma: bool = False) -> int | None:
    found = _ordered(text, 1, 3)
    return _moment(text) if found is None else found


def _month_first(text: str, decimal_comma: bool = False) -> int | None:
    found = _ordered(text, 3, 1)
    return _moment(text) if found is None else found


_READERS: dict[str, Callable[[str, bool], float | int | None]] = {
    NUMBER: _number,
    TRUTH: _truth,
    DATE: _date,
    DAY_FIRST: _day_first,
    MONTH_FIRST: _month_first,
}


def _typed(found: Sequence[float | int | None], kind: str) -> pa.Array:
    """What the readers gave, in the kind's Arrow type."""
    if kind in DATES:
        return pa.array(found, pa.timestamp("us"))
    # a column that was truths where it was learnt may hold 0 and 1 in another file: then all become numbers
    plain = bool if kind == TRUTH else int
    if all(type(value) is plain for value in found):
        return pa.array(found, pa.bool_() if kind == TRUTH else pa.int64())
    return pa.array([float(value or 0) for value in found], pa.float64())
