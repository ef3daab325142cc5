# SPDX-License-Identifier: Apache-2.0
"""Personalized federated learning: one small definition per algorithm, run everywhere, answered per client.

Names are loaded on first use, so that `import idiolect` is instant.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "idiolect.algorithms": ("ALGORITHMS",),
    "idiolect.core": ("Algorithm", "DivergedError", "Objective", "PerClient", "RequestError", "Tally"),
    "idiolect.data": ("Federation", "Split", "digits"),
    "idiolect.engines.debug": ("debug",),
    "idiolect.engines.simulate": ("Checkpoint", "Run", "Training", "simulate", "sweep"),
    "idiolect.models": ("CNN", "MLP", "MODELS", "CharacterLSTM", "Linear", "Location", "Model", "ResNet18", "WordLSTM"),
    "idiolect.objectives": (
        "APFL2",
        "MAML",
        "MT2",
        "MX2",
        "OBJECTIVES",
        "WS2",
        "Additive",
        "ClientLoss",
        "GlobalModel",
        "LocalOnly",
        "Residual",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
