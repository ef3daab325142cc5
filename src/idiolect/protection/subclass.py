# SPDX-License-Identifier: Apache-2.0
"""Something before the class of an algorithm or objective in the order of bases, which passes for the class itself."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import TYPE_CHECKING, Any, TypeVar

from idiolect.core import settings

Owner = TypeVar("Owner")

if TYPE_CHECKING:  # what stands before another class in the order of bases is no algorithm, or objective, by itself
    Before = Any
else:
    Before = object


def put_before(owner: Owner, before: type, **more: Any) -> Owner:
    """`owner` with `before` in front of its class, and values of the fields that this one brings."""
    cls: Any = type(owner)
    made: Owner = _subclass(cls, before)(**values_of(owner), **more)
    return made


def values_of(owner: Any) -> dict[str, Any]:
    """Its settings."""
    return {field.name: getattr(owner, field.name) for field in dataclasses.fields(owner)}


# programs are kept by type, and those of a new class would be compiled anew
@functools.cache
def _subclass(cls: type, before: type) -> Any:
    # errors, records and messages name the class that the user chose
    own = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    return settings(types.new_class(cls.__name__, (before, cls), exec_body=lambda space: space.update(own)))
