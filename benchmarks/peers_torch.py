# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch: the loop that one writes without a library; networks shared with those who build on PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import networks_torch
from benchmarks.peers_problem import Given, read
from benchmarks.peers_serving import serve


def network(torch: Any, model: str, params: dict[str, Any]) -> Any:
    """The network with these parameters."""
    if model != "linear":
        return getattr(networks_torch, model)(torch, params)
    outputs, features = params["weights"].shape
    layer = torch.nn.Linear(features, outputs)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(params["weights"]))
        layer.bias.copy_(torch.tensor(params["bias"]))
    return layer


def prepare_device(torch: Any) -> str:
    """Where to train; a GPU may round products as JAX lets it by default (TF32)."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return "cuda" if torch.cuda.is_available() else "cpu"


def tensors(torch: Any, given: Given, device: str) -> list[tuple[Any, Any]]:
    """Every client's rows, where they are used."""
    clients = (given.of(client) for client in range(given.problem.clients))
    return [
        (torch.tensor(inputs, device=device), torch.tensor(targets, device=device).long())
        for inputs, targets in clients
    ]


def mean_loss(torch: Any, model: Any, data: list[tuple[Any, Any]]) -> float:
    """Over all rows."""
    loss_of = torch.nn.CrossEntropyLoss()
    with torch.no_grad():
        values = [float(loss_of(model(inputs), targets)) for inputs, targets in data]
    return sum(values) / len(values)


class Rounds:
    """A shared network, and the round of `networks` over a cohort."""

    def __init__(self, torch: Any, given: Given):
        self.torch, self.problem = torch, given.problem
        self.device = prepare_device(torch)
        self.model = network(torch, given.problem.model, given.params).to(self.device)
        self.data, self.draw = tensors(torch, given, self.device), np.random.default_rng(0)

    def advance(self, rounds: int) -> None:
        problem = self.problem
        for _ in range(rounds):
            cohort = self.draw.choice(problem.clients, problem.cohort, replace=False)
            data = [self.data[client] for client in cohort]
            networks_torch.one_round(self.torch, self.model, data, problem.batch_size, problem.step_size)
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def loss(self) -> float:
        return mean_loss(self.torch, self.model, self.data)


def main(path: Path, variant: str) -> None:
    """Serve one problem with so many threads."""
    import torch

    torch.set_num_threads(int(variant.split()[0]))
    torch.manual_seed(0)
    contestant = Rounds(torch, read(path))
    serve(contestant, {"torch": torch.__version__, "device": contestant.device})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
