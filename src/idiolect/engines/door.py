# SPDX-License-Identifier: Apache-2.0
"""The engine's door: everything is checked here, once, before anything is compiled."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from idiolect.core.addressing import PerClient, address, is_per_client
from idiolect.core.algorithm import Algorithm, fit_of
from idiolect.core.checks import RequestError, check, setting, shown, unset
from idiolect.core.data import Rows
from idiolect.core.objective import Checks, Prepares
from idiolect.core.settings import check_settings, in_precision, know_population
from idiolect.engines.cohorts import Participation

EXECUTORS = ("auto", "batched", "chunked", "looped", "looped_steps")
PRECISIONS = {"float32": jnp.float32, "float64": jnp.float64}


@dataclasses.dataclass(frozen=True)
class Training:
    """How to train: what a user may ask of the simulate engine."""

    rounds: int = setting(default=100, at_least=0, doc="communication rounds between server and clients")
    cohort: int = setting(default=0, at_least=0, doc="clients per round; 0: all of them")
    dropout: float = setting(default=0.0, at_least=0, below=1, doc="chance that a cohort member vanishes from a round")
    record_every: int = setting(default=10, at_least=1, doc="rounds between evaluations")
    evaluate_clients: int = setting(
        default=0, at_least=0, doc="clients that an evaluation between rounds scores, a seeded sample; 0: all of them"
    )
    precision: str = setting(default="float32", choices=tuple(PRECISIONS), doc="of parameters and features")
    executor: str = setting(default="auto", choices=EXECUTORS, doc="how clients are advanced; auto: what is fastest")
    chunk: int = setting(default=0, at_least=0, doc="clients at a time, for chunked, which needs it; auto chooses")
    block: int = setting(default=0, at_least=0, doc="rounds per compiled block; 0: chosen")
    devices: int | str = setting(default=1, doc="devices that clients are laid over; auto measures and chooses")


class Splits(Protocol):
    """What the engine needs of a federation."""

    @property
    def train(self) -> Rows:
        """Rows to learn from."""

    @property
    def validation(self) -> Rows:
        """Rows to choose by."""

    @property
    def test(self) -> Rows:
        """Rows to judge by."""

    @property
    def names(self) -> tuple[str, ...]:
        """What clients are called."""


def check_training(training: Training, clients: int) -> None:
    """Raise RequestError for a value out of range."""
    for field in dataclasses.fields(training):
        check("training", field.name, getattr(training, field.name), field.metadata["range"])
    _check_devices(training, clients)
    uses = {
        "cohort": "let every client take part in every round",
        "evaluate_clients": "score all of them in every record",
    }
    for name, use in uses.items():
        if (asked := getattr(training, name)) > clients:
            raise RequestError(
                f"training.{name} must be at most the number of clients, {clients}, got {asked}. Use 0 to {use}."
            )
    if training.executor == "chunked" and training.chunk == 0:
        raise RequestError(
            "training.chunk must be at least 1 with executor 'chunked', got 0. Set it, or use executor 'auto'."
        )


def _check_devices(training: Training, clients: int) -> None:
    devices = training.devices
    if not (devices == "auto" if isinstance(devices, str) else 1 <= devices <= max(clients, 1)):
        raise RequestError(
            f"training.devices must be 'auto', or at least 1 and at most the number of clients, {clients}, got "
            f"{shown(devices)}. A device without a client would have nothing to do."
        )
    if devices != 1 and training.executor.startswith("looped"):
        raise RequestError(
            f"training.devices = {shown(devices)} needs executor 'batched', 'chunked' or 'auto', got "
            f"{training.executor!r}, which calls one client after another; use one of them, or 1 device."
        )


def admit(algorithm: Algorithm, clients: int, precision: str, chance: float = 1.0) -> Algorithm:
    """The algorithm as the engine runs it: ranges checked, population filled in, floats in the run's precision.

    `chance` is the probability that a client takes part in a round.
    """
    if jax.tree_util.all_leaves([algorithm]):
        name = type(algorithm).__name__
        raise RequestError(f"{name} must be decorated with @settings (from idiolect.core), as every algorithm is.")
    check_settings(algorithm)  # and, inside it, the objective
    if isinstance(algorithm.objective, Checks):
        algorithm.objective.check_parts()
    filled = know_population(algorithm, clients, chance)
    check_participation(filled, chance)
    check_addressed(algorithm, clients)
    left = unset(algorithm)
    if left:
        raise RequestError(
            f"{type(algorithm).__name__} needs {', '.join(left)}: give numbers, or take them from the problem's "
            "constants with idiolect.theory.parameters.from_theory."
        )
    return in_precision(filled, PRECISIONS[precision])


def own_settings(admitted: Algorithm, client: int) -> Algorithm:
    """The algorithm as a site may know it: of what is given client by client its own row, nothing of the server's."""
    hidden: Mapping[str, Any] = dict.fromkeys(admitted.server_only)
    return address(dataclasses.replace(admitted, **hidden), client)


def check_addressed(algorithm: Algorithm, clients: int) -> None:
    """Every PerClient setting needs one row per client."""
    for path, node in jax.tree_util.tree_leaves_with_path(algorithm, is_leaf=is_per_client):
        if isinstance(node, PerClient):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            for leaf in jax.tree.leaves(node.values):
                if np.shape(leaf)[:1] != (clients,):
                    raise RequestError(
                        f"{type(algorithm).__name__}.{name} must have one row per client, {clients}, "
                        f"got shape {np.shape(leaf)}; give as many, or one number for all."
                    )


def participation_of(algorithm: Algorithm, training: Training, clients: int) -> Participation:
    """Who takes part in the rounds of `algorithm`: cohorts are drawn from those that ever do."""
    check_settings(algorithm)
    check_addressed(algorithm, clients)
    objective = algorithm.objective
    able_to = objective.takes_part() if isinstance(objective, Prepares) else True
    takes = np.broadcast_to(np.asarray(able_to, bool), (clients,))
    if takes.all():
        return Participation(clients, training.cohort or clients, training.dropout)
    able = np.flatnonzero(takes).astype(np.int32)
    if 0 < len(able) < training.cohort:
        raise RequestError(
            f"training.cohort must be at most the number of clients that take part, {len(able)} of {clients}, got "
            f"{training.cohort}. Use 0 for all of them, or leave fewer clients to themselves."
        )
    return Participation(clients, min(training.cohort or clients, len(able)), training.dropout, able)


def check_participation(algorithm: Algorithm, chance: float) -> str | None:
    """Refuse what an algorithm cannot do; the sentence to warn with where absent clients are beyond its theory."""
    name, fit = type(algorithm).__name__, fit_of(algorithm, chance)
    if fit.refused is not None:
        raise RequestError(f"{name} cannot minimise {type(algorithm.objective).__name__}: {fit.refused}.")
    return fit.warning and f"with absent clients {name} is beyond its theory: {fit.warning}."


def admit_lanes(algorithms: Sequence[Algorithm]) -> Algorithm:
    """Several algorithms of one structure, stacked along a lane axis."""
    structures = {jax.tree.structure(algorithm) for algorithm in algorithms}
    if len(structures) != 1:
        raise RequestError(
            "A sweep runs settings that share one program: only floats and seeds may differ, got "
            f"{len(structures)} different structures. Sweep integers and names one run at a time."
        )
    return jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *algorithms)


def check_federation(federation: Splits) -> None:
    """`check_rows` of those who train, and of new clients, who adapt to rows of their own."""
    check_rows(federation.train)
    held_out = getattr(federation, "held_out", None)
    if held_out is not None and held_out.train.clients:
        check_rows(held_out.train, "held-out client")


def check_rows(train: Rows, who: str = "client") -> None:
    """There must be a client, and every client needs a training row; that numbers are finite is the reader's duty."""
    if train.clients < 1:
        raise RequestError("A federation needs at least one client, got none.")
    empty = np.flatnonzero(train.counts == 0)
    if empty.size:
        raise RequestError(
            f"Every {who} needs at least one training row; {who} number {empty[0]} has none. "
            "Leave it out, or give it a larger training fraction."
        )


def check_fit(algorithm: Algorithm, federation: Splits) -> None:
    """Every row, of those that train and of those held out, must be one that the objective understands."""
    objective, held_out = algorithm.objective, getattr(federation, "held_out", None)
    if not isinstance(objective, Checks):
        return
    for part in [federation] if held_out is None else [federation, held_out]:
        for rows in (part.train, part.validation, part.test):
            objective.check_rows(rows, part.names)


def check_seeds(seeds: Sequence[int]) -> None:
    """A key is made from 32 bits: larger seeds would silently give the same draws as smaller ones."""
    for seed in seeds:
        if not 0 <= seed < 2**31:
            raise RequestError(f"A seed must be at least 0 and below 2^31, got {seed}. Use a smaller one.")


@contextlib.contextmanager
def run_precision(precision: str) -> Iterator[None]:
    """float64 runs switch 64-bit arithmetic on for their duration only."""
    with jax.enable_x64(precision == "float64"):
        yield
