# SPDX-License-Identifier: Apache-2.0
"""Billing: what a compiled block cost, drained into exact integers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from idiolect.accounting.bytes import bytes_of
from idiolect.accounting.ledger import Ledger
from idiolect.core.algorithm import Algorithm
from idiolect.core.kinds import Bills, Leg, SendsInLegs
from idiolect.core.tally import Tally
from idiolect.engines.cohorts import PADDING, Participation
from idiolect.engines.round import RoundCost
from idiolect.engines.start import WireTypes


class Prepared(Protocol):
    """What was sent before round 0 so that all rows are prepared alike."""

    @property
    def upload_bytes(self) -> np.ndarray:
        """(clients,) that each client sends."""

    @property
    def download_bytes(self) -> int:
        """That each client receives."""


class Account(NamedTuple):
    """What one lane has cost so far, and where it left the finite numbers."""

    ledger: Ledger
    client_bytes: np.ndarray  # the ledger's, by client; empty: not known
    slowest_gradients: int = 0  # sum over rounds of the largest gradient count of one client: the critical path
    diverged_round: int = -1  # -1: it has not
    diverged_client: int = -1  # whose parameters stopped being finite; -1: the server's, or no client's

    @property
    def sound(self) -> bool:
        """Whether all numbers were finite so far."""
        return self.diverged_round < 0

    def prepare(self, prepared: Prepared | None) -> Account:
        """Charge what was sent before round 0; rows that came as they are cost nothing."""
        if prepared is None:
            return self
        each = prepared.upload_bytes + prepared.download_bytes
        ledger = self.ledger.charge(preparation_bytes=sum(each.tolist()))
        return self._replace(ledger=ledger, client_bytes=self.client_bytes + each)

    def messages(self, clients: np.ndarray, bytes_each: int) -> Account:
        """The ledger's bytes once more, by whom they went to or came from; `clients` has a number per message."""
        if not self.client_bytes.size:
            return self
        client_bytes = self.client_bytes.copy()
        np.add.at(client_bytes, clients, bytes_each)  # as many additions as messages, however many clients there are
        return self._replace(client_bytes=client_bytes)


def open_account(clients: int, spent: Tally) -> Account:
    """With what the clients' start cost."""
    return Account(Ledger().charge_work(spent), np.zeros(clients, np.int64))


class Terms(NamedTuple):
    """What the messages of a lane are billed by."""

    algorithm: Algorithm
    participation: Participation
    wire: WireTypes


def bill_block(account: Account, costs: RoundCost, rounds: range, terms: Terms) -> Account:
    """Charge the rounds of one block. A broadcast goes to the whole cohort; an upload counts where it arrived.

    Rounds without a client are none.
    """
    algorithm, participation, wire = terms
    if participation.cohort == 0:
        return account
    arrived = int(np.count_nonzero(costs.present))
    *tally, useful = (
        count * arrived if isinstance(count, int) else int(np.sum(count, where=costs.present, dtype=np.int64))
        for count in costs.counts
    )
    executed = int(costs.executed_steps.sum(dtype=np.int64))
    ledger = account.ledger.charge_rounds(len(rounds)).charge_work(Tally(*tally), useful, executed)
    account = account._replace(ledger=ledger, slowest_gradients=account.slowest_gradients + _slowest(costs))
    clients, present = _without_nobodies(costs, participation.cohort)
    messages = None
    if isinstance(algorithm, Bills):
        messages = algorithm.bill(wire.sent, wire.upload, np.arange(rounds.start, rounds.stop), clients, present)
    if messages is None:
        return _charge(account, _legs(terms), clients, present) if sends(algorithm) else account
    ledger = ledger.charge(
        download_bytes=messages.download_bytes,
        upload_bytes=messages.upload_bytes,
        messages_down=messages.down,
        messages_up=messages.up,
    )
    # whose they are, only the method knows
    return account._replace(ledger=ledger, client_bytes=account.client_bytes[:0])


def _charge(account: Account, legs: tuple[Leg, ...], clients: np.ndarray, present: np.ndarray) -> Account:
    """With the messages of some rounds: a leg goes to all that were asked, or to those that stayed."""
    ledger, arrived = account.ledger, int(np.count_nonzero(present))
    for leg in legs:
        charge = ledger.charge_upload if leg.up else ledger.charge_download
        ledger = charge(arrived if leg.stayed else clients.size, leg.bytes)
    asked, stayed = (sum(leg.bytes for leg in legs if leg.stayed is kept) for kept in (False, True))
    account = account._replace(ledger=ledger)
    if arrived == clients.size:
        return account.messages(clients.reshape(-1), asked + stayed)
    return account.messages(clients.reshape(-1), asked).messages(clients[present], stayed)


def _legs(terms: Terms) -> tuple[Leg, ...]:
    """The messages of a round with one client: an upload is one, unless its reduction needs more."""
    algorithm, participation, wire = terms
    reduction, sent = algorithm.reduction, bytes_of(wire.sent)
    legs = [Leg("broadcast", up=False, bytes=sent, stayed=False)]
    if isinstance(reduction, SendsInLegs):
        legs += reduction.legs(wire.upload, participation.cohort)
    else:
        legs.append(Leg("upload", up=True, bytes=bytes_of(wire.upload), stayed=True))
    if algorithm.settle is not None and not participation.full:
        # with the same clients in every round, what settles is the next round's broadcast and is billed there
        legs.append(Leg("settled", up=False, bytes=sent, stayed=True))
    return tuple(legs)


def sends(algorithm: Algorithm) -> bool:
    """Whether anything goes down or up in a round."""
    return getattr(algorithm.reduction, "sends", True)


def delivers(algorithm: Algorithm) -> bool:
    """Whether models are handed out at the end."""
    return sends(algorithm) and (not isinstance(algorithm, Bills) or algorithm.delivers)


def _slowest(costs: RoundCost) -> int:
    """The sum over rounds of the largest number of gradients of one client that was present."""
    gradients = sum(count if isinstance(count, int) else count.astype(np.int64) for count in costs.counts[:3])
    if isinstance(gradients, int):
        return gradients * int(np.count_nonzero(costs.present.any(axis=1)))
    return int(np.where(costs.present, gradients, 0).max(axis=1).sum())


def _without_nobodies(costs: RoundCost, cohort: int) -> tuple[np.ndarray, np.ndarray]:
    """(rounds, cohort): the numbers of those asked, and who of them was present; what pads a chunk is left out."""
    if costs.clients.shape[1] == cohort:
        return costs.clients, costs.present
    real = costs.clients != PADDING
    return costs.clients[real].reshape(-1, cohort), costs.present[real].reshape(-1, cohort)


def bill_delivery(account: Account, cost: Tally, terms: Terms) -> Account:
    """Charge the personal models once, at the end: what clients compute for them and what is delivered to them.

    `cost` has a row per client; a client that never takes part is not sent anything.
    """
    participation = terms.participation
    takes = slice(None) if participation.able is None else participation.able
    counts = (np.asarray(count, np.int64)[takes] for count in cost)
    ledger = account.ledger.charge_work(Tally(*(int(np.sum(count)) for count in counts)))
    if ledger.rounds and delivers(terms.algorithm):
        each = bytes_of(terms.wire.delivered)
        ledger = ledger.charge_delivery(participation.candidates, each)
        account = account.messages(np.arange(participation.clients)[takes], each)
    return account._replace(ledger=ledger)
