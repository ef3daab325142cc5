# SPDX-License-Identifier: Apache-2.0
"""Billing: what a compiled block cost, drained into exact integers."""

from __future__ import annotations

import numpy as np

from idiolect.accounting.bytes import bytes_of
from idiolect.core.algorithm import Algorithm
from idiolect.core.tally import Tally
from idiolect.engines.cohorts import NOBODY, Participation
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
    """Charge the rounds of one block. A broadcast goes to the whole cohort; an upload counts where it arrived.

    Rounds in which nobody takes part are none.
    """
    if participation.cohort == 0:
        return
    arrived, cohort = int(costs.present.sum()), participation.cohort
    counts = np.where(costs.present[..., None], costs.counts, 0).astype(np.int64)  # (rounds, cohort, 10)
    *tally, useful, _ = (int(count) for count in counts.sum(axis=(0, 1)))
    executed = int(costs.executed_steps.sum(dtype=np.int64))
    ledger = recorder.ledger.charge_rounds(len(rounds)).charge_work(Tally(*tally), useful, executed)
    recorder.slowest_gradients += int(counts[..., :3].sum(axis=2).max(axis=1).sum())
    traffic = algorithm.traffic(wire.sent, cohort)
    clients, present = _without_nobodies(costs, cohort)
    messages = algorithm.traffic_of(wire.sent, wire.upload, np.asarray(rounds), clients, present)
    if messages is not None:
        ledger = ledger.charge(
            download_bytes=messages.download_bytes,
            upload_bytes=messages.upload_bytes,
            messages_down=messages.down,
            messages_up=messages.up,
        )
        recorder.client_bytes = []  # whose they are, only the method knows
    elif traffic is not None:
        down, up = traffic
        ledger = ledger.charge(download_bytes=len(rounds) * down, upload_bytes=len(rounds) * up)
        if down or up:
            recorder.client_bytes = []
    else:
        ledger = ledger.charge_download(cohort * len(rounds), bytes_of(wire.sent))
        ledger = ledger.charge_upload(arrived, bytes_of(wire.upload))
        for_upload = bytes_of(wire.upload)
        if algorithm.settles and not participation.full:
            # with the same clients in every round, what settles is the next round's broadcast and is billed there
            ledger = ledger.charge_download(arrived, bytes_of(wire.sent))
            for_upload += bytes_of(wire.sent)
        _bill_clients(recorder, clients.reshape(-1), bytes_of(wire.sent))
        _bill_clients(recorder, clients[present], for_upload)
    recorder.ledger = ledger


def _without_nobodies(costs: RoundCost, cohort: int) -> tuple[np.ndarray, np.ndarray]:
    """(rounds, cohort): the numbers of those asked, and who of them was present; what pads a chunk is left out."""
    real = costs.clients != NOBODY
    return costs.clients[real].reshape(-1, cohort), costs.present[real].reshape(-1, cohort)


def _bill_clients(recorder: Recorder, clients: np.ndarray, bytes_each: int) -> None:
    """The same bytes once more, by whom they went to or came from; `clients` has a number per message."""
    if recorder.client_bytes:
        messages = np.bincount(clients, minlength=len(recorder.client_bytes))
        recorder.client_bytes = [sum(pair) for pair in zip(recorder.client_bytes, (messages * bytes_each).tolist())]


def bill_delivery(
    recorder: Recorder, cost: Tally, algorithm: Algorithm, participation: Participation, wire: WireTypes
) -> None:
    """Charge the personal models once, at the end: what clients compute for them and what is delivered to them.

    `cost` has a row per client; a client that never takes part is not sent anything.
    """
    takes = slice(None) if participation.able is None else participation.able
    recorder.ledger = recorder.ledger.charge_work(Tally(*(int(np.sum(count[takes], dtype=np.int64)) for count in cost)))
    if recorder.ledger.rounds and algorithm.delivers and algorithm.traffic(wire.sent, 1) != (0, 0):
        recorder.ledger = recorder.ledger.charge_delivery(participation.candidates, bytes_of(wire.delivered))
        _bill_clients(recorder, np.arange(participation.clients)[takes], bytes_of(wire.delivered))
