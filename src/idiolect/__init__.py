# SPDX-License-Identifier: Apache-2.0
"""Personalized federated learning: one small definition per algorithm, run everywhere, answered per client.

Names are loaded on first use, so that `import idiolect` is instant. Nothing is imported here that `python -m` has not
loaded already: it would be looked for in the working directory first.
"""

import importlib

__version__ = "0.1.0"

_HOMES = {
    "idiolect.api.answers": ("Advice", "Answer", "ClientAnswer", "SplitsAnswer", "TrainedRun", "load"),
    "idiolect.api.estimators": ("PersonalizedClassifier", "PersonalizedRegressor"),
    "idiolect.api.running": ("Explanation", "advise", "compare", "explain", "pack", "sweep", "train"),
    "idiolect.api.tables": ("Table", "data_set", "open_pack", "read_table"),
    "idiolect.algorithms": ("ALGORITHMS",),
    "idiolect.core": (
        "Algorithm",
        "Batched",
        "DivergedError",
        "Objective",
        "PerClient",
        "RequestError",
        "Tally",
        "own_code",
    ),
    "idiolect.data": ("Federation", "Split", "digits"),
    "idiolect.engines.debug": ("debug",),
    "idiolect.engines.simulate": ("Checkpoint", "Options", "Run", "Training", "simulate", "simulate_many"),
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


TYPE_CHECKING = False  # which type checkers take for true; `typing` itself could be a planted file
if TYPE_CHECKING:
    from idiolect.algorithms import ALGORITHMS as ALGORITHMS
    from idiolect.api.answers import Advice as Advice
    from idiolect.api.answers import Answer as Answer
    from idiolect.api.answers import ClientAnswer as ClientAnswer
    from idiolect.api.answers import SplitsAnswer as SplitsAnswer
    from idiolect.api.answers import TrainedRun as TrainedRun
    from idiolect.api.answers import load as load
    from idiolect.api.estimators import PersonalizedClassifier as PersonalizedClassifier
    from idiolect.api.estimators import PersonalizedRegressor as PersonalizedRegressor
    from idiolect.api.running import Explanation as Explanation
    from idiolect.api.running import advise as advise
    from idiolect.api.running import compare as compare
    from idiolect.api.running import explain as explain
    from idiolect.api.running import pack as pack
    from idiolect.api.running import sweep as sweep
    from idiolect.api.running import train as train
    from idiolect.api.tables import Table as Table
    from idiolect.api.tables import data_set as data_set
    from idiolect.api.tables import open_pack as open_pack
    from idiolect.api.tables import read_table as read_table
    from idiolect.core import Algorithm as Algorithm
    from idiolect.core import Batched as Batched
    from idiolect.core import DivergedError as DivergedError
    from idiolect.core import Objective as Objective
    from idiolect.core import PerClient as PerClient
    from idiolect.core import RequestError as RequestError
    from idiolect.core import Tally as Tally
    from idiolect.core import own_code as own_code
    from idiolect.data.bundled import digits as digits
    from idiolect.data.federation import Federation as Federation
    from idiolect.data.split import Split as Split
    from idiolect.engines.debug import debug as debug
    from idiolect.engines.simulate import Checkpoint as Checkpoint
    from idiolect.engines.simulate import Options as Options
    from idiolect.engines.simulate import Run as Run
    from idiolect.engines.simulate import Training as Training
    from idiolect.engines.simulate import simulate as simulate
    from idiolect.engines.simulate import simulate_many as simulate_many
    from idiolect.models import CNN as CNN
    from idiolect.models import MLP as MLP
    from idiolect.models import MODELS as MODELS
    from idiolect.models import CharacterLSTM as CharacterLSTM
    from idiolect.models import Linear as Linear
    from idiolect.models import Location as Location
    from idiolect.models import Model as Model
    from idiolect.models import ResNet18 as ResNet18
    from idiolect.models import WordLSTM as WordLSTM
    from idiolect.objectives import APFL2 as APFL2
    from idiolect.objectives import MAML as MAML
    from idiolect.objectives import MT2 as MT2
    from idiolect.objectives import MX2 as MX2
    from idiolect.objectives import OBJECTIVES as OBJECTIVES
    from idiolect.objectives import WS2 as WS2
    from idiolect.objectives import Additive as Additive
    from idiolect.objectives import ClientLoss as ClientLoss
    from idiolect.objectives import GlobalModel as GlobalModel
    from idiolect.objectives import LocalOnly as LocalOnly
    from idiolect.objectives import Residual as Residual
