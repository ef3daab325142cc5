# SPDX-License-Identifier: Apache-2.0
"""Flower's simulation: its message API, `FedAvg`, and Ray's workers with a core each, as its quickstart has them.

A worker reads the rows once and keeps them, and one network whose parameters it replaces: its quickstart builds a
network and loads rows anew for every message, which would be slower. Federated evaluation is off. `flwr run` starts the
same runtime from the command line, which a benchmark cannot hold between two turns.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers_problem import Given, read
from benchmarks.peers_serving import serve
from benchmarks.peers_torch import mean_loss, network, tensors

PATH = "IDIOLECT_PEERS_PROBLEM"  # workers are other processes


@functools.cache
def kept() -> tuple[Given, Any, list[Any]]:
    """What a worker keeps between messages."""
    import torch

    given = read(Path(os.environ[PATH]))
    return given, network(torch, given.problem.model, given.params), tensors(torch, given, "cpu")


def train(message: Any, context: Any) -> Any:
    """One epoch of a client."""
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    given, model, data = kept()
    inputs, targets = data[context.node_config["partition-id"]]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device).load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer, loss_of = torch.optim.SGD(model.parameters(), lr=given.problem.step_size), torch.nn.CrossEntropyLoss()
    for batch in torch.randperm(len(inputs)).split(given.problem.batch_size):
        optimizer.zero_grad()
        loss_of(model(inputs[batch].to(device)), targets[batch].to(device)).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(inputs)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


class Rounds:
    """The server's arrays, and its strategy started for so many rounds."""

    def __init__(self, grid: Any):
        from flwr.app import ArrayRecord
        from flwr.serverapp.strategy import FedAvg

        given, self.model, self.data = kept()
        problem = given.problem
        self.grid, self.arrays = grid, ArrayRecord(self.model.state_dict())
        self.strategy = FedAvg(
            fraction_train=problem.cohort / problem.clients,
            fraction_evaluate=0.0,
            min_available_nodes=problem.clients,
        )

    def advance(self, rounds: int) -> None:
        self.arrays = self.strategy.start(grid=self.grid, initial_arrays=self.arrays, num_rounds=rounds).arrays

    def loss(self) -> float:
        import torch

        self.model.load_state_dict(self.arrays.to_torch_state_dict())
        return mean_loss(torch, self.model, self.data)


def main(path: Path, variant: str) -> None:
    """Serve one problem from inside of the server's app; a client has so many cores."""
    os.environ |= {PATH: str(path), "FLWR_TELEMETRY_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    import torch
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from benchmarks import peers_flower  # by its own name, so that workers find what they keep

    server, client = ServerApp(), ClientApp()
    client.train()(peers_flower.train)
    facts = {name: importlib.metadata.version(name) for name in ("flwr", "ray", "torch")}

    @server.main()
    def _(grid: Any, context: Any) -> None:
        serve(peers_flower.Rounds(grid), facts)

    gpus = 1 / (os.cpu_count() or 1) if torch.cuda.is_available() else 0.0
    resources = {"num_cpus": int(variant.split()[0]), "num_gpus": gpus}
    run_simulation(server, client, read(path).problem.clients, backend_config={"client_resources": resources})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
