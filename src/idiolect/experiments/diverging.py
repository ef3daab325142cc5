# SPDX-License-Identifier: Apache-2.0
"""Why training diverged: the client, and the column that drives its loss."""

from __future__ import annotations

import numpy as np

from idiolect.data.federation import Federation

FAR = 8.0  # in scaled units; a number within is no reason by itself


def blame(federation: Federation, client: int) -> str:
    """'; its column ... reaches ...' where one column of the client's training rows lies far out; else nothing."""
    recipe = federation.preprocessing
    if client < 0 or recipe is None or federation.train.inputs.ndim != 2:
        return ""
    inputs, _ = federation.train.of(client)
    reach = np.abs(inputs).max(axis=0, initial=0.0)
    column = int(reach.argmax())
    if reach[column] < FAR:
        return ""
    name = recipe.feature_names[column]
    return f"; its column {name!r} lies up to {reach[column]:.0f} spreads from the mean, leave it out or transform it"
