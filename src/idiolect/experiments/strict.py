# SPDX-License-Identifier: Apache-2.0
"""Tables become dataclasses strictly: unknown names are refused with the nearest one, types are checked."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from idiolect.core.checks import RequestError, check, nearest
from idiolect.record.codec import MisfitError, decode, type_words

Record = TypeVar("Record")

LARGEST = 2**31  # whole numbers become 32-bit integers on the device


def fill(cls: type[Record], table: Any, where: str) -> Record:
    """An instance of the dataclass `cls` from a table; errors name the place `where` in the file."""
    if not isinstance(table, Mapping):
        raise RequestError(f"[{where}] must be a table of settings, got {table!r}.")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    refuse_unknown(table, fields, f"[{where}]")
    hints = typing.get_type_hints(cls)
    values = {name: coerce(hints[name], value, f"{where}.{name}") for name, value in table.items()}
    for name, field in fields.items():
        bare = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if bare and name not in values:
            raise RequestError(f"[{where}] needs {name}; set it to {type_words(hints[name])}.")
    for name, value in values.items():
        if "range" in fields[name].metadata:
            check(where, name, value, fields[name].metadata["range"])
    return cls(**values)


def refuse_unknown(table: Mapping[str, Any], known: Any, owner: str) -> None:
    """RequestError for the first name that is not known."""
    for name in table:
        if name not in known:
            raise RequestError(f"{owner} has no setting {name!r}.{nearest(name, known)}")


def coerce(hint: Any, value: Any, where: str) -> Any:
    """`value` as the annotated type; whole numbers pass as floats, texts and true / false never pass as numbers."""
    try:
        kept = decode(hint, value)
    except MisfitError:
        raise RequestError(f"{where} must be {type_words(hint)}, got {value!r}.") from None
    for number in kept if isinstance(kept, list | tuple) else [kept]:
        if isinstance(number, float) and not math.isfinite(number):
            raise RequestError(f"{where} must be a finite number, got {number}; write one such as 0.1.")
        if isinstance(number, int) and abs(number) >= LARGEST:
            raise RequestError(f"{where} must be below 2^31, got {number}; use a smaller number.")
    return kept
