# SPDX-License-Identifier: Apache-2.0
"""pfl-research as its image benchmark sets it up: `FederatedAveraging`, `SimulatedBackend`, `WeightByUser`.

Rows are tensors on the device before training, as its benchmark makes them; nothing is evaluated after the first round.
Its data sets keep their batches: every epoch goes through the rows in the same order. Several processes are started by
`torchrun`, as its guide to distributed simulation shows; each trains its part of the clients.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers_problem import Given, read
from benchmarks.peers_serving import serve
from benchmarks.peers_torch import mean_loss, network, prepare_device, tensors


class Rounds:
    """One algorithm that goes on up to a number of iterations."""

    def __init__(self, torch: Any, given: Given):
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.aggregate.weighting import WeightByUser
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.data.federated_dataset import FederatedDataset
        from pfl.data.sampling import get_user_sampler
        from pfl.hyperparam import NNTrainHyperParams
        from pfl.internal.ops.pytorch_ops import get_default_device
        from pfl.model.pytorch import PyTorchModel

        prepare_device(torch)
        problem, device = given.problem, str(get_default_device())
        self.torch, self.problem, self.done = torch, problem, 0
        net, self.data = network(torch, problem.model, given.params).to(device), tensors(torch, given, device)
        loss_of = torch.nn.CrossEntropyLoss()
        net.loss = lambda inputs, targets: loss_of(net(inputs), targets)
        net.metrics = lambda inputs, targets: {}
        self.model = PyTorchModel(
            net, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(net.parameters(), 1.0)
        )
        # everybody in every round, else as its benchmark draws them
        kind = "minimize_reuse" if problem.cohort == problem.clients else "random"
        sampler = get_user_sampler(kind, range(problem.clients))
        rows = FederatedDataset.from_slices(dict(enumerate(self.data)), sampler)
        self.backend = SimulatedBackend(training_data=rows, val_data=rows, postprocessors=[WeightByUser()])
        self.algorithm = FederatedAveraging()
        self.local = NNTrainHyperParams(
            local_learning_rate=problem.step_size, local_num_epochs=1, local_batch_size=problem.batch_size
        )

    def advance(self, rounds: int) -> None:
        from pfl.algorithm.base import NNAlgorithmParams

        self.done += rounds
        params = NNAlgorithmParams(
            central_num_iterations=self.done,
            evaluation_frequency=10**9,
            train_cohort_size=self.problem.cohort,
            val_cohort_size=0,
        )
        self.algorithm.run(params, self.backend, self.model, self.local, send_metrics_to_platform=False)
        if self.torch.cuda.is_available():
            self.torch.cuda.synchronize()

    def loss(self) -> float:
        return mean_loss(self.torch, self.model.pytorch_model, self.data)


class Leader:
    """Of two processes the one that hears the orders; the other gets them from it."""

    def __init__(self, rounds: Rounds):
        self.rounds = rounds

    def advance(self, rounds: int) -> None:
        self.tell(rounds)
        self.rounds.advance(rounds)

    def loss(self) -> float:
        return self.rounds.loss()

    def tell(self, rounds: int) -> None:
        """0 ends the other process."""
        self.rounds.torch.distributed.broadcast_object_list([rounds], src=0)


def follow(rounds: Rounds) -> None:
    """Train whenever the leader does."""
    while True:
        order = [None]
        rounds.torch.distributed.broadcast_object_list(order, src=0)
        if not order[0]:
            return
        rounds.advance(order[0])


def main(path: Path, variant: str) -> None:
    """Serve one problem, in one process with so many threads or in several with one."""
    import torch

    several = "WORLD_SIZE" in os.environ
    torch.set_num_threads(1 if several else int(variant.split()[0]))
    torch.manual_seed(0)
    np.random.seed(0)  # what pfl draws with
    contestant = Rounds(torch, read(path))
    facts = {name: importlib.metadata.version(name) for name in ("pfl", "torch")}
    if not several:
        serve(contestant, facts)
    elif os.environ["RANK"] == "0":
        leader = Leader(contestant)
        serve(leader, facts)
        leader.tell(0)
    else:
        follow(contestant)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
