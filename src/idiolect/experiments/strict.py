# SPDX-License-Identifier: Apache-2.0
"""Tables become dataclasses strictly: unknown names are refused with the nearest one, types are checked."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import pydantic

from idiolect.core.checks import RequestError, check, nearest

Record = TypeVar("Record")


def fill(cls: type[Record], table: Any, where: str) -> Record:
    """An instance of the dataclass `cls` from a table; errors name the place `where` in the file."""
    if not isinstance(table, Mapping):
        raise RequestError(f"[{where}] must be a table of settings, got {table!r}.")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    refuse_unknown(table, fields, f"[{where}]")
    hints = typing.get_type_hints(cls)
    values = {name: coerce(hints[name], value, f"[{where}] {name}") for name, value in table.items()}
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
    """`value` as the annotated type; whole numbers pass as floats, texts never pass as numbers."""
    try:
        return pydantic.TypeAdapter(hint).validate_python(value)
    except pydantic.ValidationError as error:
        reason = error.errors()[0]["msg"].lower()
        raise RequestError(f"{where} got {value!r}: {reason}. It is of type {_type_name(hint)}.") from None


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
