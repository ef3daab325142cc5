# SPDX-License-Identifier: Apache-2.0
"""Attacks on what every algorithm sends while it trains a linear model: a client's rows from its uploads.

One row is a ratio: the gradient by the weights is the residual times the row, that by the bias the residual. Updates of
several rows lie in the span of (row, 1), however many steps they took: a candidate in that span was trained on.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.rows_sliced import fraction_recovered
from idiolect.algorithms import ALGORITHMS
from idiolect.core.addressing import address
from idiolect.core.algorithm import Algorithm, fit_of
from idiolect.core.checks import unset
from idiolect.core.data import Rows
from idiolect.core.mixing import from_dense
from idiolect.core.settings import know_population
from idiolect.data.federation import Federation
from idiolect.data.task import Task
from idiolect.engines.debug import Event, debug
from idiolect.engines.door import Training
from idiolect.models import MLP, Linear, Model
from idiolect.objectives import OBJECTIVES, ClientLoss

FEATURES, CLIENTS, ROUNDS, DECOYS = 8, 3, 6, 200
TOLERANCE = 2e-3  # of a candidate's length outside of the span, single precision allowed for
NOISE = 1e-4  # of the largest singular value: below it a direction is rounding
# what theory would decide; an attack needs no good settings
DECIDED = {"communication_probability": 0.9, "averaging_probability": 0.9, "shared_probability": 0.5}


class Recovered(NamedTuple):
    """Parts of one client's rows."""

    blind: float  # written down from the uploads alone
    known: float  # picked out of 200 candidates that were not trained on


@dataclasses.dataclass
class Listener:
    """What the server sees of client 0: (weights, bias) vectors of its uploads, and those that it was sent."""

    sent: list[np.ndarray] = dataclasses.field(default_factory=list)
    uploads: list[tuple[int, list[np.ndarray]]] = dataclasses.field(default_factory=list)

    def __call__(self, event: Event) -> None:
        if event.stage == "broadcast":
            self.sent += list(_vectors(address(event.value, 0)))
        if event.stage == "send" and event.client == 0:
            self.uploads.append((len(self.sent), list(_vectors(event.value))))

    def differences(self) -> list[np.ndarray]:
        """Per reference, (many, features + 1): uploads, less what was sent last, less the upload before."""
        plain = [one for _, several in self.uploads for one in several]
        moved = [one - old for known, several in self.uploads for one in several for old in self.sent[:known][-6:]]
        pairs = zip(self.uploads[1:], self.uploads[:-1])
        changed = [new - old for (_, one), (_, other) in pairs for new, old in zip(one, other)]
        return [np.array(one).reshape(-1, FEATURES + 1) for one in (plain, moved, changed)]


def recovered(name: str, rows: int, quick: bool = False) -> Recovered | None:
    """What two attacks make of one client's uploads, on full batches and a linear model of one number.

    None where no upload has a layer that takes a row: there is nothing to attack.
    """
    algorithm, classes = build(name), False
    if fit_of(algorithm).refused is not None:
        algorithm, classes = build(name, classes=True), True
    federation = _federation(rows, classes)
    heard = Listener()
    training = Training(rounds=2 if quick else ROUNDS, precision="float32", executor="looped")
    debug(algorithm, federation, training, observe=heard)
    own = np.asarray(federation.train.inputs[:rows], float)
    several = heard.differences()
    if len(several[0]) == 0:
        return None
    blind = max(fraction_recovered(_ratios(one), own) for one in several)
    return Recovered(blind, max(blind, *(_picked(one, own) for one in several)))


def _ratios(vectors: np.ndarray) -> np.ndarray:
    """Weights over bias of every vector."""
    with np.errstate(divide="ignore", invalid="ignore"):
        guesses = vectors[:, :-1] / vectors[:, -1:]
    return guesses[np.isfinite(guesses).all(axis=1)]


def _picked(vectors: np.ndarray, own: np.ndarray) -> float:
    """Part of the rows that lie in the span of the updates, less that of candidates that only look so."""
    lengths = np.linalg.norm(vectors, axis=1)
    vectors = vectors[lengths > 1e-6 * lengths.max(initial=0.0)]
    if len(vectors) == 0:
        return 0.0
    _, values, directions = np.linalg.svd(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    span = directions[: int((values > NOISE * values[0]).sum())]
    if len(span) > FEATURES:
        return 0.0  # everything lies in it
    draws = np.random.default_rng(1).normal(size=(DECOYS, FEATURES))
    inside, wrong = (_lies_in(span, candidates).mean() for candidates in (own, draws))
    return float(inside) if wrong < 0.01 else 0.0


def _lies_in(span: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    points = np.hstack([candidates, np.ones((len(candidates), 1))])
    outside = points - points @ span.T @ span
    return np.linalg.norm(outside, axis=1) < TOLERANCE * np.linalg.norm(points, axis=1)


def _vectors(tree: Any) -> Iterator[np.ndarray]:
    """Every (weights, bias) that takes a row, of a linear model or a network's first layer: neighbouring leaves."""
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(tree)]
    for bias, weights in itertools.pairwise(leaves):
        if weights.shape == (FEATURES, *bias.shape):
            yield from np.concatenate([weights.reshape(FEATURES, -1), bias.reshape(1, -1)]).T
        elif weights.shape == (*bias.shape[:1], FEATURES, *bias.shape[1:]):  # several models, one after the other
            flat = weights.reshape(len(weights), FEATURES, -1)
            yield from (
                np.concatenate([flat, bias.reshape(len(weights), 1, -1)], 1)
                .transpose(0, 2, 1)
                .reshape(-1, FEATURES + 1)
            )


def build(name: str, classes: bool = False) -> Algorithm:
    """The named method with its preset and full batches; what theory decides is decided here."""
    method = ALGORITHMS[name]
    algorithm = know_population(method.algorithm(_objective(name, classes), **method.preset), CLIENTS)
    given = {field: DECIDED.get(field, 0.1) for field in unset(algorithm) if field != "neighbours"}
    names = {field.name for field in dataclasses.fields(algorithm)}
    if "neighbours" in names:
        given["neighbours"] = from_dense(np.full((CLIENTS, CLIENTS), 1 / CLIENTS))
    return dataclasses.replace(algorithm, **given)


def _objective(name: str, classes: bool) -> Any:
    method = ALGORITHMS[name]
    cls = OBJECTIVES[method.objective or "additive"]
    given: dict[str, Any] = dict(method.objective_preset)
    for field in dataclasses.fields(cls):
        bare = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name != "client_loss" and bare:
            given.setdefault(field.name, 0.5)
    if "client_loss" in inspect.signature(cls).parameters:
        model: Model = Linear(FEATURES, 2 if classes else 0)
        if "personal_part" in given:
            model = MLP(FEATURES, 0, (4,), normalize="layer" if "norm" in given["personal_part"] else "none")
        given["client_loss"] = ClientLoss(model=model, criterion="cross_entropy" if classes else "squared", l2=None)
    return cls(**given)


def _federation(rows: int, classes: bool = False) -> Federation:
    """Three clients of so many rows each; a number to predict, or two classes."""
    draws = np.random.default_rng(rows)
    parts = []
    for count in (rows, 1, 1):
        inputs = draws.normal(size=(CLIENTS * count, FEATURES))
        targets = inputs @ np.ones(FEATURES) + draws.normal(size=len(inputs))
        targets = (targets > 0).astype(np.int32) if classes else targets
        parts.append(Rows(inputs, targets, np.arange(CLIENTS + 1) * count))
    return Federation(*parts, tuple("abc"), Task.classification(("no", "yes")) if classes else Task.regression(1))
