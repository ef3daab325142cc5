# SPDX-License-Identifier: Apache-2.0
"""A step size chosen over sites: candidates are trained one after another, and their reports of scores decide.

Each candidate is a run of its own, with its own checkpoint, and the chosen one goes on to its end: it is not trained
again. A simulation scores candidates on several folds of the rows; sites score on the validation rows that they have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from idiolect.core.checks import DivergedError, RequestError
from idiolect.engines.deploy.coordinator import Standing
from idiolect.experiments.prepare import Prepared
from idiolect.experiments.search import Trial, best_of
from idiolect.experiments.spec import MethodSpec
from idiolect.experiments.tuning import axes_of
from idiolect.metrics.scores import SCORES

Train = Callable[[MethodSpec, str], Standing]  # a method with its settings, and the candidate's name -> where it stands


class Chosen(NamedTuple):
    """The method with what was chosen for it."""

    method: MethodSpec
    suffix: str  # of the name of the run that was chosen; empty where nothing was to be chosen
    sentence: str | None


def choose_step(prepared: Prepared, method: MethodSpec, train: Train) -> Chosen:
    """Train every candidate of [tuning] step_size to its last round; the best on validation rows at its best round."""
    axes = axes_of(prepared, method)
    if not axes:
        return Chosen(method, "", None)
    steps = axes[0].values
    trials = [_try_step(method, step, f"-try{place}", train) for place, step in enumerate(steps)]
    best = best_of(trials)
    # minus infinity: none has a score at all
    if math.isinf(best.score):
        tried = ", ".join(f"{step:g}" for step in steps)
        raise RequestError(
            f"{method.label} diverged with every step_size of [tuning] ({tried}), or no site has a validation row to "
            "score it on; give smaller steps."
        )
    # trials are scored so that larger is better; people read the score as it is
    sign = 1 if SCORES[prepared.choose_by].higher_is_better else -1
    evidence = ", ".join(
        f"{trial.point['step_size']:g}: {'none' if math.isinf(trial.score) else f'{sign * trial.score:.4g}'}"
        for trial in trials
    )
    sentence = (
        f"{method.label}: step_size {best.point['step_size']:g} by the mean {prepared.choose_by} on validation rows of "
        f"the sites ({evidence}); every candidate was trained over the sites."
    )
    return Chosen(_with_step(method, best.point["step_size"]), f"-try{trials.index(best)}", sentence)


def _with_step(method: MethodSpec, step: float) -> MethodSpec:
    return dataclasses.replace(method, settings={**method.settings, "step_size": step})


def _try_step(method: MethodSpec, step: float, name: str, train: Train) -> Trial:
    """The score that a candidate reached, larger is better; one that left the finite numbers has none."""
    try:
        standing = train(_with_step(method, step), name)
    except DivergedError:
        return Trial({"step_size": step}, -math.inf, math.inf)
    score = standing.best[0]
    return Trial({"step_size": step}, -math.inf if math.isnan(score) else score, float(standing.selected_round))
