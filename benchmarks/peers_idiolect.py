# SPDX-License-Identifier: Apache-2.0
"""idiolect: FedAvg by `open_session`, which `simulate` is made of; executor `auto`, as by default."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.peers_problem import Given, Problem, read
from benchmarks.peers_serving import serve


class Rounds:
    """One session of the whole run, trained up to a round."""

    def __init__(self, given: Given, devices: int):
        import jax

        from idiolect.engines.simulate import Training, open_session

        rounds = given.problem.turns.rounds
        training = Training(rounds=rounds, cohort=given.problem.cohort, record_every=rounds, devices=devices)
        self.federation, self.own_loss = _federation(given), _loss(given.problem)
        self.session = open_session([_algorithm(given.problem)], self.federation, training, [0], ("log_loss",))
        self.wait = jax.block_until_ready

    def advance(self, rounds: int) -> None:
        self.session.train(upto=self.session.state.round + rounds)
        self.wait(self.session.state.now)

    def loss(self) -> float:
        import jax

        from idiolect.core.data import Batch

        shared, rows = self.session.snapshot().server.shared, self.federation.train
        value = jax.jit(lambda params, batch: self.own_loss.value(None, params, batch)[0])
        parts = (rows.of(client) for client in range(rows.clients))
        values = [float(value(shared, Batch(inputs, targets))) for inputs, targets, *_ in parts]
        return sum(values) / len(values)


def initial(problem: Problem) -> dict[str, Any]:
    """The parameters that seed 0 starts from: the other libraries start there too."""
    from idiolect.core.keys import Purpose, root_key, round_key

    return _algorithm(problem).init_server(round_key(root_key(0), Purpose.INIT_SERVER, 0)).shared


def _loss(problem: Problem) -> Any:
    from idiolect.models import CNN, MLP, Linear
    from idiolect.objectives import ClientLoss

    models = {
        "linear": lambda: Linear(*problem.shape, problem.classes),
        "mlp": lambda: MLP(*problem.shape, problem.classes, (problem.hidden,)),
        "cnn": lambda: CNN(*problem.shape, problem.classes, hidden=problem.hidden),
    }
    return ClientLoss(model=models[problem.model]())


def _algorithm(problem: Problem) -> Any:
    from idiolect.algorithms import LocalSGD
    from idiolect.objectives import GlobalModel

    objective = GlobalModel(_loss(problem))
    return LocalSGD(objective, epochs=1, batch_size=problem.batch_size, step_size=problem.step_size)


def _federation(given: Given) -> Any:
    import numpy as np

    from idiolect.core.data import Rows
    from idiolect.data.federation import Federation, no_rows
    from idiolect.data.task import Task

    problem = given.problem
    bounds = np.arange(problem.clients + 1, dtype=np.int64) * problem.rows
    train = Rows(given.inputs, given.targets, bounds)
    names = tuple(map(str, range(problem.clients)))
    task = Task.classification(tuple(map(str, range(problem.classes))))
    return Federation(train, no_rows(train), no_rows(train), names, task)


def main(path: Path, variant: str) -> None:
    """Serve one problem on so many devices."""
    import jax

    import idiolect

    devices = int(variant.split()[0])
    if devices > 1:
        jax.config.update("jax_num_cpu_devices", devices)
    contestant = Rounds(read(path), devices)
    chosen = contestant.session.training
    versions = {"idiolect": idiolect.__version__, "jax": jax.__version__}
    serve(contestant, versions | {"executor": f"{chosen.executor}, chunk {chosen.chunk}"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
