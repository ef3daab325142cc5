# SPDX-License-Identifier: Apache-2.0
"""Data in: federations, splits, preprocessing, readers, partitioners and synthetic problems."""

import importlib
from typing import TYPE_CHECKING

from idiolect.data.bundled import digits
from idiolect.data.federation import Federation
from idiolect.data.partition import PARTITIONERS, Partition
from idiolect.data.problem import Problem
from idiolect.data.sources import read_libsvm, read_npz
from idiolect.data.split import Split
from idiolect.data.task import Task

if TYPE_CHECKING:
    from idiolect.data.preprocessing import Preprocessing

__all__ = [
    "PARTITIONERS",
    "Federation",
    "Partition",
    "Preprocessing",
    "Problem",
    "Split",
    "Task",
    "digits",
    "read_libsvm",
    "read_npz",
]


def __getattr__(name: str) -> object:
    if name != "Preprocessing":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # on first use: it imports pyarrow
    return importlib.import_module(f"{__name__}.preprocessing").Preprocessing


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
