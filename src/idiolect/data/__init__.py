# SPDX-License-Identifier: Apache-2.0
"""Data in: federations, splits, preprocessing, readers, partitioners and synthetic problems.

Modules import pyarrow and scikit-learn where they use them, so that importing this package does not.
"""

from idiolect.data.bundled import digits
from idiolect.data.compressed import read_bytes
from idiolect.data.federation import Federation
from idiolect.data.leaf import LeafData, read_leaf_json
from idiolect.data.partition import PARTITIONERS, Partition
from idiolect.data.preprocessing import Preprocessing
from idiolect.data.problem import Problem
from idiolect.data.sources import read_idx, read_libsvm, read_npz
from idiolect.data.split import Split
from idiolect.data.tables import read_table
from idiolect.data.task import Task

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
