# SPDX-License-Identifier: Apache-2.0
"""What a run is billed, counted by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from idiolect.core import tree
from idiolect.engines.advance import move
from idiolect.engines.cohorts import Participation
from idiolect.engines.door import Training
from idiolect.engines.simulate import open_session, simulate

ROWS = (3, 5, 4, 5, 3, 4)  # of the ragged federation
MODEL_BYTES = 4 * (3 * 3 + 3)  # float32 weights and bias
ROUNDS = 6


def test_a_full_cohort_by_hand(bench, ragged):
    run = simulate(bench.stateful, ragged, bench.full, seed=1)
    ledger, everyone = run.ledger, 6 * ROUNDS
    assert ledger.rounds == ROUNDS
    assert ledger.messages_down == ledger.messages_up == everyone
    assert ledger.download_bytes == everyone * 2 * MODEL_BYTES  # model and control down
    assert ledger.upload_bytes == everyone * (2 * MODEL_BYTES + 4)  # drift, control change and a weight up
    assert ledger.delivery_bytes == 6 * MODEL_BYTES  # the model alone, once to each
    # one epoch in batches of 2: every row once, in ceil(rows / 2) steps, of which the longest client has 3
    assert ledger.gradients_shared == ledger.samples == ROUNDS * sum(ROWS)
    assert ledger.gradients_personal == ledger.gradients_both == ledger.forward_passes == 0
    assert ledger.useful_steps == ROUNDS * sum(-(-rows // 2) for rows in ROWS)
    assert ledger.executed_steps == ROUNDS * 6 * 3
    assert run.history[-1]["slowest_gradients"] == ROUNDS * max(ROWS)


@pytest.mark.parametrize("executor", ["batched", "chunked"])
def test_what_is_known_beforehand_is_not_written_down(executor, bench, ragged):
    fixed = dataclasses.replace(bench.stateful, epochs=0, local_steps=3, batch_size=2)
    training = dataclasses.replace(bench.full, executor=executor, chunk=2 if executor == "chunked" else 0)
    session = open_session([fixed], ragged, training, [1], ("log_loss",))
    costs = tree.take(move(session.plan, session.state, ROUNDS).costs, 0)
    assert costs.counted.shape == (ROUNDS, 6, 1)  # whether the work stayed finite, nothing else
    shared, *_, useful = costs.counts
    assert (shared, useful) == (3 * 2, 3)
    assert np.sum(costs.executed_steps) == ROUNDS * 6 * 3
    assert sorted(np.asarray(costs.clients)[0].tolist()) == list(range(6))
    assert np.asarray(costs.present).all()
    short = tree.take(move(session.plan, session.state, 2).costs, 0)  # the rest of the program's rounds is cut off
    assert np.sum(short.executed_steps) == 2 * 6 * 3
    assert short.present.shape == (2, 6)
    session.train()
    ledger = session.recorders[0].ledger
    assert ledger.gradients_shared == ledger.samples == ROUNDS * 6 * 3 * 2
    assert ledger.useful_steps == ledger.executed_steps == ROUNDS * 6 * 3


@pytest.mark.parametrize("executor", ["batched", "chunked", "looped"])
def test_known_counts_are_billed_to_those_who_were_there(executor, bench, ragged):
    fixed = dataclasses.replace(bench.stateful, epochs=0, local_steps=3, batch_size=2)
    # three at a time: the second chunk of a cohort of four is filled up with nobodies; nearly all drop out
    training = dataclasses.replace(
        bench.partial, dropout=0.6, executor=executor, chunk=3 if executor == "chunked" else 0
    )
    seeds = [1] if executor == "looped" else [1, 2]
    session = open_session([fixed] * len(seeds), ragged, training, seeds, ("log_loss",))
    session.train()
    for run in session.finish():
        _, present = Participation(6, 4, training.dropout).draw(run.seed, range(ROUNDS))
        arrived, ledger = int(present.sum()), run.ledger
        assert 0 < arrived < 4 * ROUNDS
        assert (ledger.messages_down, ledger.messages_up) == (4 * ROUNDS, arrived)
        assert ledger.gradients_shared == ledger.samples == arrived * 3 * 2
        assert ledger.useful_steps == arrived * 3
        assert run.history[-1]["slowest_gradients"] == 3 * 2 * int(present.any(axis=1).sum())


def test_a_partial_cohort_bills_who_was_there(bench, ragged):
    run = simulate(bench.stateful, ragged, bench.partial, seed=1)
    members, present = Participation(6, 4, bench.partial.dropout).draw(1, range(ROUNDS))
    came = [[client for client, here in zip(*pair) if here] for pair in zip(members.tolist(), present.tolist())]
    arrived, ledger = sum(map(len, came)), run.ledger
    assert 0 < arrived < 4 * ROUNDS  # some dropped out
    assert ledger.messages_down == 4 * ROUNDS  # the broadcast had gone out to those as well
    assert ledger.download_bytes == 4 * ROUNDS * 2 * MODEL_BYTES
    assert ledger.messages_up == arrived
    assert ledger.upload_bytes == arrived * (2 * MODEL_BYTES + 4)
    assert ledger.samples == sum(ROWS[client] for cohort in came for client in cohort)
    assert ledger.useful_steps == sum(-(-ROWS[client] // 2) for cohort in came for client in cohort)
    assert ledger.executed_steps >= ledger.useful_steps
    assert run.history[-1]["slowest_gradients"] == sum(max(ROWS[c] for c in cohort) for cohort in came if cohort)


def test_gradients_are_counted_by_block(bench, ragged, workbench):
    run = simulate(bench.personal, ragged, bench.full, seed=1)
    # one pass yields both blocks' gradients: counted once, under both
    assert run.ledger.gradients_both == ROUNDS * sum(ROWS)
    assert run.ledger.gradients_shared == run.ledger.gradients_personal == 0
    assert run.ledger.upload_bytes == 6 * ROUNDS * (MODEL_BYTES + 4)  # the personal block stays at home
    alone = workbench.build("local", epochs=1, batch_size=2)
    run = simulate(alone, ragged, bench.full, seed=1)
    assert run.ledger.gradients_personal == run.ledger.samples == ROUNDS * sum(ROWS)
    assert run.ledger.total_bytes == 0


def test_fine_tuning_is_billed_once_at_the_end(bench, ragged, workbench):
    tuned = workbench.build("fedavg_fine_tuning", epochs=1, batch_size=2, fine_tuning_steps=4)
    run = simulate(tuned, ragged, bench.full, seed=1)
    before = run.history[-1]["gradients_shared"]
    assert before == ROUNDS * sum(ROWS)
    assert run.ledger.gradients_shared == before + 6 * 4 * 2  # clients x steps x rows per batch, however often recorded


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_bytes_follow_the_precision(precision, bench, ragged):
    training = dataclasses.replace(bench.full, rounds=3, precision=precision)
    ledger = simulate(bench.stateful, ragged, training).ledger
    scale = {"float32": 1, "float64": 2}[precision]
    assert ledger.download_bytes == 18 * 2 * MODEL_BYTES * scale


def test_what_pads_a_chunk_is_not_billed(workbench, ragged):
    """5 of 6 clients in chunks of 2 come as 6 rows; the method that counts its own messages sees five."""
    algorithm = workbench.build("all_for_one", step_size=0.1)
    training = Training(rounds=2, cohort=5, executor="chunked", chunk=2, record_every=2)
    ledger = simulate(algorithm, ragged, training, seed=1).ledger
    assert ledger.messages_down == ledger.messages_up == 10
