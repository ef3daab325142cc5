# SPDX-License-Identifier: Apache-2.0
"""The types in the signatures of an algorithm, for one import line."""

from typing import TypeAlias

from jax import Array as Array

from idiolect.core.addressing import PerClient as PerClient
from idiolect.core.algorithm import Fit as Fit
from idiolect.core.algorithm import Models as Models
from idiolect.core.data import Batch as Batch
from idiolect.core.data import ClientData as ClientData
from idiolect.core.data import Rows as Rows
from idiolect.core.keys import Key as Key
from idiolect.core.keys import StartKeys as StartKeys
from idiolect.core.kinds import Changes as Changes
from idiolect.core.kinds import RowReads as RowReads
from idiolect.core.reduction import Mean as Mean
from idiolect.core.reduction import Reduction as Reduction
from idiolect.core.tally import Tally as Tally
from idiolect.core.tree import Params as Params
from idiolect.core.tree import Tree as Tree

# a setting as an algorithm computes with it: lanes that differ in it make it a traced array, not one program each
Scalar: TypeAlias = float | Array
