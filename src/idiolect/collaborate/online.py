# SPDX-License-Identifier: Apache-2.0
"""Discrepancies while rows arrive: estimated on the first rows, again whenever the rows have doubled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from idiolect.collaborate.exchange import Exchange
from idiolect.collaborate.quadratic import make_sample
from idiolect.collaborate.weights import Learned, alone, exchange_of, learn_weights
from idiolect.core.checks import RequestError
from idiolect.core.data import Rows
from idiolect.theory.convex import ConvexLoss


class Estimation(NamedTuple):
    """One re-estimate: after how many rows, what it said, what it sent."""

    rows: int
    learned: Learned
    exchange: Exchange


class OnlineWeights:
    """Lambda that grows with the rows: identity at first, re-estimated each time all rows have grown by `growth`.

    Doubling bounds the price: all estimates together judge at most twice as often per row as the last one alone.
    """

    def __init__(
        self,
        loss: ConvexLoss,
        agents: int,
        *,
        first: int = 2,
        growth: float = 2.0,
        folds: int = 5,
        penalty: float = 0.0,
        seed: int = 0,
    ):
        if growth <= 1:
            raise RequestError(f"growth must be above 1, got {growth:g}; 2 re-estimates when rows have doubled.")
        if agents < 2 or first < 2:
            raise RequestError(f"OnlineWeights needs 2 clients and 2 first rows or more, got {agents} and {first}.")
        self.loss, self.agents, self.growth = loss, agents, growth
        self.folds, self.penalty, self.seed = folds, penalty, seed
        self.shares = alone(agents)
        self.history: list[Estimation] = []
        self._next, self._rows = first * agents, 0
        self._arrived: list[Rows] = []

    @property
    def exchange(self) -> Exchange:
        """What all estimates so far have sent."""
        return sum((one.exchange for one in self.history), Exchange())

    def add(self, rows: Rows) -> bool:
        """Take new rows of every client; True where Lambda was estimated anew."""
        if rows.clients != self.agents:
            raise RequestError(f"New rows must be those of {self.agents} clients, got {rows.clients}.")
        self._arrived.append(rows)
        self._rows += len(rows.targets)
        if self._rows < self._next:
            return False
        self.estimate()
        return True

    def estimate(self) -> Learned:
        """Estimate now, on all rows so far."""
        known = self.rows()
        sample = make_sample(self.loss, known, self.folds, self.seed)
        learned = learn_weights(sample, self.penalty)
        self.shares = learned.shares
        self.history.append(Estimation(self._rows, learned, exchange_of(sample)))
        # a multiple, not a number of rows: the work of all estimates together stays within a constant of the last one
        self._next = int(np.ceil(self.growth * self._rows))
        return learned

    def rows(self) -> Rows:
        """All rows so far, client by client."""
        if self._rows == 0:
            raise RequestError("No rows have arrived yet; add some before estimating.")
        parts = [part.of(agent) for agent in range(self.agents) for part in self._arrived]
        inputs, targets = (np.concatenate(every) for every in zip(*parts))
        counts = np.sum([part.counts for part in self._arrived], axis=0)
        return Rows(inputs, targets, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
