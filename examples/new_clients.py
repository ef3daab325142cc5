# SPDX-License-Identifier: Apache-2.0
"""Clients that never trained: hold some out, train without them, then let each do one local round and predict.

A new client starts from `init_client`, does one local round whose upload is discarded, and gets its personal model.
"""

from __future__ import annotations

import argparse

import numpy as np

from idiolect import ALGORITHMS, OBJECTIVES, ClientLoss, Linear, Training, digits, simulate

METHODS = ("local", "fedavg", "fedavg_fine_tuning", "personalized_local_sgd")


def main() -> None:
    """Print mean accuracy of training clients and of new ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--held-out", type=int, default=4)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=ALGORITHMS)
    given = parser.parse_args()

    federation = digits(clients=given.clients, held_out=given.held_out)
    held_out = federation.held_out
    print(f"{federation.clients} clients train; new: {', '.join(held_out.names) if held_out else 'none'}")
    print(f"{'method':<24} {'training clients':>16} {'new clients':>12}")
    for name in given.methods:
        method = ALGORITHMS[name]
        objective = OBJECTIVES[method.objective](ClientLoss(model=Linear(64, 10)))
        algorithm = method(objective, epochs=1, batch_size=10)
        run = simulate(algorithm, federation, Training(rounds=given.rounds), scores=("accuracy",))
        trained = np.nanmean(run.recorder.last["test"]["personal"]["accuracy"])
        new = run.new_clients()["test"]["personal"]["accuracy"] if held_out else [np.nan]
        print(f"{name:<24} {trained:>16.3f} {np.nanmean(new):>12.3f}")


if __name__ == "__main__":
    main()
