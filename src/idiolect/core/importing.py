# SPDX-License-Identifier: Apache-2.0
"""Things of the user's own, by the path that a spec names them with."""

from __future__ import annotations

import importlib
from typing import Any

from idiolect.core.checks import RequestError, nearest


def imported(path: str, what: str) -> Any:
    """The object at "package.module:attribute"; `what` is what the path is of, and what it must name."""
    module, _, attribute = path.partition(":")
    try:
        found = importlib.import_module(module)
    except (ImportError, ValueError, AttributeError) as error:
        raise RequestError(f"{what} and importable, got {path!r} ({error}); put its folder on PYTHONPATH.") from error
    if not hasattr(found, attribute):
        known = [name for name in vars(found) if not name.startswith("_")]
        raise RequestError(f"{what}, got {path!r}: {module} has no {attribute!r}.{nearest(attribute, known)}")
    return getattr(found, attribute)
