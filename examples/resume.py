# SPDX-License-Identifier: Apache-2.0
"""Checkpoint and resume: a run that stops half way continues to the same bits as one that never stopped.

Checkpoints fall on the ends of compiled blocks; the whole state is one file, replaced atomically.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from pathlib import Path

import jax
import numpy as np

from idiolect import Checkpoint, ClientLoss, GlobalModel, Linear, Options, Training, digits, simulate
from idiolect.algorithms import Scaffold


class PowerCutError(Exception):
    """Stands for whatever ends a process early."""


def main() -> None:
    """Run once whole and once in two parts, and compare every number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--stop-after", type=int, default=10)
    given = parser.parse_args()

    federation = digits(clients=8)
    algorithm = Scaffold(GlobalModel(ClientLoss(model=Linear(64, 10))), epochs=1, batch_size=10)
    asked = Training(rounds=given.rounds, cohort=4, record_every=5)
    whole = simulate(algorithm, federation, asked, seed=3)
    # the resolved request: executor, chunk and block as they were chosen, so that both runs use one program
    resolved = whole.training

    def stop(done: int, total: int) -> None:
        if done >= given.stop_after:
            raise PowerCutError

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder), every=5)
        try:
            simulate(algorithm, federation, resolved, seed=3, options=Options(checkpoint=checkpoint, progress=stop))
        except PowerCutError:
            print(
                f"stopped after round {given.stop_after}; kept: {sorted(path.name for path in Path(folder).iterdir())}"
            )
        resumed = simulate(algorithm, federation, resolved, seed=3, options=Options(checkpoint=checkpoint, resume=True))

    pairs = zip(jax.tree.leaves((whole.server, whole.states)), jax.tree.leaves((resumed.server, resumed.states)))
    same = all(np.array_equal(one, other) for one, other in pairs)
    print(f"resumed to round {resumed.last.round}; every number is {'the same' if same else 'NOT the same'}")
    print(f"ledgers equal: {dataclasses.asdict(whole.ledger) == dataclasses.asdict(resumed.ledger)}")


if __name__ == "__main__":
    main()
