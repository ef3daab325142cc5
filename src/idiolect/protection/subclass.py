# SPDX-License-Identifier: Apache-2.0
"""A class with something before it in the order of bases, which passes for the class itself."""

from __future__ import annotations

import types
from typing import Any

from idiolect.core.settings import settings


def subclass(cls: type, before: type, **more: Any) -> Any:
    """`cls` under its own name with `before` in front of it, and with `more` attributes, fields among them.

    Callers keep what they get: programs are kept by type, and those of a new class would be compiled anew.
    """
    # errors, records and messages name the class that the user chose
    own = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    return settings(types.new_class(cls.__name__, (before, cls), exec_body=lambda space: space.update(own | more)))
