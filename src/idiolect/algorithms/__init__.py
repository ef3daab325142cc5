# SPDX-License-Identifier: Apache-2.0
"""The registry of algorithms: every file of this folder lists its names in METHODS.

One of your own is named by its path, "package.module:Class".
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from typing import TYPE_CHECKING

from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError, nearest
from idiolect.core.importing import imported
from idiolect.core.method import Method

if TYPE_CHECKING:  # classes that papers and tests name; at run time `__getattr__` finds every one
    from idiolect.algorithms.acd_pfl import ACDPFL as ACDPFL
    from idiolect.algorithms.all_for_all import AllForAll as AllForAll
    from idiolect.algorithms.all_for_all_adaptive import AllForAllAdaptive as AllForAllAdaptive
    from idiolect.algorithms.all_for_all_naive import AllForAllNaive as AllForAllNaive
    from idiolect.algorithms.all_for_one import AllForOne as AllForOne
    from idiolect.algorithms.apfl import APFL as APFL
    from idiolect.algorithms.ascd_pfl import ASCDPFL as ASCDPFL
    from idiolect.algorithms.ascd_then_asvrcd import ASCDThenASVRCD as ASCDThenASVRCD
    from idiolect.algorithms.asvrcd_pfl import ASVRCDPFL as ASVRCDPFL
    from idiolect.algorithms.asvrcd_pfl import SVRCDPFL as SVRCDPFL
    from idiolect.algorithms.ditto import Ditto as Ditto
    from idiolect.algorithms.flow import Flow as Flow
    from idiolect.algorithms.ifca import IFCA as IFCA
    from idiolect.algorithms.knn_per import KNNPer as KNNPer
    from idiolect.algorithms.l2gd import L2GD as L2GD
    from idiolect.algorithms.l2sgd_plus import L2SGDPlus as L2SGDPlus
    from idiolect.algorithms.local import Local as Local
    from idiolect.algorithms.local_sgd import LocalSGD as LocalSGD
    from idiolect.algorithms.lsgd_pfl import LSGDPFL as LSGDPFL
    from idiolect.algorithms.minibatch_sgd import MinibatchSGD as MinibatchSGD
    from idiolect.algorithms.partial_averaging import PartialAveraging as PartialAveraging
    from idiolect.algorithms.partialfed import PartialFed as PartialFed
    from idiolect.algorithms.per_fedavg import PerFedAvg as PerFedAvg
    from idiolect.algorithms.personalized_local_sgd import PersonalizedLocalSGD as PersonalizedLocalSGD
    from idiolect.algorithms.pfedme import PFedMe as PFedMe
    from idiolect.algorithms.scafflix import Scafflix as Scafflix
    from idiolect.algorithms.scaffold import Scaffold as Scaffold
    from idiolect.algorithms.scd_pfl import SCDPFL as SCDPFL


def _registered() -> dict[str, Method]:
    found: dict[str, Method] = {}
    for info in pkgutil.iter_modules(__path__):
        found |= getattr(importlib.import_module(f"{__name__}.{info.name}"), "METHODS", {})
    return found


ALGORITHMS: dict[str, Method] = _registered()
_CLASSES = {method.algorithm.__name__: method.algorithm for method in ALGORITHMS.values()}


def __getattr__(name: str) -> type[Algorithm]:
    """The class of a registered algorithm."""
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _CLASSES[name]


def find(name: str) -> Method:
    """The named method, from the registry or from a path "package.module:Class"."""
    if ":" in name:
        return _load(name)
    if name not in ALGORITHMS:
        close = nearest(name, ALGORITHMS)
        raise RequestError(f"There is no algorithm {name!r}.{close} Your own: 'package.module:Class'.")
    return ALGORITHMS[name]


def _load(path: str) -> Method:
    """A class, as the METHODS of its file describe it where one row does; without presets otherwise."""
    found = imported(path, "An algorithm's path must be 'package.module:Class'")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise RequestError(f"{path!r} must name a subclass of idiolect.core.Algorithm, got {found!r}.")
    own = getattr(sys.modules.get(found.__module__), "METHODS", {})
    rows = [method for method in own.values() if method.algorithm is found]
    if len(rows) == 1:
        return rows[0]
    return Method(found, None, {}, path, (inspect.getdoc(found) or path).splitlines()[0])


__all__ = ["ALGORITHMS", "Method", "find"]
