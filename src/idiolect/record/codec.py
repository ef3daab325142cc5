# SPDX-License-Identifier: Apache-2.0
"""Plain values to typed ones and back: specs, settings of methods and the JSON files of a run folder."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from idiolect.record.errors import DamagedError

Record = TypeVar("Record")
_PLAIN: dict[object, tuple[type, ...]] = {float: (int, float), int: (int,), str: (str,), bool: (bool,)}
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text in quotes",
    dict: "a table of settings",
    list: "a list",
    types.NoneType: "left out",
}
_PLURALS = {int: "whole numbers", float: "numbers", str: "texts in quotes"}


class MisfitError(Exception):
    """Where a value does not fit its type, and how."""


def to_json(value: object) -> Any:
    """Plain values that JSON can write; a number that is not finite becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    return _finite(value)


def flat(value: Mapping[str, Any], between: str) -> dict[str, Any]:
    """A table inside a table as more names of it: {"score": {"mean": 1}} has the name score_mean."""
    found: dict[str, Any] = {}
    for name, entry in value.items():
        inside = flat(entry, between) if isinstance(entry, dict) and entry else None
        found |= {name: entry} if inside is None else {f"{name}{between}{key}": one for key, one in inside.items()}
    return found


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_json(kind: type[Record], found: object, where: object) -> Record:
    """The record that `to_json` wrote; DamagedError names `where`, the place inside, and what is wrong there.

    A key too many or too few, or a value of another type, is damage.
    """
    try:
        return cast(Record, decode(kind, found))
    except MisfitError as error:
        raise DamagedError(f"{where} is damaged or was edited: {error}; copy it again, or rerun.") from None


def decode(kind: Any, found: object, at: str = "") -> object:
    """`found` as the annotated type `kind`, or MisfitError that names the place `at` and below.

    Whole numbers pass as floats; texts never pass as numbers, nor true and false.
    """
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind in (object, Any):
        return found
    if dataclasses.is_dataclass(kind):
        return _decode_record(cast(type, kind), found, at)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(kind, inside, found, at)
    if origin in (tuple, list):
        entries = _checked(found, list, at)
        return origin(decode(inside[0], entry, f"{at}[{n}]") for n, entry in enumerate(entries))
    if origin is dict:
        entries = _checked(found, dict, at)
        return {key: decode(inside[1], entry, _below(at, key)) for key, entry in entries.items()}
    return _decode_plain(kind, found, at)


def _decode_plain(kind: Any, found: object, at: str) -> object:
    # true and false are whole numbers to Python, and to nobody who writes a spec
    if not isinstance(found, _PLAIN.get(kind, types.NoneType)) or (isinstance(found, bool) and kind is not bool):
        raise MisfitError(f"{at} must be {type_words(kind)}, got {found!r:.40}")
    return float(cast(float, found)) if kind is float else found


def _decode_union(union: Any, kinds: tuple[Any, ...], found: object, at: str) -> object:
    if type(found) in kinds:  # a whole number stays one where a float would do, too
        return found
    for kind in kinds:
        if dataclasses.is_dataclass(kind) and isinstance(found, dict):
            return decode(kind, found, at)  # what is wrong is wrong about a part of this record
        with contextlib.suppress(MisfitError):
            return decode(kind, found, at)
    raise MisfitError(f"{at} must be {type_words(union)}, got {found!r:.40}")


def type_words(kind: Any) -> str:
    """A type as a person would ask for it, to follow 'must be'."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(type_words(one) for one in inside if not (one is int and float in inside))
    if origin in (list, tuple) and inside[0] in _PLURALS:
        return f"a list of {_PLURALS[inside[0]]}"
    return _WORDS.get(origin or kind, "another value")


def _decode_record(kind: type, found: object, at: str) -> object:
    entries, hints = _checked(found, dict, at), _hints(kind)
    missing = next((name for name in hints if name not in entries), None)
    if missing is not None:
        raise MisfitError(f"{_below(at, missing)} is missing")
    extra = next((name for name in entries if name not in hints), None)
    if extra is not None:
        raise MisfitError(f"{_below(at, extra)} is unknown")
    return kind(**{name: decode(hint, entries[name], _below(at, name)) for name, hint in hints.items()})


def _checked(found: object, kind: type, at: str) -> Any:
    if not isinstance(found, kind):
        rule = "an object" if kind is dict else "a list"
        raise MisfitError(f"{at or 'all of it'} must be {rule}, got {found!r:.40}")
    return found


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
