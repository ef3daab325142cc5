# SPDX-License-Identifier: Apache-2.0
"""From the sections of a spec to a protected algorithm, what it spends, and the notes about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from idiolect.accounting.client_privacy import Rounds, noise_for, spent_epsilon
from idiolect.core.addressing import PerClient
from idiolect.core.algorithm import Algorithm
from idiolect.core.checks import RequestError
from idiolect.core.keys import Purpose, host_generator
from idiolect.data.federation import Federation
from idiolect.data.preparation import FEDERATED
from idiolect.engines.billing import sends
from idiolect.engines.door import Training, participation_of
from idiolect.engines.run import Run
from idiolect.experiments.protection_spec import PrivacySpec
from idiolect.experiments.row_protection import (
    RowSpending,
    check_rows_are_apart,
    row_note,
    row_spending,
    unfit_for_rows,
)
from idiolect.experiments.spec import PROTECTIONS, Spec, TuningSpec
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

if TYPE_CHECKING:
    from idiolect.experiments.build import Built

SIMULATED = "not private: simulated noise, drawn from the run's seed"
PRIVATE = {  # by who adds it
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
    unfit = unfit_for_rows(spec.privacy) if hides_rows else _unfit_sampling(spec.privacy, spec.training)
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


def check_preparation(spec: Spec, federation: Federation) -> None:
    """RequestError where columns were scaled by sums that left the clients as they are, under [privacy]."""
    found = federation.preparation
    if spec.privacy.is_on and spec.privacy.level == "rows":
        check_rows_are_apart(federation)
    elif spec.privacy.is_on and found is not None and found.way == FEDERATED:
        raise RequestError(
            f"[data] preparation = {FEDERATED!r} sends sums of columns as they are, which no noise of [privacy] hides; "
            "use 'local' or 'given'."
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
        f"clipped to {privacy.clip:g} in each of {rounds} rounds: a shared model cannot reach it at any epsilon. "
        "Shift and divide the target by numbers that are no secret, or set privacy.clip higher."
    ]


def protect_method(spec: Spec, federation: Federation, built: Built, deployed: bool = False) -> Built:
    """The method as the sections ask; training alone sends nothing, and stays as it is under [privacy]."""
    if not is_protected(spec) or not sends(built.algorithm):
        return built
    spending: Spending | RowSpending | None = None
    if spec.privacy.is_on and spec.privacy.level == "rows":
        counts = federation.train.counts
        spending = row_spending(spec.privacy, spec.training, spec.seeds, counts, built.algorithm)
    elif spec.privacy.is_on:
        spending = _client_spending(spec.privacy, spec.training, federation.clients, built.algorithm)
    noise = 0.0 if spending is None else spending.noise_multiplier
    protection = _protection(spec, federation.clients, built.algorithm, noise)
    if spec.attack.kind is not None:
        protection = dataclasses.replace(protection, attack=_attack(spec, spec.attack.kind, federation))
    told = tuple(_notes(spec, spending, protection.secure_aggregation, deployed))
    notes = [*built.notes, *(f"{built.method.label}: {text}." for text in told)]
    return built._replace(
        algorithm=protect(built.algorithm, protection), notes=notes, protected=told, spending=spending
    )


def protect_at_site(spec: Spec, clients: int, algorithm: Algorithm) -> Algorithm:
    """The same as a site of a deployment builds it; its numbers are the coordinator's."""
    if not is_protected(spec) or not sends(algorithm):
        return algorithm
    return protect(algorithm, _protection(spec, clients, algorithm, spec.privacy.noise_multiplier or 1.0))


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
    if isinstance(spending, RowSpending):
        notes.append(row_note(spending, spec.training.rounds, deployed))
    elif spending is not None:
        source = PRIVATE[spec.privacy.noise] if deployed else SIMULATED
        notes.append(
            f"client-level differential privacy, epsilon {spending.epsilon(spec.training.rounds):.3g} at delta "
            f"{spending.delta:.2g} after {spec.training.rounds} rounds, noise {spending.noise_multiplier:.3g} times "
            f"the clip, all clients count the same, the last round is delivered; {source}"
        )
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
