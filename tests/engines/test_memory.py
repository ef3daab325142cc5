# SPDX-License-Identifier: Apache-2.0
"""Nothing is kept per round: arrays on the device and objects on the host between two looks far apart."""

from __future__ import annotations

import gc

import jax
import pytest

from idiolect.engines.simulate import Options, Training, open_session

# rounds: of a block, of the looks, of all; recording would rightly add a row of history, and a block before it is read
# the record of the last round is under way
EVERY, EARLY, LATE, LAST = 2, 20, 56, 60


@pytest.fixture
def looks(bench, ragged, tmp_path):
    """(arrays, their bytes, objects) by round, of a training of all that is kept: server, states, snapshot, ledger."""

    def train(executor, on_disk=False, leak=None):
        chunk = 3 if executor == "chunked" else 0
        request = Training(rounds=LAST, record_every=LAST, block=EVERY, cohort=3, executor=executor, chunk=chunk)
        folder = tmp_path / "states" if on_disk else None
        seen = {}

        def look(done, of):
            if leak is not None:
                # several objects for one array: under load a dozen of others come and go
                leak.append([[session.state.server.shared["weights"] + done], [done], [done]])
            if done in (EARLY, LATE):
                session.plan.population.stands_at(done)  # waits for what a thread reads and writes meanwhile
                gc.collect()
                alive = jax.live_arrays()
                seen[done] = (len(alive), sum(array.nbytes for array in alive), len(gc.get_objects()))

        options = Options(state_folder=folder, progress=look)
        session = open_session([bench.stateful], ragged, request, [0], ("log_loss",), options)
        session.train()
        assert all(session.recorders[0].client_bytes)  # every client has taken part
        return seen[EARLY], seen[LATE]

    return train


@pytest.mark.parametrize(("executor", "on_disk"), [("batched", False), ("looped", False), ("chunked", True)])
def test_nothing_is_kept_per_round(looks, executor, on_disk):
    early, late = looks(executor, on_disk)
    assert late[:2] == early[:2]
    assert late[2] < early[2] + (LATE - EARLY) // EVERY  # less than one object per block


def test_the_looks_see_what_is_kept(looks):
    kept = []
    early, late = looks("batched", leak=kept)
    blocks = (LATE - EARLY) // EVERY
    assert late[0] == early[0] + blocks
    assert late[1] == early[1] + blocks * kept[0][0][0].nbytes
    assert late[2] >= early[2] + blocks
