# SPDX-License-Identifier: Apache-2.0
"""Figures 1 and 2 of Unified 2023: every solver on its two synthetic logistic problems.

Both are measured in the same way; what differs is a `Case`: the problem at one level of heterogeneity, its exact
optimum, and its methods. Numbers are named QUANTITY_METHOD_HETEROGENEITY.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from idiolect import Algorithm, RequestError
from idiolect.data import Problem
from idiolect.theory import JointOptimum, joint_problem
from papers.lanes import Curves, Standing
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified import Setup, run, solver, upper_bound

REACHED = 1e-6  # relative gap at which ACD-PFL's rounds are counted
UNJUDGED = ("acd", "switching")  # not in the paper's figures: their ends are compared with theory or other methods'

Pairs = tuple[tuple[str, str], ...]  # (better, worse)


class Runner(NamedTuple):
    """One method of a case: the registry's name, the algorithm, what it runs on, and over how many seeds."""

    name: str
    algorithm: Algorithm
    setup: Setup
    seeds: int


class Case(NamedTuple):
    """The problem at one level of heterogeneity."""

    heterogeneity: float
    setup: Setup
    best: JointOptimum
    error: Callable[[Standing], float]  # of the estimate against the truth that the rows were drawn from
    methods: Mapping[str, Runner]

    @property
    def start(self) -> Standing:
        """Where everybody begins: at zero."""
        shared, personal = jax.tree.map(np.zeros_like, (self.best.shared, self.best.personal))
        return Standing(shared, personal, ())

    @property
    def optimum(self) -> Standing:
        """The minimiser of F."""
        return Standing(self.best.shared, self.best.personal, ())


class Shown(NamedTuple):
    """What the figure shows of a case."""

    case: Case
    curves: Mapping[str, Curves]

    def gap(self, method: str) -> np.ndarray:
        """(F - F*) / (F_0 - F*), (seeds, records)."""
        loss, least = self.curves[method].loss, self.case.best.value
        return (loss - least) / (loss[:, :1] - least)

    def end(self, method: str, record: int = -1) -> float:
        """The median gap at a record: ASVRCD's loss jumps when v is refreshed, and few runs would decide a mean."""
        return float(np.median(self.gap(method)[:, record]))


def paper_solvers(spec: Spec, setup: Setup) -> dict[str, Runner]:
    """The paper's own solvers, and ACD-PFL, which its synthetic experiments leave out, with fewer seeds."""
    methods = {"lsgd": Runner("lsgd_pfl", solver("lsgd_pfl", setup, **spec["lsgd"]), setup, spec["seeds"])}
    methods |= from_theory(setup, spec["seeds"], ascd="ascd_pfl", asvrcd="asvrcd_pfl")
    return methods | from_theory(setup, spec["seeds_exact"], acd="acd_pfl")


def from_theory(setup: Setup, seeds: int, **names: str) -> dict[str, Runner]:
    """Methods under keys of their own, with all that theory decides."""
    return {key: Runner(name, solver(name, setup), setup, seeds) for key, name in names.items()}


def curvature(problem: Problem) -> float:
    """mu', as the paper takes it: of the mean Hessian at the truth."""
    assert problem.curvature_at_truth is not None
    return problem.curvature_at_truth


def optimum(setup: Setup) -> JointOptimum:
    """The minimiser of F and its value."""
    problem = joint_problem(setup.objective, setup.federation.train)
    best = None if problem is None else problem.optimum()
    assert best is not None  # both classes occur on every client
    return best


def check(spec: Spec) -> None:
    """RequestError for a request without a curve, before anything is written."""
    if spec["rounds"] < 2 * spec["record_every"]:
        raise RequestError(
            f"rounds must be at least twice record_every, {2 * spec['record_every']}, for a curve, got "
            f"{spec['rounds']}. Record more often, or run longer."
        )


def measure_cases(spec: Spec, cases: list[Case], pairs: Pairs, progress: Progress) -> Measured:
    """Run every method of every case; `pairs` are methods whose final gaps the paper compares."""
    done = count_parts(progress, sum(len(case.methods) for case in cases), "communications")
    numbers: dict[str, float] = {}
    shown = []
    for case in cases:
        curves = {}
        for key, method in case.methods.items():
            curves[key] = _run(spec, case, method)
            done()
        shown.append(Shown(case, curves))
        numbers |= _of_case(shown[-1], pairs)
    numbers["start_loss_deviation"] = max(
        float(np.abs(curves.loss[:, 0] - math.log(2)).max()) for one in shown for curves in one.curves.values()
    )
    return Measured(numbers | _ledger(shown), shown)


def _run(spec: Spec, case: Case, method: Runner) -> Curves:
    return run(
        method.algorithm,
        method.setup,
        rounds=spec["rounds"],
        record_every=spec["record_every"],
        seeds=range(method.seeds),
        extra=lambda where: {"error": case.error(where)},
    )


def _of_case(shown: Shown, pairs: Pairs) -> dict[str, float]:
    """What is known without running anything, every curve's end, and how they compare."""
    case, suffix = shown.case, f"{shown.case.heterogeneity:g}"
    numbers = {
        f"optimum_{suffix}": case.best.value,
        f"start_error_{suffix}": case.error(case.start),
        f"optimum_error_{suffix}": case.error(case.optimum),
    }
    for key in (key for key in shown.curves if key not in UNJUDGED):
        numbers[f"loss_{key}_{suffix}"] = shown.curves[key].last("loss").mean()
        numbers[f"error_{key}_{suffix}"] = shown.curves[key].last("error").mean()
    for better, worse in pairs:
        if better in shown.curves and worse in shown.curves:
            numbers[f"gap_{better}_over_{worse}_{suffix}"] = shown.end(better) / shown.end(worse)
    if "acd" in shown.curves:
        numbers[f"rounds_acd_over_theorem_{suffix}"] = _rounds_over_theorem(shown)
    if "ascd" in shown.curves:
        numbers[f"personal_gradients_ascd_{suffix}"] = _drawn_over_expected(shown)
    return {name: float(value) for name, value in numbers.items()}


def _drawn_over_expected(shown: Shown) -> float:
    """ASCD-PFL's gradients by beta per exchange, over p_beta/p_w."""
    curves, algorithm = shown.curves["ascd"], shown.case.methods["ascd"].algorithm
    probability = algorithm.shared_probability  # type: ignore[attr-defined]
    drawn = curves.personal_gradients[:, -1].mean() / curves.rounds[-1]
    return float(drawn * probability / (1 - probability))


def _rounds_over_theorem(shown: Shown) -> float:
    """Communications that ACD-PFL takes to a small gap, over those that theorem 7 promises."""
    method, gap = shown.case.methods["acd"], shown.gap("acd").mean(axis=0)
    there = np.flatnonzero(gap <= REACHED)
    taken = float(shown.curves["acd"].rounds[there[0]]) if there.size else math.inf
    promised = upper_bound("acd_pfl", method.algorithm, method.setup, [REACHED])
    assert promised is not None  # the setup's mu is positive
    return float(taken / promised.costs("rounds")[0])


_EXACT = {  # gradients that the ledger must hold to the last unit, whatever the seed and the heterogeneity
    "lsgd": ("gradients_both",),
    "ascd": ("gradients_shared",),
    "acd": ("full_gradients_shared",),
    "pfedme_batch_5": ("gradients_personal", "proximal_calls"),
    "pfedme_batch_20": ("gradients_personal",),
}


def _ledger(shown: list[Shown]) -> dict[str, float]:
    """Exactly predictable counts after the last round; not a number where seeds or cases disagree."""
    numbers = {}
    for key, columns in _EXACT.items():
        for column in columns if key in shown[0].curves else ():
            seen = {float(value) for one in shown for value in one.curves[key].last(column)}
            numbers[f"{column}_{key}"] = seen.pop() if len(seen) == 1 else math.nan
    return numbers
