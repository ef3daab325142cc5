# SPDX-License-Identifier: Apache-2.0
"""How much a client counts in the mean: FedAvg and Flow weight by rows, the other papers equally."""

from __future__ import annotations

import jax.numpy as jnp

from idiolect.core.types import Array, ClientData

WEIGHTING = ("equal", "samples")


def client_weight(weighting: str, data: ClientData) -> Array:
    """1, or the client's number of training rows."""
    return jnp.ones(()) if weighting == "equal" else jnp.asarray(data.count).astype(jnp.result_type(float))
