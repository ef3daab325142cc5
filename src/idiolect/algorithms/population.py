# SPDX-License-Identifier: Apache-2.0
"""The number of clients M, for methods whose update contains it."""

from __future__ import annotations

from idiolect.core import Algorithm, RequestError


def population(algorithm: Algorithm) -> int:
    """M; refuses to compute with an M that no engine has filled in."""
    if algorithm.clients == 0:
        name = type(algorithm).__name__
        raise RequestError(f"{name}.clients must be the number of clients M, got 0. Pass clients=M or use an engine.")
    return algorithm.clients
