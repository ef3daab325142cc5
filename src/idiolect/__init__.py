# SPDX-License-Identifier: Apache-2.0
"""Personalized federated learning: one small definition per algorithm, run everywhere, answered per client.

Names are loaded on first use, so that `import idiolect` is instant. Nothing is imported here that `python -m` has not
loaded already: it would be looked for in the working directory first.
"""

import importlib

__version__ = "0.1.0"

_HOMES = {
    "idiolect.api.advising": ("Advice", "Explanation", "advise", "explain"),
    "idiolect.api.answers": ("Answer", "ClientAnswer", "TrainedRun"),
    "idiolect.api.estimators": ("PersonalizedClassifier", "PersonalizedRegressor"),
    "idiolect.api.loading": ("load",),
    "idiolect.api.running": ("compare", "sweep", "train"),
    "idiolect.api.splits": ("SplitsAnswer",),
    "idiolect.api.tables": ("Table", "data_set", "read_table"),
    "idiolect.algorithms": ("ALGORITHMS",),
    "idiolect.core": ("Algorithm", "DivergedError", "Objective", "PerClient", "RequestError", "Tally", "own_code"),
    "idiolect.data": ("Federation", "Split", "digits"),
    "idiolect.engines.debug": ("debug",),
    "idiolect.engines.simulate": ("Checkpoint", "Run", "Training", "simulate", "simulate_many"),
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
_ALIASES = {"simulate_many": "sweep"}  # `sweep` is the one of names and tables
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), _ALIASES.get(name, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
