# SPDX-License-Identifier: Apache-2.0
"""From a spec to everything that training needs: rows, loss, constants, scores, and a way to build each method."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from idiolect.algorithms import find
from idiolect.core.checks import NeedsRidgeError, RequestError
from idiolect.core.kinds import Listens
from idiolect.data.federation import Federation
from idiolect.data.preparation import sentences
from idiolect.engines.door import check_fit, check_participation, check_training, participation_of, run_precision
from idiolect.experiments.build import Built, build_client_loss, build_method, choose_scores, problem_constants
from idiolect.experiments.collaboration import Collaboration, find_collaboration
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import MethodSpec, Spec
from idiolect.metrics.scores import find_score, proper_score
from idiolect.objectives import ClientLoss
from idiolect.theory.constants import Constants

if TYPE_CHECKING:
    import pyarrow as pa

MOST_COEFFICIENTS = 250  # of the models that are compared to find out who is alike, unasked


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What the methods of a spec have in common."""

    spec: Spec
    federation: Federation
    synthetic: bool  # a problem made to be solved
    client_loss: ClientLoss
    constants: Constants | None
    collaboration: Collaboration | None
    scores: tuple[str, ...]  # the first is shown
    choose_by: str  # the one that rounds, settings and the announced method are chosen by
    reason: str  # why these scores
    methods: tuple[MethodSpec, ...] = ()  # those of the spec that can run on these rows
    left_out: tuple[str, ...] = ()  # sentences about the others

    def build(self, method: MethodSpec, chosen: Mapping[str, Any] | None = None) -> Built:
        """The method as it will run; `chosen` is what theory chose when the run was started."""
        return build_method(
            method,
            self.client_loss,
            self.constants,
            self.federation.clients,
            float(np.mean(self.federation.train.counts)),
            chosen,
            self.federation.names,
            self.collaboration,
        )

    def on_rows(self, federation: Federation, method: MethodSpec) -> Prepared:
        """The same on other rows of the clients: curvature, and who is alike where the method asks, are found anew."""
        collaboration = self.collaboration
        if issubclass(find(method.algorithm).algorithm, Listens):
            collaboration = find_collaboration(self.spec.collaboration, federation)
        constants = None if self.constants is None else problem_constants(self.client_loss, federation)
        return dataclasses.replace(self, federation=federation, collaboration=collaboration, constants=constants)

    def notes(self) -> list[str]:
        """Sentences about the rows."""
        federation = self.federation
        prepared = [] if federation.preparation is None else sentences(federation.preparation, federation.names)
        notes = [*federation.describe(), *federation.notes, *prepared, *self.left_out]
        if self.federation.validation.counts.sum() == 0:
            notes.append("No client has a validation row, so the last round counts as the selected one.")
        return notes


def prepare(spec: Spec, rows: pa.Table | None = None) -> Prepared:
    """Read the rows and find what does not depend on a method; RequestError for a request that makes no sense.

    `rows` is the table where it is in memory and not in a file.
    """
    federation, problem = build_data(spec.data, spec.training.precision, rows)
    check_training(spec.training, federation.clients)
    if federation.test.counts.sum() == 0 and problem is None and spec.evaluation.untested == "refuse":
        raise RequestError(
            "No client has a test row, so no method could be judged. Bring more rows per client, or give "
            "data.test (in a spec, or by --set) a larger fraction."
        )
    scores, reason = choose_scores(spec, federation)
    choose_by = _choose_by(spec, federation)
    client_loss = build_client_loss(spec.model, federation, problem)
    constants = problem_constants(client_loss, federation)
    all_scores = scores if choose_by in scores else (*scores, choose_by)
    collaboration, doubts = _collaboration(spec, federation)
    parts = (
        spec,
        federation,
        problem is not None,
        client_loss,
        constants,
        collaboration,
        all_scores,
        choose_by,
        reason,
    )
    return _fitting(Prepared(*parts, methods=spec.methods), doubts)


def _collaboration(spec: Spec, federation: Federation) -> tuple[Collaboration | None, dict[str, str]]:
    """Who is alike, and why methods that ask for it are to be left out, by label."""
    asking = [method.label for method in spec.methods if issubclass(find(method.algorithm).algorithm, Listens)]
    coefficients = (1 + math.prod(federation.input_shape)) * max(1, federation.task.outputs - 1)
    if spec.evaluation.unfit == "leave_out" and coefficients > MOST_COEFFICIENTS:
        reason = (
            f"to find out who is alike compares models of {coefficients} coefficients with one another, more than "
            f"{MOST_COEFFICIENTS}, which takes long; name it in --methods to have it all the same."
        )
        return None, dict.fromkeys(asking, reason)
    try:
        return find_collaboration(spec.collaboration, federation), {}
    except RequestError as error:
        if spec.evaluation.unfit == "refuse":
            raise
        return None, dict.fromkeys(asking, str(error))


_NO_RIDGE = "it needs a loss with a ridge, and this one has none; --set 'model.l2 = 0.01' gives every method one."


def _fitting(prepared: Prepared, doubts: dict[str, str]) -> Prepared:
    """Without the methods that cannot run on these rows, where the spec wants them left out."""
    spec = prepared.spec
    if spec.evaluation.unfit == "refuse":
        return prepared
    reasons = dict(doubts)
    for method in spec.methods:
        if method.label not in reasons:
            try:
                _check_method(prepared, method)
            except RequestError as error:
                if _is_given(method, str(error)):
                    raise
                reasons[method.label] = _NO_RIDGE if isinstance(error, NeedsRidgeError) else str(error)
    kept = tuple(method for method in spec.methods if method.label not in reasons)
    if not kept:
        label, reason = next(iter(reasons.items()))
        raise RequestError(f"No method can run on these rows. {label}: {reason}")
    left_out = tuple(f"{label} is left out: {reason}" for label, reason in reasons.items())
    return dataclasses.replace(prepared, methods=kept, left_out=left_out)


def _is_given(method: MethodSpec, sentence: str) -> bool:
    """Whether the sentence is about a setting that the request gave: that is wrong, not unfit."""
    return any(sentence.startswith(f"methods.{method.label}.{name} must") for name in method.settings)


def _check_method(prepared: Prepared, method: MethodSpec) -> None:
    """RequestError for a method that cannot run on these rows."""
    training, federation = prepared.spec.training, prepared.federation
    algorithm = prepared.build(method).algorithm
    with run_precision(training.precision):
        check_fit(algorithm, federation)
    check_participation(algorithm, participation_of(algorithm, training, federation.clients).chance)


def _choose_by(spec: Spec, federation: Federation) -> str:
    """The score asked for, or the proper one of the task: few rows tell more by it than by accuracy."""
    asked = spec.evaluation.choose_by
    if asked is not None:
        find_score(asked, federation.task.kind)
        return asked
    return proper_score(federation.task.kind, spec.model.quantile)
