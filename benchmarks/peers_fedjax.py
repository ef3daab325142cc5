# SPDX-License-Identifier: Apache-2.0
"""FedJAX: `fed_avg.federated_averaging` on rows in memory, networks in Haiku, its backend `jit` or `pmap`."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers_problem import Given, Problem, read
from benchmarks.peers_serving import serve


class Rounds:
    """A server state, and one call of the algorithm per round."""

    def __init__(self, given: Given):
        import fedjax
        import jax
        from fedjax.algorithms import fed_avg

        problem = given.problem
        self.jax, self.problem, self.draw = jax, problem, np.random.default_rng(0)
        self.model = _model(problem)
        own = {str(client).encode(): dict(zip(("x", "y"), given.of(client))) for client in range(problem.clients)}
        self.data = fedjax.InMemoryFederatedData(own)
        self.names = list(own)
        hparams = fedjax.ShuffleRepeatBatchHParams(batch_size=problem.batch_size, num_epochs=1)
        self.algorithm = fed_avg.federated_averaging(
            fedjax.model_grad(self.model),
            fedjax.optimizers.sgd(problem.step_size),
            fedjax.optimizers.sgd(1.0),
            hparams,
        )
        self.state = self.algorithm.init(_params(problem, given.params))
        self.key, self.evaluate = jax.random.PRNGKey(0), jax.jit(self._client_loss)

    def advance(self, rounds: int) -> None:
        for _ in range(rounds):
            self.key, key = self.jax.random.split(self.key)
            chosen = self.draw.choice(self.problem.clients, self.problem.cohort, replace=False)
            datasets = self.data.get_clients([self.names[client] for client in chosen])
            keys = self.jax.random.split(key, len(chosen))
            clients = [(name, rows, own) for (name, rows), own in zip(datasets, keys)]
            self.state, _ = self.algorithm.apply(self.state, clients)
        self.jax.block_until_ready(self.state.params)

    def loss(self) -> float:
        values = [float(self.evaluate(self.state.params, rows.all_examples())) for _, rows in self.data.clients()]
        return sum(values) / len(values)

    def _client_loss(self, params: Any, batch: Any) -> Any:
        return self.model.train_loss(batch, self.model.apply_for_train(params, batch, None)).mean()


def _model(problem: Problem) -> Any:
    import fedjax
    import haiku as hk
    import jax

    def forward(batch: Any) -> Any:
        flow = batch["x"]
        if problem.model == "cnn":
            flow = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID", name="conv_0")(flow))
            flow = jax.nn.relu(hk.Conv2D(64, 3, padding="VALID", name="conv_1")(flow))
            flow = hk.Flatten()(hk.MaxPool(2, 2, padding="VALID")(flow))
        if problem.model != "linear":
            flow = jax.nn.relu(hk.Linear(problem.hidden, name="dense_0")(flow))
        return hk.Linear(problem.classes, name="dense_1")(flow)

    transformed = hk.transform(forward)
    rows = {"x": np.zeros((1, *problem.shape), np.float32), "y": np.zeros(1, np.int32)}

    def loss(batch: Any, outputs: Any) -> Any:
        return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], outputs)

    return fedjax.create_model_from_haiku(transformed, rows, loss)


def _params(problem: Problem, params: dict[str, Any]) -> dict[str, Any]:
    """Ours under Haiku's names; kernels turned from (positions x channels, outputs) to images' order."""
    if problem.model == "linear":
        params = {"dense_1": params | {"weights": params["weights"].T}}
    named = {}
    for name, own in params.items():
        weights = own["weights"]
        if name.startswith("conv"):
            weights = weights.reshape(3, 3, -1, weights.shape[1])
        named[name] = {"w": np.array(weights), "b": np.array(own["bias"])}
    return named


def main(path: Path, variant: str) -> None:
    """Serve one problem with one of FedJAX's backends; `pmap` needs as many devices as there are cores."""
    backend = variant.split()[0]
    if backend == "pmap":
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={os.cpu_count()}"
    import fedjax

    fedjax.set_for_each_client_backend(backend)
    serve(Rounds(read(path)), {name: importlib.metadata.version(name) for name in ("fedjax", "jax")})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
