# SPDX-License-Identifier: Apache-2.0
"""One training of `neighbours` in a process of its own; prints its memory and times as JSON."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.scale_child import memory


def main(agents: int, rounds: int) -> None:
    """All-for-all on mean estimation, all clients in every round, one row each."""
    import numpy as np

    from benchmarks.neighbours import DIMENSION, ROWS, neighbourhoods
    from idiolect.algorithms import AllForAll
    from idiolect.core import mixing
    from idiolect.engines.simulate import Training, open_session
    from idiolect.models import Location
    from idiolect.objectives import ClientLoss, LocalOnly
    from idiolect.theory.all_for_all import spectral_radius
    from papers.afa_problems import means_at

    began = time.perf_counter()
    neighbours = neighbourhoods(agents)
    times = {"lists, s": time.perf_counter() - began}
    began = time.perf_counter()
    radius = spectral_radius(neighbours)
    times["spectral radius, s"] = time.perf_counter() - began
    counts = mixing.counts(neighbours)
    places = np.random.default_rng(2).normal(size=(agents, DIMENSION))
    federation = means_at(places, ROWS, 1.0).federation
    loss = ClientLoss(model=Location(DIMENSION), criterion="squared")
    algorithm = AllForAll(LocalOnly(loss), neighbours=neighbours, batch_size=1, step_size=1 / (2 * radius))
    training = Training(rounds=rounds, record_every=rounds, block=min(50, rounds), executor="batched")
    session = open_session([algorithm], federation, training, [0], ("squared_error",))
    session.train()
    report = {
        "neighbours, mean": float(counts.mean()),
        "neighbours, most": int(counts.max()),
        "rho(W)": radius,
        **times,
        "rounds, s": session.state.seconds,
        "peak MB": memory("VmHWM"),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
