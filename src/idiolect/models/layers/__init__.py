# SPDX-License-Identifier: Apache-2.0
"""Layers: what networks are made of. Settings outside, parameters in a dictionary of named arrays."""

from idiolect.models.layers.convolution import Convolution
from idiolect.models.layers.dense import Dense
from idiolect.models.layers.dropout import dropout
from idiolect.models.layers.embedding import Embedding
from idiolect.models.layers.lstm import LSTM
from idiolect.models.layers.normalization import BatchNorm, GroupNorm, normalization
from idiolect.models.layers.pooling import max_pool, mean_pool
from idiolect.models.layers.precision import COMPUTE

__all__ = [
    "COMPUTE",
    "LSTM",
    "BatchNorm",
    "Convolution",
    "Dense",
    "Embedding",
    "GroupNorm",
    "dropout",
    "max_pool",
    "mean_pool",
    "normalization",
]
