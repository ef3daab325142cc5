# SPDX-License-Identifier: Apache-2.0
"""Data in: federations, splits, preprocessing, readers, partitioners and synthetic problems."""

import importlib
from typing import TYPE_CHECKING

from idiolect.data.bundled import digits
from idiolect.data.compressed import read_bytes
from idiolect.data.federation import Federation
from idiolect.data.leaf import LeafData, read_leaf_json
from idiolect.data.partition import PARTITIONERS, Partition
from idiolect.data.problem import Problem
from idiolect.data.sources import read_idx, read_libsvm, read_npz
from idiolect.data.split import Split
from idiolect.data.task import Task

if TYPE_CHECKING:
    from idiolect.data.preprocessing import Preprocessing
    from idiolect.data.tables import read_table

_OF_TABLES = {"Preprocessing": "preprocessing", "read_table": "tables"}  # on first use: they import pyarrow

__all__ = [
    "PARTITIONERS",
    "Federation",
    "LeafData",
    "Partition",
    "Preprocessing",
    "Problem",
    "Split",
    "Task",
    "digits",
    "read_bytes",
    "read_idx",
    "read_leaf_json",
    "read_libsvm",
    "read_npz",
    "read_table",
]


def __getattr__(name: str) -> object:
    if name not in _OF_TABLES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_OF_TABLES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
