# SPDX-License-Identifier: Apache-2.0
"""From a spec to everything that training needs: rows, loss, constants, scores, and every method, built and checked."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from idiolect.algorithms import find
from idiolect.core.checks import NeedsRidgeError, RequestError
from idiolect.core.kinds import Listens
from idiolect.data.federation import Federation
from idiolect.data.preparation import sentences
from idiolect.engines.billing import sends
from idiolect.engines.demand import check_demand
from idiolect.engines.door import check_fit, check_participation, check_training, participation_of, run_precision
from idiolect.engines.shard import start_devices
from idiolect.experiments.build import Built, Number, build_client_loss, build_method, problem_constants
from idiolect.experiments.collaboration import Collaboration, find_collaboration
from idiolect.experiments.protection import OUTSIDE, check_preparation, check_protections, is_protected, protect_method
from idiolect.experiments.sources import build_data
from idiolect.experiments.spec import MethodSpec, Spec
from idiolect.experiments.units import unit_sentence
from idiolect.metrics.scores import default_score, find_score, proper_score
from idiolect.objectives import ClientLoss
from idiolect.theory.constants import Constants

if TYPE_CHECKING:
    import pyarrow as pa

MOST_COEFFICIENTS = 250  # of the models that are compared to find out who is alike, unasked

Scoring = Callable[[Spec, Federation], tuple[tuple[str, ...], str]]  # the scores to record, and why these


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What the methods of a spec have in common, and the methods: built once, checked once."""

    spec: Spec
    federation: Federation
    synthetic: bool  # a problem made to be solved
    client_loss: ClientLoss
    constants: Constants | None
    collaboration: Collaboration | None
    scores: tuple[str, ...]  # the first is shown
    choose_by: str  # the one that rounds, settings and the announced method are chosen by
    reason: str  # why these scores
    built: tuple[Built, ...] = ()  # the methods of the spec that can run on these rows
    left_out: tuple[str, ...] = ()  # sentences about the other methods
    deployed: bool = False  # over real machines

    @property
    def methods(self) -> tuple[MethodSpec, ...]:
        """Those that can run on these rows."""
        return tuple(ready.method for ready in self.built)

    def build(self, method: MethodSpec, chosen: Mapping[str, Number] | None = None) -> Built:
        """The method as it will run, protected as the spec asks; `chosen` is what theory chose when the run began."""
        private = self.spec.privacy.is_on  # then no step may come from the curvature of the clients' rows
        built = build_method(
            method,
            self.client_loss,
            None if private else self.constants,
            self.federation.clients,
            float(np.mean(self.federation.train.counts)),
            chosen,
            self.federation.names,
            self.collaboration,
        )
        if not is_protected(self.spec) or not sends(built.algorithm):
            return built  # training alone sends nothing, and stays as it is under [privacy]
        stepless = hasattr(built.algorithm, "step_size") and "step_size" not in method.settings
        if private and stepless:
            raise RequestError(
                f"methods.{method.label}.step_size must be given under [privacy], got none: theory reads it off the "
                "clients' rows; write a number such as 0.1."
            )
        with named(method.label):
            return protect_method(self.spec, self.federation, built, self.deployed)

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
        if federation.validation.counts.sum() == 0:
            notes.append("No client has a validation row, so the last round counts as the selected one.")
        judged = self.spec.training.evaluate_clients
        if 0 < judged < federation.clients:
            notes.append(
                f"Between rounds {judged} of {federation.clients} clients are scored, drawn with seed "
                f"{self.spec.seeds[0]}; the selected and the last round are scored on all of them."
            )
        return [*notes, OUTSIDE] if self.spec.privacy.is_on else notes

    def check_demand(self) -> None:
        """RequestError for a method that needs more memory than there is."""
        with run_precision(self.spec.training.precision):
            for ready in self.built:
                with named(ready.method.label):
                    check_demand(ready.algorithm, self.federation.train, self.spec.training, len(self.spec.seeds))


@contextlib.contextmanager
def named(label: str) -> Iterator[None]:
    """A refusal inside begins with the method that it is about."""
    try:
        yield
    except RequestError as error:
        raise RequestError(f"{label}: {error}") from None


def prepare(spec: Spec, rows: pa.Table | None = None, scoring: Scoring | None = None) -> Prepared:
    """Read the rows, find what does not depend on a method, and build every method.

    RequestError for a request that makes no sense. `rows` is the table where it is in memory and not in a file.
    """
    check_protections(spec)
    federation, problem = build_data(spec.data, spec.training.precision, rows)
    check_preparation(spec, federation)
    check_training(spec.training, federation.clients)
    start_devices(spec.training.devices)  # before JAX has computed anything
    if federation.test.counts.sum() == 0 and problem is None and spec.evaluation.untested == "refuse":
        raise RequestError(
            "No client has a test row, so no method could be judged. Bring more rows per client, or give "
            "data.test (in a spec, or by --set) a larger fraction."
        )
    scores, reason = (scoring or choose_scores)(spec, federation)
    choose_by = choose_by_of(spec, federation)
    client_loss = build_client_loss(spec.model, federation, problem)
    collaboration, doubts = _collaboration(spec, federation)
    return with_methods(
        Prepared(
            spec,
            federation,
            problem is not None,
            client_loss,
            problem_constants(client_loss, federation),
            collaboration,
            scores if choose_by in scores else (*scores, choose_by),
            choose_by,
            reason,
        ),
        doubts,
    )


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


def with_methods(prepared: Prepared, doubts: dict[str, str]) -> Prepared:
    """With every method built, but for those that cannot run on these rows, where the spec wants them left out."""
    spec, reasons = prepared.spec, dict(doubts)
    ready: list[Built] = []
    for method in spec.methods:
        if method.label in reasons:
            continue
        try:
            known = spec.resolved.get(method.label)
            built = prepared.build(method, None if known is None else known.chosen)
            with run_precision(spec.training.precision):
                check_fit(built.algorithm, prepared.federation)
            chance = participation_of(built.algorithm, spec.training, prepared.federation.clients).chance
            ready.append(built._replace(absence=check_participation(built.algorithm, chance)))
        except RequestError as error:
            # a setting that the user gave and that is out of its range is a mistake to report, also where unfit methods
            # are passed over
            given = [f"methods.{method.label}.{name} must" for name in method.settings]
            if spec.evaluation.unfit == "refuse" or str(error).startswith(tuple(given)):
                raise
            reasons[method.label] = _NO_RIDGE if isinstance(error, NeedsRidgeError) else str(error)
    if not ready:
        label, reason = next(iter(reasons.items()))
        raise RequestError(f"No method can run on these rows. {label}: {reason}")
    left_out = tuple(f"{label} is left out: {reason}" for label, reason in reasons.items())
    return dataclasses.replace(prepared, built=tuple(ready), left_out=left_out)


def choose_by_of(spec: Spec, federation: Federation) -> str:
    """The score asked for, or the proper one of the task: few rows tell more by it than by accuracy."""
    asked = spec.evaluation.choose_by
    if asked is not None:
        find_score(asked, federation.task.kind)
        return asked
    return proper_score(federation.task.kind, spec.model.quantile)


def choose_scores(spec: Spec, federation: Federation) -> tuple[tuple[str, ...], str]:
    """The scores to record (the first decides) and the sentence that says why."""
    kind = federation.task.kind
    if spec.evaluation.scores:
        for name in spec.evaluation.scores:
            find_score(name, kind)
        if len(set(spec.evaluation.scores)) < len(spec.evaluation.scores):
            raise RequestError(f"evaluation.scores must differ, got {spec.evaluation.scores}; name each once.")
        primary = spec.evaluation.scores[0]
        reason = f"{primary} decides, as was asked. {unit_sentence(primary, federation)}"
        return tuple(spec.evaluation.scores), reason.rstrip()
    if kind == "classification" and federation.train.targets.ndim == 2:
        reason = "Scored by accuracy (higher is better): the fraction of positions whose next token is guessed."
        return ("accuracy", "log_loss"), reason
    balance = federation.class_balance() if kind == "classification" else None
    proper = proper_score(kind, spec.model.quantile)
    primary, reason = default_score(kind, balance)
    if spec.model.quantile is not None:
        primary, reason = proper, f"Scored by {proper} (mean over rows, lower is better): the model's own loss."
    reason = f"{reason} {unit_sentence(primary, federation)}".rstrip()
    return (primary,) if primary == proper else (primary, proper), reason


def loss_scores(spec: Spec, federation: Federation) -> tuple[tuple[str, ...], str]:
    """The loss decides, as in `advise`: a few validation rows tell losses apart, but hardly accuracies."""
    scores, reason = choose_scores(spec, federation)
    if spec.evaluation.scores or federation.train.targets.ndim > 1:
        return scores, reason
    loss = "squared_error" if federation.task.kind == "regression" else "log_loss"
    asked = "--set 'evaluation.scores = [\"accuracy\"]'" if loss == "log_loss" else "--set 'evaluation.scores = [...]'"
    reason = f"Scored by {loss.replace('_', ' ')} (lower is better), as `advise` does; {asked} takes another score."
    return (loss, *(name for name in scores if name != loss)), reason
