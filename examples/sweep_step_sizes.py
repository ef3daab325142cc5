# SPDX-License-Identifier: Apache-2.0
"""Step sizes and seeds as lanes of one batched program: compiled once, advanced together.

Only floats and seeds may differ between lanes. A lane that diverges is marked and does not stop the others.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools

import numpy as np

from idiolect import ClientLoss, GlobalModel, Linear, Training, digits, simulate_many
from idiolect.algorithms import LocalSGD


def main() -> None:
    """Train every (step size, seed) pair and print the best round on validation rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--step-sizes", type=float, nargs="+", default=[0.01, 0.1, 1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    given = parser.parse_args()

    objective = GlobalModel(ClientLoss(model=Linear(64, 10)))
    fedavg = LocalSGD(objective, weighting="samples", epochs=1, batch_size=10)
    pairs = list(itertools.product(given.step_sizes, given.seeds))
    lanes = [dataclasses.replace(fedavg, step_size=step_size) for step_size, _ in pairs]
    training = Training(rounds=given.rounds, record_every=5)
    runs = simulate_many(lanes, digits(clients=8), training, seeds=[seed for _, seed in pairs], scores=("accuracy",))

    reached = [np.nanmean(run.recorder.selected["validation"]["personal"]["accuracy"]) for run in runs]
    for (step_size, seed), run, validation in zip(pairs, runs, reached):
        remark = run.recorder.diverged or f"best at round {run.recorder.selected_round}"
        print(f"step_size {step_size:<6g} seed {seed}  validation accuracy {validation:.3f}  {remark}")
    sound = [(score, pair) for score, pair, run in zip(reached, pairs, runs) if not run.recorder.diverged]
    print(f"chosen: step_size {max(sound)[1][0]:g}")


if __name__ == "__main__":
    main()
