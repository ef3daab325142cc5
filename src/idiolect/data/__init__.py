# SPDX-License-Identifier: Apache-2.0
"""Data in: federations, splits, preprocessing, readers, partitioners and synthetic problems.

Names are loaded on first use, so that importing this package does not import pyarrow or scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "bundled": ("digits",),
    "compressed": ("read_bytes",),
    "federation": ("Federation",),
    "leaf": ("LeafData", "read_leaf_json"),
    "partition": ("PARTITIONERS", "Partition"),
    "preprocessing": ("Preprocessing",),
    "sources": ("read_idx", "read_libsvm", "read_npz"),
    "split": ("Split",),
    "synthetic": ("Problem",),
    "tables": ("read_table",),
    "task": ("Task",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from idiolect.data.bundled import digits as digits
    from idiolect.data.compressed import read_bytes as read_bytes
    from idiolect.data.federation import Federation as Federation
    from idiolect.data.leaf import LeafData as LeafData
    from idiolect.data.leaf import read_leaf_json as read_leaf_json
    from idiolect.data.partition import PARTITIONERS as PARTITIONERS
    from idiolect.data.partition import Partition as Partition
    from idiolect.data.preprocessing import Preprocessing as Preprocessing
    from idiolect.data.sources import read_idx as read_idx
    from idiolect.data.sources import read_libsvm as read_libsvm
    from idiolect.data.sources import read_npz as read_npz
    from idiolect.data.split import Split as Split
    from idiolect.data.synthetic import Problem as Problem
    from idiolect.data.tables import read_table as read_table
    from idiolect.data.task import Task as Task
