# SPDX-License-Identifier: Apache-2.0
"""FedAvg with the CNN in the chunked executor, in a process of its own; prints the device's memory as JSON."""

from __future__ import annotations

import json
import sys

import jax

from benchmarks import network_problems as problems
from idiolect.engines.simulate import Training, open_session


def main(clients: int, chunk: int, rows: int) -> None:
    """Two rounds, scores on 20 validation images per client before and after."""
    batch_size, small = min(20, rows), clients < 100
    federation = problems.images(clients, rows, problems.CLASSES, validation=batch_size)
    algorithm = problems.one_epoch("fedavg", problems.cnn(problems.CLASSES, small), batch_size)
    training = Training(rounds=2, record_every=2, executor="chunked", chunk=chunk)
    session = open_session([algorithm], federation, training, [0], ("log_loss", "accuracy"))
    start = _gigabytes("bytes_in_use")
    session.train()
    print(
        json.dumps(
            {
                "what": f"{clients} clients x {rows} images, chunks of {chunk}, two rounds, two evaluations",
                "before the first round, GB": start,
                "peak GB": _gigabytes("peak_bytes_in_use"),
                "after the last round, GB": _gigabytes("bytes_in_use"),
                "seconds of a round, compilation included": session.state.seconds / 2,
            }
        )
    )


def _gigabytes(name: str) -> float:
    stats = jax.devices()[0].memory_stats()  # the CPU keeps none
    return float("nan") if stats is None else stats[name] / 1e9


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
