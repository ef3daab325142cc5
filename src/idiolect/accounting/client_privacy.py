# SPDX-License-Identifier: Apache-2.0
"""Epsilon of rounds with client-level noise, and the noise for a given epsilon, by Google's dp-accounting.

| cohorts | neighbours | mechanism of a round |
|---|---|---|
| all clients | with or without one client | Gaussian, multiplier z |
| `fixed`: c of M, drawn without replacement | one client replaced by another | sampled Gaussian, multiplier z / 2 |
| `poisson`: each client by a coin of its own | with or without one client | sampled Gaussian, multiplier z |

A client that is replaced moves the sum by up to twice the clip, hence z / 2.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from idiolect.core.checks import RequestError

ACCOUNTANTS = ("rdp", "pld")
_LEAST = 1e-3  # multiplier that the search begins at: that of drawn cohorts divides by it


class Rounds(NamedTuple):
    """How a client comes into a round."""

    clients: int  # that may be drawn
    cohort: int  # of them in a round, where the number is fixed
    chance: float  # of each, where coins decide
    poisson: bool
    accountant: str


@functools.cache  # every recorded round of every seed asks for it
def spent_epsilon(rounds: Rounds, number: int, noise_multiplier: float, delta: float) -> float:
    """What so many rounds spend, at `delta`."""
    if number == 0:
        return 0.0
    # the accountants divide by it
    if noise_multiplier == 0:
        return math.inf
    with _quiet():
        accountant = _accountant(rounds)
        accountant.compose(_event(rounds, noise_multiplier), number)
        return float(accountant.get_epsilon(delta))


@functools.cache
def noise_for(rounds: Rounds, number: int, epsilon: float, delta: float) -> float:
    """The smallest noise multiplier, to one part in a thousand, with which so many rounds spend no more."""
    package = _package()
    if spent_epsilon(rounds, number, _LEAST, delta) <= epsilon:
        return _LEAST
    with _quiet():
        try:
            found = package.calibrate_dp_mechanism(
                lambda: _accountant(rounds),
                lambda noise: package.SelfComposedDpEvent(_event(rounds, noise), number),
                epsilon,
                delta,
                package.LowerEndpointAndGuess(_LEAST, 1.0),
                tol=1e-3,
            )
        except package.mechanism_calibration.NoBracketIntervalFoundError:
            raise RequestError(
                f"privacy.epsilon = {epsilon:g} at delta = {delta:g} needs more noise than any that was tried; ask for "
                "a larger epsilon, or for fewer rounds."
            ) from None
    return float(found)


def _event(rounds: Rounds, noise_multiplier: float) -> Any:
    package = _package()
    if rounds.poisson:
        return package.PoissonSampledDpEvent(rounds.chance, package.GaussianDpEvent(noise_multiplier))
    if rounds.cohort == rounds.clients:
        return package.GaussianDpEvent(noise_multiplier)
    replaced = package.GaussianDpEvent(noise_multiplier / 2)
    return package.SampledWithoutReplacementDpEvent(rounds.clients, rounds.cohort, replaced)


def _accountant(rounds: Rounds) -> Any:
    package = _package()
    if rounds.accountant == "pld":
        return package.pld.PLDAccountant()
    drawn = not rounds.poisson and rounds.cohort < rounds.clients
    relations = package.NeighboringRelation
    return package.rdp.RdpAccountant(
        neighboring_relation=relations.REPLACE_ONE if drawn else relations.ADD_OR_REMOVE_ONE
    )


def _package() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise RequestError(
            "[privacy] is accounted by the package dp-accounting, which is not installed; "
            "install it with pip install 'idiolect[privacy]'."
        ) from None
    return dp_accounting


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Orders of the Renyi divergence that did not converge are left out, which only makes epsilon larger."""
    log = logging.getLogger("absl")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
