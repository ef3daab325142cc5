# SPDX-License-Identifier: Apache-2.0
"""Figure 2 of Unified 2023: every solver on explicit weight sharing WS2, synthetic clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from idiolect import WS2
from papers.lanes import Curves, Standing
from papers.problems import problem_loss
from papers.reproduction import Measured, Progress, Spec
from papers.unified import set_up, solver
from papers.unified_problems import logistic_weight_sharing
from papers.unified_synthetic import (
    Case,
    Runner,
    Shown,
    curvature,
    from_theory,
    measure_cases,
    optimum,
    paper_solvers,
)
from papers.unified_synthetic import check as check
from papers.unified_synthetic_figure import draw as draw

PAIRS = (("asvrcd", "ascd"), ("switching", "ascd"))  # section 5.2: ASVRCD ends lower; ASCD first, then ASVRCD


def measure(spec: Spec, progress: Progress) -> Measured:
    """Weight sharing: figure 2, and what section 5.2 reads from it."""
    cases = [weight_sharing(spec, float(level)) for level in spec["heterogeneity"]]
    measured = measure_cases(spec, cases, PAIRS, progress)
    return measured._replace(numbers=measured.numbers | read_figure(measured.curves))


def read_figure(shown: Sequence[Shown]) -> dict[str, float]:
    """The sentences of section 5.2 as numbers; LSGD is the figure's."""
    numbers = {}
    for one in shown:
        early = len(one.curves["ascd"].rounds) // 10
        ratio = one.end("ascd", early) / one.end("asvrcd", early)
        numbers[f"early_gap_ascd_over_asvrcd_{one.case.heterogeneity:g}"] = ratio
    both = [(one, key) for one in shown for key in ("ascd", "asvrcd")]
    numbers["worst_gap_over_lsgd"] = max(one.end(key) / one.end("lsgd_released") for one, key in both)
    numbers["worst_error_over_lsgd"] = max(
        float(one.curves[key].last("error").mean() / one.curves["lsgd_released"].last("error").mean())
        for one, key in both
    )
    least, most = shown[0], shown[-1]
    ratio = overfit(least.curves["ascd"]) / overfit(most.curves["ascd"])
    return numbers | {"overfit_ascd_least_over_most_heterogeneity": ratio}


def overfit(curves: Curves) -> float:
    """The final estimation error over the least on the way."""
    error = curves.columns["error"].mean(axis=0)
    return float(error[-1] / error.min())


def weight_sharing(spec: Spec, level: float) -> Case:
    """WS2 at one level of heterogeneity: the paper's three methods, LSGD as released too, ACD-PFL and the switch."""
    problem = logistic_weight_sharing(level, dtype=np.float64)
    objective = WS2(problem_loss(problem), personal_part=spec["personal_part"])
    setup = set_up(objective, problem.federation, curvature(problem))
    shrink = setup.clients**-0.5

    def error(where: Standing) -> float:
        (stored,), (own,) = where.shared.values(), where.personal.values()
        shared = ((shrink * np.asarray(stored) - problem.shared_truth) ** 2).sum()
        return float(shared + ((np.asarray(own) - problem.truth) ** 2).sum(axis=1).mean())

    methods = paper_solvers(spec, setup) | from_theory(setup, spec["seeds"], switching="ascd_then_asvrcd")
    # released: u and beta_m both step by eta, without 1/M and without rescaling: the correct method at M times the step
    released = dict(spec["lsgd"]) | {"step_size": setup.clients * spec["lsgd"]["step_size"]}
    methods["lsgd_released"] = Runner("lsgd_pfl", solver("lsgd_pfl", setup, **released), setup, spec["seeds"])
    return Case(level, setup, optimum(setup), error, methods)
