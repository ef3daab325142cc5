# SPDX-License-Identifier: Apache-2.0
"""From the sections of a spec to a protected algorithm, what it spends, and the notes about it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from idiolect.accounting.client_privacy import Rounds, noise_for, spent_epsilon
from idiolect.accounting.row_privacy import RowReading, noise_for_rows, spent_on_rows
from idiolect.core.addressing import PerClient
from idiolect.core.algorithm import Algorithm
from idiolect.core.batches import Batched
from idiolect.core.checks import RequestError
from idiolect.core.keys import Purpose, host_generator
from idiolect.core.kinds import ReadsRows
from idiolect.data.federation import Federation
from idiolect.data.preparation import FEDERATED, GIVEN
from idiolect.engines.billing import sends
from idiolect.engines.door import Training, participation_of
from idiolect.engines.run import Run
from idiolect.experiments.spec import PROTECTIONS, PrivacySpec, Spec, TuningSpec
from idiolect.protection import (
    Attack,
    ClientPrivacy,
    Compression,
    Protection,
    Robustness,
    RowPrivacy,
    SecureAggregation,
    protect,
)
from idiolect.protection.fixed_point import range_bits
from idiolect.protection.refusals import refuse_rows
from idiolect.record.privacy import ClientEpsilon
from idiolect.record.words import counted

if TYPE_CHECKING:
    from idiolect.experiments.build import Built

ROUNDING = 1e-4  # of what is told in single precision, and of what epsilon makes of it
ROW_DELTA = 1e-5  # unless one is given: no number of rows, which would say something of them
OF_ROWS = ("level", "epsilon", "noise_multiplier", "delta", "clip", "accountant")  # what level = "rows" takes
MOST_COUNTS = 32  # different numbers of rows whose epsilon is computed; others are rounded down to one of them
SIMULATED = "not private: simulated noise, drawn from the run's seed"
ROWS_SIMULATED = "not private: simulated noise and draws, from the run's seed"
ROWS_PRIVATE = "noise and draws from each site's private source, so that neither the server nor another site sees a row"
PRIVATE = {  # by who adds the noise
    "server": "noise from the server's private source; the server itself sees every upload before it",
    "clients": "noise from each site's private source, of which the server sees the sum",
}
OUTSIDE = (
    "Epsilon is that of one method and one seed: several of them together spend the sum. Scores, and a choice among "
    "methods by them, read rows that no noise hides, and are outside of it."
)


class Spending(NamedTuple):
    """The noise of a method's rounds, and what they spend."""

    rounds: Rounds
    noise_multiplier: float
    delta: float

    def epsilon(self, number: int) -> float:
        """After so many rounds."""
        return spent_epsilon(self.rounds, number, self.noise_multiplier, self.delta)


class RowSpending(NamedTuple):
    """The noise of a method's gradients, and what they spend of each client."""

    reading: RowReading
    rows: np.ndarray  # (clients,)
    asked: tuple[np.ndarray, ...]  # of each seed the clients of every round; none: all clients, every round
    noise_multiplier: float
    delta: float

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
        if len(known) > MOST_COUNTS:
            known = known[np.linspace(0, len(known) - 1, MOST_COUNTS).astype(int)]
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


def is_protected(spec: Spec) -> bool:
    """Whether anything is protected, or attacked."""
    return any(getattr(spec, name).is_on for name in PROTECTIONS)


def check_protections(spec: Spec) -> None:
    """RequestError for what [privacy] cannot account, and for settings of a protection that is not on."""
    for name, kind in PROTECTIONS.items():
        section, switch = getattr(spec, name), f"{name}.{kind.switches[0]}"
        if not section.is_on and section != kind():  # its settings would change nothing
            raise RequestError(f"[{name}] is on only where {switch} is given, got none; give it, or leave it out.")
    if not spec.privacy.is_on:
        return
    if spec.privacy.epsilon is not None and spec.privacy.noise_multiplier is not None:
        raise RequestError("[privacy] takes epsilon or noise_multiplier, got both; keep one.")
    hides_rows = spec.privacy.level == "rows"
    unfit = _unfit_for_rows(spec.privacy) if hides_rows else _unfit_sampling(spec.privacy, spec.training)
    reason = _outside_noise(spec) or unfit
    if reason is not None:
        raise RequestError(f"{reason}.")


def _outside_noise(spec: Spec) -> str | None:
    """Why a part of the run would read rows past the noise, so that epsilon would be too small."""
    if dataclasses.replace(spec.tuning, minutes=None) != TuningSpec():
        return "[tuning] reads validation rows again and again, which no noise hides; leave it out, and give numbers"
    if spec.collaboration.source not in (None, "identity", "uniform", "mixture"):
        return "[collaboration] finds similar clients from rows, which no noise hides; leave it out"
    return None


def _unfit_sampling(privacy: PrivacySpec, training: Training) -> str | None:
    """Why the noise would not be what the accountant computes with for these cohorts."""
    if privacy.sampling == "poisson" and (training.cohort > 0 or training.dropout == 0):
        return (
            "privacy.sampling = 'poisson' is by coins: every client is asked, with training.cohort = 0, and takes part "
            "with the chance 1 - training.dropout; set these"
        )
    if privacy.noise == "clients" and training.dropout > 0:
        return (
            "privacy.noise = 'clients' adds up to the right noise only if all of a fixed cohort arrive; set "
            "training.dropout = 0"
        )
    if privacy.accountant == "pld" and privacy.sampling == "fixed" and training.cohort > 0:
        return "privacy.accountant = 'pld' knows all clients or coins; use 'rdp' for fixed cohorts"
    return None


def _unfit_for_rows(privacy: PrivacySpec) -> str | None:
    """Why the settings are not those of rows."""
    own = PrivacySpec(**{name: getattr(privacy, name) for name in OF_ROWS})
    if privacy == own:
        return None
    return (
        "privacy.level = 'rows' takes epsilon or noise_multiplier, delta, clip and accountant: clients add noise to "
        "gradients of batches that they draw by coins; leave clipping, quantile, noise and sampling out"
    )


def check_preparation(spec: Spec, federation: Federation) -> None:
    """RequestError where columns were scaled by sums that left the clients as they are, under [privacy]."""
    found = federation.preparation
    if spec.privacy.is_on and spec.privacy.level == "rows":
        _check_rows_are_apart(federation)
    elif spec.privacy.is_on and found is not None and found.way == FEDERATED:
        raise RequestError(
            f"[data] preparation = {FEDERATED!r} sends sums of columns as they are, which no noise of [privacy] hides; "
            "use 'local' or 'given'."
        )


def _check_rows_are_apart(federation: Federation) -> None:
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


def out_of_reach(spec: Spec, federation: Federation) -> list[str]:
    """What to say where clipped changes cannot add up to the targets, whose units no preparation may know."""
    privacy, rounds = spec.privacy, spec.training.rounds
    fixed = privacy.is_on and privacy.level == "clients" and privacy.clipping == "fixed"
    if not fixed or federation.task.kind != "regression":
        return []
    size = float(np.sqrt(np.mean(np.square(federation.train.targets, dtype=np.float64))))
    if size <= privacy.clip * rounds:
        return []
    return [
        f"Under [privacy] the target keeps its units, {size:.3g} from 0 (root mean square), and a client's change is "
        f"clipped to {privacy.clip:g} in each of {counted(rounds, 'round')}: a shared model cannot reach it at any "
        "epsilon. Shift and divide the target by numbers that are no secret, or set privacy.clip higher."
    ]


def protect_method(spec: Spec, federation: Federation, built: Built, deployed: bool = False) -> Built:
    """The method as the sections ask."""
    spending: Spending | RowSpending | None = None
    if spec.privacy.is_on and spec.privacy.level == "rows":
        counts = federation.train.counts
        spending = _row_spending(spec.privacy, spec.training, spec.seeds, counts, built.algorithm)
    elif spec.privacy.is_on:
        spending = _client_spending(spec.privacy, spec.training, federation.clients, built.algorithm)
    noise = 0.0 if spending is None else spending.noise_multiplier
    protection = _protection(spec, federation.clients, built.algorithm, noise)
    if spec.attack.kind is not None:
        protection = dataclasses.replace(protection, attack=_attack(spec, spec.attack.kind, federation))
    told = tuple(_notes(spec, spending, protection.secure_aggregation, deployed))
    notes = [*built.notes, *(f"{built.method.label}: {text}." for text in told)]
    algorithm = protect(built.algorithm, protection)
    return built._replace(algorithm=algorithm, notes=notes, protected=told, spending=spending)


def protect_at_site(spec: Spec, clients: int, algorithm: Algorithm) -> Algorithm:
    """The same as a site of a deployment builds it; its numbers are the coordinator's."""
    if not is_protected(spec) or not sends(algorithm):
        return algorithm
    return protect(algorithm, _protection(spec, clients, algorithm, spec.privacy.noise_multiplier or 1.0))


def check_row_spending(spec: Spec, agreed: Algorithm, told: Any, rows: int, rounds: int) -> None:
    """RequestError where a coordinator's numbers would spend more of a site's rows than the spec says.

    `agreed` is the method as the site's own spec has it, `told` the protected one with these numbers.
    """
    privacy, noise = spec.privacy, float(told.objective.row_privacy.noise_multiplier)
    reading = _reading(told, privacy.accountant)
    if reading != _reading(agreed, privacy.accountant):
        raise RequestError(
            "The coordinator's steps or batches would read rows more often than this site's spec says; use the same "
            "spec."
        )
    if privacy.noise_multiplier is not None:
        if noise < privacy.noise_multiplier * (1 - ROUNDING):
            raise RequestError(
                f"The coordinator asks for noise_multiplier = {noise:g}, less than the {privacy.noise_multiplier:g} of "
                "this site's spec; use the same spec."
            )
        return
    assert privacy.epsilon is not None
    delta = ROW_DELTA if privacy.delta is None else privacy.delta
    spent = spent_on_rows(reading, rows, rounds, noise, delta) if noise > 0 else math.inf
    if spent > privacy.epsilon * (1 + ROUNDING):
        raise RequestError(
            f"The coordinator's noise would make epsilon {spent:.3g} at this site, more than the {privacy.epsilon:g} "
            "of its spec; use the same spec, and the same rows as when the run began."
        )


def _client_spending(privacy: PrivacySpec, training: Training, clients: int, algorithm: Algorithm) -> Spending:
    who = participation_of(algorithm, training, clients)
    poisson = privacy.sampling == "poisson"
    rounds = Rounds(who.candidates, who.cohort, who.chance if poisson else 1.0, poisson, privacy.accountant)
    delta = 0.1 / clients if privacy.delta is None else privacy.delta
    noise = privacy.noise_multiplier
    if noise is None:
        assert privacy.epsilon is not None
        noise = noise_for(rounds, training.rounds, privacy.epsilon, delta)
    return Spending(rounds, noise, delta)


def _row_spending(
    privacy: PrivacySpec, training: Training, seeds: tuple[int, ...], rows: np.ndarray, algorithm: Algorithm
) -> RowSpending:
    """The noise that the settings ask for, and what it spends."""
    refuse_rows(algorithm, Protection(rows=RowPrivacy(clip=privacy.clip)))
    who = participation_of(algorithm, training, len(rows))
    # dropouts count: they drew, added noise, and go on from where that led
    everyone = who.cohort == who.candidates
    asked = () if everyone else tuple(who.draw(seed, range(training.rounds))[0] for seed in seeds)
    reading = _reading(algorithm, privacy.accountant)
    delta = ROW_DELTA if privacy.delta is None else privacy.delta
    found = RowSpending(reading, rows, asked, privacy.noise_multiplier or 0.0, delta)
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


def write_epsilon(spending: Spending | RowSpending | None, runs: Sequence[Run]) -> None:
    """Epsilon and delta into every row of the histories; a method that sends nothing spends nothing."""
    for run in runs:
        for row in run.history:
            row["epsilon"] = 0.0 if spending is None else spending.epsilon(row["round"])
            row["delta"] = 0.0 if spending is None else spending.delta


def _protection(spec: Spec, clients: int, algorithm: Algorithm, noise_multiplier: float) -> Protection:
    """What the sections ask for, but for attackers."""
    privacy, parts = spec.privacy, dict[str, Any]()
    if privacy.is_on and privacy.level == "rows":
        parts["rows"] = RowPrivacy(clip=privacy.clip, noise_multiplier=noise_multiplier)
    elif privacy.is_on:
        parts["privacy"] = ClientPrivacy(
            clip=privacy.clip,
            noise_multiplier=noise_multiplier,
            noise=privacy.noise,
            adaptive=privacy.clipping == "adaptive",
            quantile=privacy.quantile,
            # counting the clients below the clip takes a small part of the noise's budget: at least a twentieth of
            # 1 / z^2
            count_noise=max(1.0, 2.5 * noise_multiplier),
        )
    if spec.compression.is_on:
        parts["compression"] = Compression(**dataclasses.asdict(spec.compression))
    if spec.robustness.is_on:
        asked, cohort = spec.robustness, spec.training.cohort or clients
        if asked.rule in ("trimmed_mean", "krum", "multi_krum") and 2 * asked.attackers >= cohort:
            raise RequestError(
                f"robustness.attackers must be fewer than half of a round's {cohort} clients, got {asked.attackers}; "
                "no rule withstands more."
            )
        parts["robustness"] = Robustness(**dataclasses.asdict(asked))
    if spec.secure_aggregation.threshold is not None:
        parts["secure_aggregation"] = _masks(spec, spec.secure_aggregation.threshold, clients, algorithm)
    return Protection(**parts)


def _masks(spec: Spec, threshold: int, clients: int, algorithm: Algorithm) -> SecureAggregation:
    members = participation_of(algorithm, spec.training, clients)
    for seed in spec.seeds if members.dropout else ():  # who drops out is drawn, and known beforehand
        stayed = members.draw(seed, range(spec.training.rounds))[1].sum(axis=1)
        if stayed.min() < threshold:
            raise RequestError(
                f"secure_aggregation.threshold = {threshold} cannot be kept: only {stayed.min()} of {members.cohort} "
                f"clients stay in round {stayed.argmin()} of seed {seed}, and nothing could be unmasked; lower it, or "
                "training.dropout."
            )
    bits = spec.secure_aggregation.fraction_bits
    return SecureAggregation(threshold=threshold, cohort=members.cohort, fraction_bits=bits)


def _attack(spec: Spec, kind: str, federation: Federation) -> Attack:
    marks = np.zeros(federation.clients)
    marks[attackers_of(spec, federation.clients)] = 1
    classes = federation.task.outputs if federation.task.kind == "classification" else 0
    return Attack(kind=kind, attackers=PerClient(marks), strength=spec.attack.strength, classes=classes)


def attackers_of(spec: Spec, clients: int) -> np.ndarray:
    """The numbers of the clients that attack, ascending, drawn by the seed of [data]."""
    if spec.attack.kind is None:
        return np.zeros(0, int)
    if spec.attack.clients >= clients:
        raise RequestError(f"attack.clients must be fewer than the {clients} clients, got {spec.attack.clients}.")
    # of [data]: all methods and all seeds of training face the same attackers
    return np.sort(host_generator(spec.data.seed, Purpose.ATTACKERS).permutation(clients)[: spec.attack.clients])


def _notes(
    spec: Spec, spending: Spending | RowSpending | None, masks: SecureAggregation | None, deployed: bool
) -> list[str]:
    """What is in force, one sentence each."""
    notes = []
    if spending is not None:
        notes.append(_privacy_note(spec, spending, deployed))
    if spec.compression.is_on:
        notes.append(f"uploads are compressed ({spec.compression.kind})")
    if spec.robustness.is_on:
        notes.append(f"the server takes the {spec.robustness.rule} of uploads, in which all clients count the same")
    if spec.attack.is_on:
        notes.append(f"{spec.attack.clients} simulated attackers ({spec.attack.kind})")
    if masks is not None:
        most = 2.0 ** (range_bits(masks.cohort) - masks.fraction_bits)
        simulated = "ends the run; simulated: the protocol's sums and bytes, without its masks"
        notes.append(
            f"secure aggregation: the server sees sums of uploads and no upload, while at least {masks.threshold} "
            f"clients of a round stay; a weighted number of {most:g} or more in size "
            f"{'is refused by its site' if deployed else simulated}"
        )
    return notes


def _privacy_note(spec: Spec, spending: Spending | RowSpending, deployed: bool) -> str:
    rounds = spec.training.rounds
    spent = f"epsilon {spending.epsilon(rounds):.3g} at delta {spending.delta:.2g} after {counted(rounds, 'round')}"
    noise = f"noise {spending.noise_multiplier:.3g} times the clip"
    if isinstance(spending, Spending):
        return (
            f"client-level differential privacy, {spent}, {noise}, all clients count the same, the last round is "
            f"delivered; {PRIVATE[spec.privacy.noise] if deployed else SIMULATED}"
        )
    batches = "by coins of its own" if spending.reading.batch_size else "of all rows"
    return (
        f"row-level differential privacy, {spent} for the client that spends most, {noise} {spec.privacy.clip:g} of a "
        f"row's gradient, batches {batches}, numbers of rows are no secret, models that stay on a client have no "
        f"noise, the last round is delivered; {ROWS_PRIVATE if deployed else ROWS_SIMULATED}"
    )
