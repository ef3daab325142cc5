# SPDX-License-Identifier: Apache-2.0
"""What the record costs: the softmax problem recorded every 10 rounds, against once at the end.

A record is the ledger's bill, scores of both models on every client's validation rows, summaries, a history row, and
the snapshot of the best round.
"""

from __future__ import annotations

import time

from benchmarks.measure import TURNS, Result, Target, in_turns, medians, ratio
from benchmarks.problems import images, softmax_sgd
from idiolect.engines.simulate import Training, open_session

EVERY = 10
VALIDATION_ROWS = {"few": 20, "as many as training rows": 100}


def run(quick: bool) -> Result:
    """Whole training times, records included, for 20 and for 100 validation rows per client (100 train)."""
    clients, rows, rounds = (4, 20, 20) if quick else (100, 100, 100)
    algorithm, numbers, targets = softmax_sgd(), {}, []
    for name, validation in VALIDATION_ROWS.items():
        federation = images(clients, rows, validation, test=1)

        def train(every: int, federation=federation) -> float:
            training = Training(rounds=rounds, record_every=every, block=EVERY, executor="batched")
            session = open_session([algorithm], federation, training, [0], ("log_loss", "accuracy"))
            began = time.perf_counter()
            session.train()
            return time.perf_counter() - began

        clocks = {"recorded": lambda train=train: train(EVERY), "at the end": lambda train=train: train(rounds)}
        seconds = in_turns(clocks, 1 if quick else TURNS)
        cost = 100 * (ratio(seconds, "recorded", "at the end") - 1)
        numbers[f"{validation} validation rows"] = {"median seconds": medians(seconds), "cost of recording, %": cost}
        if name == "few":
            targets.append(Target(f"recording every {EVERY} rounds, {validation} validation rows", cost, 10.0, "%"))
    return Result(numbers, tuple(targets))
