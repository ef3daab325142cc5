# SPDX-License-Identifier: Apache-2.0
"""Billing: what a compiled block cost, drained into exact integers."""

from __future__ import annotations

import numpy as np

from idiolect.accounting.bytes import bytes_of
from idiolect.core.algorithm import Algorithm
from idiolect.core.tally import Tally
from idiolect.engines.cohorts import Participation
from idiolect.engines.recording import Recorder
from idiolect.engines.round import RoundCost
from idiolect.engines.start import WireTypes


def bill_block(
    recorder: Recorder,
    costs: RoundCost,
    rounds: range,
    algorithm: Algorithm,
    participation: Participation,
    wire: WireTypes,
) -> None:
    """Charge the rounds of one block. A broadcast goes to the whole cohort; an upload counts where it arrived."""
    arrived, cohort = int(costs.present.sum()), participation.cohort
    counts = np.where(costs.present[..., None], costs.counts, 0).astype(np.int64)  # (rounds, cohort, 10)
    *tally, useful, _ = (int(count) for count in counts.sum(axis=(0, 1)))
    executed = int(costs.executed_steps.sum(dtype=np.int64))
    ledger = recorder.ledger.charge_rounds(len(rounds)).charge_work(Tally(*tally), useful, executed)
    recorder.slowest_gradients += int(counts[..., :3].sum(axis=2).max(axis=1).sum())
    traffic = algorithm.traffic(wire.sent, cohort)
    messages = algorithm.traffic_of(wire.sent, wire.upload, np.asarray(rounds), costs.clients, costs.present)
    if messages is not None:
        ledger = ledger.charge(
            download_bytes=messages.download_bytes,
            upload_bytes=messages.upload_bytes,
            messages_down=messages.down,
            messages_up=messages.up,
        )
    elif traffic is not None:
        down, up = traffic
        ledger = ledger.charge(download_bytes=len(rounds) * down, upload_bytes=len(rounds) * up)
    else:
        ledger = ledger.charge_download(cohort * len(rounds), bytes_of(wire.sent))
        ledger = ledger.charge_upload(arrived, bytes_of(wire.upload))
        if algorithm.settles and not participation.full:
            # with everybody taking part, what settles is the next round's broadcast and is billed there
            ledger = ledger.charge_download(arrived, bytes_of(wire.sent))
    recorder.ledger = ledger


def bill_delivery(
    recorder: Recorder, cost: Tally, algorithm: Algorithm, participation: Participation, wire: WireTypes
) -> None:
    """Charge the personal models once, at the end: what clients compute for them and what is delivered to them."""
    recorder.ledger = recorder.ledger.charge_work(Tally(*(int(count) for count in cost)))
    if recorder.ledger.rounds and algorithm.delivers and algorithm.traffic(wire.sent, 1) != (0, 0):
        recorder.ledger = recorder.ledger.charge_delivery(participation.clients, bytes_of(wire.delivered))
