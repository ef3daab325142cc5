# SPDX-License-Identifier: Apache-2.0
"""One training of `memory` in a process of its own; prints what it holds after every tenth of its rounds as JSON."""

from __future__ import annotations

import gc
import json
import sys

import jax

from benchmarks.network_problems import one_epoch
from benchmarks.problems import CLASSES, FEATURES, images
from benchmarks.scale_child import memory
from idiolect.core.tree import size_in_bytes
from idiolect.engines.simulate import Options, Training, open_session
from idiolect.models import MLP

MEGABYTE = 2**20


def main(clients: int, cohort: int, rounds: int, every: int) -> None:
    """Train, with ten validation scores to every look at the memory, after `every` rounds."""
    federation = images(clients, 20, validation=10)
    algorithm = one_epoch("ditto", MLP(FEATURES, CLASSES, (16,)), 10)
    training = Training(rounds=rounds, cohort=cohort, record_every=every // 10, block=every // 10, executor="batched")
    host, device = [], []

    def look(done: int, of: int) -> None:
        if done % every:
            return
        gc.collect()
        host.append(memory("VmRSS"))
        device.append(_device_bytes() / MEGABYTE)

    session = open_session([algorithm], federation, training, [0], ("log_loss",), Options(progress=look))
    session.train()
    report = {
        "what": f"ditto, {clients} clients, {cohort} per round, looked at every {every} of {rounds} rounds",
        "host MB": host,
        "device MB": device,
        "one snapshot, MB": size_in_bytes((session.state.server, session.state.clients)) / MEGABYTE,
        "clients that took part": sum(sent > 0 for sent in session.recorders[0].client_bytes),
        "seconds": session.state.seconds,
    }
    print(json.dumps(report))


def _device_bytes() -> int:
    """What the device says is in use; a CPU does not, so there it is the bytes of all arrays alive."""
    stats = jax.devices()[0].memory_stats()
    return stats["bytes_in_use"] if stats else sum(array.nbytes for array in jax.live_arrays())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
