# SPDX-License-Identifier: Apache-2.0
"""Figures 1 and 2 and tables 4 and 5 of Unified 2023: every solver on its two synthetic logistic problems.

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
from papers import lanes
from papers.lanes import Curves, Standing
from papers.reproduction import Measured, Progress, Spec, count_parts
from papers.unified import Setup, lower_bound, run, solver, upper_bound

REACHED = 1e-6  # relative gap at which ACD-PFL's rounds are counted
TABLE = ("lsgd", "ascd", "asvrcd", "pfedme_batch_5", "pfedme_batch_20", "l2sgd_plus")  # timed, as in tables 4 and 5


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


def paper_solvers(spec: Spec, setup: Setup) -> dict[str, Runner]:
    """The paper's own solvers, and those that its synthetic experiments leave out, with fewer seeds."""
    methods = {"lsgd": Runner("lsgd_pfl", solver("lsgd_pfl", setup, **spec["lsgd"]), setup, spec["seeds"])}
    methods |= from_theory(setup, spec["seeds"], ascd="ascd_pfl", asvrcd="asvrcd_pfl")
    beyond = {"scd": "scd_pfl", "svrcd": "svrcd_pfl", "switching": "ascd_then_asvrcd", "acd": "acd_pfl"}
    return methods | from_theory(setup, spec["seeds_beyond"], **beyond)


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


def measure_cases(spec: Spec, cases: list[Case], progress: Progress) -> Measured:
    """Run every method of every case, and time those of the paper's tables on one seed."""
    if spec["rounds"] < 2 * spec["record_every"]:
        raise RequestError(
            f"rounds must be at least twice record_every, {2 * spec['record_every']}, for a curve, got "
            f"{spec['rounds']}. Record more often, or run longer."
        )
    timed = {method for case in cases for method in case.methods if method in TABLE}
    done = count_parts(progress, sum(len(case.methods) + len(timed) for case in cases), "communications")
    numbers: dict[str, float] = {}
    shown = []
    for case in cases:
        curves = {}
        for key, method in case.methods.items():
            curves[key] = _run(spec, case, method)
            done()
        shown.append(Shown(case, curves))
        numbers |= _of_case(shown[-1])
        for key in (key for key in case.methods if key in timed):
            numbers[f"seconds_{key}_{case.heterogeneity:g}"] = _seconds(spec, case.methods[key])
            done()
    numbers["start_loss_deviation"] = max(
        float(np.abs(curves.loss[:, 0] - math.log(2)).max()) for one in shown for curves in one.curves.values()
    )
    return Measured(numbers | _ledger(spec, shown), shown)


def _run(spec: Spec, case: Case, method: Runner) -> Curves:
    return run(
        method.algorithm,
        method.setup,
        rounds=spec["rounds"],
        record_every=spec["record_every"],
        seeds=range(method.seeds),
        extra=lambda where: {"error": case.error(where)},
    )


def _seconds(spec: Spec, method: Runner) -> float:
    """For 1000 communications of one seed, whatever the number of rounds."""
    rounds = spec["rounds"]
    spent = lanes.seconds_of_one(method.algorithm, method.setup.federation, rounds=rounds, block=spec["record_every"])
    return spent * 1000 / rounds


def _of_case(shown: Shown) -> dict[str, float]:
    """What is known without running anything, every method's end, and how they compare."""
    case, suffix = shown.case, f"{shown.case.heterogeneity:g}"
    numbers = {
        f"optimum_{suffix}": case.best.value,
        f"start_error_{suffix}": case.error(case.start),
        f"optimum_error_{suffix}": case.error(case.optimum),
    }
    for key, curves in shown.curves.items():
        numbers[f"loss_{key}_{suffix}"] = curves.last("loss").mean()
        numbers[f"error_{key}_{suffix}"] = curves.last("error").mean()
    for key in ("ascd", "asvrcd", "ascd_released", "asvrcd_released"):
        if key in shown.curves:
            numbers[f"spread_{key}_{suffix}"] = shown.curves[key].last("loss").std()
            numbers[f"median_{key}_{suffix}"] = np.median(shown.curves[key].last("loss"))
    # medians: ASVRCD's loss jumps when v is refreshed, and few runs that end just then decide the mean
    ends = {key: np.median(shown.gap(key)[:, -1]) for key in shown.curves}
    for better, worse in (("asvrcd", "ascd"), ("switching", "ascd"), ("ascd", "lsgd")):
        if better in ends and worse in ends:
            numbers[f"gap_{better}_over_{worse}_{suffix}"] = ends[better] / ends[worse]
    if "acd" in ends:
        numbers |= {f"gap_acd_{suffix}": ends["acd"]} | _of_acd(shown, suffix)
    if "ascd" in ends:
        numbers[f"personal_gradients_ascd_{suffix}"] = _drawn_over_expected(shown)
    return {name: float(value) for name, value in numbers.items()}


def _drawn_over_expected(shown: Shown) -> float:
    """ASCD-PFL's gradients by beta per exchange, over p_beta/p_w."""
    curves, algorithm = shown.curves["ascd"], shown.case.methods["ascd"].algorithm
    probability = algorithm.shared_probability  # type: ignore[attr-defined]
    drawn = curves.personal_gradients[:, -1].mean() / curves.rounds[-1]
    return float(drawn * probability / (1 - probability))


def _of_acd(shown: Shown, suffix: str) -> dict[str, float]:
    """Exchanges that ACD-PFL takes to a small gap, over its theorem's and over the lower bound's order."""
    method, gap = shown.case.methods["acd"], shown.gap("acd").mean(axis=0)
    there = np.flatnonzero(gap <= REACHED)
    taken = float(shown.curves["acd"].rounds[there[0]]) if there.size else math.inf
    promised = upper_bound("acd_pfl", method.algorithm, method.setup, [REACHED])
    assert promised is not None  # the setup's mu is positive
    needed = lower_bound(method.setup, [REACHED]).costs("rounds")[0]
    return {
        f"exchanges_acd_over_theorem_{suffix}": taken / promised.costs("rounds")[0],
        f"exchanges_acd_over_lower_bound_{suffix}": taken / needed,
    }


_EXACT = {  # what the ledger must hold to the last unit, whatever the seed and the heterogeneity
    "lsgd": ("upload_bytes", "download_bytes", "gradients_both"),
    "ascd": ("upload_bytes", "download_bytes", "gradients_shared"),
    "scd": ("upload_bytes", "download_bytes", "gradients_shared"),
    "asvrcd": ("upload_bytes", "download_bytes"),
    "acd": ("upload_bytes", "download_bytes", "full_gradients_shared", "gradients_shared"),
    "l2sgd_plus": ("upload_bytes", "download_bytes", "gradients_shared"),
    "pfedme_batch_5": ("upload_bytes", "download_bytes", "gradients_personal", "proximal_calls"),
    "pfedme_batch_20": ("gradients_personal", "proximal_calls"),
}


def _ledger(spec: Spec, shown: list[Shown]) -> dict[str, float]:
    """Exactly predictable counts after the last round; not a number where seeds or cases disagree."""
    numbers = {}
    for key, columns in _EXACT.items():
        for column in columns if key in shown[0].curves else ():
            seen = {float(value) for one in shown for value in one.curves[key].last(column)}
            numbers[f"{column}_{key}"] = seen.pop() if len(seen) == 1 else math.nan
    every = {float(value) for one in shown for curves in one.curves.values() for value in curves.last("rounds")}
    return numbers | {"rounds": every.pop() if len(every) == 1 else math.nan}
