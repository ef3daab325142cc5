# SPDX-License-Identifier: Apache-2.0
"""Data in: federations, splits, preprocessing, readers, partitioners and synthetic problems.

Names are loaded on first use, so that importing this package does not import pyarrow or scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import Any

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
