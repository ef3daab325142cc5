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
    except (Exception, SystemExit) as error:
        if not isinstance(error, ImportError | ValueError | AttributeError):  # it was found, and is at fault
            reason = f"{type(error).__name__}: {error}"
            raise RequestError(f"{what} and importable, got {path!r} ({reason}); mend that file.") from error
        raise RequestError(f"{what} and importable, got {path!r} ({error}); put its folder on PYTHONPATH.") from error
    if not hasattr(found, attribute):
        known = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == module]
        raise RequestError(f"{what}, got {path!r}: {module} has no {attribute!r}.{nearest(attribute, known)}")
    return getattr(found, attribute)
