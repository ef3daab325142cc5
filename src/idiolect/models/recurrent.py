# SPDX-License-Identifier: Apache-2.0
"""Language models: guess the next token after every token of a sequence."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from idiolect.core.checks import setting
from idiolect.models.layers import COMPUTE, LSTM, Dense, Embedding
from idiolect.models.model import Model, Params


@dataclasses.dataclass(frozen=True)
class CharacterLSTM(Model):
    """Embedding, `layers` LSTM layers of `hidden` each, one dense layer to the vocabulary (papers 001 and 003).

    Named `embedding`, `lstm_0`, `lstm_1`, ..., `dense`. 72 characters, the sizes below: 815,752 parameters.
    """

    vocabulary: int
    outputs: int
    embedding: int = setting(default=8, at_least=1, doc="width of a token's vector")
    hidden: int = setting(default=256, at_least=1, doc="width of an LSTM layer")
    layers: int = setting(default=2, at_least=1, doc="LSTM layers")
    compute: str = setting(default="float32", choices=COMPUTE, doc="precision of products; parameters keep theirs")

    def _embedding(self) -> Embedding:
        return Embedding(self.vocabulary, self.embedding)

    def _lstm(self, layer: int) -> LSTM:
        return LSTM(self.hidden if layer else self.embedding, self.hidden, self.compute)

    def _dense(self) -> Dense:
        return Dense(self.hidden, self.outputs, gain=1.0, compute=self.compute)

    def init(self, key: Any) -> Params:
        """Start parameters of every layer."""
        keys = [jax.random.fold_in(key, place) for place in range(self.layers + 2)]
        recurrent = {f"lstm_{layer}": self._lstm(layer).init(keys[layer + 1]) for layer in range(self.layers)}
        return {"embedding": self._embedding().init(keys[0])} | recurrent | {"dense": self._dense().init(keys[-1])}

    def apply(self, params: Params, inputs: Any) -> Any:
        """(rows, time, outputs) from whole numbers (rows, time)."""
        flow = self._embedding().apply(params["embedding"], inputs)
        for layer in range(self.layers):
            flow, _ = self._lstm(layer).apply(params[f"lstm_{layer}"], flow)
        return self._dense().apply(params["dense"], flow)


@dataclasses.dataclass(frozen=True)
class WordLSTM(CharacterLSTM):
    """The same with wide vectors and one layer (paper 003: words; its sizes are those of FedJAX's Stack Overflow net).

    A dense layer back to the vectors' width stands before the vocabulary: named `narrow`. 10,004 words:
    4,050,748 parameters.
    """

    embedding: int = setting(default=96, at_least=1, doc="width of a token's vector")
    hidden: int = setting(default=670, at_least=1, doc="width of an LSTM layer")
    layers: int = setting(default=1, at_least=1, doc="LSTM layers")

    def _narrow(self) -> Dense:
        return Dense(self.hidden, self.embedding, gain=1.0, compute=self.compute)

    def _dense(self) -> Dense:
        return Dense(self.embedding, self.outputs, gain=1.0, compute=self.compute)

    def init(self, key: Any) -> Params:
        """Start parameters of every layer."""
        return super().init(key) | {"narrow": self._narrow().init(jax.random.fold_in(key, self.layers + 2))}

    def apply(self, params: Params, inputs: Any) -> Any:
        """(rows, time, outputs) from whole numbers (rows, time)."""
        flow = self._embedding().apply(params["embedding"], inputs)
        for layer in range(self.layers):
            flow, _ = self._lstm(layer).apply(params[f"lstm_{layer}"], flow)
        return self._dense().apply(params["dense"], self._narrow().apply(params["narrow"], flow))
