# SPDX-License-Identifier: Apache-2.0
"""Layers: what networks are made of. Settings outside, parameters in a dictionary of named arrays."""

from idiolect.models.layers.convolution import Convolution as Convolution
from idiolect.models.layers.dense import Dense as Dense
from idiolect.models.layers.dropout import dropout as dropout
from idiolect.models.layers.embedding import Embedding as Embedding
from idiolect.models.layers.lstm import LSTM as LSTM
from idiolect.models.layers.normalization import BatchNorm as BatchNorm
from idiolect.models.layers.normalization import GroupNorm as GroupNorm
from idiolect.models.layers.normalization import normalization as normalization
from idiolect.models.layers.pooling import max_pool as max_pool
from idiolect.models.layers.pooling import mean_pool as mean_pool
from idiolect.models.layers.precision import COMPUTE as COMPUTE
