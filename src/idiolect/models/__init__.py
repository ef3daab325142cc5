# SPDX-License-Identifier: Apache-2.0
"""Models as init/apply pairs; one line each."""

from idiolect.models.linear import Linear
from idiolect.models.location import Location
from idiolect.models.mlp import MLP
from idiolect.models.model import Model

MODELS: dict[str, type[Model]] = {
    "linear": Linear,  # also softmax regression
    "mlp": MLP,
    "location": Location,
}

__all__ = ["MLP", "MODELS", "Linear", "Location", "Model"]
