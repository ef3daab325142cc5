# SPDX-License-Identifier: Apache-2.0
"""Models as init/apply pairs; one line each."""

from idiolect.models.adapters import from_equinox as from_equinox
from idiolect.models.adapters import from_flax as from_flax
from idiolect.models.cnn import CNN as CNN
from idiolect.models.linear import Linear as Linear
from idiolect.models.linear import Location as Location
from idiolect.models.mlp import MLP as MLP
from idiolect.models.model import Model as Model
from idiolect.models.recurrent import CharacterLSTM as CharacterLSTM
from idiolect.models.recurrent import WordLSTM as WordLSTM
from idiolect.models.resnet import ResNet18 as ResNet18

MODELS: dict[str, type[Model]] = {
    "linear": Linear,  # also softmax regression
    "mlp": MLP,
    "cnn": CNN,
    "resnet18": ResNet18,
    "character_lstm": CharacterLSTM,
    "word_lstm": WordLSTM,
    "location": Location,
}
