# SPDX-License-Identifier: Apache-2.0
"""[privacy] level = "rows": what it asks of a spec, the noise of a method, and what each client's rows spend."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from idiolect.accounting.row_privacy import RowReading, noise_for_rows, spent_on_rows
from idiolect.core.algorithm import Algorithm
from idiolect.core.batched import Batched
from idiolect.core.checks import RequestError
from idiolect.core.kinds import ReadsRows
from idiolect.data.federation import Federation
from idiolect.data.preparation import GIVEN
from idiolect.engines.door import Training, participation_of
from idiolect.experiments.protection_spec import PrivacySpec
from idiolect.protection import Protection, RowPrivacy
from idiolect.protection.refusals import refuse_rows
from idiolect.record.privacy import ClientEpsilon

DELTA = 1e-5  # unless one is given: no number of rows, which would say something of them
SIMULATED = "not private: simulated noise and draws, from the run's seed"
PRIVATE = "noise and draws from each site's private source, so that neither the server nor another site sees a row"
_SETTINGS = ("level", "epsilon", "noise_multiplier", "delta", "clip", "accountant")
_NUMBERS = 32  # different numbers of rows whose epsilon is computed; others are rounded down to one of them


class RowSpending(NamedTuple):
    """The noise of a method's gradients, and what they spend of each client."""

    reading: RowReading
    rows: np.ndarray  # (clients,)
    asked: tuple[np.ndarray, ...]  # of each seed the clients of every round; none: all clients, every round
    noise_multiplier: float
    delta: float
    clip: float

    def rounds_of(self, number: int) -> np.ndarray:
        """(clients,): of the first `number` rounds those that a client is asked in, with the seed that asks most."""
        clients = len(self.rows)
        if not self.asked:
            return np.full(clients, number)
        return np.max([np.bincount(each[:number].ravel(), minlength=clients)[:clients] for each in self.asked], axis=0)

    def epsilon(self, number: int) -> float:
        """After so many rounds, of the client that spends most."""
        pairs = most_exposed(self.rows, self.rounds_of(number))
        return max((self._spent(*pair) for pair in pairs), default=0.0)

    def of_clients(self, number: int, names: tuple[str, ...]) -> tuple[ClientEpsilon, ...]:
        """Of every client, or a little more where there are many different numbers of rows."""
        # rounded down: fewer rows spend no less
        known = np.unique(self.rows)
        if len(known) > _NUMBERS:
            known = known[np.linspace(0, len(known) - 1, _NUMBERS).astype(int)]
        counted = known[np.searchsorted(known, self.rows, side="right") - 1]
        return tuple(
            ClientEpsilon(name, int(rows), self._spent(int(least), int(rounds)))
            for name, rows, least, rounds in zip(names, self.rows, counted, self.rounds_of(number))
        )

    def _spent(self, rows: int, rounds: int) -> float:
        return spent_on_rows(self.reading, rows, rounds, self.noise_multiplier, self.delta)


def most_exposed(rows: np.ndarray, rounds: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of rows and rounds of clients such that no other client has fewer rows and as many rounds."""
    found: list[tuple[int, int]] = []
    for own, times in sorted(zip(rows.tolist(), rounds.tolist()), key=lambda pair: (pair[0], -pair[1])):
        if times > (found[-1][1] if found else 0):
            found.append((own, times))
    return found


def unfit_for_rows(privacy: PrivacySpec) -> str | None:
    """Why the settings are not those of rows."""
    own = PrivacySpec(**{name: getattr(privacy, name) for name in _SETTINGS})
    if privacy == own:
        return None
    return (
        "privacy.level = 'rows' takes epsilon or noise_multiplier, delta, clip and accountant: clients add noise to "
        "gradients of batches that they draw by coins; leave clipping, quantile, noise and sampling out"
    )


def check_rows_are_apart(federation: Federation) -> None:
    """RequestError where one row changes the others before training, so that no clip bounds what it does."""
    found, recipe = federation.preparation, federation.preprocessing
    if (found is not None and found.way != GIVEN) or (recipe is not None and recipe.own is not None):
        way = GIVEN if found is None else found.way
        raise RequestError(
            f"[data] preparation = {way!r} scales columns by numbers of the rows, so that one row changes all "
            "others; under privacy.level = 'rows' use 'given', with a recipe of public numbers."
        )
    if federation.train.weights is not None:
        raise RequestError(
            "[data] weight is scaled by the sum of a client's weights, so that one row changes all others; leave it "
            "out under privacy.level = 'rows'."
        )


def row_spending(
    privacy: PrivacySpec, training: Training, seeds: tuple[int, ...], rows: np.ndarray, algorithm: Algorithm
) -> RowSpending:
    """The noise that the settings ask for, and what it spends."""
    refuse_rows(algorithm, Protection(rows=RowPrivacy(clip=privacy.clip)))
    who = participation_of(algorithm, training, len(rows))
    # dropouts count: they drew, added noise, and go on from where that led
    everyone = who.cohort == who.candidates
    asked = () if everyone else tuple(who.draw(seed, range(training.rounds))[0] for seed in seeds)
    reading = _reading(algorithm, privacy.accountant)
    delta = DELTA if privacy.delta is None else privacy.delta
    found = RowSpending(reading, rows, asked, privacy.noise_multiplier or 0.0, delta, privacy.clip)
    if privacy.noise_multiplier is not None:
        return found
    assert privacy.epsilon is not None
    exposed = most_exposed(rows, found.rounds_of(training.rounds))
    noise = max(noise_for_rows(reading, own, times, privacy.epsilon, delta) for own, times in exposed)
    return found._replace(noise_multiplier=noise)


def _reading(algorithm: Algorithm, accountant: str) -> RowReading:
    """How often a round reads a row, and by what draw; the algorithm was not refused."""
    assert isinstance(algorithm, Batched)
    assert isinstance(algorithm, ReadsRows)
    by_coins = algorithm.batch_size and not algorithm.epochs
    passes = (algorithm.epochs or algorithm.local_steps) * algorithm.row_reads.passes
    return RowReading(algorithm.batch_size if by_coins else 0, passes, accountant)


def row_note(spending: RowSpending, rounds: int, deployed: bool) -> str:
    """What is in force, in a sentence."""
    batches = "by coins of its own" if spending.reading.batch_size else "of all rows"
    return (
        f"row-level differential privacy, epsilon {spending.epsilon(rounds):.3g} at delta {spending.delta:.2g} after "
        f"{rounds} rounds for the client that spends most, noise {spending.noise_multiplier:.3g} times the clip "
        f"{spending.clip:g} of a row's gradient, batches {batches}, numbers of rows are no secret, models that stay on "
        f"a client have no noise, the last round is delivered; {PRIVATE if deployed else SIMULATED}"
    )
