# SPDX-License-Identifier: Apache-2.0
"""The softmax problem, and 1000 clients with a perceptron 784-200-10, on a GPU: rounds per second, batched.

Absolute times: there is nothing on the same machine to take a ratio to. Skipped where JAX sees no GPU.
"""

from __future__ import annotations

import jax

from benchmarks.measure import TURNS, Result, in_turns, medians
from benchmarks.problems import images, mlp_sgd, softmax_sgd
from idiolect.engines.simulate import Training, open_session


def run(quick: bool) -> Result:
    """Rounds per second after compilation."""
    if jax.default_backend() != "gpu":
        return Result({}, skipped=f"JAX sees no GPU here, only {jax.default_backend()}")
    many = 20 if quick else 1000
    problems = {
        "softmax, 100 clients": (softmax_sgd(), images(100, 100), 10 if quick else 100),
        f"perceptron, {many} clients": (mlp_sgd(), images(many, 100), 2 if quick else 20),
    }
    clocks, rounds = {}, {}
    for name, (algorithm, federation, length) in problems.items():
        training = Training(rounds=length, record_every=length, executor="batched")

        def clock(algorithm=algorithm, federation=federation, training=training) -> float:
            session = open_session([algorithm], federation, training, [0], ("log_loss",))
            session.train()
            return session.state.seconds

        clocks[name], rounds[name] = clock, length
    seconds = medians(in_turns(clocks, 1 if quick else TURNS))
    return Result(
        {
            "median seconds": seconds,
            "rounds per second": {name: rounds[name] / spent for name, spent in seconds.items()},
        }
    )
