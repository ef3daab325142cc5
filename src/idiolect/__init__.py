# SPDX-License-Identifier: Apache-2.0
"""Personalized federated learning: one small definition per algorithm, run everywhere, answered per client.

Names are loaded on first use, so that `import idiolect` is instant. Nothing is imported here that `python -m` has not
loaded already: it would be looked for in the working directory first.
"""

import importlib

__version__ = "0.1.0"

_HOMES = {
    "idiolect.algorithms": ("ALGORITHMS",),
    "idiolect.core": ("Algorithm", "DivergedError", "Objective", "PerClient", "RequestError", "Tally", "own_code"),
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


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
