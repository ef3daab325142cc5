# SPDX-License-Identifier: Apache-2.0
"""The networks that are timed in PyTorch, with our parameters, and a round as popular libraries run it."""

from __future__ import annotations

from typing import Any

import numpy as np


def cnn(torch: Any, params: Any) -> Any:
    """Two convolutions, pooling, two dense layers: weights turned from (positions, channels) to PyTorch's order."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kernels = [_array(params[f"conv_{place}"]["weights"]) for place in range(2)]
            first, second = kernels[0].shape[1], kernels[1].shape[1]
            self.conv_0 = torch.nn.Conv2d(kernels[0].shape[0] // 9, first, 3)
            self.conv_1 = torch.nn.Conv2d(first, second, 3)
            flat, hidden = params["dense_0"]["weights"].shape
            self.dense_0 = torch.nn.Linear(flat, hidden)
            self.dense_1 = torch.nn.Linear(hidden, params["dense_1"]["weights"].shape[1])
            side = round((flat / second) ** 0.5)
            weights = {
                f"conv_{place}": kernel.reshape(3, 3, -1, kernel.shape[1]).transpose(3, 2, 0, 1)
                for place, kernel in enumerate(kernels)
            }
            dense = _array(params["dense_0"]["weights"]).reshape(side, side, second, hidden)
            weights["dense_0"] = dense.transpose(3, 2, 0, 1).reshape(hidden, flat)
            weights["dense_1"] = _array(params["dense_1"]["weights"]).T
            with torch.no_grad():
                for name, values in weights.items():
                    layer = getattr(self, name)
                    layer.weight.copy_(torch.tensor(np.ascontiguousarray(values)))
                    layer.bias.copy_(torch.tensor(_array(params[name]["bias"])))

        def forward(self, images: Any) -> Any:
            flow = torch.relu(self.conv_0(images.permute(0, 3, 1, 2)))
            flow = torch.max_pool2d(torch.relu(self.conv_1(flow)), 2)
            return self.dense_1(torch.relu(self.dense_0(flow.flatten(1))))

    return Net()


def character_lstm(torch: Any, params: Any) -> Any:
    """Embedding, PyTorch's own two-layer LSTM, dense."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            vocabulary, width = params["embedding"]["vectors"].shape
            hidden = params["lstm_0"]["recurrent"].shape[0]
            self.embedding = torch.nn.Embedding(vocabulary, width)
            self.lstm = torch.nn.LSTM(width, hidden, 2, batch_first=True)
            self.dense = torch.nn.Linear(hidden, params["dense"]["weights"].shape[1])
            with torch.no_grad():
                self.embedding.weight.copy_(torch.tensor(_array(params["embedding"]["vectors"])))
                for layer in range(2):
                    own = params[f"lstm_{layer}"]
                    getattr(self.lstm, f"weight_ih_l{layer}").copy_(torch.tensor(_array(own["input"]).T.copy()))
                    getattr(self.lstm, f"weight_hh_l{layer}").copy_(torch.tensor(_array(own["recurrent"]).T.copy()))
                    getattr(self.lstm, f"bias_ih_l{layer}").copy_(torch.tensor(_array(own["bias"])))
                    getattr(self.lstm, f"bias_hh_l{layer}").zero_()
                self.dense.weight.copy_(torch.tensor(_array(params["dense"]["weights"]).T.copy()))
                self.dense.bias.copy_(torch.tensor(_array(params["dense"]["bias"])))

        def forward(self, tokens: Any) -> Any:
            return self.dense(self.lstm(self.embedding(tokens))[0])

    return Net()


def mlp(torch: Any, params: Any) -> Any:
    """Two dense layers."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, own in params.items():
                layer = torch.nn.Linear(*own["weights"].shape)
                with torch.no_grad():
                    layer.weight.copy_(torch.tensor(_array(own["weights"]).T.copy()))
                    layer.bias.copy_(torch.tensor(_array(own["bias"])))
                setattr(self, name, layer)

        def forward(self, rows: Any) -> Any:
            return self.dense_1(torch.relu(self.dense_0(rows)))

    return Net()


def one_round(torch: Any, model: Any, data: list[tuple[Any, Any]], batch_size: int, step_size: float) -> Any:
    """Every client one epoch of SGD from the shared model, one after another, then the mean; on the model's device."""
    shared = [leaf.detach().clone() for leaf in model.parameters()]
    total = [torch.zeros_like(leaf) for leaf in shared]
    optimizer, loss_of = torch.optim.SGD(model.parameters(), lr=step_size), torch.nn.CrossEntropyLoss()
    for inputs, targets in data:
        with torch.no_grad():
            for leaf, start in zip(model.parameters(), shared):
                leaf.copy_(start)
        for batch in torch.randperm(len(inputs), device=inputs.device).split(batch_size):
            optimizer.zero_grad()
            outputs = model(inputs[batch])
            loss_of(outputs.reshape(-1, outputs.shape[-1]), targets[batch].reshape(-1)).backward()
            optimizer.step()
        with torch.no_grad():
            for sum_, leaf in zip(total, model.parameters()):
                sum_ += leaf
    with torch.no_grad():
        for leaf, sum_ in zip(model.parameters(), total):
            leaf.copy_(sum_ / len(data))
    return model


def _array(values: Any) -> np.ndarray:
    return np.array(values, np.float32)
