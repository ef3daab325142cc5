# SPDX-License-Identifier: Apache-2.0
"""Models as init/apply pairs; one line each."""

from idiolect.models.adapters import from_equinox, from_flax
from idiolect.models.cnn import CNN
from idiolect.models.linear import Linear
from idiolect.models.location import Location
from idiolect.models.mlp import MLP
from idiolect.models.model import Model
from idiolect.models.recurrent import CharacterLSTM, WordLSTM
from idiolect.models.resnet import ResNet18

MODELS: dict[str, type[Model]] = {
    "linear": Linear,  # also softmax regression
    "mlp": MLP,
    "cnn": CNN,
    "resnet18": ResNet18,
    "character_lstm": CharacterLSTM,
    "word_lstm": WordLSTM,
    "location": Location,
}

__all__ = [
    "CNN",
    "MLP",
    "MODELS",
    "CharacterLSTM",
    "Linear",
    "Location",
    "Model",
    "ResNet18",
    "WordLSTM",
    "from_equinox",
    "from_flax",
]
