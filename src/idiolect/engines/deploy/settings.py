# SPDX-License-Identifier: Apache-2.0
"""Settings of both sides compared without being sent: a digest of an algorithm as one client knows it."""

from __future__ import annotations

import re

import jax
import numpy as np

from idiolect.core.algorithm import Algorithm
from idiolect.core.keys import Secret
from idiolect.engines.deploy.wire import digest

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function, which differs from process to process


def settings_digest(own: Algorithm, precision: str) -> str:
    """Equal where program and settings are: structure, integers and names, and every float; no secret of one side."""
    own = jax.tree.map(lambda node: None if _is_secret(node) else node, own, is_leaf=_is_secret)
    leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(own)]
    return digest(type(own).__name__, _ADDRESS.sub("", str(jax.tree.structure(own))), leaves, precision)


def _is_secret(node: object) -> bool:
    return isinstance(node, Secret)
