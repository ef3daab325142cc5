# SPDX-License-Identifier: Apache-2.0
"""One point of `growth` in a process of its own; prints its time and memory as JSON."""

from __future__ import annotations

import itertools
import json
import sys

from benchmarks.problems import images
from benchmarks.scale_child import memory
from idiolect.algorithms import LocalSGD
from idiolect.core.tree import size_in_bytes
from idiolect.engines.simulate import Training, open_session
from idiolect.models import MLP
from idiolect.objectives import ClientLoss, GlobalModel

FEATURES, CLASSES, BATCH = 256, 10, 10
BLOCKS, ROUNDS = 9, 3  # the first block compiles


def main(clients: int, hidden: int, rows: int, steps: int, cohort: int) -> None:
    """The least time of a round over blocks, records left out."""
    loss = ClientLoss(model=MLP(FEATURES, CLASSES, (hidden,)))
    algorithm = LocalSGD(GlobalModel(loss), local_steps=steps, batch_size=BATCH, step_size=0.01)
    rounds = BLOCKS * ROUNDS
    training = Training(rounds=rounds, cohort=cohort, record_every=rounds, block=ROUNDS, executor="batched")
    session = open_session([algorithm], images(clients, rows, features=FEATURES), training, [0], ("log_loss",))
    ends = []
    for done in range(ROUNDS, rounds + 1, ROUNDS):
        session.train(upto=done)
        ends.append(session.state.seconds)
    spent = [after - before for before, after in itertools.pairwise(ends)]
    shared = session.snapshot().server.shared
    report = {
        "seconds of a round": min(spent) / ROUNDS,
        "peak MB": memory("VmHWM"),
        "parameters": size_in_bytes(shared) // 4,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
