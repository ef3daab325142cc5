# SPDX-License-Identifier: Apache-2.0
"""Figure 2 and table 5 of Unified 2023: every solver on explicit weight sharing WS2, synthetic clients."""

from __future__ import annotations

import numpy as np

from idiolect import WS2
from papers.lanes import Standing
from papers.problems import problem_loss
from papers.reproduction import Measured, Progress, Spec
from papers.unified import set_up, solver
from papers.unified_problems import logistic_weight_sharing
from papers.unified_synthetic import Case, Runner, curvature, measure_cases, optimum, paper_solvers
from papers.unified_synthetic_figure import draw as draw


def measure(spec: Spec, progress: Progress) -> Measured:
    """Weight sharing: figure 2 and table 5."""
    return measure_cases(spec, [weight_sharing(spec, float(level)) for level in spec["heterogeneity"]], progress)


def weight_sharing(spec: Spec, level: float) -> Case:
    """WS2 at one level of heterogeneity: the paper's three methods, LSGD with the released steps, and four more."""
    problem = logistic_weight_sharing(level, dtype=np.float64)
    objective = WS2(problem_loss(problem), personal_part=spec["personal_part"])
    setup = set_up(objective, problem.federation, curvature(problem))
    shrink = setup.clients**-0.5

    def error(where: Standing) -> float:
        (stored,), (own,) = where.shared.values(), where.personal.values()
        shared = ((shrink * np.asarray(stored) - problem.shared_truth) ** 2).sum()
        return float(shared + ((np.asarray(own) - problem.truth) ** 2).sum(axis=1).mean())

    methods = paper_solvers(spec, setup)
    # released: u and beta_m both step by eta, without 1/M and without rescaling: the correct method at M times the step
    released = dict(spec["lsgd"]) | {"step_size": setup.clients * spec["lsgd"]["step_size"]}
    methods["lsgd_released"] = Runner("lsgd_pfl", solver("lsgd_pfl", setup, **released), setup, spec["seeds"])
    return Case(level, setup, optimum(setup), error, methods)
