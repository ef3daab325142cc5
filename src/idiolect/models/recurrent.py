# SPDX-License-Identifier: Apache-2.0
"""Language models: guess the next token after every token of a sequence."""

from __future__ import annotations

import dataclasses

from jax import Array

from idiolect.core.checks import setting
from idiolect.models.layered import Call, Layer, Layered
from idiolect.models.layers import COMPUTE, LSTM, Dense, Embedding


@dataclasses.dataclass(frozen=True)
class CharacterLSTM(Layered):
    """Embedding, `layers` LSTM layers of `hidden` each, one dense layer to the vocabulary (Scafflix and Flow, 2023).

    Named `embedding`, `lstm_0`, `lstm_1`, ..., `dense`. 72 characters, the sizes below: 815,752 parameters.
    """

    walks = True

    vocabulary: int
    outputs: int
    embedding: int = setting(default=8, at_least=1, doc="width of a token's vector")
    hidden: int = setting(default=256, at_least=1, doc="width of an LSTM layer")
    layers: int = setting(default=2, at_least=1, doc="LSTM layers")
    compute: str = setting(default="float32", choices=COMPUTE, doc="precision of products; parameters keep theirs")

    @property
    def input_width(self) -> int:
        """As many as tokens."""
        return self.vocabulary

    @property
    def reads_tokens(self) -> bool:
        """They do."""
        return True

    @property
    def named_layers(self) -> dict[str, Layer]:
        """The layers by name."""
        recurrent = {
            f"lstm_{place}": LSTM(self.hidden if place else self.embedding, self.hidden, self.compute)
            for place in range(self.layers)
        }
        return {"embedding": Embedding(self.vocabulary, self.embedding)} | recurrent | self._outputs

    @property
    def _outputs(self) -> dict[str, Layer]:
        # gain 1: no rectifier follows
        return {"dense": Dense(self.hidden, self.outputs, gain=1.0, compute=self.compute)}

    def forward(self, call: Call, inputs: Array, key: Array | None = None) -> Array:
        """(rows, time, outputs) from whole numbers (rows, time)."""
        for name in self.named_layers:
            inputs = call(name, inputs)
        return inputs


@dataclasses.dataclass(frozen=True)
class WordLSTM(CharacterLSTM):
    """The same with wide vectors and one layer (Flow 2023: words; its sizes are those of FedJAX's Stack Overflow net).

    A dense layer back to the vectors' width stands before the vocabulary: named `narrow`. 10,004 words:
    4,050,748 parameters.
    """

    walks = True

    embedding: int = setting(default=96, at_least=1, doc="width of a token's vector")
    hidden: int = setting(default=670, at_least=1, doc="width of an LSTM layer")
    layers: int = setting(default=1, at_least=1, doc="LSTM layers")

    @property
    def _outputs(self) -> dict[str, Layer]:
        back = Dense(self.hidden, self.embedding, gain=1.0, compute=self.compute)
        return {"narrow": back, "dense": Dense(self.embedding, self.outputs, gain=1.0, compute=self.compute)}
